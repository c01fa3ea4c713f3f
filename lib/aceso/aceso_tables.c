/* Reads the CSV files of Aceso's profilers, and looks numbers up in them. The names of the
 * files tell which sizes were measured. */
#include "aceso/aceso_tables.h"

#include "common/file.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 9, MOST_BYTES = 64 << 20 };

/* A file that is read line by line. */
struct csv {
    char path[1024];
    char *text, *at;
    int line;
};

static int csv_open(struct csv *f, const char *dir, const char *file, struct err *err) {
    *f = (struct csv){0};
    snprintf(f->path, sizeof f->path, "%s/%s", dir, file);
    f->text = f->at = file_read(f->path, MOST_BYTES, NULL, err);
    return f->text ? 0 : -1;
}

/* Splits the next line that is not empty into fields, in place. Returns how many there are,
 * 0 at the end of the file. */
static int csv_next(struct csv *f, char **fields, int most) {
    int n = 0;
    while (f->at && !n) {
        char *line = f->at, *end = strchr(line, '\n');
        f->at = end ? end + 1 : NULL;
        f->line++;
        if (end)
            *end = '\0';
        line[strcspn(line, "\r")] = '\0';
        for (char *s = line; *line && s && n < most; n++) {
            fields[n] = s;
            s = strchr(s, ',');
            if (s)
                *s++ = '\0';
        }
    }
    return n;
}

static int csv_number(const struct csv *f, const char *field, double *out,
                      struct err *err) {
    char *end;
    *out = strtod(field, &end);
    if (end == field || *end || !isfinite(*out) || *out < 0)
        return err_input(err, "%s: line %d: expected a number, got \"%.32s\"", f->path,
                         f->line, field);
    return 0;
}

/* ---- op tables ------------------------------------------------------------------------- */

static struct aceso_row *find_row(struct aceso_tables *t, const char *name) {
    for (int i = 0; i < t->n_rows; i++)
        if (!strcmp(t->rows[i].name, name))
            return &t->rows[i];
    return NULL;
}

static int read_cell(const struct csv *f, char **fields, struct aceso_cell *out,
                     struct err *err) {
    double *to[] = {&out->forward,          &out->backward,         &out->input,
                    &out->output,           &out->weights,          &out->activations,
                    &out->reserved_forward, &out->reserved_backward};
    for (int i = 0; i < MOST_FIELDS - 1; i++)
        if (csv_number(f, fields[i + 1], to[i], err) < 0)
            return -1;
    out->known = true;
    return 0;
}

/* Reads an op table. The first one lists the ops, and all others must have the same. */
static int read_ops(const char *dir, const char *file, struct aceso_tables *t, int mbs,
                    int tp, int algorithm, struct err *err) {
    struct csv f;
    char *fields[MOST_FIELDS];
    bool first = !t->n_rows;
    int rc = csv_open(&f, dir, file, err), n;
    csv_next(&f, fields, MOST_FIELDS); /* the header */
    while (rc == 0 && (n = csv_next(&f, fields, MOST_FIELDS))) {
        struct aceso_row *row = find_row(t, fields[0]);
        if (n != MOST_FIELDS)
            rc = err_input(err, "%s: line %d: expected %d columns, got %d", f.path, f.line,
                           MOST_FIELDS, n);
        else if (first && row)
            rc = err_input(err, "%s: line %d: %s was there before", f.path, f.line,
                           fields[0]);
        else if (!first && !row)
            rc = err_input(err, "%s: line %d: %s is not in the other tables", f.path,
                           f.line, fields[0]);
        if (rc < 0)
            break;
        if (first) {
            t->rows = mem_grow(t->rows, (size_t)t->n_rows + 1, sizeof *t->rows);
            row = &t->rows[t->n_rows++];
            memset(row, 0, sizeof *row);
            row->name = mem_strdup(fields[0]);
        }
        rc = read_cell(&f, fields, &row->cells[mbs][tp][algorithm], err);
    }
    free(f.text);
    return rc;
}

/* ---- which sizes there are ----------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Lists the micro-batch sizes of the op tables of this name. */
static int find_sizes(const char *dir, const char *name, struct aceso_tables *t,
                      struct err *err) {
    DIR *d = opendir(dir);
    if (!d)
        return err_input(err, "%s: cannot be read as a folder", dir);
    size_t length = strlen(name);
    for (struct dirent *e; (e = readdir(d));) {
        long long mbs;
        int tp, algorithm, end = 0, i = 0;
        if (strncmp(e->d_name, name, length) != 0 ||
            sscanf(e->d_name + length, "_mbs%lld_tp%d_algo%d.csv%n", &mbs, &tp, &algorithm,
                   &end) != 3 ||
            !end || e->d_name[length + (size_t)end] || mbs < 1 || mbs > 1 << 20)
            continue;
        while (i < t->n_mbs && t->mbs[i] != mbs)
            i++;
        if (i == t->n_mbs && i < ACESO_MOST_MBS)
            t->mbs[t->n_mbs++] = mbs;
    }
    closedir(d);
    qsort(t->mbs, (size_t)t->n_mbs, sizeof *t->mbs, by_number);
    if (!t->n_mbs)
        return err_input(err, "%s: no tables %s_mbs*_tp*_algo*.csv", dir, name);
    return 0;
}

static bool exists(const char *dir, const char *file) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "r");
    if (f)
        fclose(f);
    return f != NULL;
}

static int read_all_ops(const char *dir, const char *name, struct aceso_tables *t,
                        struct err *err) {
    for (int m = 0; m < t->n_mbs; m++)
        for (int tp = 0; tp < ACESO_MOST_TP; tp++)
            for (int a = 0; a < ACESO_ALGORITHMS; a++) {
                char file[256];
                snprintf(file, sizeof file, "%s_mbs%lld_tp%d_algo%d.csv", name,
                         (long long)t->mbs[m], 1 << tp, a);
                if (!exists(dir, file))
                    continue;
                if (read_ops(dir, file, t, m, tp, a, err) < 0)
                    return -1;
                t->n_tp = tp + 1 > t->n_tp ? tp + 1 : t->n_tp;
            }
    return 0;
}

/* ---- collectives and messages ----------------------------------------------------------- */

/* Compares entries by their size, which is their first member. */
static int by_mib(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int read_collective(const char *dir, const char *file, struct aceso_times *out,
                           struct err *err) {
    struct csv f;
    char *fields[MOST_FIELDS];
    int rc = csv_open(&f, dir, file, err), n;
    csv_next(&f, fields, MOST_FIELDS);
    while (rc == 0 && (n = csv_next(&f, fields, MOST_FIELDS))) {
        double mib, ms;
        if (n != 2)
            rc = err_input(err, "%s: line %d: expected 2 columns, got %d", f.path, f.line,
                           n);
        else if (csv_number(&f, fields[0], &mib, err) < 0 ||
                 csv_number(&f, fields[1], &ms, err) < 0)
            rc = -1;
        else
            arr_push(&out->all, (struct aceso_time){(int64_t)mib, ms});
    }
    free(f.text);
    if (out->all.n)
        qsort(out->all.p, (size_t)out->all.n, sizeof *out->all.p, by_mib);
    return rc;
}

static int read_collectives(const char *dir, const char *name, struct aceso_tables *t,
                            struct err *err) {
    static const char *const names[] = {
#define X(id) #id,
        ACESO_COLLECTIVES(X)
#undef X
    };
    for (int c = 0; c < ACESO_COLLECTIVE_COUNT; c++)
        for (int n = 1; n < ACESO_MOST_TP; n++) {
            char file[256];
            snprintf(file, sizeof file, "prim_%s_%s_%dgpus.csv", name, names[c], 1 << n);
            if (exists(dir, file) &&
                read_collective(dir, file, &t->collectives[c][n], err) < 0)
                return -1;
        }
    return 0;
}

/* Reads bandwidths from the second line of a file, in GB/s. */
static int read_bandwidth(const char *dir, const char *file, struct aceso_bandwidths *out,
                          struct err *err) {
    struct csv f;
    char *fields[ACESO_MOST_BANDWIDTHS];
    if (csv_open(&f, dir, file, err) < 0)
        return -1;
    csv_next(&f, fields, ACESO_MOST_BANDWIDTHS);
    out->n = csv_next(&f, fields, ACESO_MOST_BANDWIDTHS);
    int rc = out->n ? 0 : err_input(err, "%s: expected a second line, of GB/s", f.path);
    for (int i = 0; i < out->n && rc == 0; i++) {
        rc = csv_number(&f, fields[i], &out->gb_per_s[i], err);
        if (rc == 0 && out->gb_per_s[i] <= 0)
            rc = err_input(err, "%s: line %d: expected GB/s above 0", f.path, f.line);
    }
    free(f.text);
    return rc;
}

/* Where the bandwidth between nodes was not measured, Aceso uses the one within a node. */
static int read_bandwidths(const char *dir, struct aceso_tables *t, struct err *err) {
    if (read_bandwidth(dir, "p2p_intra_node.csv", &t->inside, err) < 0)
        return -1;
    t->between = t->inside;
    return exists(dir, "p2p_inter_node.csv")
               ? read_bandwidth(dir, "p2p_inter_node.csv", &t->between, err)
               : 0;
}

int aceso_tables_read(const char *dir, const char *name, bool collectives,
                      struct aceso_tables *out, struct err *err) {
    *out = (struct aceso_tables){0};
    if (find_sizes(dir, name, out, err) < 0 || read_all_ops(dir, name, out, err) < 0 ||
        (collectives && read_collectives(dir, name, out, err) < 0) ||
        read_bandwidths(dir, out, err) < 0)
        return -1;
    return out->n_rows ? 0 : err_input(err, "%s: %s: the tables are empty", dir, name);
}

void aceso_tables_release(struct aceso_tables *t) {
    for (int i = 0; i < t->n_rows; i++)
        free(t->rows[i].name);
    free(t->rows);
    for (int c = 0; c < ACESO_COLLECTIVE_COUNT; c++)
        for (int n = 0; n < ACESO_MOST_TP; n++)
            arr_release(&t->collectives[c][n].all);
    *t = (struct aceso_tables){0};
}

/* ---- lookups -------------------------------------------------------------------------------- */

const struct aceso_cell *aceso_cell_find(const struct aceso_tables *t, int row, int64_t mbs,
                                         int tp, int algorithm) {
    int m = 0, k = 0;
    while (m < t->n_mbs && t->mbs[m] != mbs)
        m++;
    while (k < t->n_tp && 1 << k != tp)
        k++;
    if (m == t->n_mbs || k == t->n_tp)
        return NULL;
    const struct aceso_cell *c = &t->rows[row].cells[m][k][algorithm];
    return c->known ? c : NULL;
}

/* Returns the milliseconds of a collective of exactly that size, or NULL. */
static const double *find_ms(const struct aceso_times *times, int64_t mib) {
    int64_t lo = 0, hi = times->all.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (times->all.p[mid].mib < mib)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < times->all.n && times->all.p[lo].mib == mib ? &times->all.p[lo].ms : NULL;
}

/* Sizes are rounded as Python prints them. If that size was not measured, one MiB less is
 * tried. */
double aceso_collective_us(const struct aceso_tables *t, enum aceso_collective c,
                           int devices, double mib) {
    enum { MISS_US = 100000 * 1000 };
    if (c == ACESO_split)
        return 0;
    int k = 0;
    while (k < ACESO_MOST_TP && 1 << k != devices)
        k++;
    for (int less = 0; less < 2 && k < ACESO_MOST_TP; less++) {
        char text[64];
        snprintf(text, sizeof text, "%.0f", mib - less);
        const double *ms = find_ms(&t->collectives[c][k], strtoll(text, NULL, 10));
        if (ms)
            return *ms * 1000;
    }
    return MISS_US;
}

/* Aceso uses the bandwidth of half the largest power of two within the size, and of 1 MiB
 * at least. From half a MiB down the index is negative, which in Python counts from the end
 * of the list. */
double aceso_message_us(const struct aceso_tables *t, double mib, bool between_nodes) {
    const struct aceso_bandwidths *b = between_nodes ? &t->between : &t->inside;
    if (mib <= 0)
        return 0;
    int i = (int)(log(mib) / log(2));
    i -= i >= 1;
    i = i < -b->n ? 0 : i < 0 ? b->n + i : i >= b->n ? b->n - 1 : i;
    return mib / (b->gb_per_s[i] * 0.001);
}
