/* curve.h - how long an instruction takes on a kind of device, as a curve of physical form.
 *
 * Three forms stand for all instructions. One that moves memory takes a launch, then its
 * bytes at the pace of the cache as far as they fit there and at that of the memory beyond.
 * A product is cut into tiles, which the multiprocessors take wave by wave; the fastest of
 * several tilings counts, with the inner dim whole or cut too. Attention is tiles of
 * queries that walk over the keys. Parameters are fractions of what the chip's datasheet
 * promises, times, or numbers of elements, so that the same curve on another chip is a
 * first guess of its times; all are positive, and a time never falls where a size grows.
 *
 *     struct curve c = curve_default(CURVE_PRODUCT);
 *     struct curve_shape s = curve_shape(&key);
 *     double us = curve_us(&chip, &c, &s);
 */
#ifndef WEFT_CURVE_H
#define WEFT_CURVE_H

#include "plan/cluster.h"
#include "program/instr.h"

/* The datasheet of one device. */
struct chip {
    double multiprocessors;
    double
        flops[CLUSTER_DTYPES]; /* peak per second by type; 0 = it has none of this type */
    double bandwidth;          /* of its memory, bytes per second */
    double cache_bytes, cache_bandwidth; /* of the last cache that all share */
};

/* id, name, and parameters P: name, first guess, least, most. S: one that the datasheet
 * itself states, which fits move three times as reluctantly. */
#define CURVE_FORMS(X, P, S)                                                               \
    X(MOVE, "move",                                                                        \
      P("launch_us", 1.5, 0.05, 1e5) P("memory", 0.85, 1e-3, 4) P("cache", 0.7, 1e-3, 4)   \
          P("row_us", 0.01, 1e-6, 1e3))                                                    \
    X(PRODUCT, "product",                                                                  \
      P("launch_us", 2, 0.05, 1e5) P("peak", 0.8, 1e-3, 1) P("fill", 150, 1, 1e4)          \
          P("balance", 20, 0.1, 500) P("memory", 0.8, 1e-2, 2) P("quantum", 0.5, 0.02, 1)  \
              S("cache", 1, 1e-2, 4) S("units", 1, 5e-3, 2))                               \
    X(ATTENTION, "attention",                                                              \
      P("launch_us", 5, 0.05, 1e5) P("peak", 0.5, 1e-3, 1) P("width", 32, 0.1, 500)        \
          P("fill", 64, 1, 1e4) P("positions", 1.2, 0.2, 20) P("lengths", 0.6, 0.05, 2))

/* The first parameter of each form. */
enum { CURVE_LAUNCH };

/* The form of links (link_curve.h), which only communication takes. F: a parameter that
 * fits move ten times as reluctantly, since rows of small messages say nothing about it. */
#define CURVE_LINK_FORM(X, P, F)                                                           \
    X(LINK, "link",                                                                        \
      P("launch_us", 30, 1e-3, 1e6) P("round_us", 8, 1e-3, 1e6)                            \
          P("bulk_us", 20, 1e-3, 1e6) P("bulk_round_us", 2, 1e-3, 1e6)                     \
              P("slow", 3, 1, 100) F("reached", 0.85, 1e-3, 1))

#define CURVE_NO_PARAM(name, guess, least, most)
#define CURVE_ID(id, name, params) CURVE_##id,
enum curve_form {
    CURVE_FORMS(CURVE_ID, CURVE_NO_PARAM, CURVE_NO_PARAM) CURVE_FORM_COUNT,
    CURVE_LINK = CURVE_FORM_COUNT
};

enum { CURVE_MAX_PARAMS = 8 };

struct curve_param {
    const char *name;
    double guess, least, most;
    double firm; /* how much more reluctantly than others a fit moves it */
    bool sheet;  /* the datasheet states it */
};
const char *curve_form_name(enum curve_form f);
/* The parameters of a form in their order, up to one whose name is NULL. */
const struct curve_param *curve_params(enum curve_form f);
enum curve_form curve_form_of(enum opcode code);

struct curve {
    enum curve_form form;
    double p[CURVE_MAX_PARAMS];
    /* the truth lies in t / (1 + within) .. t * (1 + within) four times out of five */
    double within;
    int64_t rows; /* measured rows that it was fitted to; 0 = none */
};
struct curve curve_default(enum curve_form f);

/* What the forms need to know of an instruction. */
struct curve_shape {
    enum dtype dtype;
    double flops, bytes;
    double m, n, k,
        batch;   /* of products; attention: queries, heads times samples, keys, width */
    double rows; /* of what works row by row, else 0 */
    bool positions, lengths, causal;
    /* of what communicates: the time of its bytes at the datasheet's speed, and how often
     * it waits, round a ring and up and down a tree (levels 0: there is no tree) */
    double ring_us, rounds, tree_us, levels;
};
struct curve_shape curve_shape(const struct instr_key *key);

/* Microseconds, negative where the chip computes nothing of this type. A link does not
 * depend on the chip, which may be NULL then. */
double curve_us(const struct chip *chip, const struct curve *c,
                const struct curve_shape *s);

#endif
