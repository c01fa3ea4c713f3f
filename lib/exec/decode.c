#include "exec/decode.h"

#include "common/mem.h"
#include "exec/decode_impl.h"

#include <stdlib.h>
#include <string.h>

enum { ONE, MANY, LISTS };
enum { PROMPT_POSITIONS = 64 }; /* of a prompt at once, at most */

/* What the caller gives for the inputs of a step. */
struct given {
    const int32_t *tokens, *input, *lengths;
    int64_t stride; /* of tokens, from one sequence to the next */
};

struct decoder {
    struct model *m; /* borrowed */
    struct decoder_options o;
    int64_t positions, inputs, vocab;
    struct device *device;
    struct device_stream *stream;
    struct decode_list list[LISTS]; /* a position at a time; several, or empty */
    char *memory;                   /* of all below */
    int64_t bytes;
    int64_t *params; /* by parameter of the model: bytes into the memory, or -1 */
    int64_t *caches; /* the same by number */
    int64_t scratch;
    int32_t *staged; /* tokens of an input step */
    struct given given;
};

/* ---- memory ------------------------------------------------------------------------------- */

static int64_t param_elems(const struct model *m, int param) {
    struct extents n = model_extents(m, &m->params[param].shape, 1);
    return extents_count(&n);
}

static int64_t reserve(struct decoder *d, int64_t bytes) {
    int64_t at = d->bytes;
    d->bytes += memory_aligned(bytes);
    return at;
}

static void place_list(struct decoder *d, const struct decode_list *l) {
    const struct stage_program *sp = l->g->stages;
    for (int64_t b = 0; b < l->buffers.n; b++) {
        const struct decode_buffer *x = &l->buffers.p[b];
        int param = x->param >= 0 ? sp->params[x->param].param : -1;
        int64_t size = dtype_size(x->dtype);
        if (param >= 0 && d->params[param] < 0)
            d->params[param] = reserve(d, size * param_elems(d->m, param));
        if (x->cache >= 0 && d->caches[x->cache] < 0)
            d->caches[x->cache] = reserve(d, size * x->elems);
    }
}

static int allocate(struct decoder *d, struct err *err) {
    const struct decode_list *one = &d->list[ONE], *many = &d->list[MANY];
    d->params = mem_array((size_t)d->m->n_params + 1, sizeof *d->params);
    d->caches = mem_array((size_t)one->n_caches + 1, sizeof *d->caches);
    memset(d->params, -1, (size_t)d->m->n_params * sizeof *d->params);
    memset(d->caches, -1, (size_t)one->n_caches * sizeof *d->caches);
    int64_t scalars = reserve(d, sizeof(struct scalars));
    for (int i = 0; i < LISTS && d->list[i].g; i++)
        place_list(d, &d->list[i]);
    d->scratch = reserve(d, one->scratch > many->scratch ? one->scratch : many->scratch);
    if (!(d->memory = device_alloc(d->device, d->bytes, err)))
        return -1;
    for (int i = 0; i < LISTS; i++)
        d->list[i].x.scalars = (struct scalars *)(d->memory + scalars);
    const struct scalars now = {.loss_scale = 1, .evaluating = 1};
    return device_upload(d->stream, d->memory + scalars, &now, sizeof now, err);
}

/* Where a buffer lies for the device that is played now. */
static char *address(const struct decoder *d, const struct decode_list *l, int buffer) {
    if (buffer < 0)
        return NULL;
    const struct decode_buffer *b = &l->buffers.p[buffer];
    if (b->cache >= 0)
        return d->memory + d->caches[b->cache];
    if (b->param < 0)
        return d->memory + d->scratch + b->offset;
    const struct param_instance *p = &l->g->stages->params[b->param];
    const struct box box = exec_box(&l->chunk, &d->m->params[p->param].shape, p->place);
    const int64_t rows = box.size[0] ? box.size[0] : 1;
    return d->memory + d->params[p->param] +
           dtype_size(b->dtype) *
               (p->place.at[0] == 0 ? box.first[0] * (b->elems / rows) : 0);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Where the documents of n positions start, or how far into them these are; the tokens so far are known. Who
 * takes a part of all positions has them all, those that are not yet known with what stands there. */
static void stage_documents(struct decoder *d, const struct model_tensor *t, int64_t n,
                            int64_t first) {
    first = n == d->positions ? 0 : first;
    for (int64_t b = 0; b < d->o.batch; b++) {
        const int32_t *tokens = d->given.tokens + b * d->given.stride;
        int32_t *out = d->staged + b * n;
        int64_t open = 0;
        documents_mark(tokens, 0, first, t->end, &open, NULL);
        documents_mark(tokens + first, first, n, t->end, &open, out);
        for (int64_t i = 0; i < n && t->source == DATA_DOCUMENT_POSITION; i++)
            out[i] = (int32_t)(first + i) - out[i];
    }
}

/* The ids that an input wants, dense. */
static int run_input(struct decoder *d, const struct decode_list *l,
                     const struct decode_step *s, int64_t first, struct err *err) {
    const struct given *g = &d->given;
    const int64_t n = l->buffers.p[s->ins.out.input.y].elems, batch = d->o.batch;
    const struct model_tensor *t = &d->m->tensors[s->ins.tensor];
    const int32_t *from = d->staged;
    switch (t->source) {
    case DATA_INPUT: from = g->input; break;
    case DATA_INPUT_LENGTH: from = g->lengths; break;
    case DATA_DOCUMENT_START:
    case DATA_DOCUMENT_POSITION: stage_documents(d, t, n / batch, first); break;
    default:
        for (int64_t b = 0; b < batch; b++)
            memcpy(d->staged + b * (n / batch), g->tokens + b * g->stride + first,
                   (size_t)(n / batch) * sizeof *d->staged);
    }
    return device_upload(d->stream, address(d, l, s->ins.out.input.y), from,
                         n * (int64_t)sizeof *from, err);
}

static int run_launch(struct decoder *d, struct decode_list *l, const struct decode_step *s,
                      int64_t rank, struct err *err) {
    struct exec_instr ready = {0};
    union instr_src in;
    union instr_dst out;
    for (int k = 0; k < INSTR_MAX_IN; k++)
        in.v[k] = address(d, l, s->ins.in.v[k]);
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        out.v[k] = address(d, l, s->ins.out.v[k]);
    if (s->copies) {
        const int64_t size = dtype_size(s->ins.dtype);
        ready.args.dtype = s->ins.dtype;
        ready.args.copy = (struct device_copy){3, s->copy.size, s->copy.src, s->copy.dst};
        ready.args.src_offset = s->copy.src_offset;
        out.copy.y = (char *)out.copy.y + size * rank * s->copy.dst_step;
    } else {
        exec_prepare_instr(&l->x, &l->chunk, &s->ins, &ready);
    }
    if (s->at_rank)
        ready.args.first = rank * l->positions;
    int rc = device_launch(d->stream, s->ins.code, &s->ins.n, &in, &out, &ready.args, err);
    free(ready.pieces);
    return rc < 0 ? err_prefix(err, "%s", opcode_name(s->ins.code)) : 0;
}

/* What one device does: once at the beginning, or for its positions. */
static int play(struct decoder *d, struct decode_list *l, int64_t rank, bool stepped,
                struct err *err) {
    l->chunk.rp = program_for_rank(l->g, 0, (int)rank);
    l->chunk.sp = l->chunk.rp.sp;
    for (int64_t i = 0; i < l->steps.n; i++) {
        const struct decode_step *s = &l->steps.p[i];
        if (s->stepped != stepped)
            continue;
        int rc = s->kind == DECODE_INPUT ? run_input(d, l, s, rank * l->positions, err)
                                         : run_launch(d, l, s, rank, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int decoder_begin(struct decoder *d, const int32_t *input, const int32_t *lengths,
                  struct err *err) {
    d->given = (struct given){.input = input, .lengths = lengths};
    return play(d, &d->list[ONE], 0, false, err);
}

static int take_logits(struct decoder *d, float *logits, struct err *err) {
    const struct decode_list *l = &d->list[ONE];
    const int64_t n = d->o.batch * d->vocab;
    const enum dtype dtype = l->buffers.p[l->logits].dtype;
    if (dtype == DTYPE_f32)
        return device_download(d->stream, logits, address(d, l, l->logits),
                               n * (int64_t)sizeof *logits, err);
    void *narrow = mem_array((size_t)n, (size_t)dtype_size(dtype));
    int rc = device_download(d->stream, narrow, address(d, l, l->logits),
                             n * dtype_size(dtype), err);
    if (rc == 0)
        kernel_widen(n, dtype, narrow, logits);
    free(narrow);
    return rc;
}

int decoder_run(struct decoder *d, const int32_t *tokens, int64_t first, int64_t end,
                float *logits, struct err *err) {
    d->given.tokens = tokens;
    d->given.stride = d->positions;
    while (first < end) {
        const int64_t many = d->list[MANY].positions;
        const bool fits = many && first % many == 0 && end - first > many;
        struct decode_list *l = &d->list[fits ? MANY : ONE];
        if (play(d, l, first / l->positions, true, err) < 0)
            return err_prefix(err, "position %lld", (long long)first);
        first += l->positions;
    }
    return take_logits(d, logits, err);
}

/* ---- parameters --------------------------------------------------------------------------- */

static enum dtype param_dtype(const struct decoder *d, int param) {
    const struct decode_list *l = &d->list[ONE];
    for (int64_t b = 0; b < l->buffers.n; b++) {
        int p = l->buffers.p[b].param;
        if (p >= 0 && l->g->stages->params[p].param == param)
            return l->buffers.p[b].dtype;
    }
    return DTYPE_f32;
}

static int put_param(struct decoder *d, int param, const float *whole, int64_t n,
                     struct err *err) {
    const enum dtype dtype = param_dtype(d, param);
    char *to = d->memory + d->params[param];
    if (!dtype_is_half(dtype))
        return device_upload(d->stream, to, whole, n * dtype_size(dtype), err);
    void *narrow = mem_array((size_t)n, (size_t)dtype_size(dtype));
    kernel_narrow(n, dtype, whole, narrow);
    int rc = device_upload(d->stream, to, narrow, n * dtype_size(dtype), err);
    free(narrow);
    return rc;
}

static int load(struct decoder *d, const struct checkpoint *ck, const struct weight_file *f,
                struct err *err) {
    for (int p = 0; p < d->m->n_params; p++) {
        const int64_t n = param_elems(d->m, p);
        const struct extents e = model_extents(d->m, &d->m->params[p].shape, 1);
        struct checkpoint_box box = {.dims = e.rank};
        for (int k = 0; k < e.rank; k++)
            box.shape[k] = box.size[k] = e.size[k];
        float *whole = d->params[p] < 0 ? NULL : malloc((size_t)n * sizeof *whole);
        if (d->params[p] < 0)
            continue; /* of a loss, as a head that is never asked */
        int rc = whole ? 0 : err_system(err, "no memory for %lld numbers", (long long)n);
        if (rc == 0 && f)
            weight_file_read(f, p, &box, whole);
        else if (rc == 0)
            rc = checkpoint_read(ck, CHECKPOINT_PARAM, d->m->params[p].name, &box, whole,
                                 err);
        if (rc == 0)
            rc = put_param(d, p, whole, n, err);
        free(whole);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int decoder_load_checkpoint(struct decoder *d, const struct checkpoint *ck,
                            struct err *err) {
    return load(d, ck, NULL, err);
}

int decoder_load_weights(struct decoder *d, const struct weight_file *f, struct err *err) {
    return load(d, NULL, f, err);
}

/* ---- all of it ---------------------------------------------------------------------------- */

/* The most positions that divide the sequence, up to the limit. */
static int64_t at_once(int64_t positions) {
    int64_t n = PROMPT_POSITIONS;
    while (positions % n)
        n--;
    return n;
}

static int compile(struct decoder *d, struct err *err) {
    const int dim = decode_dim(d->m, err);
    if (dim < 0)
        return -1;
    d->positions = d->m->dims[dim].size;
    for (int i = 0; i < d->m->n_tensors; i++)
        if (d->m->tensors[i].producer < 0 && d->m->tensors[i].source == DATA_INPUT)
            d->inputs = d->m->dims[d->m->tensors[i].shape.dim[1]].size;
    if (decode_list_make(&d->list[ONE], d->m, &d->o, dim, 1, false, err) < 0)
        return -1;
    const struct decode_list *one = &d->list[ONE];
    d->vocab = one->buffers.p[one->logits].elems / d->o.batch;
    const int64_t many = at_once(d->positions);
    return d->inputs || many == 1
               ? 0
               : decode_list_make(&d->list[MANY], d->m, &d->o, dim, many, true, err);
}

struct decoder *decoder_create(struct model *m, const struct decoder_options *o,
                               struct err *err) {
    struct decoder *d = mem_alloc(sizeof *d);
    d->m = m;
    d->o = *o;
    d->device =
        device_create(o->device ? o->device : &device_backend_cpu, 0, o->threads, err);
    if (d->device && (d->stream = device_stream_create(d->device, err)) &&
        compile(d, err) == 0 && allocate(d, err) == 0) {
        d->staged = mem_array((size_t)(o->batch * d->positions), sizeof *d->staged);
        return d;
    }
    decoder_destroy(d);
    return NULL;
}

void decoder_destroy(struct decoder *d) {
    if (!d)
        return;
    for (int i = 0; i < LISTS; i++)
        decode_list_release(&d->list[i]);
    if (d->device)
        device_free(d->device, d->memory);
    if (d->stream)
        device_stream_destroy(d->stream);
    device_destroy(d->device);
    free(d->params);
    free(d->caches);
    free(d->staged);
    free(d);
}

int64_t decoder_positions(const struct decoder *d) {
    return d->positions;
}

int64_t decoder_inputs(const struct decoder *d) {
    return d->inputs;
}

int64_t decoder_vocab(const struct decoder *d) {
    return d->vocab;
}

int64_t decoder_bytes(const struct decoder *d) {
    return d->bytes;
}
