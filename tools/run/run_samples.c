/* Which samples a step has seen: those that could not be read are named and counted, and the ledger has the
 * numbers of all. */
#include "run.h"

#include "common/progress.h"

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
    int rc = run_append_line("--ledger", path, line, err);
    json_decref(line);
    return rc;
}
