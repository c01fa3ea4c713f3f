/* kind.h - the kinds of op: one descriptor each, from which everything else follows.
 *
 * A descriptor says in patterns what an op of the kind reads, holds and gives. The reader checks
 * an op against them and binds it (model_bind): the dims of the patterns, with the op's real dims
 * in their place, are its iteration space; each has a role, and maps say which axis of which
 * tensor it is. Layouts, placements, collectives, memory, the counters, the schema and the manual
 * are derived from that. Only lowering (program) and kernels (device) know a kind by name.
 *
 *     "x[B.. h]"         a tensor: any number of dims (upper case), then one (lower case)
 *     "ids:int[B..]"     of whole numbers: tokens, labels
 *     "bias[h]?"         may be missing
 *     "weight[h]=ones"   how a parameter begins: ones, zeros; else normal
 *     "+bias[h]"         added once, after the sum over what is contracted
 *     "~mean[c]"         no weight: a running statistic, which no optimizer changes
 *     "!bias[e]"         never trained: frozen from the beginning
 *     "k<=e"             among the roles: a dim is at most as large as another
 *     "qkv[b s 3 h d]"   a dim that must have this size, and cannot be split
 *     "x[b s h d%2]"     a dim whose size is a multiple of 2
 *     "k[b t h/ d]"      one for each group of several of h: its size divides that of h
 *     "y[b h' w' k]"     h' is the h of another tensor: under its name, or under one of its own
 *
 * A dim that stands in no result is summed over (contracted), any other is parallel; `roles`
 * lists the exceptions. A halo dim slides a window over its operand: of as many taps as the dim
 * of the weight that is named behind it has ("h halo:r"), else as the attribute "kernel" says;
 * "stride" and "padding" are attributes too, and the reader checks the sizes. A gathered dim may
 * be another's: keys stand under the dim of the queries, and splitting it splits the queries. What
 * has it goes round in parts instead where a layout says so (plan/placement.h); the lowering does
 * that. What has one element for each group of several is cut with them as far as the axes divide
 * it, from the outermost on, and is whole on the others.
 *
 * Which weights are matrices follows too (model_matrix.c): those of einsums, not the one whose product a loss
 * reads. Dims that only the operand has are the rows and those that only the result has the columns, joined
 * where there are several (heads, and what a head has); dims that both have count matrices, one for each
 * expert, and so do those that stand where a pattern has a number: query, key and value in one weight are
 * three. Optimizers for matrices (Muon) step these; all others step number by number.
 *
 * A kind may have several forms, lines of one name told apart by the number of operands or, where that is
 * the same, by how many dims these have. To add a kind: a line here, its lowering in program/lower_*.c, and the instructions and kernels that
 * this needs.
 */
#ifndef WEFT_KIND_H
#define WEFT_KIND_H

#include <stdbool.h>

/* What splitting an iteration dim over an axis means. */
#define KIND_ROLES(X)                                                                      \
    X(parallel)   /* stands in every result that matters: each rank does its part */       \
    X(contracted) /* summed away: results come out as parts of a sum */                    \
    X(coupled)    /* the maths crosses it: the op carries a small collective inside */     \
    X(halo)       /* neighbours are needed up to a reach: a window slides along it */      \
    X(gathered)   /* whole in its operands, though another dim splits the results */       \
    X(whole)      /* cannot be split */
enum role {
#define X(id) ROLE_##id,
    KIND_ROLES(X)
#undef X
};
const char *role_name(enum role role);
/* May a layout split a dim of this role? */
bool role_splits(enum role role);

/* Numbers that an op may carry: id, type, least, below (the range is least <= v < below).
 * Whole ones may be expressions over sizes. */
#define KIND_ATTRS(X)                                                                      \
    X(causal, ATTR_BOOL, 0, 2)        /* attention: position i sees 0..i */                \
    X(eps, ATTR_REAL, 0, 1)           /* norms: added to the variance */                   \
    X(rate, ATTR_REAL, 0, 1)          /* dropout: the probability of a zero */             \
    X(ignore, ATTR_INT, -1, 1L << 31) /* cross-entropy: a target that does not count */    \
    X(group, ATTR_INT, 1, 0x1p40)     /* samples of a group: routing, batch norm */        \
    X(normalize, ATTR_INT, 0, 2)      /* routing: a token's gates have the sum 1 */        \
    X(choices, ATTR_INT, 1, 1L << 16) /* expert-load: those of a token that count */       \
    X(coefficient, ATTR_REAL, 0, 1e9) /* losses of routers: what multiplies them */        \
    X(momentum, ATTR_REAL, 0, 1)      /* batch norm: of a step in running statistics */    \
    X(kernel, ATTR_INT, 1, 1L << 20)  /* pooling: the taps of its window, either way */    \
    X(stride, ATTR_INT, 1, 1L << 20)  /* halo dims: from one window to the next */         \
    X(padding, ATTR_INT, 0, 1L << 20) /* halo dims: taps outside, at either end */         \
    X(scale, ATTR_REAL, 0, 1e6)       /* attention: of the scores; 0: 1 / root of d */     \
    X(distance, ATTR_INT, 1, 1025)    /* attention: beyond it all positions are alike */   \
    X(base, ATTR_REAL, 1, 1e12)       /* rotary: of the wavelengths */                     \
    X(fan, ATTR_INT, 0, 1L << 53)     /* scale, attention: x, scores are over its root */  \
    X(share, ATTR_REAL, 0, 1.0000001) /* rotary: of the dims of a head, which turn */      \
    X(factor, ATTR_REAL, 1e-6, 1e6)   /* rotary: so much slower, for longer sequences */   \
    X(original, ATTR_REAL, 0, 1e12)   /* rotary: positions before; 0: all pairs slower */  \
    X(low, ATTR_REAL, 0, 1e6)         /* rotary: turns in them of what is slower */        \
    X(high, ATTR_REAL, 0, 1e6)        /* rotary: turns of what stays as it is */           \
    X(by_pair, ATTR_REAL, 0, 1.0000001) /* rotary: between both by pairs, else by turns */ \
    X(gain, ATTR_REAL, 0, 1e6)          /* rotary: of what has turned */                   \
    X(offset, ATTR_REAL, -1e6, 1e6)     /* norms: added to the weight */                   \
    X(root, ATTR_INT, 1, 1L << 53)      /* scale: x is multiplied by its root */           \
    X(cap, ATTR_REAL, 0, 1e30)          /* soft cap: what no number reaches; 0: none */    \
    X(window, ATTR_INT, 0, 0x1p40)      /* attention: keys seen, the last ones; 0: all */  \
    X(softcap, ATTR_REAL, 0, 1e30)      /* attention: what no score reaches; 0: none */    \
    X(start, ATTR_INT, 0, 0x1p40)       /* rows: of the table, the first position's */     \
    X(step, ATTR_INT, 0, 2)             /* rows: to the next position's; 0: one for all */ \
    X(at, ATTR_INT, 0, 0x1p40)          /* select: the position */                         \
    X(short, ATTR_LIST, 0, 257)         /* rotary: of a pair, so much slower, up to .. */  \
    X(long, ATTR_LIST, 0, 257)          /* .. `original` positions, and in longer ones */  \
    X(slope, ATTR_REAL, 0, 1e6)         /* attention: of the slopes of ALiBi; 0: none */   \
    X(temper, ATTR_REAL, 0, 1e6)        /* attention: how scores grow with the factor */   \
    X(sigmoid, ATTR_INT, 0, 2)          /* routing: a gate is of its own logit alone */    \
    X(parts, ATTR_INT, 1, 33)           /* routing: groups that experts are in, and .. */  \
    X(kept, ATTR_INT, 1, 33)            /* .. of how many of them a token's choices are */ \
    X(best, ATTR_INT, 1, 3)             /* routing: so many experts speak for a group */   \
    X(rounded, ATTR_BOOL, 0, 2)         /* attention: what ALiBi adds, to bf16 */          \
    X(over, ATTR_REAL, 1e-6, 1e6)       /* scale: x is divided by it */
enum attr {
#define X(id, type, least, below) ATTR_##id,
    KIND_ATTRS(X)
#undef X
        ATTR_COUNT
};
/* Of a list the number is how long it is. */
enum attr_type { ATTR_BOOL, ATTR_INT, ATTR_REAL, ATTR_LIST };
struct attr_info {
    const char *name;
    enum attr_type type;
    double least, below;
};
const struct attr_info *attr_info(enum attr a);

enum kind_flag {
    KIND_LOSS = 1,  /* its result is a term of the loss: a scalar that no op reads */
    KIND_CHEAP = 2, /* takes little to recompute in the backward pass */
    KIND_FREE = 4,  /* its result is its operand's bytes under other dims */
    KIND_BLEND = 8, /* bound by its dims' names alone (einsum), not by patterns */
    KIND_SIDE = 16, /* such a scalar beside the loss: a metric of its own */
    KIND_LOSSES = KIND_LOSS | KIND_SIDE,
    KIND_BULKY = 32, /* keeps much for its work, and is recomputed under "selective" */
};

/* id, name, operands, parameters, result, exceptional roles, attributes with defaults
 * ("?": must be given), flags */
#define KINDS(X)                                                                           \
    X(embedding, "embedding", "ids:int[B..]", "weight[v w]", "y[B.. w]", "", "", 0)        \
    X(bias, "bias", "x[B.. P..]", "weight[P..]", "y[B.. P..]", "", "", 0)                  \
    X(bias_at, "bias", "x[B.. s h] at:int[B.. s]", "weight[n h]", "y[B.. s h]", "n whole", \
      "", 0)                                                                               \
    X(rows, "rows", "x[B.. s h]", "weight[n h]", "y[B.. s h]", "n whole",                  \
      "start=0 step=1", 0)                                                                 \
    X(rows_at, "rows", "x[B.. s h] at:int[B.. s]", "weight[n h]", "y[B.. s h]", "n whole", \
      "start=0", 0)                                                                        \
    X(prepend, "prepend", "x[B.. s h]", "weight[r h]", "y[B.. t h]",                       \
      "s whole r whole t whole", "", 0)                                                    \
    X(select, "select", "x[B.. s h]", "", "y[B.. h]", "s whole", "at=0", KIND_CHEAP)       \
    X(transpose, "transpose", "x[B.. s t]", "", "y[B.. t s]", "", "", KIND_CHEAP)          \
    X(einsum, "einsum", "x[X..] z[Z..]?", "weight[W..]? +bias[V..]=zeros?", "y[Y..]", "",  \
      "", KIND_BLEND)                                                                      \
    X(layernorm, "layernorm", "x[B.. h]", "weight[h]=ones bias[h]=zeros?", "y[B.. h]",     \
      "h coupled", "eps=1e-5 offset=0", KIND_CHEAP)                                        \
    X(rmsnorm, "rmsnorm", "x[B.. h]", "weight[h]=ones", "y[B.. h]", "h coupled",           \
      "eps=1e-5 offset=0", KIND_CHEAP)                                                     \
    X(attention, "attention", "q[b s h d] k[b t h/ d] v[b t h/ e] lengths:int[b]?",        \
      "positions[n h]?", "y[b s h e]", "t gathered d whole e whole n whole",               \
      "causal=0 scale=0 fan=0 distance=128 window=0 softcap=0 slope=0 rounded=0 factor=1 " \
      "temper=0",                                                                          \
      KIND_BULKY)                                                                          \
    X(attention_inside, "attention", "q[b s h d] k[b t h/ d] v[b t h/ e] starts:int[b s]", \
      "positions[n h]?", "y[b s h e]", "t gathered d whole e whole n whole",               \
      "causal=0 scale=0 fan=0 distance=128 window=0 softcap=0 slope=0 rounded=0 factor=1 " \
      "temper=0",                                                                          \
      KIND_BULKY)                                                                          \
    X(attention_packed, "attention", "qkv[b s 3 h d] starts:int[b s]?", "positions[n h]?", \
      "y[b s h d]", "s whole d whole n whole",                                             \
      "causal=0 scale=0 fan=0 distance=128 window=0 softcap=0 slope=0 rounded=0 factor=1 " \
      "temper=0",                                                                          \
      KIND_BULKY)                                                                          \
    X(rotary, "rotary", "x[b s h d%2]", "", "y[b s h d]", "d whole",                       \
      "base=10000 share=1 factor=1 original=0 low=1 high=4 by_pair=0 gain=1 "              \
      "short=0 long=0",                                                                    \
      KIND_CHEAP)                                                                          \
    X(join, "join", "x[B.. h p] z[B.. h/ q]", "", "y[B.. h r]", "p whole q whole r whole", \
      "", KIND_CHEAP)                                                                      \
    X(swiglu, "swiglu", "x[B..] z[B..]", "", "y[B..]", "", "", KIND_CHEAP)                 \
    X(geglu, "geglu", "x[B..] z[B..]", "", "y[B..]", "", "", KIND_CHEAP)                   \
    X(gelu, "gelu", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                            \
    X(gelu_erf, "gelu-erf", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                    \
    X(relu, "relu", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                            \
    X(silu, "silu", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                            \
    X(tanh, "tanh", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                            \
    X(relu2, "relu2", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                          \
    X(sigmoid, "sigmoid", "x[B..]", "", "y[B..]", "", "", KIND_CHEAP)                      \
    X(softcap, "softcap", "x[B..]", "", "y[B..]", "", "cap=0", KIND_CHEAP)                 \
    X(scale, "scale", "x[B..]", "", "y[B..]", "", "fan=1 root=1 gain=1 over=1",            \
      KIND_CHEAP)                                                                          \
    X(add, "add", "x[B..] z[B..]?", "", "y[B..]", "", "", 0)                               \
    X(dropout, "dropout", "x[B..]", "", "y[B..]", "", "rate=0", KIND_CHEAP)                \
    X(route, "route", "logits[B.. t e]", "!bias[e]=zeros?",                                \
      "gates[B.. t k] slots:int[B.. t k]", "t whole e whole k whole k<=e",                 \
      "group=1 normalize=0 gain=1 sigmoid=0 parts=1 kept=1 best=1", 0)                     \
    X(dispatch, "dispatch", "x[B.. t h] slots:int[B.. t k]", "", "y[e B.. c h]",           \
      "t whole k whole c whole", "", 0)                                                    \
    X(combine, "combine", "x[e B.. c h] gates[B.. t k] slots:int[B.. t k]", "",            \
      "y[B.. t h]", "t whole k whole c whole", "", 0)                                      \
    X(expert_load, "expert-load", "logits[B.. t e]", "", "y:f32[B.. 2 e]",                 \
      "t whole e whole", "choices=1", 0)                                                   \
    X(balance, "balance", "load:f32[B.. 2 e]", "", "y[]", "e whole",                       \
      "group=1 coefficient=0.01", KIND_SIDE)                                               \
    X(router_z, "router-z", "logits[B.. e]", "", "y[]", "e whole", "coefficient=0.001",    \
      KIND_SIDE)                                                                           \
    X(reshape, "reshape", "x[X..]", "", "y[Y..]", "", "", KIND_FREE)                       \
    X(conv2d, "conv2d", "x[b h w c]", "weight[r s c k]", "y[b h' w' k]",                   \
      "h halo:r w halo:s r whole s whole", "stride=1 padding=0", 0)                        \
    X(batchnorm, "batchnorm", "x[b S.. c]",                                                \
      "weight[c]=ones bias[c]=zeros ~mean[c]=zeros ~variance[c]=ones", "y[b S.. c]",       \
      "b coupled S coupled", "group=? momentum=0.1 eps=1e-5", KIND_CHEAP)                  \
    X(maxpool, "maxpool", "x[b h w c]", "", "y[b h' w' c]", "h halo w halo",               \
      "kernel=? stride=1 padding=0", KIND_CHEAP)                                           \
    X(avgpool, "avgpool", "x[b S.. c]", "", "y[b c]", "", "", KIND_CHEAP)                  \
    X(cross_entropy, "cross-entropy", "x[B.. c] targets:int[B..]", "", "y[]", "c coupled", \
      "ignore=-1", KIND_LOSS)

enum kind_id {
#define X(id, ...) OP_##id,
    KINDS(X)
#undef X
        KIND_COUNT
};

enum { KIND_MAX_SLOTS = 4, KIND_MAX_PATTERN = 8 };

/* A dim of a pattern. */
struct pattern_dim {
    char name;    /* 'B', 'h'; 0 for a number */
    bool group;   /* any number of dims */
    bool grouped; /* one for each group of several of the dim of this name */
    bool primed;  /* the same dim as another, perhaps under another name */
    int size;     /* of a number */
    int multiple; /* of which its size is one; 0 = of any */
};
enum slot_init { SLOT_NORMAL, SLOT_ONES, SLOT_ZEROS };
/* A place for a tensor. */
struct kind_slot {
    char name[16];
    bool integer, optional;
    bool wide;    /* always f32, whatever the type of a plan's tensors */
    bool once;    /* a parameter that is added after the sum over contracted dims */
    bool running; /* a running statistic */
    bool fixed;   /* never trained */
    enum slot_init init;
    int rank;
    struct pattern_dim dim[KIND_MAX_PATTERN];
};
struct kind {
    const char *name;
    int n_in, n_param, n_out;
    struct kind_slot in[KIND_MAX_SLOTS], param[KIND_MAX_SLOTS], out[KIND_MAX_SLOTS];
    enum role role[128]; /* by the letter of a pattern */
    char at_most[128];   /* the letter whose dim is not smaller, or 0 */
    char window[128];    /* of a halo dim: the letter whose size counts its taps, or 0 */
    double attr[ATTR_COUNT];
    bool has_attr[ATTR_COUNT], needs_attr[ATTR_COUNT];
    unsigned flags;
};

/* The descriptor of a kind, parsed once. */
const struct kind *kind_of(enum kind_id id);
/* The first form of the kind of this name; KIND_COUNT if there is none. */
enum kind_id kind_find(const char *name);
/* Operands that it needs. */
int kind_least(const struct kind *k);
/* The form of the same kind that takes so many operands, of so many dims each (ranks; -1 = any), or, if
 * there is none, the first that takes so many, or the first of all. */
enum kind_id kind_form(enum kind_id id, int n_in, const int *ranks);

#endif
