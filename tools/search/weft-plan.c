/* weft-plan - makes plans from what people know, shows them, and converts them.
 *
 *     weft-plan -m gpt:13B --tp 8 --pp 4 --dp 4 --sp --zero 1 | weft-predict | jq .time
 *     weft-plan --show plan.json
 *
 * One plan in, made or read, and one out: as a document, in another program's form, or as a table. */
#include "plan_tool.h"

#include "common/file.h"
#include "common/opt.h"

#include <stdlib.h>
#include <string.h>

static struct {
    struct plan_words words;
    const char *from, *to, *out;
    bool show;
} o = {.out = "-"};

static const struct opt options[] = {
    {'m', "model", OPT_STR, "MODEL", "make a plan: gpt:1.3B, or a file", &o.words.model},
    {0, "set", OPT_LIST, "LIST", "sizes changed: layers=4,hidden=1024", &o.words.set},
    {'b', "global-batch", OPT_INT, "N", "samples per step (4 micro-batches a stage)",
     &o.words.batch},
    {0, "micro-batch", OPT_INT, "N", "samples at once, of all replicas (one of each)",
     &o.words.micro_batch},
    {0, "dp", OPT_INT, "N", "data parallel: replicas (1)", &o.words.dp},
    {0, "tp", OPT_INT, "N", "tensor parallel (1)", &o.words.tp},
    {0, "pp", OPT_INT, "N", "pipeline stages (1)", &o.words.pp},
    {0, "chunks", OPT_INT, "N", "interleaved: stages of each --pp (1)", &o.words.chunks},
    {0, "cp", OPT_INT, "N", "context parallel (1)", &o.words.cp},
    {0, "ring", OPT_FLAG, NULL, "keys and values go round instead of being gathered",
     &o.words.ring},
    {0, "ep", OPT_INT, "N", "expert parallel, a divisor of --dp (1)", &o.words.ep},
    {0, "sp", OPT_FLAG, NULL, "sequence parallel over the devices of --tp", &o.words.sp},
    {0, "zero", OPT_INT, "N",
     "what replicas share out: 1 optimizer, 2 gradients, 3 parameters (0)", &o.words.zero},
    {0, "recompute", OPT_STR, "WHAT", "none, selective or full (none)", &o.words.recompute},
    {0, "offload", OPT_STR, "LIST",
     "kept by the host: optimizer, parameters, activations (none)", &o.words.offload},
    {0, "schedule", OPT_STR, "NAME", SCHEDULE_HELP("1f1b"), &o.words.schedule},
    {0, "optimizer", OPT_STR, "NAME", "adamw or sgd (adamw)", &o.words.optimizer},
    {0, "dtype", OPT_STR, "NAME", PLAN_DTYPES " (fp32)", &o.words.dtype},
    {0, "reduce", OPT_STR, "NAME", "gradients are summed in: " PLAN_DTYPES " (fp32)",
     &o.words.reduce},
    {0, "overlap", OPT_FLAG, NULL, "reduce gradients while the last backward computes",
     &o.words.overlap},
    {0, "mesh", OPT_STR, "AXES", "instead of the words: rows:2,cols:4", &o.words.mesh},
    {0, "layout", OPT_STR, "RULES", "dims on its axes: batch:rows,heads:cols",
     &o.words.layout},
    {0, "cluster", OPT_STR, "CLUSTER", "\"node:4 gpu:8\" or a file, kept in the plan",
     &o.words.cluster},
    {0, "from", OPT_STR, "FORM", "read another form: aceso", &o.from},
    {0, "to", OPT_STR, "FORM", "write another form: aceso", &o.to},
    {0, "show", OPT_FLAG, NULL, "a table for people instead of a document", &o.show},
    {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output", &o.out},
    {0}};

static const struct opt_tool tool = {"weft-plan", "-m MODEL [options] | [options] [FILE]",
                                     "Make, show and convert plans.", options};

/* What the command line does not say of a number, until check_numbers. */
enum { NOT_GIVEN = -1 };

static void forget_numbers(void) {
    for (const struct opt *p = options; p->name; p++)
        if (p->type == OPT_INT)
            *(int64_t *)p->value = NOT_GIVEN;
}

/* No number but the level of ZeRO may be zero: to plan_words that is nothing, which is something else
 * than what was said. */
static int check_numbers(struct err *err) {
    for (const struct opt *p = options; p->name; p++) {
        if (p->type != OPT_INT)
            continue;
        int64_t *value = p->value;
        if (*value == 0 && value != &o.words.zero)
            return err_usage(err, "--%s: expected at least 1, got 0", p->name);
        if (*value == NOT_GIVEN)
            *value = 0;
    }
    return 0;
}

static int check_form(const char *option, const char *form, struct err *err) {
    return form && strcmp(form, "aceso") != 0
               ? err_usage(err, "--%s: expected aceso, got \"%s\"", option, form)
               : 0;
}

static int check_degrees(const struct plan_words *w, struct err *err) {
    const struct {
        const char *name;
        int64_t value;
    } degrees[] = {
        {"dp", w->dp}, {"tp", w->tp}, {"pp", w->pp}, {"cp", w->cp}, {"ep", w->ep}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        if (degrees[i].value > 1 << 20)
            return err_usage(err, "--%s: %lld is more than 2^20", degrees[i].name,
                             (long long)degrees[i].value);
        if (w->mesh && degrees[i].value && strcmp(degrees[i].name, "pp") != 0)
            return err_usage(err, "--mesh and --%s exclude each other", degrees[i].name);
    }
    if (w->chunks > 1 && w->pp < 2)
        return err_usage(err, "--chunks: expected --pp of 2 or more");
    if (w->chunks > 1 << 10)
        return err_usage(err, "--chunks: %lld is more than 2^10", (long long)w->chunks);
    if (w->mesh && w->sp)
        return err_usage(err, "--mesh and --sp exclude each other");
    if (w->ring && w->cp < 2 && !w->mesh)
        return err_usage(err, "--ring: expected --cp of 2 or more, or --mesh");
    if (w->layout && !w->mesh)
        return err_usage(err, "--layout: expected --mesh, on whose axes dims are split");
    return 0;
}

static int check_words(const struct plan_words *w, struct err *err) {
    static const char *const recompute[] = {"none", "selective", "full", "all"};
    int known = !w->recompute;
    for (size_t i = 0; i < sizeof recompute / sizeof *recompute; i++)
        known |= w->recompute && !strcmp(w->recompute, recompute[i]);
    if (!known)
        return err_usage(err, "--recompute: expected none, selective or full, got \"%s\"",
                         w->recompute);
    if (w->reduce && plan_dtype_find(w->reduce) < 0)
        return err_usage(err, "--reduce: expected " PLAN_DTYPES ", got \"%s\"", w->reduce);
    if (w->dtype && plan_dtype_find(w->dtype) < 0)
        return err_usage(err, "--dtype: expected " PLAN_DTYPES ", got \"%s\"", w->dtype);
    if (w->optimizer && optimizer_find(w->optimizer) < 0)
        return err_usage(err, "--optimizer: expected adamw or sgd, got \"%s\"",
                         w->optimizer);
    return check_degrees(w, err);
}

/* Words describe a plan that is made; one that is read has its own. */
static int check_options(int n, struct err *err) {
    if (check_form("from", o.from, err) < 0 || check_form("to", o.to, err) < 0)
        return -1;
    if (o.show && o.to)
        return err_usage(err, "--show and --to exclude each other");
    if (o.words.model && (o.from || n))
        return err_usage(err, "-m makes a plan, so no %s",
                         o.from ? "--from" : "plan is read");
    if (n > 1)
        return err_usage(err, "expected one file, got %d operands", n);
    bool made = false;
    for (const struct opt *p = options; p->name && strcmp(p->name, "from") != 0; p++) {
        char value[64];
        opt_format(p, value, sizeof value);
        bool given = strcmp(value, "not given") != 0;
        if (given && !o.words.model && strcmp(p->name, "model") != 0)
            return err_usage(err, "--%s: only with -m MODEL, which makes a plan", p->name);
        made |= given;
    }
    if (check_numbers(err) < 0)
        return -1;
    return made ? check_words(&o.words, err) : 0;
}

static const char *shown(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

/* The plan's document: made, or read. */
static json_t *input(const char *path, struct err *err) {
    if (o.words.model)
        return plan_make(&o.words, err);
    json_t *read = json_read(path, err);
    if (!read || !o.from)
        return read;
    json_t *doc = plan_from_aceso(read, err);
    json_decref(read);
    if (!doc)
        err_prefix(err, "%s", shown(path));
    return doc;
}

static int print(json_t *doc, struct plan *p, const char *path, struct err *err) {
    json_t *other = o.to ? plan_to_aceso(p, err) : NULL;
    if (o.to && !other)
        return o.words.model ? -1 : err_prefix(err, "%s", shown(path));
    struct file_out out;
    if (file_out_open(&out, o.out, err) < 0) {
        json_decref(other);
        return -1;
    }
    int rc = 0;
    if (o.show)
        rc = plan_show(p, out.f, err);
    else
        json_write(other ? other : doc, out.f);
    json_decref(other);
    if (rc < 0)
        file_out_abort(&out);
    return rc < 0 ? -1 : file_out_close(&out, err);
}

static int run(const char *path, struct err *err) {
    json_t *doc = input(path, err);
    struct plan *p = doc ? plan_from_json(doc, err) : NULL;
    if (doc && !p)
        err_prefix(err, "%s", shown(path));
    int rc = p ? print(doc, p, path, err) : -1;
    plan_destroy(p);
    json_decref(doc);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    forget_numbers();
    int n = opt_parse(&tool, argc, argv, &err);
    int rc = n >= 0 && check_options(n, &err) == 0 ? run(n ? argv[0] : "-", &err) : -1;
    free(o.words.set);
    return rc == 0 ? EXIT_DONE : err_report(&err, tool.name);
}
