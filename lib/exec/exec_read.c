/* What a rank reads of the data: its boxes of inputs, and targets that it counts. It is read by a thread
 * of its own (exec_prefetch.c), so nothing here depends on where the step is. */
#include "exec/exec_impl.h"

enum dtype exec_form(const struct exec *x, enum data_split split, const struct instr *ins) {
    switch (x->g->plan->model->tensors[ins->tensor].source) {
    case DATA_TOKEN:
    case DATA_NEXT_TOKEN:
    case DATA_IMAGE: return data_form(x->data, split);
    default: return DTYPE_i32;
    }
}

/* Where the documents of positions start, or how far into them these are. */
static int read_documents(const struct data *data, enum data_split split,
                          const struct model_tensor *t, int64_t sample, int64_t at,
                          int64_t n, int32_t *out, struct err *err) {
    if (data_documents(data, split, sample, at, n, t->end, out, err) < 0)
        return -1;
    for (int64_t i = 0; i < n && t->source == DATA_DOCUMENT_POSITION; i++)
        out[i] = (int32_t)(at + i) - out[i];
    return 0;
}

/* Numbers of a data input from position `at` of a sample on, in its form. */
static int read_run(const struct data *data, enum data_split split,
                    const struct model_tensor *t, int64_t sample, int64_t at, int64_t n,
                    void *out, struct err *err) {
    switch (t->source) {
    case DATA_TOKEN:
    case DATA_IMAGE: return data_packed(data, split, sample, at, n, out, err);
    case DATA_NEXT_TOKEN:
        if (data_ignores(data))
            return data_tokens(data, split, sample, at, n, NULL, out, err);
        return data_packed(data, split, sample, at + 1, n, out, err);
    case DATA_INPUT: return data_input(data, split, sample, at, n, out, err);
    case DATA_INPUT_LENGTH: return data_input_length(data, split, sample, out, err);
    case DATA_TARGET: return data_target(data, split, sample, at, n, false, out, err);
    case DATA_SHIFTED_TARGET:
        return data_target(data, split, sample, at, n, true, out, err);
    case DATA_LABEL: return data_image(data, split, sample, 0, 0, NULL, out, err);
    case DATA_DOCUMENT_START:
    case DATA_DOCUMENT_POSITION:
        return read_documents(data, split, t, sample, at, n, out, err);
    case DATA_SOURCE_COUNT: break;
    }
    return err_system(err, "no source of data");
}

/* The same, always of 32 bits. */
static int read_whole(const struct data *data, enum data_split split,
                      const struct model_tensor *t, int64_t sample, int64_t at, int64_t n,
                      int32_t *out, struct err *err) {
    switch (t->source) {
    case DATA_TOKEN: return data_tokens(data, split, sample, at, n, out, NULL, err);
    case DATA_NEXT_TOKEN: return data_tokens(data, split, sample, at, n, NULL, out, err);
    default: return read_run(data, split, t, sample, at, n, out, err);
    }
}

/* How a box lies in a sample: as runs of values that follow each other in both. */
struct box_runs {
    int outer;       /* dims 1..outer-1 number the runs of a sample */
    int64_t n, step; /* values of a run; of the sample in all dims that a run crosses */
    int64_t at;      /* where the run begins within those */
};

/* Dims are taken from the last one on while the box has all of them: an image that no device shares
 * is one run, where rows of its three colours alone would be 50,000 calls for 224 x 224. */
static struct box_runs box_runs(const struct extents *whole, const struct box *b) {
    struct box_runs r = {.outer = whole->rank, .n = 1, .step = 1};
    for (bool open = true; open && r.outer > 1;) {
        int d = --r.outer;
        open = b->size[d] == whole->size[d];
        r.at += r.step * b->first[d];
        r.n *= b->size[d];
        r.step *= whole->size[d];
    }
    return r;
}

int exec_read_box(const struct exec *x, enum data_split split, int64_t sample,
                  const struct instr *ins, const struct box *b, void *out,
                  struct err *err) {
    const struct model *m = x->g->plan->model;
    const struct model_tensor *t = &m->tensors[ins->tensor];
    struct extents whole = model_extents(m, &t->shape, 1);
    const struct box_runs r = box_runs(&whole, b);
    int64_t first = sample + b->first[0], runs = ins->n.input.elems / r.n;
    int64_t run_bytes = r.n * dtype_size(exec_form(x, split, ins));
    int rc = 0;
    for (int64_t i = 0; i < runs && rc == 0; i++) {
        int64_t one = i, at = r.at, step = r.step;
        for (int d = r.outer - 1; d > 0; d--) {
            at += step * (b->first[d] + one % b->size[d]);
            one /= b->size[d];
            step *= whole.size[d];
        }
        rc = read_run(x->data, split, t, first + one, at, r.n, (char *)out + i * run_bytes,
                      err);
        if (rc < 0)
            err_prefix(err, "sample %lld", (long long)(first + one));
    }
    return rc;
}

/* In one sample, piece by piece. */
static int count_sample(const struct exec *x, enum data_split split,
                        const struct exec_loss *l, int64_t sample, double *count,
                        struct err *err) {
    enum { PIECE = 8192 }; /* a sequence, as a rule: 32 KiB of the stack */
    const struct model *m = x->g->plan->model;
    const struct model_tensor *t = &m->tensors[l->targets];
    struct extents one = model_extents(m, &t->shape, 1);
    int32_t piece[PIECE];
    int64_t elems = extents_count(&one);
    for (int64_t at = 0, n; at < elems; at += n) {
        n = elems - at < PIECE ? elems - at : PIECE;
        if (read_whole(x->data, split, t, sample, at, n, piece, err) < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            *count += piece[i] >= 0 && piece[i] != l->ignore;
    }
    return 0;
}

int exec_read_counts(const struct exec *x, enum data_split split, int64_t sample, int64_t n,
                     const atomic_bool *stop, double *counts, struct err *err) {
    int64_t rank = comm_rank(x->comm), size = comm_size(x->comm);
    for (int k = 0; k < x->n_losses; k++) {
        const struct exec_loss *l = &x->losses[k];
        counts[k] = 0;
        for (int64_t i = rank; l->targets >= 0 && i < n && !atomic_load(stop); i += size)
            if (count_sample(x, split, l, sample + i, &counts[k], err) < 0)
                return err_prefix(err, "sample %lld: targets", (long long)(sample + i));
    }
    double *missing = &counts[x->n_losses];
    *missing = 0;
    if (split == DATA_TRAIN && data_has_gaps(x->data))
        for (int64_t i = rank; i < n && !atomic_load(stop); i += size)
            *missing += data_missing(x->data, sample + i, NULL);
    return 0;
}
