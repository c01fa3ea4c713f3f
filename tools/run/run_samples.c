/* Which samples a step has seen: those that could not be read are named and counted, and the ledger has the
 * numbers of all. */
#include "run.h"

#include "common/json.h"
#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rank 0 names them: all ranks read the same files. */
static void name_missing(const struct run_seen *s, const struct data *data) {
    for (int64_t i = s->first; i < s->first + s->count; i++) {
        struct err why = {0};
        if (data_missing(data, i, &why))
            note("weft-run: step %lld: sample %lld is left out: %s", (long long)s->step,
                 (long long)i, why.msg);
    }
}

int run_check_missing(const struct run_options *o, const struct run_seen *s,
                      const struct data *data, bool speaks, struct err *err) {
    if (!s->missing)
        return 0;
    if (speaks)
        name_missing(s, data);
    if (s->all_missing <= o->bad_samples)
        return 0;
    return err_input(
        err,
        "step %lld: %lld samples could not be read by now; --bad-samples allows "
        "%lld",
        (long long)s->step, (long long)s->all_missing, (long long)o->bad_samples);
}

/* One write for a line, so that a kill leaves whole ones. */
static int write_line(const char *path, const char *text, size_t n, struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    ssize_t wrote = fd < 0 ? -1 : write(fd, text, n);
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (wrote == (ssize_t)n)
        return 0;
    return err_system(err, "--ledger: %s: %s", path,
                      wrote < 0 ? strerror(why) : "a line was cut short");
}

int run_write_ledger(const char *path, const struct run_seen *s, int ranks,
                     const struct data *data, struct err *err) {
    json_t *numbers = json_array(), *missing = json_array();
    for (int64_t i = s->first; i < s->first + s->count; i++) {
        json_array_append_new(numbers, json_integer(data_number(data, DATA_TRAIN, i)));
        if (s->missing && data_missing(data, i, NULL))
            json_array_append_new(missing, json_integer(i));
    }
    json_t *line = json_pack("{s:I, s:I, s:i, s:o, s:o}", "step", (json_int_t)s->step,
                             "sample", (json_int_t)s->first, "ranks", ranks, "numbers",
                             numbers, "missing", missing);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f) {
        json_write_line(line, f);
        fclose(f);
    }
    int rc = f ? write_line(path, text, n, err) : err_system(err, "memory is full");
    json_decref(line);
    free(text);
    return rc;
}
