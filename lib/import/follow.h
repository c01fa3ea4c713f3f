/* follow.h - inside the importer: what each value of a program is in weft's words.
 *
 * The program is followed from node to node. A view changes how the axes of a value list their atoms
 * (axes.h) and makes no op. What is not yet an op waits in a form of its own: a function of one tensor
 * until something reads it that wants the tensor, scores until they are shares of values. So patterns
 * are not searched for: RMSNorm, rotary positions, attention and GELU come about by what their nodes
 * do, in whichever form they were written. What has no form is refused, with its target and module,
 * and followed as a tensor of which nothing is known, so that one message names all of it.
 *
 *     struct follow t = {.p = &program};
 *     follow_run(&t);
 *     printf("%lld ops\n", (long long)t.ops.n);
 *     follow_release(&t);
 */
#ifndef WEFT_FOLLOW_H
#define WEFT_FOLLOW_H

#include "common/alibi.h"
#include "import/axes.h"
#include "import/fold.h"
#include "import/point.h"
#include "model/kind.h"

enum {
    FOUND_INPUT = -1,   /* in place of a kind: data */
    FOUND_REFUSED = -2, /* what weft has no op for */
    FOUND_SECOND = -3,  /* the second result of the op that is its operand */
    FOUND_MOST_IN = 4,
    FOUND_MOST_PARAM = 2,
};

/* A parameter of an op. */
struct found_param {
    int param;        /* of follow.params */
    struct axis dims; /* as the op has them */
    /* Where the op has a part of it: the atom that is cut, its first index of it, and the atom of the part
     * or -1 where that is one index. part is -1 where the op has all of it. */
    int part, index, as;
};

struct found_op {
    int kind; /* enum kind_id, or one of the above */
    int node; /* of the program, or -1 */
    int n_in, in[FOUND_MOST_IN];
    struct axis dims; /* of its result, in the order in which it lies */
    int n_param;
    struct found_param param[FOUND_MOST_PARAM];
    json_t *attrs; /* or NULL */
    int value;     /* FOUND_INPUT: the program's */
    const char *source;
    const char *path, *why; /* module; of a refusal */
    int part_of,
        next_part; /* ops that compute parts of another: its number, the next of them */
    bool live;
    /* Repeats (repeat.h): which run of blocks, which instance, the number of the op in it. */
    int run, instance, place;
    const char *name, *out, *second; /* what its results are called */
};

/* A parameter of the program. */
struct followed_param {
    int value; /* the program's: the first of those that are tied; -1: it has none, see follow_fixed */
    int rank;
    struct axis axis[EXPORTED_MAX_RANK];
    int64_t rows; /* how many are used of the first axis, from the first on */
};

enum followed_form {
    FORM_CONSTANT,
    FORM_PARAMETER,
    FORM_OFFSET, /* a parameter plus a number */
    FORM_ROWS, /* rows of a parameter, by constants: for each position the next, or one for all */
    FORM_TENSOR,       /* the result of an op, or parts of it */
    FORM_POINT,        /* a function of one tensor, element by element */
    FORM_MEAN_SQUARE,  /* of the last axis, plus a number */
    FORM_INVERSE_ROOT, /* of that */
    FORM_NORMED,       /* a tensor times that */
    FORM_HALF,         /* half of the last axis */
    FORM_SPAN,         /* another part of it */
    FORM_MIXED,        /* elements of a tensor, times constants (follow_mixed.c) */
    FORM_PAIRED,    /* a tensor whose last axis lies in another order than the program's */
    FORM_SCORES,    /* products of queries and keys */
    FORM_SHARES,    /* their softmax */
    FORM_UNSEEN,    /* which of them nothing is seen of */
    FORM_POSITIONS, /* rows of a parameter, by a constant of queries and keys */
    /* Of the last axis, spelled out (follow_rows.c). */
    FORM_SUM,
    FORM_SQUARE_SUM,
    FORM_MEAN,
    FORM_MEAN_SQUARED, /* the square of the mean */
    FORM_CENTERED,     /* a tensor less its mean */
    FORM_SPREAD,       /* the squares of that */
    FORM_ROOT,         /* of MEAN_SQUARE */
    FORM_GAIN,         /* INVERSE_ROOT times a parameter */
    FORM_SCALED,       /* what is normed of a centered tensor, times a parameter */
    FORM_MAX,
    FORM_SHIFTED, /* a tensor less its MAX */
    FORM_EXPS,    /* the exponentials of that */
    FORM_EXP_SUM,
    FORM_LOG_SUM,
    FORM_LOG_SHARES, /* the logarithm of a softmax */
    FORM_PICKED,     /* those of an input's classes, times a number; or their sum */
    FORM_CHANCES,    /* a softmax of a tensor's last axis */
    FORM_ROUTED,     /* what follows from the largest of those (follow_experts.c) */
};

enum routed_step {
    ROUTED_GATES,        /* the largest shares; half: over their sum */
    ROUTED_SORTED_GATES, /* in the order of their experts */
    ROUTED_SUM,          /* of those of a token */
    ROUTED_CHOICE,       /* whose they are */
    ROUTED_SORTED,       /* that, sorted */
    ROUTED_ORDER,        /* the places of choices in that order */
    ROUTED_SENDER,       /* their tokens */
    ROUTED_BACK,         /* where each choice stands in it */
    ROUTED_COUNTS,       /* choices of each expert */
    ROUTED_ENDS,         /* where its rows end */
    ROUTED_WEIGHED,      /* what experts gave, times shares */
    ROUTED_BROUGHT,      /* that in the order of tokens */
};
struct routing;

struct followed {
    enum followed_form form;
    int rank;
    struct axis axis[EXPORTED_MAX_RANK];
    int op;    /* TENSOR */
    int param; /* PARAMETER */
    int parts; /* TENSOR: atoms of which a part is taken, see found_param */
    int part[2], index[2], as[2];
    int value; /* CONSTANT, -1: a number; POINT, MIXED: where it ends; POSITIONS: which rows */
    double
        number; /* a constant without value; eps; the scale of scores; OFFSET; the first of
                      ROWS; where a SPAN begins; what a PAIRED is multiplied by */
    const struct followed *of, *with; /* what it is made of */
    const struct followed *root;      /* POINT: where it begins */
    const struct followed *arg[3]; /* POINT: operands, as they were then; NULL: numbers */
    int size;                      /* POINT: nodes */
    int table;                     /* SCORES: a constant, or -1 */
    enum { MASK_ADDED, MASK_SEEN, MASK_UNSEEN } mask; /* what the constant of scores does */
    int added;     /* SCORES: another constant, which is added to them, or -1 */
    int half;      /* HALF; ROWS: from position to position */
    double cap;    /* SCORES: what they never reach; 0: anything */
    bool centered; /* MEAN_SQUARE and what follows from it: a variance */
    unsigned over; /* SUM: bits of the axes */
    const struct followed *positions; /* SCORES: what is added to them, or NULL */
    const struct followed *whole;     /* the tensor that it became */
    struct routing *routing;          /* ROUTED */
    enum routed_step step;
};

/* Indexes of an atom that are a part of their own: parts of different sizes lie behind each other. */
struct followed_range {
    int atom, from, count;
    int as; /* the atom of the part; -1: of one index */
};

struct follow {
    const struct exported *p;
    struct fold fold;
    struct axes axes;
    struct arena arena;
    const struct followed **values;
    ARR(struct found_op) ops;
    ARR(struct followed_param) params;
    ARR(struct followed_range) ranges;
    ARR(int) capacities; /* atoms: of rows that an expert has room for */
    int *param_of;       /* the program's values -> params, -1 */
    int node;            /* that is followed */
    const char *why;
    struct {
        int table, mask, added, causal;
        int64_t queries, keys, heads, window;
        struct alibi slope;
    } masked; /* the last mask that was looked at, and what it is */
    /* Makes whole what follow_whole.c, which stands below, knows no more of: MIXED, NORMED and SCALED. */
    const struct followed *(*make)(struct follow *t, const struct followed *x);
    json_t *notes; /* array of strings, for people */
    int loss;      /* op */
};

void follow_run(struct follow *t);
void follow_release(struct follow *t);

/* ---- follow.c, follow_whole.c: what the files share ------------------------------------------------------- */

/* Refuses what is followed. Returns NULL. */
const struct followed *follow_refuse(struct follow *t, const char *why);
struct followed *follow_new(struct follow *t, enum followed_form form,
                            const struct followed *like);
/* The value of an argument; a number becomes a constant. NULL where it is missing. */
const struct followed *follow_arg(struct follow *t, const struct exported_node *n,
                                  const char *name);
/* An op with the apartness of its dims; its number. */
int follow_op(struct follow *t, int kind, struct axis dims);
void follow_operand(struct follow *t, int op, const struct followed *x);
void follow_param(struct follow *t, int op, const struct followed *w, struct axis dims);
void follow_attr(struct follow *t, int op, const char *name, json_t *v);
/* The weight of the norm `op` of x, NULL: one that stays 1, and its bias, NULL: it has none. */
bool follow_norm_params(struct follow *t, int op, const struct followed *x,
                        const struct followed *weight, const struct followed *bias);
/* The result of an op, with the axes of another value. */
struct followed *follow_tensor(struct follow *t, int op, const struct followed *like);
/* A value under other axes. */
const struct followed *follow_reaxed(struct follow *t, const struct followed *x, int rank,
                                     const struct axis *axis);
/* The dims of a tensor as they lie, settled. */
struct axis follow_dims(struct follow *t, const struct followed *x);
/* Is every atom of its axes one of the tensor's? Not where it was stretched. */
bool follow_is_plain(struct follow *t, const struct followed *x);
/* The same with the axes lying in this order, axes of size 1 as dims of their own; NULL where they lie
 * in another. */
const struct followed *follow_arrange(struct follow *t, const struct followed *x,
                                      const int *order, int n);
/* The same with its last axis as one dim. */
const struct followed *follow_merged(struct follow *t, const struct followed *x);
/* The value as the result of an op; NULL where it is none. */
const struct followed *follow_whole(struct follow *t, const struct followed *x);
/* A constant of one element. */
bool follow_scalar(struct follow *t, const struct followed *x, double *out);

/* ---- what nodes do: the target's function gives the value of the first result, NULL = refused - */

const struct followed *follow_view(struct follow *t, const struct exported_node *n,
                                   bool *known); /* follow_view.c */
const struct followed *follow_point(struct follow *t, const struct exported_node *n,
                                    bool *known); /* follow_point.c */
const struct followed *follow_product(struct follow *t, const struct exported_node *n,
                                      bool *known); /* follow_product.c */
const struct followed *follow_layer(struct follow *t, const struct exported_node *n,
                                    bool *known); /* follow_layer.c */
/* follow_whole.c: x times a number: the number, or NaN; other functions. */
double follow_factor(struct follow *t, const struct followed *x);
/* x without the number that it is multiplied by, which *scale is multiplied by too. */
const struct followed *follow_unscaled(struct follow *t, const struct followed *x,
                                       double *scale);
bool follow_is_square(struct follow *t, const struct followed *x);
/* The kind that is this function of x times another tensor, or -1. */
int follow_gate(struct follow *t, const struct followed *x);
/* One index of the outermost atom of axis d, which is split into so many parts. */
const struct followed *follow_take(struct follow *t, const struct followed *x, int d,
                                   int64_t parts, int64_t index);
/* A half or span as such a part. */
const struct followed *follow_half(struct follow *t, const struct followed *x);
/* The elements from `from` on, so many, along axis d: a part of the outermost atom, however large the others
 * are. */
const struct followed *follow_range(struct follow *t, const struct followed *x, int d,
                                    int64_t from, int64_t size);
/* The tensor of numbers of rows, below `rows`, that x are: those from the end on are put right. */
const struct followed *follow_index(struct follow *t, const struct followed *x,
                                    int64_t rows);
/* follow_place.c: along positions. x[.., s, h] plus rows of a table; rows of a parameter in front of it,
 * of which `size` are all; one of its positions, where axis d counts them (NULL: it does not). */
const struct followed *follow_add_rows(struct follow *t, const struct followed *x,
                                       const struct followed *rows);
const struct followed *follow_prepend(struct follow *t, const struct followed *w,
                                      const struct followed *x);
const struct followed *follow_select(struct follow *t, const struct followed *x, int d,
                                     int64_t index);
/* The rows that constants name, as such a form; NULL: in another order. */
const struct followed *follow_table_rows(struct follow *t, const struct followed *w,
                                         int ids, int result);
/* The same, lying with its last two dims exchanged where that is how `want` lies; else NULL. */
const struct followed *follow_lie(struct follow *t, const struct followed *x,
                                  const struct axis *want);
/* follow_point.c: y under the names of x, where both name dims that must stay apart. */
const struct followed *follow_rename(struct follow *t, const struct followed *x,
                                     const struct followed *y);
/* follow_mixed.c: elements of one tensor times constants. An element of such a value in terms of those of the
 * tensor, which is called its root; follow_mixed: the result of a node that mixes; follow_unmixed: the tensor that
 * one is, or that a norm has become, if it is known, else itself. */
enum { MIX_TERMS = 4 };
struct follow_mix {
    int n;
    int64_t at[MIX_TERMS][EXPORTED_MAX_RANK]; /* elements of the root */
    double by[MIX_TERMS];
};
int follow_mixed_root(const struct follow *t, int value); /* -1: there is none */
bool follow_mix_at(struct follow *t, int value, int root, const int64_t *at,
                   struct follow_mix *out);
const struct followed *follow_mixed(struct follow *t, int result);
const struct followed *follow_unmixed(struct follow *t, const struct followed *x);
/* Is it between complex numbers and pairs of real ones? */
bool follow_is_paired(const char *target);
/* follow_rotary.c: a value of the program that is rotary positions, as a tensor; NULL: it is none. Two tensors
 * [.., heads, p] and [.., few, q] behind each other along the last axis. */
const struct followed *follow_rotary(struct follow *t, int value);
const struct followed *follow_join(struct follow *t, const struct followed *a,
                                   const struct followed *b);
/* follow_layer.c */
/* The mean of x over axes. */
const struct followed *follow_mean(struct follow *t, const struct followed *x,
                                   unsigned over, bool keep);
/* follow_rows.c: a function of one or two values, of which at least one is of rows; NULL where it is
 * none of those. */
const struct followed *follow_rows(struct follow *t, enum point_id id,
                                   const struct followed *a, const struct followed *b);
const struct followed *follow_reduce(struct follow *t, const struct exported_node *n,
                                     bool *known);
/* NORMED or SCALED, of which no weight or no bias comes. */
const struct followed *follow_normed(struct follow *t, const struct followed *x);
/* Is it one number for each row? */
bool follow_is_row(const struct followed *x);
/* follow_experts.c: before all others, since its values are no tensors; whether an axis is of rows that were sent
 * to experts, of which weft has room for all where a program has those that there are. */
const struct followed *follow_experts(struct follow *t, const struct exported_node *n,
                                      bool *known);
bool follow_is_sent(struct follow *t, const struct axis *a);
/* follow_mask.c: scores with a constant, of which they may have two: at most one that is not added. */
const struct followed *follow_mask(struct follow *t, const struct followed *scores,
                                   const struct followed *constant, int how);
/* What the constants of scores [.., queries, keys] are, of so many heads. 0: nothing, 1: causal, -1: neither.
 * *window: how many keys a query sees at most, 0 = all up to it. *slope: what ALiBi
 * adds; by 0: nothing. */
int follow_masked(struct follow *t, const struct followed *s, int64_t heads,
                  int64_t *window, struct alibi *slope);
/* follow_attention.c: queries and keys, whose last dims of heads may both lie in another order than the program's:
 * a product over these is the same, but for what they are multiplied by, which *scale is too. */
const struct followed *follow_plain_order(struct follow *t, const struct followed **k,
                                          const struct followed *q, double *scale);
/* q and k [.., seq, d], v alike; scores say scale and mask. */
const struct followed *follow_attend(struct follow *t, const struct followed *scores,
                                     const struct followed *v, bool causal);

#endif
