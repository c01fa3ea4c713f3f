/* A plan in the words of Megatron-LM, stage by stage. The degrees are read off the products with a
 * weight: which dims the axes of the mesh split there. */
#include "words.h"

#include "common/text.h"
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

/* The least and the most of a degree over the ops of a stage. */
struct range {
    int64_t least, most;
};

enum word { WORD_dp, WORD_cp, WORD_ep, WORD_tp, WORD_COUNT };

struct stage_words {
    struct range degree[WORD_COUNT];
    unsigned tensor, sequence; /* axes that split a dim of tp, or one of the sequence */
};

static enum word word_of(const struct model *m, const struct plan_dims *d, int dim) {
    return dim == m->batch                                  ? WORD_dp
           : plan_dims_has(d->sequence, d->n_sequence, dim) ? WORD_cp
           : plan_dims_has(d->experts, d->n_experts, dim)   ? WORD_ep
                                                            : WORD_tp;
}

/* Replicas are counted where experts are not spread over them. */
static void count_op(struct stage_words *w, const int64_t degree[WORD_COUNT]) {
    for (int k = 0; k < WORD_COUNT; k++) {
        struct range *r = &w->degree[k];
        if (k == WORD_dp && degree[WORD_ep] > 1)
            continue;
        if (!r->most || degree[k] < r->least)
            r->least = degree[k];
        if (degree[k] > r->most)
            r->most = degree[k];
    }
}

/* Which axes split dims of tensor parallelism in products, and which ones the sequence. */
static void find_axes(struct stage_words *w, const struct model *m,
                      const struct plan_dims *d, const struct stage *st) {
    for (int i = 0; i < st->n_ops; i++)
        for (int a = 0; a < st->mesh.n_axes; a++) {
            const struct model_op *op = &m->ops[st->ops[i]];
            int k = st->layouts[i].dim[a];
            if (k == PLACE_NONE || st->mesh.size[a] == 1)
                continue;
            enum word word = word_of(m, d, op->space.dim[k]);
            if (word == WORD_tp && plan_is_product(op))
                w->tensor |= 1u << a;
            if (word == WORD_cp)
                w->sequence |= 1u << a;
        }
}

/* A product that splits the sequence on an axis of tensor parallelism is part of that. */
static struct stage_words words_of(const struct model *m, const struct plan_dims *d,
                                   const struct stage *st) {
    struct stage_words w = {0};
    find_axes(&w, m, d, st);
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &m->ops[st->ops[i]];
        int64_t degree[WORD_COUNT] = {1, 1, 1, 1};
        for (int a = 0; a < st->mesh.n_axes; a++) {
            int k = st->layouts[i].dim[a];
            if (k == PLACE_NONE)
                continue;
            enum word word = word_of(m, d, op->space.dim[k]);
            degree[word == WORD_cp && w.tensor >> a & 1 ? WORD_tp : word] *=
                st->mesh.size[a];
        }
        if (plan_is_product(op))
            count_op(&w, degree);
    }
    /* Experts lie on replicas: they are data parallel for the rest. */
    w.degree[WORD_ep].least = w.degree[WORD_ep].most;
    return w;
}

/* ---- columns ------------------------------------------------------------------------------- */

static const char *range_text(struct range r, char *buf, size_t n) {
    if (!r.most)
        snprintf(buf, n, "-");
    else if (r.least == r.most)
        snprintf(buf, n, "%lld", (long long)r.most);
    else
        snprintf(buf, n, "%lld-%lld", (long long)r.least, (long long)r.most);
    return buf;
}

/* Whole blocks; a plus where a part of one is here, too. */
static const char *layers_text(const struct model *m, const struct stage *st, char *buf,
                               size_t n) {
    int whole = 0, held = 0;
    bool parts = false;
    for (int i = 0; i < st->n_ops; i++) {
        int b = plan_outer_block(m, st->ops[i]);
        if (b < 0)
            continue;
        const struct model_block *block = &m->blocks[b];
        held = i && plan_outer_block(m, st->ops[i - 1]) == b ? held + 1 : 1;
        bool last = i + 1 == st->n_ops || plan_outer_block(m, st->ops[i + 1]) != b;
        whole += last && held == block->end_op - block->first_op;
        parts |= last && held != block->end_op - block->first_op;
    }
    snprintf(buf, n, "%d%s", whole, parts ? "+" : "");
    return buf;
}

/* The word for what is computed again, or how many ops it is. */
static const char *recompute_text(const struct model *m, const struct stage *st, char *buf,
                                  size_t n) {
    static const char *const words[] = {[RECOMPUTE_none] = "none",
                                        [RECOMPUTE_selective] = "selective",
                                        [RECOMPUTE_all] = "full"};
    for (int w = 0; w < RECOMPUTE_COUNT; w++) {
        bool same = true;
        for (int i = 0; i < st->n_ops && same; i++)
            same = st->recompute[i] == plan_recomputes(m, (enum recompute)w, st->ops[i]);
        if (same) {
            snprintf(buf, n, "%s", words[w]);
            return buf;
        }
    }
    int count = 0;
    for (int i = 0; i < st->n_ops; i++)
        count += st->recompute[i];
    snprintf(buf, n, "%d of %d ops", count, st->n_ops);
    return buf;
}

/* Do parts of some operand go round? */
static bool has_ring(const struct model *m, const struct stage *st, int i) {
    const struct model_op *op = &m->ops[st->ops[i]];
    const struct layout *l = &st->layouts[i];
    for (int a = 0; a < st->mesh.n_axes; a++)
        for (int k = 0; k < op->n_in && st->mesh.size[a] > 1; k++)
            if (l->ring != PLACE_NONE && layout_cut(l, &op->in_map[k], a) == l->ring)
                return true;
    return false;
}

static const char *context_text(const struct model *m, const struct stage *st,
                                struct range r, char *buf, size_t n) {
    char degree[40];
    bool ring = false;
    for (int i = 0; i < st->n_ops; i++)
        ring |= has_ring(m, st, i);
    snprintf(buf, n, "%s%s", range_text(r, degree, sizeof degree), ring ? " ring" : "");
    return buf;
}

/* ---- the table ------------------------------------------------------------------------------- */

static double count_params(const struct model *m) {
    double n = 0;
    for (int i = 0; i < m->n_params; i++) {
        struct extents x = model_extents(m, &m->params[i].shape, 1);
        n += (double)extents_count(&x);
    }
    return n;
}

static void show_head(const struct plan *p, FILE *f) {
    const struct model *m = p->model;
    long long waves = (long long)plan_micro_batches(p);
    double params = count_params(m);
    double unit = params < 1e6 ? 1 : params < 1e9 ? 1e6 : 1e9;
    fprintf(f, "model      %s%s%s%s%s, %.*g%s parameters\n", m->name,
            m->preset[0] ? ":" : "", m->preset, m->set[0] ? " with " : "", m->set,
            params < 1e6 ? 6 : 4, params / unit,
            params < 1e6   ? ""
            : params < 1e9 ? " million"
                           : " billion");
    fprintf(f, "batch      %lld: %lld micro-batch%s of %lld\n", (long long)p->batch, waves,
            waves == 1 ? "" : "es", (long long)p->micro_batch);
    fprintf(f, "pipeline   pp %d, schedule %s%s\n", p->n_groups, schedule_name(p->schedule),
            p->n_groups < p->n_stages ? ", stages take turns on groups of devices" : "");
    fprintf(f, "dtype      %s, gradients summed in %s\n", plan_dtype_name(p->dtype),
            plan_dtype_name(p->reduce));
    if (p->aggregate != AGGREGATE_mean)
        fprintf(f, "aggregate  %s, %d of the replicas may be bad\n",
                aggregate_name(p->aggregate), p->faulty);
    if (p->average != AVERAGE_none)
        fprintf(f, "average    %s, every %lld step%s\n", average_name(p->average),
                (long long)p->average_every, p->average_every > 1 ? "s" : "");
    fprintf(f, "optimizer  %s, gradients %s\n", optimizer_name(p->optimizer),
            p->overlap ? "reduced while the last backward pass computes"
                       : "reduced after the last backward pass");
    if (p->logits > 1)
        fprintf(f, "logits     in %lld pieces\n", (long long)p->logits);
    fprintf(f, "devices    %d\n\n", p->devices);
}

/* Of the ops that have parameters, in stages first .. end-1; a single device shards nothing. */
static const char *zero_text(const struct plan *p, int first, int end, char *buf,
                             size_t n) {
    int least = ZERO_PARAMETERS, most = ZERO_NONE;
    for (int s = first; s < end; s++)
        for (int i = 0; i < p->stages[s].n_ops && mesh_devices(&p->stages[s].mesh) > 1;
             i++) {
            int zero = p->stages[s].zero[i];
            if (!p->model->ops[p->stages[s].ops[i]].n_param)
                continue;
            least = zero < least ? zero : least;
            most = zero > most ? zero : most;
        }
    if (least < most)
        snprintf(buf, n, "%d-%d", least, most);
    else
        snprintf(buf, n, "%d", most);
    return buf;
}

/* From which op to which, for each stretch of the model's list; of three at most. */
static void show_ops(const struct model *m, const struct stage *st, FILE *f) {
    int stretches = 0;
    for (int i = 0, end; i < st->n_ops; i = end) {
        for (end = i + 1; end < st->n_ops && st->ops[end] == st->ops[end - 1] + 1; end++)
            ;
        if (++stretches > 3) {
            fputs(", ...", f);
            return;
        }
        fprintf(f, "%s%s", i ? ", " : "", m->ops[st->ops[i]].name);
        if (end > i + 1)
            fprintf(f, " .. %s", m->ops[st->ops[end - 1]].name);
    }
}

static void show_stage(const struct plan *p, const struct plan_dims *d, int s,
                       int64_t bytes, FILE *f) {
    const struct model *m = p->model;
    const struct stage *st = &p->stages[s];
    struct stage_words w = words_of(m, d, st);
    char text[WORD_COUNT][48], layers[32], recompute[64], per[32], zero[32];
    int64_t replicas = w.degree[WORD_dp].most;
    for (int k = 0; k < WORD_COUNT; k++)
        range_text(w.degree[k], text[k], sizeof text[k]);
    context_text(m, st, w.degree[WORD_cp], text[WORD_cp], sizeof text[WORD_cp]);
    if (replicas && p->micro_batch % replicas == 0)
        snprintf(per, sizeof per, "%lld", (long long)(p->micro_batch / replicas));
    else
        snprintf(per, sizeof per, "-");
    fprintf(f, "%5d  %6s  %7d  %5s  %5s  %7s  %5s  %3s  %4s  %8s  %-14s  %10s  ", s,
            layers_text(m, st, layers, sizeof layers), mesh_devices(&st->mesh),
            text[WORD_dp], text[WORD_tp], text[WORD_cp], text[WORD_ep],
            w.tensor & w.sequence ? st->regather ? "yes" : "kept" : "no",
            zero_text(p, s, s + 1, zero, sizeof zero), per,
            recompute_text(m, st, recompute, sizeof recompute),
            text_bytes((double)bytes).s);
    show_ops(m, st, f);
    fputc('\n', f);
}

/* What some op of the stage has in the memory of its devices' hosts. */
static void show_offload(const struct plan *p, const struct stage_program *sp, FILE *f) {
    const struct stage *st = &p->stages[sp->stage];
    int set = 0;
    for (int i = 0; i < st->n_ops; i++)
        set |= st->offload[i];
    if (!set)
        return;
    fprintf(f, "stage %d has %s a device on its host:", sp->stage,
            text_bytes((double)sp->host_bytes).s);
#define X(name, bit)                                                                       \
    if (set & (bit))                                                                       \
        fputs(" " #name, f);
    OFFLOADS(X)
#undef X
    fputc('\n', f);
}

/* Where devices are not all alike, or stages not in the order of the ranks. */
static void show_ranks(const struct plan *p, int s, FILE *f) {
    const struct stage *st = &p->stages[s];
    const struct cluster *c = p->cluster;
    bool moved = false;
    for (int k = 0; k < p->n_stages; k++)
        moved |= p->stages[k].group != k % p->n_groups;
    if (!moved && (!c || c->n_groups == 1))
        return;
    int last = st->first_rank + mesh_devices(&st->mesh) - 1;
    fprintf(f, "stage %d is on rank%s %d", s, last > st->first_rank ? "s" : "",
            st->first_rank);
    if (last > st->first_rank)
        fprintf(f, "-%d", last);
    const char *before = "";
    for (int g = 0; c && g < c->n_groups; g++) {
        const struct cluster_group *kind = &c->groups[g];
        bool touched = kind->first_rank <= last &&
                       kind->first_rank + kind->nodes * kind->devices > st->first_rank;
        if (touched && kind->device[0] && strcmp(kind->device, before) != 0) {
            fprintf(f, ", %s", kind->device);
            before = kind->device;
        }
    }
    fputc('\n', f);
}

/* ---- one line ------------------------------------------------------------------------------- */

static void widen(struct range *to, struct range r) {
    if (!r.most)
        return;
    if (!to->most || r.least < to->least)
        to->least = r.least;
    to->most = r.most > to->most ? r.most : to->most;
}

/* The word for all stages, "part" where they differ or it takes more than a word. */
static const char *recompute_word(const struct plan *p, char *buf, size_t n) {
    char other[64];
    recompute_text(p->model, &p->stages[0], buf, n);
    for (int s = 0; s < p->n_stages; s++) {
        recompute_text(p->model, &p->stages[s], other, sizeof other);
        if (strcmp(buf, other) != 0 || strchr(other, ' '))
            return "part";
    }
    return buf;
}

int64_t words_tensor(const struct plan *p, const struct plan_dims *d) {
    int64_t most = 1;
    for (int s = 0; s < p->n_stages; s++) {
        int64_t tp = words_of(p->model, d, &p->stages[s]).degree[WORD_tp].most;
        most = tp > most ? tp : most;
    }
    return most;
}

const char *words_line(const struct plan *p, char *buf, size_t n) {
    struct range all[WORD_COUNT] = {{0}};
    struct plan_dims dims;
    char text[WORD_COUNT][48], chunks[32] = "", zero[32], recompute[64];
    bool sequence = false;
    plan_dims_find(p->model, &dims);
    for (int s = 0; s < p->n_stages; s++) {
        struct stage_words w = words_of(p->model, &dims, &p->stages[s]);
        for (int k = 0; k < WORD_COUNT; k++)
            widen(&all[k], w.degree[k]);
        sequence |= (w.tensor & w.sequence) != 0;
    }
    plan_dims_release(&dims);
    for (int k = 0; k < WORD_COUNT; k++)
        range_text(all[k], text[k], sizeof text[k]);
    if (p->n_stages > p->n_groups)
        snprintf(chunks, sizeof chunks, " x %d", p->n_stages / p->n_groups);
    int at = snprintf(buf, n, "pp %d%s, dp %s, tp %s%s", p->n_groups, chunks, text[WORD_dp],
                      text[WORD_tp], sequence ? " sp" : "");
    for (int k = WORD_cp; k <= WORD_ep && at < (int)n; k++)
        if (all[k].most > 1)
            at += snprintf(buf + at, n - (size_t)at, ", %s %s", k == WORD_cp ? "cp" : "ep",
                           text[k]);
    if (at < (int)n)
        snprintf(buf + at, n - (size_t)at, ", zero %s, recompute %s, micro-batch %lld, %s",
                 zero_text(p, 0, p->n_stages, zero, sizeof zero),
                 recompute_word(p, recompute, sizeof recompute), (long long)p->micro_batch,
                 schedule_name(p->schedule));
    return buf;
}

int plan_show(struct plan *p, FILE *f, struct err *err) {
    struct program *g = program_compile(p, err);
    if (!g)
        return -1;
    struct plan_dims dims;
    plan_dims_find(p->model, &dims);
    show_head(p, f);
    fprintf(f, "%5s  %6s  %7s  %5s  %5s  %7s  %5s  %3s  %4s  %8s  %-14s  %10s  %s\n",
            "stage", "layers", "devices", "dp", "tp", "cp", "ep", "sp", "zero", "samples",
            "recompute", "memory", "ops");
    for (int s = 0; s < p->n_stages; s++)
        show_stage(p, &dims, s, g->stages[s].arena_bytes, f);
    for (int s = 0; s < p->n_stages; s++)
        show_offload(p, &g->stages[s], f);
    for (int s = 0; s < p->n_stages; s++)
        show_ranks(p, s, f);
    plan_dims_release(&dims);
    program_destroy(g);
    return 0;
}
