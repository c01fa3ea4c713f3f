/* Finds the tables that a model's name means, what the names of its ops say, and its
 * chain. */
#include "aceso/aceso_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

/* Finds the family, size and table name of a model: "gpt:1.3B" is gpt_1_3B. */
static int read_name(struct aceso_model *m, const char *model, char *name, size_t n,
                     struct err *err) {
    static const struct {
        const char *name, *file;
        enum aceso_family family;
    } families[] = {{"gpt", "gpt", ACESO_gpt},
                    {"t5", "t5", ACESO_t5},
                    {"wide-resnet", "resnet", ACESO_resnet},
                    {"resnet", "resnet", ACESO_resnet}};
    size_t length = strcspn(model, ":");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i].name) != length ||
            strncmp(model, families[i].name, length) != 0 || !model[length])
            continue;
        m->family = families[i].family;
        snprintf(m->size, sizeof m->size, "%s", model + length + 1);
        for (char *c = m->size; (c = strchr(c, '.'));)
            *c = '_';
        /* 22B has the ops of 11B, but more layers. */
        bool shared = m->family == ACESO_t5 && !strcmp(m->size, "22B");
        snprintf(name, n, "%s_%s", families[i].file, shared ? "11B" : m->size);
        return 0;
    }
    return err_input(err,
                     "--model: Aceso's tables are of gpt:SIZE, t5:SIZE and "
                     "wide-resnet:SIZE, got \"%s\"",
                     model);
}

/* Returns how many layers a model usually has, which the tables do not say. */
static int usual_layers(const struct aceso_model *m) {
    static const struct {
        const char *size;
        int layers;
    } gpt[] = {{"2_6B", 32}, {"6_7B", 32}, {"13B", 40}};
    for (size_t i = 0; m->family == ACESO_gpt && i < sizeof gpt / sizeof *gpt; i++)
        if (!strcmp(m->size, gpt[i].size))
            return gpt[i].layers;
    return m->family == ACESO_t5 && !strcmp(m->size, "22B") ? 48 : 24;
}

static int read_layers(struct aceso_model *m, const char *set, struct err *err) {
    enum { MOST_LAYERS = 1 << 14 };
    m->n_layers = usual_layers(m);
    if (!set)
        return 0;
    int n = 0, end = 0;
    if (sscanf(set, "layers=%d%n", &n, &end) != 1 || set[end] || n < 1 || n > MOST_LAYERS)
        return err_usage(err, "--set: with Aceso's tables layers=N is all, got \"%s\"",
                         set);
    if (m->family == ACESO_resnet)
        return err_usage(err, "--set: the tables have all layers of a ResNet");
    m->n_layers = n;
    return 0;
}

/* ---- what an op's name says ----------------------------------------------------------------- */

static bool ends_in(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

static void set_specs(struct aceso_op *op, enum aceso_spec in, enum aceso_spec out) {
    op->in[0] = op->in[1] = in;
    op->out[0] = op->out[1] = out;
}

/* The first product of a pair is split by columns under algorithm 0 and by rows under 1,
 * the second one the other way round. */
static void describe_gpt(struct aceso_op *op) {
    const char *name = op->name;
    bool first = ends_in(name, "qkv") || ends_in(name, "GEMM-1");
    op->two_algorithms =
        first || ends_in(name, "attention-dense") || ends_in(name, "GEMM-2");
    if (op->two_algorithms) {
        op->in[!first] = op->out[first] = SPEC_sequence;
        op->in[first] = op->out[!first] = SPEC_hidden;
        return;
    }
    set_specs(op, SPEC_sequence, SPEC_sequence);
    if (!strcmp(name, "encoder-embedding"))
        set_specs(op, SPEC_any, SPEC_sequence);
    else if (!strcmp(name, "final-layernorm"))
        set_specs(op, SPEC_sequence, SPEC_batch);
    else if (!strcmp(name, "gpt-post-process"))
        set_specs(op, SPEC_batch, SPEC_any);
    else if (ends_in(name, "score"))
        set_specs(op, SPEC_hidden, SPEC_heads);
    else if (ends_in(name, "softmax") || !strcmp(name, "enc-attention-dropout"))
        set_specs(op, SPEC_heads, SPEC_heads);
    else if (ends_in(name, "context"))
        set_specs(op, SPEC_heads, SPEC_hidden);
    else if (ends_in(name, "gelu"))
        set_specs(op, SPEC_hidden, SPEC_hidden);
}

static void describe(enum aceso_family family, struct aceso_op *op) {
    const char *name = op->name;
    if (family == ACESO_gpt)
        describe_gpt(op);
    if (family == ACESO_resnet) {
        set_specs(op, SPEC_batch, SPEC_batch);
        op->two_algorithms = strstr(name, "conv") || strstr(name, "downsample");
    }
    op->breaks = !strcmp(name, "enc-1st-layernorm") || strstr(name, "-conv1");
    op->begins_layer = op->breaks || !strcmp(name, "dec-1st-layernorm");
    op->stays = ends_in(name, "-embedding") || ends_in(name, "-post-process") ||
                !strcmp(name, "conv1");
    bool none = !strcmp(name, "enc-attention-softmax") || !strcmp(name, "bn1") ||
                strstr(name, "-bn3") ||
                (strstr(name, "-downsample") && !strstr(name, "0-0"));
    op->counts = none ? 0 : strcmp(name, "enc-attention-dropout") == 0 ? 1.5 : 1;
    op->corrected = op->counts != 1;
}

/* ---- the chain ------------------------------------------------------------------------------ */

static void append(struct aceso_model *m, int first, int n, int times) {
    m->op_of = mem_grow(m->op_of, (size_t)(m->n + n * times), sizeof *m->op_of);
    for (int i = 0; i < n * times; i++)
        m->op_of[m->n++] = first + i % n;
}

static int make_chain(struct aceso_model *m, struct err *err) {
    enum { LAYER = 13, DECODER = 21 };
    int rows = m->tables.n_rows;
    int decoder = m->family == ACESO_t5 ? DECODER + 2 : 0,
        expected = 1 + LAYER + decoder + 2;
    if (m->family == ACESO_resnet) {
        append(m, 0, rows, 1);
        return 0;
    }
    if (rows != expected)
        return err_input(err, "tables of %d ops, where the model has %d", rows, expected);
    append(m, 0, 1, 1);
    append(m, 1, LAYER, m->n_layers);
    if (decoder) {
        append(m, 1 + LAYER, 2, 1);
        append(m, 1 + LAYER + 2, DECODER, m->n_layers);
    }
    append(m, rows - 2, 2, 1);
    return 0;
}

/* Numbers the kinds of neighbours. A layer has few of them, so a linear search is short. */
static void find_pairs(struct aceso_model *m) {
    m->pair_of = mem_array((size_t)m->n, sizeof *m->pair_of);
    m->pair_op = mem_array((size_t)m->n, sizeof *m->pair_op);
    for (int i = 1; i < m->n; i++) {
        int p = 0;
        while (p < m->n_pairs && (m->op_of[m->pair_op[p]] != m->op_of[i] ||
                                  m->op_of[m->pair_op[p] - 1] != m->op_of[i - 1]))
            p++;
        m->pair_of[i] = p;
        if (p == m->n_pairs)
            m->pair_op[m->n_pairs++] = i;
    }
}

struct aceso_model *aceso_model_open(const char *dir, const char *model, const char *set,
                                     struct err *err) {
    struct aceso_model *m = mem_alloc(sizeof *m);
    char name[64];
    if (read_name(m, model, name, sizeof name, err) < 0 || read_layers(m, set, err) < 0 ||
        aceso_tables_read(dir, name, m->family != ACESO_t5, &m->tables, err) < 0 ||
        make_chain(m, err) < 0) {
        aceso_model_close(m);
        return NULL;
    }
    m->state = m->family == ACESO_resnet ? 4 : 8;
    m->converts = m->family != ACESO_t5;
    find_pairs(m);
    m->ops = mem_array((size_t)m->tables.n_rows, sizeof *m->ops);
    for (int i = 0; i < m->tables.n_rows; i++) {
        m->ops[i].name = m->tables.rows[i].name;
        describe(m->family, &m->ops[i]);
    }
    return m;
}

void aceso_model_close(struct aceso_model *m) {
    if (!m)
        return;
    aceso_tables_release(&m->tables);
    free(m->ops);
    free(m->op_of);
    free(m->pair_of);
    free(m->pair_op);
    free(m);
}
