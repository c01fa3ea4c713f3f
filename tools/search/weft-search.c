/* weft-search - finds the best plan for a model on a cluster and prints it. */
#include "common/file.h"
#include "common/mem.h"
#include "common/opt.h"
#include "common/progress.h"
#include "common/text.h"
#include "cuda/cuda_workspace.h"
#include "search_tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    char *set;
    const char *model, *pin, *from, *target, *cost, *profile, *device, *cluster, *micro,
        *algorithm, *optimizer, *dtype, *schedule, *out, *verify, *gap, *slack;
    int64_t devices, memory, batch, top, max_stages, max_hops, seed, threads, zero;
    double time_budget;
    bool text, datasheets, explain, pareto, all_devices, as_listed, no_overlap, no_offload,
        no_pieces;
    json_t *pins;      /* the document of --pin */
    struct plan *plan; /* that of --from */
} o = {.algorithm = ALGORITHM_DEFAULT,
       .out = "-",
       .batch = -1,
       .devices = -1, /* of numbers below 0, and NAN: not given */
       .memory = -1,
       .max_stages = -1,
       .max_hops = -1,
       .threads = -1,
       .time_budget = NAN,
       .top = 1,
       .seed = 1,
       .zero = ZERO_PARAMETERS};

static const struct opt options[] = {
    {'m', "model", OPT_STR, "MODEL", "gpt:1.3B, or a file", &o.model},
    {0, "set", OPT_LIST, "LIST", "sizes changed: layers=4,hidden=1024", &o.set},
    {0, "pin", OPT_STR, "FILE", "a partial plan: what it says is fixed", &o.pin},
    {0, "from", OPT_STR, "PLAN", "a plan to start from", &o.from},
    {0, "for", OPT_STR, "TRAINER",
     "plans for: megatron, torchtitan, deepspeed, accelerate, galvatron or nnscaler (weft-run)",
     &o.target},
    {0, "cost", OPT_STR, "TABLES", "search over published tables: aceso:FOLDER", &o.cost},
    {'p', "profile", OPT_STR, "FILE", "profile database (none: datasheets)", &o.profile},
    {0, "device", OPT_STR, "KIND", "device kind (the cluster's, or the profile's only one)",
     &o.device},
    {0, "datasheets", OPT_FLAG, NULL,
     "take what the profile lacks from the cluster's datasheets", &o.datasheets},
    {0, "devices", OPT_INT, "N", "devices to use (all of the cluster)", &o.devices},
    {0, "all-devices", OPT_FLAG, NULL, "leave none idle, even if that is slower",
     &o.all_devices},
    {0, "as-listed", OPT_FLAG, NULL, "stages are stretches of the model's own list of ops",
     &o.as_listed},
    {0, "no-overlap", OPT_FLAG, NULL, "no plans with overlap, even if they are faster",
     &o.no_overlap},
    {0, "no-offload", OPT_FLAG, NULL, "keep nothing in the memory of hosts", &o.no_offload},
    {0, "no-pieces", OPT_FLAG, NULL, "make no logits in pieces of their rows",
     &o.no_pieces},
    {0, "cluster", OPT_STR, "CLUSTER", "\"node:4 gpu:8\" or a file (one node)", &o.cluster},
    {0, "memory", OPT_BYTES, "BYTES", "memory of a device, such as 28G (the cluster's)",
     &o.memory},
    {'b', "global-batch", OPT_INT, "N", "samples per step", &o.batch},
    {0, "micro-batch", OPT_STR, "LIST", "micro-batches to consider (powers of two)",
     &o.micro},
    {0, "optimizer", OPT_STR, "NAME", OPTIMIZER_NAMES " (adamw)", &o.optimizer},
    {0, "dtype", OPT_STR, "NAME", PLAN_DTYPES " (fp32)", &o.dtype},
    {0, "schedule", OPT_STR, "LIST", SCHEDULE_HELP("all"), &o.schedule},
    {'a', "algorithm", OPT_STR, "NAME", ALGORITHM_HELP, &o.algorithm},
    {0, "max-stages", OPT_INT, "N", "pipeline stages at most (as many as devices)",
     &o.max_stages},
    {0, "zero", OPT_INT, "MAX", "highest level of ZeRO, 0 to 3 (3)", &o.zero},
    {0, "max-hops", OPT_INT, "N", "hops: steps that may first make it worse (4)",
     &o.max_hops},
    {0, "top", OPT_INT, "K", "the K best plans, one JSON document each (1)", &o.top},
    {0, "time-budget", OPT_TIME, "TIME", "stop after this long with the best so far",
     &o.time_budget},
    {0, "gap", OPT_STR, "SHARE",
     "stop when the plan is proven to be that near to the best (auto: 1%)", &o.gap},
    {0, "slack", OPT_STR, "SHARE",
     "a simpler plan may be slower by that (1%; 0: the fastest plan)", &o.slack},
    {0, "threads", OPT_INT, "N", "at most (as many as cores); plans do not depend on it",
     &o.threads},
    {0, "verify", OPT_STR, "PLAN", "check a plan and its bound instead of searching",
     &o.verify},
    {0, "seed", OPT_INT, "N", "of random choices (1)", &o.seed},
    {'o', "output", OPT_STR, "FILE", "write here instead of to stdout", &o.out},
    {0, "text", OPT_FLAG, NULL, "a summary for people instead of JSON", &o.text},
    {0, "explain", OPT_FLAG, NULL, "why this plan, and what others cost, instead of JSON",
     &o.explain},
    {0, "pareto", OPT_FLAG, NULL, "the front of time against memory, as JSON lines",
     &o.pareto},
    {0}};

static const struct opt_tool tool = {
    "weft-search", "[options] -m MODEL -b B --devices N | --cluster CLUSTER",
    "Find the best plan to train a model on a cluster.", options};

/* Powers of two that divide the batch, and their products with the odd part of the devices, so that all
 * devices of 6 or 12 can share a micro-batch; ascending. */
static void usual_micro_batches(const struct search_problem *p, struct micro_batches *out) {
    int64_t odd = p->devices, all = p->batch;
    while (odd % 2 == 0)
        odd /= 2;
    for (int64_t two = 1, other = odd; two <= all || (odd > 1 && other <= all);) {
        bool is_two = odd == 1 || two < other;
        int64_t *next = is_two ? &two : &other;
        if (all % *next == 0)
            arr_push(&out->list, *next);
        *next *= 2;
    }
}

/* In ascending order, none twice. */
static void add_micro_batch(struct micro_batches *out, int64_t b) {
    int64_t at = out->list.n;
    while (at > 0 && out->list.p[at - 1] >= b)
        at--;
    if (at < out->list.n && out->list.p[at] == b)
        return;
    arr_push(&out->list, b);
    for (int64_t i = out->list.n - 1; i > at; i--)
        out->list.p[i] = out->list.p[i - 1];
    out->list.p[at] = b;
}

int search_micro_batches(const struct search_problem *p, struct micro_batches *out,
                         struct err *err) {
    int64_t pinned = p->pins ? pins_value(p->pins, PIN_micro_batch, 0) : PIN_FREE;
    if (!o.micro && pinned != PIN_FREE && p->batch % pinned == 0) {
        arr_push(&out->list, pinned);
        return 0;
    }
    if (!o.micro)
        usual_micro_batches(p, out);
    for (const char *s = o.micro; s;) {
        char *end;
        long b = *s >= '0' && *s <= '9' ? strtol(s, &end, 10) : 0;
        if (b < 1 || (*end && *end != ','))
            return err_usage(
                err, "--micro-batch: expected numbers such as 1,2,4, got \"%s\"", o.micro);
        if (p->batch % b)
            return err_usage(err, "--micro-batch: %ld does not divide the batch of %lld", b,
                             (long long)p->batch);
        add_micro_batch(out, b);
        s = *end ? end + 1 : NULL;
    }
    return 0;
}

/* "1f1b,zero-bubble", or all. */
static int schedules(struct search_problem *p, struct err *err) {
    p->schedules = o.schedule ? 0 : SCHEDULE_ALL;
    for (const char *s = o.schedule ? o.schedule : ""; *s;) {
        char name[16] = "";
        size_t n = strcspn(s, ",");
        memcpy(name, s, n < sizeof name ? n : 0);
        int f = schedule_find(name);
        if (f < 0)
            return err_usage(err,
                             "--schedule: expected some of %s, separated by commas, got "
                             "\"%s\"",
                             SCHEDULE_NAMES, o.schedule);
        p->schedules |= 1u << f;
        s += s[n] ? n + 1 : n;
    }
    if (!p->schedules)
        return err_usage(err, "--schedule: expected a list such as 1f1b,zero-bubble");
    if (p->schedules == schedules_round(p->schedules)) /* made out of others */
        p->schedules |= 1u << SCHEDULE_DEFAULT;
    return 0;
}

/* "1%" or "0.01"; NULL leaves what *to has. */
static int read_share(const char *name, const char *text, double *to, struct err *err) {
    char *end = NULL;
    if (!text)
        return 0;
    double v = strtod(text, &end);
    bool percent = *end == '%';
    *to = percent ? v / 100 : v;
    if (end == text || end[percent] || !(*to >= 0 && *to < 1))
        return err_usage(err, "--%s: expected a share such as 1%%, got \"%s\"", name, text);
    return 0;
}

/* auto goes on only where there is much to find. Nobody wants to read a plan that is harder to say for
 * less than a percent; but the plan must not be slower than the one to start from, and several plans
 * are in the order of their times. */
static int shares(struct search_problem *p, struct err *err) {
    static const double GAP = 0.01, SLACK = 0.01;
    p->gap = !strcmp(o.algorithm, "auto") ? GAP : 0;
    p->slack = o.top > 1 || o.from ? 0 : SLACK;
    return read_share("gap", o.gap, &p->gap, err) < 0
               ? -1
               : read_share("slack", o.slack, &p->slack, err);
}

/* Zero is none of these numbers: it would mean something else than it says. */
static int check_positive(struct err *err) {
    const struct {
        int64_t value;
        const char *name;
    } all[] = {{o.devices, "devices"},       {o.memory, "memory"},
               {o.max_stages, "max-stages"}, {o.max_hops, "max-hops"},
               {o.threads, "threads"},       {o.top, "top"},
               {o.batch, "global-batch"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value == 0)
            return err_usage(err, "--%s: expected at least 1, got 0", all[i].name);
    return 0;
}

static int check_modes(struct err *err) {
    if (o.text + o.explain + o.pareto + (o.verify != NULL) > 1)
        return err_usage(err, "--text, --explain, --pareto, --verify: only one of them");
    return 0;
}

/* 0 where the option is not given. */
static int64_t or_zero(int64_t value) {
    return value > 0 ? value : 0;
}

/* What is asked for, and within what may be asked for. */
static int check_options(struct err *err) {
    if (o.target && !strcmp(o.algorithm, "auto")) /* others trade degrees between ops */
        o.algorithm = "grid";
    if (check_positive(err) < 0 || check_modes(err) < 0)
        return -1;
    bool told = o.verify || (o.from && !o.model); /* by a plan */
    if (!o.model && !told)
        return opt_missing("-m MODEL", err);
    if (o.set && !o.model)
        return err_usage(err, "--set: only with -m MODEL");
    if (o.batch < 1 && !told)
        return opt_missing("--global-batch N", err);
    if (o.top < 1 || o.top > 1000)
        return err_usage(err, "--top: %lld is not in 1..1000", (long long)o.top);
    if (o.threads > 1024)
        return err_usage(err, "--threads: %lld is not in 1..1024", (long long)o.threads);
    if (o.zero < ZERO_NONE || o.zero > ZERO_PARAMETERS)
        return err_usage(err, "--zero: %lld is not in 0..3", (long long)o.zero);
    return 0;
}

/* Options whose values are names. */
static int set_names(struct search_problem *p, struct err *err) {
    const struct plan *from = o.model ? NULL : o.plan;
    int optimizer = o.optimizer ? optimizer_find(o.optimizer)
                    : from      ? (int)from->optimizer
                                : OPTIMIZER_adamw,
        dtype = o.dtype ? plan_dtype_find(o.dtype)
                : from  ? (int)from->dtype
                        : DTYPE_f32;
    if (!algorithm_find(o.algorithm))
        return err_usage(err, "--algorithm: expected one of %s, got \"%s\"",
                         ALGORITHM_NAMES, o.algorithm);
    if (optimizer < 0)
        return err_usage(err, "--optimizer: expected " OPTIMIZER_NAMES ", got \"%s\"",
                         o.optimizer);
    if (dtype < 0)
        return err_usage(err, "--dtype: expected " PLAN_DTYPES ", got \"%s\"", o.dtype);
    p->optimizer = (enum optimizer)optimizer;
    p->dtype = (enum dtype)dtype;
    return schedules(p, err);
}

/* What ranks take of GPUs beside their arenas. */
static workspace_query *const beside[] = {cuda_workspace, NULL};

/* Without -m the plan to start from says what is searched for: its model, batch and machines, of which
 * a launch line knows the number only. */
static int set_from(struct search_problem *p, struct err *err) {
    const struct plan *plan = o.model || o.verify ? NULL : o.plan;
    if (!plan)
        return 0;
    p->model = plan->model;
    o.batch = o.batch > 0 ? o.batch : plan->batch;
    if (o.cluster)
        return 0;
    if (plan->cluster)
        p->cluster = *plan->cluster;
    o.devices = o.devices > 0 ? o.devices : plan->devices;
    int64_t nodes = plan->cluster ? cluster_nodes(plan->cluster) : 1;
    if (o.profile || (plan->cluster && plan->cluster->groups[0].device[0]))
        return 0;
    char text[64];
    snprintf(text, sizeof text, "h100:%lldx%lld", (long long)nodes,
             (long long)plan->devices / nodes);
    note("%s: --cluster is not said, and the plan names no kind of device: taken is %s",
         tool.name, text);
    return cluster_read(&p->cluster, text, err);
}

/* The cluster, and what of it is to be used. */
static int set_devices(struct search_problem *p, struct err *err) {
    if (o.cluster && cluster_read(&p->cluster, o.cluster, err) < 0)
        return -1;
    if (!o.cluster && !p->cluster.n_groups && o.devices < 1)
        return opt_missing("--devices N or --cluster CLUSTER", err);
    if (!o.cluster && !p->cluster.n_groups)
        p->cluster = cluster_single_node(o.devices);
    int64_t devices = o.devices > 0 ? o.devices : cluster_devices(&p->cluster);
    if (devices > cluster_devices(&p->cluster) || devices > 1 << 20)
        return err_usage(err, "--devices: %lld, but the cluster has %lld",
                         (long long)devices, (long long)cluster_devices(&p->cluster));
    p->devices = (int)devices;
    p->may_idle = !o.all_devices;
    p->may_offload = !o.no_offload;
    p->may_logits = !o.no_pieces;
    /* Whoever judges the plan by the cluster that it carries judges it by the same limit. */
    for (int g = 0; g < p->cluster.n_groups && o.memory > 0; g++) {
        p->cluster.groups[g].memory_bytes = o.memory;
        p->cluster.groups[g].reserve = (struct reserve){{0}};
    }
    p->beside = beside;
    p->memory_bytes =
        o.memory > 0 ? o.memory : cluster_most_memory(&p->cluster, 0, devices);
    p->memory_of_kinds = o.memory < 0;
    return 0;
}

static int set_problem(struct search_problem *p, struct err *err) {
    if (check_options(err) < 0 || shares(p, err) < 0)
        return -1;
    if (o.from && !o.verify && !(o.plan = plan_read(o.from, err)))
        return -1;
    p->from = o.plan;
    if (set_from(p, err) < 0 || set_names(p, err) < 0 || set_devices(p, err) < 0)
        return -1;
    p->as_listed = o.as_listed;
    p->may_overlap = !o.no_overlap;
    p->batch = or_zero(o.batch);
    p->max_stages = (int)or_zero(o.max_stages);
    p->max_zero = (int)o.zero;
    p->max_hops = (int)or_zero(o.max_hops);
    p->top = (int)o.top;
    p->time_budget_s = isnan(o.time_budget) ? 0 : fmax(o.time_budget, 1e-9);
    p->threads = (int)or_zero(o.threads);
    p->seed = (uint64_t)o.seed;
    p->profile = o.profile;
    return o.target ? search_for_limit(p, o.target, err) : 0;
}

static double gap_of(const struct search_result *r, const struct search_plan *plan) {
    return (plan->time_us - r->lower_bound_us) / plan->time_us;
}

/* Without the time that the search took: the same command gives the same bytes. */
static json_t *provenance(const struct search_problem *p, const struct search_result *r,
                          const struct search_plan *best) {
    json_t *search = json_pack("{s:s, s:I, s:I, s:b}", "algorithm", o.algorithm, "seed",
                               (json_int_t)o.seed, "scored", (json_int_t)r->scored,
                               "complete", r->complete);
    if (best->words)
        json_object_set_new(search, "words", json_integer(best->words));
    if (r->fastest.plan)
        json_object_set_new(search, "fastest",
                            json_pack("{s:f, s:i}", "time_us", r->fastest.time_us, "words",
                                      r->fastest.words));
    if (best->member)
        json_object_set_new(search, "found_by", json_string(best->member));
    if (*r->relaxation) {
        json_object_set_new(search, "lower_bound_us", json_real(r->lower_bound_us));
        json_object_set_new(search, "gap", json_real(gap_of(r, best)));
        json_object_set_new(search, "relaxation", json_string(r->relaxation));
    }
    if (r->orders > 1)
        json_object_set_new(search, "orders", json_integer(r->orders));
    if (r->space > 0)
        json_object_set_new(search, "space", json_real(r->space));
    json_t *cluster =
        json_pack("{s:I, s:I}", "nodes", (json_int_t)cluster_nodes(&p->cluster),
                  "devices_per_node", (json_int_t)p->cluster.groups[0].devices);
    if (p->memory_bytes)
        json_object_set_new(cluster, "memory_bytes", json_integer(p->memory_bytes));
    json_t *times = json_pack("{s:s}", "device", p->provider->device);
    if (o.profile)
        json_object_set_new(times, "file", json_string(o.profile));
    if (!o.profile || o.datasheets)
        json_object_set_new(times, "datasheets", json_true());
    return json_pack("{s:s, s:o, s:o, s:o, s:{s:f, s:I}}", "tool",
                     "weft-search " WEFT_VERSION, "search", search, "cluster", cluster,
                     "profile", times, "predicted", "time_us", best->time_us,
                     "memory_bytes", (json_int_t)best->max_bytes);
}

/* Of each plan its time and memory, and what it is in the words of people. */
static int print_text(const struct search_result *r, FILE *f, struct err *err) {
    int rc = 0;
    for (int i = 0; i < r->n && rc == 0; i++) {
        fprintf(f, "%splan %d: a step takes %s, the fullest device holds %s\n",
                i ? "\n" : "", i + 1, text_time(r->plans[i].time_us).s,
                text_bytes((double)r->plans[i].max_bytes).s);
        rc = plan_show(r->plans[i].plan, f, err);
    }
    return rc;
}

static int print_json(const struct search_problem *p, const struct search_result *r,
                      FILE *f) {
    for (int i = 0; i < r->n; i++) {
        json_decref(r->plans[i].plan->provenance);
        r->plans[i].plan->provenance = provenance(p, r, &r->plans[i]);
        json_t *doc = plan_to_json(r->plans[i].plan);
        json_write(doc, f);
        json_decref(doc);
    }
    return 0;
}

static int search(struct search_problem *p, FILE *f, struct err *err) {
    search_algorithm *algorithm = algorithm_find(o.algorithm)->run;
    if (o.pareto)
        return search_pareto(o.target, p, algorithm, f, err);
    struct search_result r;
    if (search_for_run(o.target, p, algorithm, &r, err) < 0)
        return -1;
    note("%s: %lld plans scored in %.2f s%s%s", tool.name, (long long)r.scored, r.seconds,
         r.complete ? "" : " (stopped early: the best so far)",
         o.profile ? "" : "; all times rest on the cluster's datasheets");
    if (r.orders > 1)
        note("%s: in %d orders of the model's ops", tool.name, r.orders);
    if (r.plans[0].plan->devices < p->devices)
        note("%s: %d of %d devices %s left idle: %s", tool.name,
             p->devices - r.plans[0].plan->devices, p->devices,
             p->devices - r.plans[0].plan->devices == 1 ? "is" : "are",
             r.idle[0] ? r.idle : "with them a step would take longer");
    if (r.lost[0])
        note("%s: %s: not in the space of the search, and dropped: %s", tool.name, o.from,
             r.lost);
    if (*r.relaxation)
        note("%s: no plan takes less than %s (%s), gap %.2f %%", tool.name,
             text_time(r.lower_bound_us).s, r.relaxation, 100 * gap_of(&r, &r.plans[0]));
    else if (r.complete)
        note("%s: no bound is known for so many devices", tool.name);
    if (r.fastest.plan)
        note("%s: the fastest plan takes %s, %.2f %% less, and %d words instead of %d "
             "(--slack 0)",
             tool.name, text_time(r.fastest.time_us).s,
             100 * (1 - r.fastest.time_us / r.plans[0].time_us), r.fastest.words,
             r.plans[0].words);
    for (int i = 0; i < r.n; i++)
        r.plans[i].plan->cluster = &p->cluster;
    int rc = o.explain ? search_explain(o.target, p, algorithm, o.plan, &r, f, err)
             : o.text  ? print_text(&r, f, err)
                       : print_json(p, &r, f);
    search_result_release(&r);
    return rc;
}

static int search_to_file(struct search_problem *p, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, o.out, err) < 0)
        return -1;
    if (search(p, out.f, err) == 0)
        return file_out_close(&out, err);
    file_out_abort(&out);
    return -1;
}

struct cost_provider *search_open_provider(const struct cluster *c, enum dtype dtype,
                                           struct err *err) {
    struct cost_provider *p =
        provider_open(o.profile, o.device, c, o.datasheets || !o.profile, err);
    if (!p || o.profile || provider_check_dtype(c, dtype, err) == 0)
        return p;
    provider_destroy(p);
    return NULL;
}

struct pins *search_read_pins(const struct model *m, const json_t *more, struct err *err) {
    struct pins *pins = pins_of_model(m, o.model ? o.model : o.from, err);
    const char *name = o.pin && strcmp(o.pin, "-") != 0 ? o.pin : "standard input";
    if (pins && o.pin && !o.pins)
        o.pins = json_read(o.pin, err);
    bool good = pins &&
                (!o.pin || (o.pins && pins_add(pins, o.pins, name, true, err) == 0)) &&
                (!more || pins_add(pins, more, NULL, false, err) == 0);
    if (!good)
        pins_destroy(pins);
    return good ? pins : NULL;
}

/* The sizes to consider, and that of the plan at hand. */
static int verify(struct search_problem *p, struct plan *plan, struct micro_batches *micro,
                  struct err *err) {
    p->model = plan->model;
    p->pins = plan->pins;
    p->batch = plan->batch;
    if (search_micro_batches(p, micro, err) < 0)
        return -1;
    add_micro_batch(micro, plan->micro_batch);
    p->micro = micro->list.p;
    p->n_micro = (int)micro->list.n;
    struct file_out out;
    if (file_out_open(&out, o.out, err) < 0)
        return -1;
    if (search_print_verdict(p, plan, out.f, err) == 0)
        return file_out_close(&out, err);
    file_out_abort(&out);
    return -1;
}

/* Is there JSON in the file? Standard input is read once only, and taken for some. */
static bool is_document(const char *path) {
    json_t *doc = strcmp(path, "-") != 0 ? json_read(path, NULL) : json_null();
    bool is = doc != NULL;
    json_decref(doc);
    return is;
}

static int run_verify(struct err *err) {
    struct search_problem p = {0};
    struct micro_batches micro = {{0}};
    struct cost_provider *provider = NULL;
    struct plan *plan = plan_read(o.verify, err);
    int rc = -1;
    if (!plan && err->status == EXIT_INPUT && is_document(o.verify))
        err->status = EXIT_NO;
    if (plan && plan->cluster)
        p.cluster = *plan->cluster;
    if (plan && o.devices < 0)
        o.devices = plan->devices;
    if (plan && set_problem(&p, err) == 0)
        provider = search_open_provider(&p.cluster, plan->dtype, err);
    p.provider = provider;
    if (provider)
        rc = verify(&p, plan, &micro, err);
    provider_destroy(provider);
    arr_release(&micro.list);
    plan_destroy(plan);
    return rc;
}

static int run(struct err *err) {
    if (o.verify)
        return run_verify(err);
    struct search_problem p = {0};
    struct micro_batches micro = {{0}};
    int rc = -1;
    if (set_problem(&p, err) < 0)
        return -1;
    struct cost_provider *provider = search_open_provider(&p.cluster, p.dtype, err);
    p.provider = provider;
    struct model *model = provider && o.model ? model_load(o.model, o.set, err) : NULL;
    p.model = model ? model : p.model;
    struct pins *pins = provider && p.model ? search_read_pins(p.model, NULL, err) : NULL;
    p.pins = pins;
    if (pins && search_micro_batches(&p, &micro, err) == 0) {
        p.micro = micro.list.p;
        p.n_micro = (int)micro.list.n;
        interrupt_catch();
        rc = search_to_file(&p, err);
    }
    pins_destroy(pins);
    json_decref(o.pins);
    model_destroy(model);
    provider_destroy(provider);
    arr_release(&micro.list);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    char **given = mem_array((size_t)argc + 1, sizeof *given);
    memcpy(given, argv, (size_t)argc * sizeof *given);
    int n = opt_parse(&tool, argc, argv, &err);
    if (n > 0)
        opt_no_operand(argv[0], &err);
    int rc = n != 0 ? -1 : o.cost ? search_aceso(argc, given, &err) : run(&err);
    plan_destroy(o.plan);
    free(given);
    free(o.set);
    return rc == 0 ? EXIT_DONE : err_report(&err, tool.name);
}
