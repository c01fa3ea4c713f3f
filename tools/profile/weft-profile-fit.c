/* weft-profile-fit - a device model out of measured times.
 *
 *     weft-profile-fit -p profile.db --like h100 -o mine.json
 *     weft-profile-fit -p profile.db --like h100 --text
 *
 * What the profile holds of one device kind becomes curves, each of which begins with that of a
 * like device. */
#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"
#include "common/text.h"
#include "cost/cost.h"
#include "cost/device_fit.h"
#include "cost/link_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *profile, *device, *like, *name, *check, *cluster, *output;
    bool text;
};

static int parse(struct options *o, int argc, char **argv, struct err *err) {
    *o = (struct options){.output = "-"};
    const struct opt options[] = {
        {'p', "profile", OPT_STR, "FILE", "the profile database", &o->profile},
        {0, "device", OPT_STR, "KIND", "device kind (the profile's only one)", &o->device},
        {0, "like", OPT_STR, "DEVICE",
         "device model to begin with: a name or a file (that of the kind)", &o->like},
        {0, "name", OPT_STR, "NAME", "name of the new model (the kind)", &o->name},
        {0, "check", OPT_STR, "FILE",
         "how many rows of another profile lie within the bounds of the model", &o->check},
        {0, "cluster", OPT_STR, "CLUSTER",
         "--check as weft-predict would answer on this cluster, collectives too",
         &o->cluster},
        {0, "text", OPT_FLAG, NULL, "a table of errors instead of the model", &o->text},
        {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output",
         &o->output},
        {0},
    };
    const struct opt_tool tool = {"weft-profile-fit", "-p FILE [options]",
                                  "Fit a device model to a profile.", options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n < 0)
        return -1;
    if (n > 0)
        return opt_no_operand(argv[0], err);
    if (o->cluster && !o->check)
        return err_usage(err, "--cluster: only with --check FILE");
    if (o->check && o->text && !o->cluster)
        return err_usage(err, "--check --text: expected --cluster CLUSTER, too");
    return o->profile ? 0 : opt_missing("-p FILE", err);
}

/* ---- the table --------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median, what four of five keep to, and the mean with its sign, of logarithms; in percent. */
struct errors {
    double median, most, bias;
};

static struct errors held_out(const struct chip *chip, const struct device_rows *r,
                              const struct curve *prior, bool near) {
    int64_t n = r->list.n;
    double *off = mem_array((size_t)n, sizeof *off), sum = 0;
    curve_held_out(chip, r->list.p, n, prior, near, off);
    for (int64_t i = 0; i < n; i++) {
        sum += off[i];
        off[i] = fabs(off[i]);
    }
    qsort(off, (size_t)n, sizeof *off, by_size);
    struct errors e = {100 * expm1(off[n / 2]), 100 * expm1(off[(n * 4) / 5]),
                       100 * expm1(sum / (double)n)};
    free(off);
    return e;
}

/* Rows of one instruction that the curve was not fitted to: how far off they are. */
static void print_op(const struct device_fit *f, const struct device_model *before,
                     enum opcode code, enum dtype dtype, FILE *out) {
    const struct device_rows *r = device_fit_rows(f, code, dtype);
    const struct curve *prior = &device_model_curve(before, code, dtype)->curve;
    struct errors e = held_out(&before->chip, r, prior, false),
                  near = held_out(&before->chip, r, prior, true);
    char name[96];
    fprintf(out, "%-26s %6lld %9.1f %9.1f %9.1f %9.1f %9.1f\n",
            instr_name_format(code, dtype, name, sizeof name), (long long)r->list.n,
            e.median, e.most, e.bias, near.median, near.most);
}

static void print_table(const struct device_fit *f, const struct device_model *before,
                        FILE *out) {
    fprintf(out, "%-26s %6s %9s %9s %9s %9s %9s\n", "instruction", "rows", "median %",
            "80 %", "bias %", "beside %", "80 %");
    for (int code = 0; code < OPCODE_COUNT; code++)
        for (int t = 0; t < CLUSTER_DTYPES; t++)
            if (device_fit_rows(f, (enum opcode)code, (enum dtype)t)->list.n)
                print_op(f, before, (enum opcode)code, (enum dtype)t, out);
}

/* ---- fitting ----------------------------------------------------------------------- */

static struct profile_times *load(const char *path, const struct options *o,
                                  struct err *err) {
    struct profile *db = profile_open(path, false, err);
    struct profile_times *t = db ? profile_load(db, o->device, err) : NULL;
    profile_close(db);
    return t;
}

static int64_t count_rows(const struct device_fit *f) {
    int64_t n = 0;
    for (int i = 0; i < OPCODE_COUNT * CLUSTER_DTYPES; i++)
        n += f->ops[i].list.n;
    return n;
}

/* Of which there are rows, but fewer than the curve has parameters. */
static void list_few(const struct device_fit *f) {
    char name[96];
    for (int code = 0; code < OPCODE_COUNT; code++)
        for (int t = 0; t < CLUSTER_DTYPES; t++) {
            int64_t n = device_fit_rows(f, (enum opcode)code, (enum dtype)t)->list.n;
            int least = curve_least_rows(curve_form_of((enum opcode)code));
            if (n && n < least)
                note_verbose(
                    "%s: %lld rows, %lld too few for a curve of their own",
                    instr_name_format((enum opcode)code, (enum dtype)t, name, sizeof name),
                    (long long)n, (long long)(least - n));
        }
}

static int check_rows(const struct device_fit *f, const struct options *o,
                      struct err *err) {
    int64_t n = count_rows(f), least = curve_least_rows(CURVE_MOVE);
    if (n >= least)
        return list_few(f), 0;
    char *word = text_shell_word(o->profile);
    err_input(err, "%s: %lld measured rows of instructions, %lld too few for a fit",
              o->profile, (long long)n, (long long)(least - n));
    err_hint(err, "measure more with: weft-profile-op -m MODEL -p %s", word);
    free(word);
    return -1;
}

static void print_inside(int64_t inside, int64_t rows, FILE *out) {
    json_t *doc =
        json_pack("{s:I,s:I}", "inside", (json_int_t)inside, "rows", (json_int_t)rows);
    json_write_line(doc, out);
    json_decref(doc);
}

/* ---- answers beside another profile's rows ------------------------------------------- */

struct check {
    const struct cost_provider *provider;
    struct cluster cluster;
    FILE *text; /* gets a line a row; NULL: they are counted only */
    int64_t rows, inside;
};

static void check_row(struct check *c, const struct cost_key *key, double us,
                      struct cost_time t) {
    char name[160];
    if (t.from == COST_UNKNOWN)
        return;
    c->rows++;
    c->inside += us >= t.low_us && us <= t.high_us;
    if (c->text)
        fprintf(c->text, "%12.3f %12.3f %8.1f  %s\n", us, t.us,
                100 * (t.high_us / t.us - 1), cost_key_format(key, name, sizeof name));
}

static void check_op(void *ctx, const struct instr_key *key, double us) {
    struct check *c = ctx;
    if (us <= 0)
        return;
    check_row(c, &(struct cost_key){.instr = *key}, us,
              c->provider->kind->op(c->provider, &(struct op_question){.key = key}));
}

static void check_comm(void *ctx, const struct profile_comm_row *r) {
    struct check *c = ctx;
    struct comm_question q = {
        .code = r->code,
        .size = r->size,
        .stride = r->stride,
        .bytes = r->bytes,
        .link = link_fit_class(&c->cluster, r->code, r->size, r->stride, r->cross)};
    struct cost_key key = {.instr = {.code = r->code},
                           .comm = {r->size, r->stride, r->cross, r->bytes}};
    if (q.link.level && q.link.cross == r->cross && r->us > 0)
        check_row(c, &key, r->us, c->provider->kind->collective(c->provider, &q));
}

/* What weft-predict would say of each row, which curves and the rows beside it answer. */
static int check_answers(const struct options *o, FILE *out, struct err *err) {
    struct check c = {.text = o->text ? out : NULL};
    if (cluster_read(&c.cluster, o->cluster, err) < 0)
        return -1;
    struct profile_times *other = load(o->check, o, err),
                         *mine = other ? load(o->profile, o, err) : NULL;
    struct cost_provider *p = mine ? provider_fit(&mine, 1, &c.cluster, err) : NULL;
    c.provider = p;
    if (o->text && p)
        fprintf(out, "%12s %12s %8s  %s\n", "measured us", "predicted", "within %", "row");
    if (p) {
        profile_each_op(other, check_op, &c);
        profile_each_comm(other, check_comm, &c);
        if (!o->text)
            print_inside(c.inside, c.rows, out);
    }
    provider_destroy(p);
    profile_times_destroy(mine);
    profile_times_destroy(other);
    return p ? 0 : -1;
}

/* Rows of another profile, and those of them that the curves' bounds hold. */
static int check_other(const struct options *o, struct device_model *m, FILE *out,
                       struct err *err) {
    struct profile_times *times = load(o->check, o, err);
    struct device_fit other;
    int64_t inside = 0;
    if (!times)
        return -1;
    device_fit_init(&other, times);
    for (int i = 0; i < OPCODE_COUNT * CLUSTER_DTYPES; i++) {
        const struct device_curve *c = device_model_curve(
            m, (enum opcode)(i / CLUSTER_DTYPES), (enum dtype)(i % CLUSTER_DTYPES));
        for (int64_t k = 0; k < other.ops[i].list.n; k++) {
            const struct curve_row *r = &other.ops[i].list.p[k];
            double off = fabs(log(r->us / curve_us(&m->chip, &c->curve, &r->shape)));
            inside += off <= log1p(c->curve.within);
        }
    }
    print_inside(inside, count_rows(&other), out);
    device_fit_release(&other);
    profile_times_destroy(times);
    return 0;
}

static int write_result(const struct options *o, const struct device_fit *f,
                        struct device_model *m, const char *kind, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, o->output, err) < 0)
        return -1;
    if (o->text && !o->check) {
        print_table(f, m, out.f);
        return file_out_close(&out, err);
    }
    device_fit_all(f, m);
    if (o->check) {
        if (check_other(o, m, out.f, err) == 0)
            return file_out_close(&out, err);
        file_out_abort(&out);
        return -1;
    }
    snprintf(m->name, sizeof m->name, "%.63s", o->name ? o->name : kind);
    json_t *doc = device_model_to_json(m);
    json_write(doc, out.f);
    json_decref(doc);
    return file_out_close(&out, err);
}

static int write_answers(const struct options *o, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, o->output, err) < 0)
        return -1;
    if (check_answers(o, out.f, err) == 0)
        return file_out_close(&out, err);
    file_out_abort(&out);
    return -1;
}

static int run(const struct options *o, struct err *err) {
    struct profile_times *times = load(o->profile, o, err);
    if (!times)
        return -1;
    const char *kind = profile_times_device(times);
    struct device_model *m = device_model_read(o->like ? o->like : kind, err);
    if (!m && !o->like)
        err_hint(err, "--like DEVICE takes the datasheet and the curves of a like device");
    struct device_fit fit = {0};
    device_fit_init(&fit, times);
    int rc = m ? check_rows(&fit, o, err) : -1;
    double start = now_s();
    if (rc == 0)
        rc = write_result(o, &fit, m, kind, err);
    note_verbose("weft-profile-fit: %lld rows in %.2f s", (long long)count_rows(&fit),
                 now_s() - start);
    device_fit_release(&fit);
    device_model_destroy(m);
    profile_times_destroy(times);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct options o;
    int rc = parse(&o, argc, argv, &err);
    if (rc == 0)
        rc = o.cluster ? write_answers(&o, &err) : run(&o, &err);
    return rc < 0 ? err_report(&err, "weft-profile-fit") : EXIT_DONE;
}
