/* A plan for Galvatron, the one trainer here that has degrees of each layer: its JSON, as
 * galvatron/core/runtime/hybrid_parallel_config.py reads it. */
#include "plan_job.h"

#include <stdlib.h>
#include <string.h>

static const char target[] = "Galvatron";

/* Its own words: "gpipe", and "pipedream_flush" for 1F1B. */
static const char *pipeline_type(const struct plan *p) {
    return p->schedule == SCHEDULE_1f1b    ? "pipedream_flush"
           : p->schedule == SCHEDULE_gpipe ? "gpipe"
                                           : NULL;
}

static bool is_layer(const struct plan *p, int b) {
    return b < p->model->n_blocks && p->model->blocks[b].parent < 0;
}

static int check_part(const struct plan_job *job, const char *name, struct err *err) {
    if (job->recompute == RECOMPUTE_selective)
        return err_input(err, "%s: %s recomputes layers, not attention alone", name,
                         target);
    if (job->zero == ZERO_OPTIMIZER)
        return err_input(err,
                         "%s: zero is 1, and %s shards gradients (2) or parameters (3), or "
                         "nothing",
                         name, target);
    if (job->offload)
        return err_input(err, "%s: %s keeps no optimizer on hosts", name, target);
    return 0;
}

/* Level 3 is said of each layer; the others are of all that have another. */
static int default_zero(const struct plan *p, const struct plan_job *jobs, int *out,
                        struct err *err) {
    *out = -1;
    for (int b = 0; b < p->model->n_blocks; b++) {
        if (!is_layer(p, b) || jobs[b].zero == ZERO_PARAMETERS)
            continue;
        if (*out >= 0 && jobs[b].zero != *out)
            return err_input(err, "%s: zero is %d, and %d in others: %s has one beside 3",
                             p->model->blocks[b].name, jobs[b].zero, *out, target);
        *out = jobs[b].zero;
    }
    *out = *out < 0 ? ZERO_PARAMETERS : *out;
    return 0;
}

static int check(const struct plan *p, const struct plan_job *jobs, struct err *err) {
    if (!pipeline_type(p))
        return err_input(err, "schedule: %s's are gpipe and 1f1b", target);
    if (p->n_stages > p->n_groups)
        return err_input(err, "stages: %d on %d device groups, and %s has one on each",
                         p->n_stages, p->n_groups, target);
    if (p->dtype != DTYPE_f32 && p->reduce == DTYPE_f16)
        return err_input(err, "reduce: %s sums gradients in fp32 or bf16", target);
    /* The first layer that tensor parallelism splits. */
    const struct plan_job *split = NULL;
    for (int b = 0; b < p->model->n_blocks; b++) {
        if (is_layer(p, b) && jobs[b].cp > 1 && !jobs[b].ring)
            return err_input(err, "%s: keys and values are gathered; in %s they go round",
                             p->model->blocks[b].name, target);
        if (!is_layer(p, b) || jobs[b].tp == 1)
            continue;
        if (split && jobs[b].sp != split->sp)
            return err_input(
                err,
                "%s: the sequence is split over tp here or in other layers, and "
                "%s does it in all or in none",
                p->model->blocks[b].name, target);
        split = split ? split : &jobs[b];
    }
    for (int b = 0; b <= p->model->n_blocks; b++)
        if ((b == p->model->n_blocks || is_layer(p, b)) &&
            check_part(&jobs[b],
                       b < p->model->n_blocks ? p->model->blocks[b].name
                                              : "what is around the layers",
                       err) < 0)
            return -1;
    return 0;
}

/* ---- its lists: "1,1,2,2" --------------------------------------------------------------------- */

enum list {
    LIST_TP,
    LIST_CONSECUTIVE,
    LIST_CP,
    LIST_EP,
    LIST_FULL,
    LIST_SP,
    LIST_CHECKPOINT
};
static const struct {
    const char *name;
    enum list list;
} lists[] = {{"tp_sizes_enc", LIST_TP}, {"tp_consecutive_flags", LIST_CONSECUTIVE},
             {"cp_sizes_enc", LIST_CP}, {"dp_types_enc", LIST_FULL},
             {"use_sp", LIST_SP},       {"checkpoint", LIST_CHECKPOINT},
             {"ep_sizes_enc", LIST_EP}, {"tp_of_ep_sizes_enc", LIST_TP}};

static int64_t entry(const struct plan_job *job, enum list list) {
    switch (list) {
    case LIST_TP: return job->tp;
    case LIST_CONSECUTIVE: return 1; /* the innermost axis, as everywhere in these words */
    case LIST_CP: return job->cp;
    case LIST_EP: return job->ep;
    case LIST_FULL: return job->zero == ZERO_PARAMETERS;
    case LIST_SP: return 0; /* Ulysses' all-to-all, which is another thing than --sp */
    case LIST_CHECKPOINT: return job->recompute == RECOMPUTE_all;
    }
    return 0;
}

static json_t *joined(const int64_t *x, int n) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)x[i]);
    fclose(f);
    json_t *value = json_string(text);
    free(text);
    return value;
}

static void add_lists(json_t *doc, const struct plan *p, const struct plan_job *jobs) {
    int64_t *x = mem_array((size_t)(p->model->n_blocks + p->n_stages), sizeof *x);
    bool experts = false;
    for (int b = 0; b < p->model->n_blocks; b++)
        experts |= is_layer(p, b) && jobs[b].ep > 1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int n = 0;
        for (int b = 0; b < p->model->n_blocks; b++)
            if (is_layer(p, b))
                x[n++] = entry(&jobs[b], lists[i].list);
        if (experts || !strstr(lists[i].name, "ep_sizes"))
            json_object_set_new(doc, lists[i].name, joined(x, n));
    }
    for (int s = 0; s < p->n_stages; s++)
        x[s] = jobs[0].blocks[s];
    json_object_set_new(doc, "pp_division", joined(x, p->n_stages));
    free(x);
}

static json_t *document(const struct plan *p, const struct plan_job *jobs, int zero) {
    static const char *const types[] = {
        [ZERO_NONE] = "ddp", [ZERO_GRADIENTS] = "zero2", [ZERO_PARAMETERS] = "zero3"};
    const struct plan_job *around = &jobs[p->model->n_blocks];
    json_t *doc = json_pack("{s:I, s:I, s:I, s:s, s:s}", "pp_deg", (json_int_t)jobs[0].pp,
                            "global_bsz", (json_int_t)p->batch, "chunks",
                            (json_int_t)plan_micro_batches(p), "pipeline_type",
                            pipeline_type(p), "default_dp_type", types[zero]);
    add_lists(doc, p, jobs);
    json_object_set_new(doc, "vtp", json_integer(around->tp));
    json_object_set_new(doc, "vsp", json_integer(0));
    json_object_set_new(doc, "vcp", json_integer(around->cp));
    json_object_set_new(doc, "embed_sdp", json_integer(around->zero == ZERO_PARAMETERS));
    return doc;
}

char *plan_to_galvatron(const struct plan *p, struct err *err) {
    char *text = NULL;
    size_t size = 0;
    int zero = 0;
    struct plan_job *jobs = plan_job_layers(p, target, err);
    if (!jobs)
        return NULL;
    FILE *f = check(p, jobs, err) == 0 && default_zero(p, jobs, &zero, err) == 0
                  ? open_memstream(&text, &size)
                  : NULL;
    if (f) {
        json_t *doc = document(p, jobs, zero);
        json_write(doc, f);
        json_decref(doc);
        fclose(f);
    }
    plan_job_release(&jobs[0]);
    free(jobs);
    return text;
}
