/* Aceso's chain of ops as a model: every op reads what the one before it makes. Its iteration space is
 * the batch, one or two dims of tensor parallelism, and a dim of its own that cannot be split: by
 * that one ops of one row are alike and others are not. */
#include "search/source/aceso_impl.h"

#include <stdlib.h>
#include <string.h>

static bool ends_in(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

/* ---- what a name says ------------------------------------------------------------------ */

/* Rows whose specs are the same on both sides. */
static void set_specs(struct aceso_row *r, enum aceso_spec in, enum aceso_spec out) {
    r->in[0] = r->in[1] = in;
    r->out[0] = r->out[1] = out;
}

static void describe_gpt(struct aceso_row *r) {
    const char *name = r->name;
    bool first = ends_in(name, "qkv") || ends_in(name, "GEMM-1");
    set_specs(r, SPEC_sequence, SPEC_sequence);
    if (!strcmp(name, "encoder-embedding"))
        r->in[0] = r->in[1] = SPEC_any;
    else if (!strcmp(name, "final-layernorm"))
        set_specs(r, SPEC_sequence, SPEC_batch);
    else if (!strcmp(name, "gpt-post-process"))
        set_specs(r, SPEC_batch, SPEC_any);
    else if (ends_in(name, "score"))
        set_specs(r, SPEC_hidden, SPEC_heads);
    else if (ends_in(name, "softmax") || ends_in(name, "attention-dropout"))
        set_specs(r, SPEC_heads, SPEC_heads);
    else if (ends_in(name, "context"))
        set_specs(r, SPEC_heads, SPEC_hidden);
    else if (ends_in(name, "gelu"))
        set_specs(r, SPEC_hidden, SPEC_hidden);
    if (ends_in(name, "post-attention-dropout"))
        set_specs(r, SPEC_sequence, SPEC_sequence);
    r->algorithms = first || ends_in(name, "attention-dense") || ends_in(name, "GEMM-2");
    if (r->algorithms) { /* by columns, by rows; the other way round for the second product */
        r->in[!first] = SPEC_sequence;
        r->out[!first] = SPEC_hidden;
        r->in[first] = SPEC_hidden;
        r->out[first] = SPEC_sequence;
    }
}

static void describe(const struct aceso *a, struct aceso_row *r) {
    const char *name = r->name;
    bool conv = strstr(name, "conv") || strstr(name, "downsample");
    if (a->family == ACESO_gpt)
        describe_gpt(r);
    else if (a->family == ACESO_resnet)
        set_specs(r, SPEC_batch, SPEC_batch);
    r->algorithms |= a->family == ACESO_resnet && conv;
    r->breaks = !strcmp(name, "enc-1st-layernorm") || strstr(name, "-conv1");
    r->kept = ends_in(name, "-embedding") || ends_in(name, "-post-process") ||
              !strcmp(name, "conv1");
    bool shared = !strcmp(name, "enc-attention-softmax") || !strcmp(name, "bn1") ||
                  strstr(name, "-bn3") ||
                  (strstr(name, "-downsample") && !strstr(name, "0-0"));
    r->counts = shared ? 0 : strcmp(name, "enc-attention-dropout") == 0 ? 1.5 : 1;
    for (int m = 0; m < ACESO_MOST_MBS; m++)
        for (int t = 0; t < ACESO_MOST_TP; t++)
            for (int k = 0; k < ACESO_ALGORITHMS; k++) {
                struct aceso_cell *c = &r->cells[m][t][k];
                c->kept = c->activations * r->counts;
            }
}

/* ---- the list of ops ------------------------------------------------------------------- */

static void put_rows(struct aceso *a, int first, int n, int times) {
    a->row_of = mem_grow(a->row_of, (size_t)(a->n_ops + n * times), sizeof *a->row_of);
    for (int i = 0; i < n * times; i++)
        a->row_of[a->n_ops++] = first + i % n;
}

/* Rows of a layer are there once for GPT and T5; ResNet has all its ops. */
static int list_ops(struct aceso *a, struct err *err) {
    enum {
        LAYER = 13,
        DECODER = 21,
        GPT = 1 + LAYER + 2,
        T5 = 1 + LAYER + 2 + DECODER + 2
    };
    int rows = a->tables.n_rows;
    if (a->family == ACESO_resnet) {
        put_rows(a, 0, rows, 1);
        return 0;
    }
    int expected = a->family == ACESO_gpt ? GPT : T5;
    if (rows != expected)
        return err_input(err, "tables of %d ops, where the model has %d", rows, expected);
    put_rows(a, 0, 1, 1);
    put_rows(a, 1, LAYER, a->n_layers);
    if (a->family == ACESO_t5) {
        put_rows(a, 1 + LAYER, 2, 1);
        put_rows(a, 1 + LAYER + 2, DECODER, a->n_layers);
    }
    put_rows(a, rows - 2, 2, 1);
    return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

static void name_dims(struct aceso *a) {
    struct model *m = &a->model;
    static const char *const names[DIM_first_op] = {"batch", "tp", "other", "core",
                                                    "passing"};
    m->n_dims = DIM_first_op + a->tables.n_rows;
    m->dims = arena_array(&m->arena, (size_t)m->n_dims, sizeof *m->dims);
    for (int d = 0; d < m->n_dims; d++)
        m->dims[d] = (struct model_dim){
            d < DIM_first_op ? names[d] : a->tables.rows[d - DIM_first_op].name, 1};
    m->dims[DIM_batch].size = 0;
    for (int d = DIM_tp; d <= DIM_core; d++)
        m->dims[d].size = (int64_t)1 << (a->tables.n_tp - 1);
}

static void put_space(struct op_space *s, int dim, enum role role) {
    s->dim[s->n] = dim;
    s->alias[s->n] = -1;
    s->role[s->n++] = role;
}

/* Of tensors only the batch is told: what else is split is the tables' affair. */
static struct axis_map *batch_map(struct model *m) {
    struct axis_map *map = arena_array(&m->arena, 1, sizeof *map);
    memset(map->axis, -1, sizeof map->axis);
    map->axis[0] = 0;
    map->grouped = -1;
    return map;
}

static void make_op(struct aceso *a, int i, struct axis_map *map) {
    struct model *m = &a->model;
    const struct aceso_row *row = &a->tables.rows[a->row_of[i]];
    struct model_op *op = &m->ops[i];
    int *ends = arena_array(&m->arena, 2, sizeof *ends);
    ends[0] = i;
    ends[1] = i + 1;
    *op = (struct model_op){.name = row->name,
                            .block = -1,
                            .file_op = a->row_of[i],
                            .n_in = 1,
                            .in = ends,
                            .n_out = 1,
                            .out = ends + 1,
                            .in_map = map,
                            .out_map = map};
    put_space(&op->space, DIM_batch, ROLE_parallel);
    put_space(&op->space, row->algorithms ? DIM_tp : DIM_core, ROLE_contracted);
    if (row->algorithms)
        put_space(&op->space, DIM_other, ROLE_contracted);
    put_space(&op->space, DIM_first_op + a->row_of[i], ROLE_whole);
}

int aceso_make_chain(struct aceso *a, struct err *err) {
    struct model *m = &a->model;
    for (int i = 0; i < a->tables.n_rows; i++)
        describe(a, &a->tables.rows[i]);
    if (list_ops(a, err) < 0)
        return -1;
    m->name = "aceso";
    m->preset = m->ref = m->set = "";
    name_dims(a);
    m->n_ops = m->n_file_ops = a->n_ops;
    m->n_tensors = a->n_ops + 1;
    m->ops = arena_array(&m->arena, (size_t)m->n_ops, sizeof *m->ops);
    m->tensors = arena_array(&m->arena, (size_t)m->n_tensors, sizeof *m->tensors);
    struct axis_map *map = batch_map(m);
    for (int i = 0; i <= a->n_ops; i++)
        m->tensors[i] = (struct model_tensor){
            "passing", {2, {DIM_batch, DIM_passing}}, i - 1, false, false, DATA_INPUT};
    for (int i = 0; i < a->n_ops; i++)
        make_op(a, i, map);
    return 0;
}

void aceso_free_chain(struct aceso *a) {
    arena_release(&a->model.arena);
    free(a->row_of);
}
