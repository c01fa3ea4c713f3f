/* file.h - whole files in, whole files out: nothing is ever half-written.
 *
 * Output goes to a temporary name beside the target, is synced and then renamed. A symbolic link
 * stays one: what it leads to is replaced. A file that is replaced keeps its permissions.
 *
 *     struct file_out out;
 *     if (file_out_open(&out, "plan.json", &err) < 0) ...     // "-" is stdout
 *     fprintf(out.f, "{}\n");
 *     if (file_out_close(&out, &err) < 0) ...                 // commits; file_out_abort drops
 */
#ifndef WEFT_FILE_H
#define WEFT_FILE_H

#include "common/err.h"

#include <stddef.h>
#include <stdio.h>

/* Reads a whole file ("-" = stdin) into a fresh NUL-terminated buffer; free() it. At most
 * max_bytes (0 = 1 GiB). Errors name the path. Returns NULL on failure. */
char *file_read(const char *path, size_t max_bytes, size_t *size, struct err *err);

/* Has everything printed on standard output so far been written? Flushes it. Returns 0 or -1. */
int file_stdout_check(struct err *err);

struct file_out {
    FILE *f;
    char *path; /* final name, NULL for stdout */
    /* name it has until it is whole; NULL for a device or pipe, written at once */
    char *temp;
};

/* Can `path` be written, as far as one can tell without doing it? For output that only comes at
 * the end of long work. Returns 0 or -1. */
int file_out_check(const char *path, struct err *err);

int file_out_open(struct file_out *out, const char *path, struct err *err);
int file_out_close(struct file_out *out, struct err *err);
void file_out_abort(struct file_out *out);

#endif
