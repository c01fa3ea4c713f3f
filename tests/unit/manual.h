/* manual.h - tables of the manual that the code knows.
 *
 * What stands between the lines `.\" table` and `.\" end of table` of a page is compared with what
 * the code has to say; "update" writes it anew (make update-manual). */
#ifndef WEFT_MANUAL_H
#define WEFT_MANUAL_H

#include "common/file.h"
#include "tap.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char begin_mark[] = ".\\\" table\n", end_mark[] = ".\\\" end of table\n";

enum { COLUMNS = 79 };

/* A sentence in lines of the manual's width, from a new line on. */
__attribute__((format(printf, 2, 3))) static void sentence(FILE *f, const char *format,
                                                           ...) {
    char text[1024], *p = text;
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    for (int at = 0; *p;) {
        int n = (int)strcspn(p, " ");
        bool fits = at + 1 + n <= COLUMNS;
        fprintf(f, "%s%.*s", !at ? "" : fits ? " " : "\n", n, p);
        at = at && fits ? at + 1 + n : n;
        p += n + (p[n] == ' ');
    }
    fputc('\n', f);
}

/* Each sentence on a line of its own, as mandoc(1) wants them. */
__attribute__((unused)) static void sentences(FILE *f, const char *about) {
    for (const char *dot; *about; about = dot) {
        dot = strstr(about, ". ");
        dot = dot ? dot + 1 : about + strlen(about);
        sentence(f, "%.*s", (int)(dot - about), about);
        dot += strspn(dot, " ");
    }
}

/* The page with the table of today; NULL if it has no place for one. */
static char *with_table(const char *page, void (*table)(FILE *f)) {
    const char *begin = strstr(page, begin_mark), *end = strstr(page, end_mark);
    if (!begin || !end || end < begin)
        return NULL;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "%.*s%s", (int)(begin - page), page, begin_mark);
    table(f);
    fputs(end, f);
    fclose(f);
    return text;
}

/* The first line in which two texts differ. */
static void print_difference(const char *a, const char *b) {
    int line = 1;
    while (*a && strcspn(a, "\n") == strcspn(b, "\n") &&
           !strncmp(a, b, strcspn(a, "\n") + 1)) {
        a += strcspn(a, "\n") + 1;
        b += strcspn(b, "\n") + 1;
        line++;
    }
    printf("# line %d\n# page: %.*s\n# code: %.*s\n", line, (int)strcspn(a, "\n"), a,
           (int)strcspn(b, "\n"), b);
}

static void check_page(const char *path, void (*table)(FILE *f), bool update) {
    struct err err = {0};
    size_t n;
    char *page = file_read(path, 0, &n, &err),
         *want = page ? with_table(page, table) : NULL;
    bool good = want && !strcmp(page, want);
    if (want && !good && update) {
        struct file_out out;
        good = file_out_open(&out, path, &err) == 0 && fputs(want, out.f) >= 0 &&
               file_out_close(&out, &err) == 0;
    } else if (want && !good) {
        print_difference(page, want);
    }
    ok(good, "%s: its table is the code's%s%s", path, good ? "" : " (make update-manual) ",
       err.msg);
    free(page);
    free(want);
}

#endif
