/* Operands, arithmetic and traffic of an instruction, from its shape alone.
 *
 * The operands stand in the order of OPCODES (program.h). Bytes are what must cross memory
 * once: every operand read, every result written, accumulated ones read as well. */
#include "profile-op.h"

#include <string.h>

static void in(struct work *w, int64_t elems) {
    w->in[w->n_in++] = elems;
}

static void out(struct work *w, int64_t elems) {
    w->out[w->n_out++] = elems;
}

/* The operand added last holds ids below n. */
static void ids(struct work *w, int64_t n) {
    w->ids = w->n_in - 1;
    w->n_ids = n;
}

static void linear_work(enum opcode code, const int64_t *n, struct work *w) {
    int64_t x = n[0] * n[2], y = n[0] * n[1], weight = n[1] * n[2];
    w->flops = 2.0 * (double)n[0] * (double)n[1] * (double)n[2];
    in(w, code == I_linear_dx ? y : x);
    in(w, code == I_linear_dw ? y : weight);
    if (code == I_linear) {
        in(w, n[4] ? n[1] : 0);
        out(w, y);
    } else if (code == I_linear_dx) {
        out(w, x);
    } else {
        out(w, weight);
        out(w, n[4] ? n[1] : 0);
        w->bytes += 4.0 * (double)weight;
    }
}

static void layernorm_work(enum opcode code, const int64_t *n, struct work *w) {
    int64_t x = n[0] * n[1];
    bool forward = code == I_layernorm || code == I_layernorm_apply;
    bool backward = code == I_layernorm_bwd || code == I_layernorm_bwd_apply;
    w->flops = (backward ? 12.0 : 8.0) * (double)x;
    in(w, x);
    if (code != I_layernorm_moments)
        in(w, n[1]);
    if (forward) {
        in(w, n[1]);
        if (code == I_layernorm_apply)
            in(w, 2 * n[0] * n[2]);
        out(w, x);
    } else if (code != I_layernorm_moments) {
        in(w, 2 * n[0]);
        in(w, x);
        if (code == I_layernorm_bwd_apply)
            in(w, 2 * n[0]);
    }
    if (backward) {
        out(w, x);
        out(w, n[1]);
        out(w, n[1]);
    } else {
        out(w, 2 * n[0]); /* statistics, moments or sums */
    }
}

static void attention_work(enum opcode code, const int64_t *n, struct work *w) {
    int64_t o = n[0] * n[1] * n[2] * n[3], lse = n[0] * n[1] * n[2];
    double pairs = n[4] ? 0.5 * (double)(n[2] + 1) : (double)n[2];
    in(w, 3 * o);
    if (code == I_attention) {
        w->flops = 4.0 * (double)o * pairs;
        out(w, o);
        out(w, lse);
    } else {
        w->flops = 10.0 * (double)o * pairs; /* the scores are made again */
        in(w, o);
        in(w, lse);
        in(w, o);
        out(w, 3 * o);
    }
}

static void embedding_work(enum opcode code, const int64_t *n, struct work *w) {
    int64_t rows = n[0] * n[2], table = n[1] * n[2];
    in(w, n[0]);
    ids(w, n[1]);
    if (code == I_embedding) {
        in(w, table);
        out(w, rows);
    } else {
        in(w, rows);
        out(w, table);
    }
    /* Only the rows that occur are touched. */
    w->bytes = 4.0 * (double)(n[0] + (code == I_embedding ? 1 : 2) * rows) -
               4.0 * (double)(table + n[0]);
}

static void cross_entropy_work(enum opcode code, const int64_t *n, struct work *w) {
    int64_t logits = n[0] * n[1];
    w->flops = 6.0 * (double)logits;
    if (code == I_cross_entropy_finish) {
        in(w, 3 * logits);
        out(w, n[0]);
        return;
    }
    in(w, logits);
    in(w, n[0]);
    ids(w, n[1]);
    if (code == I_cross_entropy_dx) {
        in(w, n[0]);
        out(w, logits);
    } else {
        out(w, code == I_cross_entropy_part ? 3 * n[0] : n[0]);
    }
}

/* Elementwise and the optimizers; what is updated in place is an operand that is written.
 */
static void curve_work(enum opcode code, const int64_t *n, struct work *w) {
    double elems = (double)n[0];
    switch (code) {
    case I_bias:
        in(w, n[0]), in(w, n[1]), out(w, n[0]);
        w->flops = elems;
        break;
    case I_bias_dw:
        in(w, n[0]), out(w, n[1]);
        w->flops = elems;
        break;
    case I_add:
    case I_gelu_dx:
    case I_relu_dx:
    case I_silu_dx:
        in(w, n[0]), in(w, n[0]), out(w, n[0]);
        w->flops = code == I_add ? elems : 8 * elems;
        break;
    case I_copy:
        in(w, 2 * n[0]), out(w, n[0]);
        w->bytes = -4 * elems; /* every other run is read */
        break;
    case I_fill: out(w, n[0]); break;
    case I_sum_squares:
        in(w, n[0]);
        w->flops = 2 * elems;
        break;
    case I_adamw:
        in(w, n[0]), in(w, n[0]), in(w, n[0]), in(w, n[0]);
        w->flops = 12 * elems;
        w->bytes = 12 * elems;
        break;
    case I_sgd:
        in(w, n[0]), in(w, n[0]), in(w, n[0]);
        w->flops = 5 * elems;
        w->bytes = 8 * elems;
        break;
    default: /* activations and dropout */
        in(w, n[0]), out(w, n[0]);
        w->flops = 8 * elems;
        break;
    }
}

static void fill_work(enum opcode code, const int64_t *n, struct work *w) {
    switch (code) {
    case I_linear:
    case I_linear_dx:
    case I_linear_dw: linear_work(code, n, w); break;
    case I_embedding:
    case I_embedding_dw: embedding_work(code, n, w); break;
    case I_layernorm:
    case I_layernorm_bwd:
    case I_layernorm_moments:
    case I_layernorm_apply:
    case I_layernorm_bwd_sums:
    case I_layernorm_bwd_apply: layernorm_work(code, n, w); break;
    case I_attention:
    case I_attention_bwd: attention_work(code, n, w); break;
    case I_cross_entropy:
    case I_cross_entropy_part:
    case I_cross_entropy_finish:
    case I_cross_entropy_dx: cross_entropy_work(code, n, w); break;
    default: curve_work(code, n, w); break;
    }
}

/* Weights, activations that the forward pass kept, gradients that are summed up: what no
 * instruction just before has touched. */
static unsigned old_operands(enum opcode code) {
    enum { IN0 = 1, IN1 = 2, IN2 = 4, IN3 = 8, OUT0 = 256, OUT1 = 512, OUT2 = 1024 };
    switch (code) {
    case I_linear:
    case I_linear_dx:
    case I_embedding:
    case I_bias: return IN1;
    case I_linear_dw: return IN0 | OUT0 | OUT1;
    case I_embedding_dw:
    case I_bias_dw: return OUT0;
    case I_layernorm:
    case I_layernorm_apply: return IN1 | IN2;
    case I_layernorm_bwd:
    case I_layernorm_bwd_apply: return IN0 | IN1 | IN2 | OUT1 | OUT2;
    case I_layernorm_bwd_sums: return IN0 | IN1 | IN2;
    case I_attention_bwd: return IN0 | IN1 | IN2;
    case I_gelu_dx:
    case I_relu_dx:
    case I_silu_dx:
    case I_add: return IN0; /* of a residual sum, the older branch */
    case I_fill: return OUT0;
    case I_sum_squares:
    case I_adamw:
    case I_sgd: return IN0 | IN1 | IN2 | IN3;
    default: return 0;
    }
}

void work_of(const struct enum_key *key, struct work *w) {
    enum opcode code = key->code;
    *w = (struct work){.ids = -1, .old = old_operands(code)};
    w->update = code == I_fill || code == I_sum_squares || code == I_adamw || code == I_sgd;
    fill_work(code, key->n, w);
    for (int i = 0; i < w->n_in; i++)
        w->footprint += 4 * w->in[i];
    for (int i = 0; i < w->n_out; i++)
        w->footprint += 4 * w->out[i];
    w->bytes += (double)w->footprint;
}
