/* weft-plan - makes plans from what people know, shows them, and converts them.
 *
 *     weft-plan -m gpt:13B --tp 8 --pp 4 --dp 4 --sp --zero 1 | weft-predict | jq .time
 *     weft-plan --show plan.json
 *
 * One plan in, made or read, and one out: as a document, in another program's form, or as a table. */
#include "plan_tool.h"

#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"

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
    {0, "optimizer", OPT_STR, "NAME", OPTIMIZER_NAMES " (adamw)", &o.words.optimizer},
    {0, "dtype", OPT_STR, "NAME", PLAN_DTYPES " (fp32)", &o.words.dtype},
    {0, "reduce", OPT_STR, "NAME", "gradients are summed in: " PLAN_DTYPES " (fp32)",
     &o.words.reduce},
    {0, "aggregate", OPT_STR, "RULE", "of replicas' gradients: " AGGREGATE_NAMES " (mean)",
     &o.words.aggregate},
    {0, "faulty", OPT_INT, "N", "replicas that may be bad under such a rule (1)",
     &o.words.faulty},
    {0, "average", OPT_STR, "HOW", "replicas train apart, and average: " AVERAGE_NAMES,
     &o.words.average},
    {0, "average-every", OPT_INT, "K", "after so many steps (1)", &o.words.average_every},
    {0, "average-axes", OPT_STR, "AXES", "of the mesh, along which they do (all)",
     &o.words.average_axes},
    {0, "overlap", OPT_FLAG, NULL, "reduce gradients while the last backward computes",
     &o.words.overlap},
    {0, "logits", OPT_INT, "K", "in so many pieces of their rows (1)", &o.words.logits},
    {0, "mesh", OPT_STR, "AXES", "instead of the words: rows:2,cols:4", &o.words.mesh},
    {0, "layout", OPT_STR, "RULES", "dims on its axes: batch:rows,heads:cols",
     &o.words.layout},
    {0, "cluster", OPT_STR, "CLUSTER", "\"node:4 gpu:8\" or a file, kept in the plan",
     &o.words.cluster},
    {0, "from", OPT_STR, "FORM",
     "read another form: aceso, megatron, torchtitan or deepspeed (these: with -m)",
     &o.from},
    {0, "to", OPT_STR, "FORM",
     "write another form: aceso, megatron, torchtitan, deepspeed, accelerate, galvatron, nnscaler",
     &o.to},
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

/* Forms that are documents are made of one, others are text; all NULL: the form is only written, or
 * only read. A configuration does not say what the model is, so the command line does. */
static const struct form {
    const char *name;
    json_t *(*from_json)(const json_t *doc, struct err *err);
    json_t *(*from_text)(const char *text, struct err *err);
    json_t *(*from_config)(const char *text, const struct plan_words *given,
                           struct err *err);
    json_t *(*to_json)(const struct plan *p, struct err *err);
    char *(*to_text)(const struct plan *p, struct err *err);
} forms[] = {
    {"aceso", .from_json = plan_from_aceso, .to_json = plan_to_aceso},
    {"megatron", .from_text = plan_from_megatron, .to_text = plan_to_megatron},
    {"torchtitan", .from_config = plan_from_torchtitan, .to_text = plan_to_torchtitan},
    {"deepspeed", .from_config = plan_from_deepspeed, .to_text = plan_to_deepspeed},
    {"accelerate", .to_text = plan_to_accelerate},
    {"galvatron", .to_text = plan_to_galvatron},
    {"nnscaler", .to_text = plan_to_nnscaler}};
enum { FORMS = sizeof forms / sizeof *forms };

static bool is_read(const struct form *f) {
    return f->from_json || f->from_text || f->from_config;
}

static const struct form *find_form(const char *name) {
    for (int i = 0; name && i < FORMS; i++)
        if (!strcmp(forms[i].name, name))
            return &forms[i];
    return NULL;
}

static int check_form(const char *option, const char *name, bool reads, struct err *err) {
    const struct form *f = find_form(name);
    char names[128] = "";
    if (!name || (f && (!reads || is_read(f))))
        return 0;
    for (int i = 0; i < FORMS; i++)
        if (!reads || is_read(&forms[i]))
            err_list(names, sizeof names, forms[i].name);
    return err_usage(err, "--%s: expected one of%s, got \"%s\"", option, names, name);
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
    if (w->aggregate && aggregate_find(w->aggregate) < 0)
        return err_usage(err, "--aggregate: expected " AGGREGATE_NAMES ", got \"%s\"",
                         w->aggregate);
    if (w->average && average_find(w->average) < 0)
        return err_usage(err, "--average: expected " AVERAGE_NAMES ", got \"%s\"",
                         w->average);
    if (w->optimizer && optimizer_find(w->optimizer) < 0)
        return err_usage(err, "--optimizer: expected " OPTIMIZER_NAMES ", got \"%s\"",
                         w->optimizer);
    return check_degrees(w, err);
}

/* What is said beside a configuration. */
static bool is_beside(const char *option) {
    static const char *const names[] = {"model", "set", "dp", "cluster", "recompute"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], option))
            return true;
    return false;
}

/* Words describe a plan that is made; one that is read has its own. */
static int check_options(int n, struct err *err) {
    if (check_form("from", o.from, true, err) < 0 || check_form("to", o.to, false, err) < 0)
        return -1;
    if (o.show && o.to)
        return err_usage(err, "--show and --to exclude each other");
    const struct form *f = find_form(o.from);
    bool config = f && f->from_config;
    if (config && !o.words.model)
        return opt_missing("-m MODEL: a configuration does not say what the model is", err);
    if (o.words.model && !config && (o.from || n))
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
        if (given && config && !is_beside(p->name))
            return err_usage(err, "--%s: that is for the configuration to say", p->name);
        made |= given;
    }
    if (check_numbers(err) < 0)
        return -1;
    return made ? check_words(&o.words, err) : 0;
}

static const char *shown(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

/* A launch line may be the operand itself: no file has a name with a flag in it. */
static bool is_line(const char *operand) {
    return !strncmp(operand, "--", 2) || strstr(operand, " --");
}

static json_t *input_text(const struct form *f, const char *path, struct err *err) {
    enum { MOST = 1 << 24 };
    size_t size;
    bool line = is_line(path);
    char *text = line ? NULL : file_read(path, MOST, &size, err);
    const char *read = line ? path : text;
    json_t *doc = !read            ? NULL
                  : f->from_config ? f->from_config(read, &o.words, err)
                                   : f->from_text(read, err);
    if (text && !doc)
        err_prefix(err, "%s", shown(path));
    free(text);
    return doc;
}

/* The plan's document: made, or read. */
static json_t *input(const char *path, struct err *err) {
    const struct form *f = find_form(o.from);
    if (f && (f->from_text || f->from_config))
        return input_text(f, path, err);
    if (o.words.model)
        return plan_make(&o.words, err);
    json_t *read = json_read(path, err);
    if (!read || !f)
        return read;
    json_t *doc = f->from_json(read, err);
    json_decref(read);
    if (!doc)
        err_prefix(err, "%s", shown(path));
    return doc;
}

/* What is written, where it is another form. */
struct output {
    json_t *doc;
    char *text;
};

/* DeepSpeed has no option that recomputes, accelerate has FSDP's: then the script has to. */
static void note_script(const struct plan *p) {
    const struct stage *st = &p->stages[0];
    bool recomputes = false, shards = false;
    for (int i = 0; i < st->n_ops; i++) {
        recomputes |= st->recompute[i];
        shards |= st->zero[i] != ZERO_NONE;
    }
    if (recomputes &&
        (!strcmp(o.to, "deepspeed") || (!strcmp(o.to, "accelerate") && !shards)))
        note("%s: no option of %s says what is recomputed: call "
             "model.gradient_checkpointing_enable() in the script",
             tool.name, o.to);
    if (!strcmp(o.to, "galvatron"))
        note("%s: its script is told of types (--mixed_precision %s) and, where tensor "
             "parallelism splits the sequence, of --sequence-parallel",
             tool.name, p->dtype == DTYPE_f32 ? "fp32" : plan_dtype_name(p->dtype));
}

static int convert(struct output *x, const struct plan *p, const char *path,
                   struct err *err) {
    const struct form *f = find_form(o.to);
    if (!f)
        return 0;
    x->doc = f->to_json ? f->to_json(p, err) : NULL;
    x->text = f->to_text ? f->to_text(p, err) : NULL;
    if (x->text)
        note_script(p);
    if (x->doc || x->text)
        return 0;
    return (o.words.model && !o.from) || is_line(path) ? -1
                                                       : err_prefix(err, "%s", shown(path));
}

static int print(json_t *doc, struct plan *p, const char *path, struct err *err) {
    struct output x = {0};
    struct file_out out;
    int rc = convert(&x, p, path, err);
    if (rc == 0 && (rc = file_out_open(&out, o.out, err)) == 0) {
        if (o.show)
            rc = plan_show(p, out.f, err);
        else if (x.text)
            fputs(x.text, out.f);
        else
            json_write(x.doc ? x.doc : doc, out.f);
        if (rc < 0)
            file_out_abort(&out);
        else
            rc = file_out_close(&out, err);
    }
    json_decref(x.doc);
    free(x.text);
    return rc;
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
