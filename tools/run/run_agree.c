/* What all ranks must have alike is told by rank 0 as a list of facts, each a name and a text;
 * every other rank looks for the first that is not its own. */
#include "run.h"

#include "common/json.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0's text on all ranks; fresh. NULL on failure. */
static char *broadcast_text(struct comm *comm, const char *own, struct err *err) {
    int64_t n = own ? (int64_t)strlen(own) : 0;
    if (comm_broadcast(comm_world(comm), &n, sizeof n, 0, err) < 0)
        return NULL;
    char *text = mem_alloc((size_t)n + 1);
    if (own)
        memcpy(text, own, (size_t)n);
    if (comm_broadcast(comm_world(comm), text, n, 0, err) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- the plan ------------------------------------------------------------------------------ */

static const char *shown(const char *path) {
    return strcmp(path, "-") ? path : "standard input";
}

/* The plan's document with the model's in it. */
static char *whole_text(json_t *doc, const struct model *m) {
    json_t *model = json_copy(m->doc);
    if (m->preset[0])
        json_object_set_new(model, "default", json_string(m->preset));
    json_object_set_new(doc, "model", model);
    return json_dumps(doc, JSON_COMPACT);
}

static struct plan *read_plan(const char *path, char **text, struct err *err) {
    json_t *doc = json_read(path, err);
    struct plan *plan = doc ? plan_from_json(doc, err) : NULL;
    if (plan)
        *text = whole_text(doc, plan->model);
    else if (doc)
        err_prefix(err, "%s", shown(path));
    json_decref(doc);
    return plan;
}

static struct plan *parse_plan(const char *text, const char *path, struct err *err) {
    json_t *doc = json_parse(text, strlen(text), shown(path), err);
    struct plan *plan = doc ? plan_from_json(doc, err) : NULL;
    if (doc && !plan)
        err_prefix(err, "%s", shown(path));
    json_decref(doc);
    return plan;
}

struct plan *run_shared_plan(struct comm *comm, const char *path, struct err *err) {
    char *own = NULL;
    bool reads = comm_rank(comm) == 0;
    struct plan *plan = reads ? read_plan(path, &own, err) : NULL;
    char *text = NULL;
    int rc = exec_agree(comm, reads && !plan ? -1 : 0, err);
    if (rc == 0 && !(text = broadcast_text(comm, own, err)))
        rc = -1;
    if (rc == 0 && !plan)
        plan = parse_plan(text, path, err);
    if (rc == 0)
        rc = exec_agree(comm, plan ? 0 : -1, err);
    free(own);
    free(text);
    if (rc == 0)
        return plan;
    plan_destroy(plan);
    return NULL;
}

/* ---- facts --------------------------------------------------------------------------------- */

static void add_fact(json_t *facts, const char *name, const char *value) {
    json_object_set_new(facts, name, json_string(value));
}

/* The first of rank 0's facts that is not this rank's, in rank 0's order. */
static int compare_facts(const json_t *own, json_t *first, struct err *err) {
    const char *name;
    json_t *v;
    json_object_foreach(first, name, v) {
        const char *here = json_string_value(json_object_get(own, name));
        const char *there = json_string_value(v);
        if (!here || strcmp(here, there) != 0)
            return err_input(err, "%s is %s, rank 0 has %s", name, here ? here : "unknown",
                             there);
    }
    return 0;
}

/* Owns facts. A difference is an error with this exit status. */
static int agree_facts(struct comm *comm, json_t *facts, int status, struct err *err) {
    char *own = comm_rank(comm) == 0 ? json_dumps(facts, JSON_COMPACT) : NULL;
    char *text = broadcast_text(comm, own, err);
    int rc = -1;
    if (text) {
        json_t *first = json_parse(text, strlen(text), "rank 0", err);
        rc = first ? compare_facts(facts, first, err) : -1;
        if (rc < 0)
            err->status = status;
        rc = exec_agree(comm, rc, err);
        json_decref(first);
    }
    free(own);
    free(text);
    json_decref(facts);
    return rc;
}

/* Data files may have other names on other nodes: their content is compared. */
static bool may_differ(const struct opt *o) {
    return !strcmp(o->name, "threads") || !strcmp(o->name, "data") ||
           !strcmp(o->name, "valid-data");
}

int run_agree_options(struct comm *comm, const struct opt *options, struct err *err) {
    json_t *facts = json_object();
    add_fact(facts, "weft", WEFT_VERSION);
    for (const struct opt *o = options; o->name; o++) {
        char name[64], value[512];
        snprintf(name, sizeof name, "--%s", o->name);
        if (!may_differ(o))
            add_fact(facts, name, opt_format(o, value, sizeof value));
    }
    return agree_facts(comm, facts, EXIT_USAGE, err);
}

static void add_split(json_t *facts, const char *name, const struct data_info *info,
                      enum data_split split) {
    char value[128];
    snprintf(value, sizeof value, "%s, %" PRId64 " samples, hash %016" PRIx64, info->format,
             info->size[split], info->hash[split]);
    add_fact(facts, name, value);
}

static void add_weights(json_t *facts, const char *name, const struct weight_file *f) {
    char value[20] = "none";
    if (f)
        snprintf(value, sizeof value, "%016" PRIx64, weight_file_hash(f));
    add_fact(facts, name, value);
}

int run_agree_inputs(struct comm *comm, const struct model *m, const struct data *data,
                     const struct checkpoint *ck, const struct weight_file *init,
                     const struct weight_file *adapter, struct err *err) {
    json_t *facts = json_object();
    char model[20], from[64] = "none";
    snprintf(model, sizeof model, "%016" PRIx64, m->hash);
    if (ck)
        snprintf(from, sizeof from, "step %" PRId64 " of run %016" PRIx64,
                 checkpoint_info(ck)->step, checkpoint_info(ck)->run);
    add_fact(facts, "the hash of the model", model);
    add_fact(facts, "the checkpoint", from);
    add_weights(facts, "the hash of the tensors in --init", init);
    add_weights(facts, "the hash of the tensors in --adapter", adapter);
    add_split(facts, "--data", data_info(data), DATA_TRAIN);
    add_split(facts, "the validation data", data_info(data), DATA_VALID);
    return agree_facts(comm, facts, EXIT_INPUT, err);
}
