/* algorithms.h - the table of search algorithms, one entry each. The functions'
 * declarations, the help and error message of --algorithm, the list in weft-search(1) (make
 * update-manual) and the tests come from it. A new algorithm is a file and an entry here.
 *
 *     const struct algorithm *a = algorithm_find("hops");
 *     if (a && search_run(&p, a->run, &r, &err) < 0) ...
 */
#ifndef WEFT_ALGORITHMS_H
#define WEFT_ALGORITHMS_H

#include "search/search.h"

/* Columns: the function without its prefix search_, the name, whether it is exact, whether
 * it is random, and sentences for the manual. An exact algorithm that ends by itself has
 * found the best plan of the space that it searches. A random one depends on the seed. */
#define ALGORITHMS(X)                                                                       \
    X(auto, "auto", false, true,                                                            \
      "A portfolio: dp or ilp where that soon proves the best plan; otherwise hops, with "  \
      "the bound worked out beside it, and if a gap is left then grid, gradient and mcmc, " \
      "which start from the best plan so far, and beside them mcmc from random pipelines. " \
      "The plan depends neither on the machine nor on --threads.")                          \
    X(hops, "hops", false, true,                                                            \
      "Iterative bottleneck alleviation, after Aceso: find the stage that bounds time or "  \
      "memory, and try the changes that relieve it of that resource, up to several in a "   \
      "row even where the first ones alone make the plan worse.")                           \
    X(grid, "grid", false, false,                                                           \
      "What a person would try, after Megatron-LM: stages of equally many devices and "     \
      "whole blocks; every product of tensor, context, expert and data parallelism; every " \
      "micro-batch, schedule and level of ZeRO; nothing recomputed, what is cheap, or all " \
      "of every block. Where a plan is a tenth slower than the best although it does with " \
      "little ZeRO and no recompute, it is not tried with more of them.")                   \
    X(dp_only, "dp-only", false, false,                                                     \
      "One stage whose devices all split the batch, with the best micro-batch, level of "   \
      "ZeRO and recompute.")                                                                \
    X(mcmc, "mcmc", false, true,                                                            \
      "Annealed sampling, after FlexFlow: anything that a plan decides is changed at "      \
      "random, and a change for the worse is kept with a probability that falls.")          \
    X(random, "random", false, true,                                                        \
      "The baseline of every comparison: random pipelines, each followed by random "        \
      "changes that are all kept.")                                                         \
    X(gradient, "gradient", false, true,                                                    \
      "Descent on a relaxed problem, after pipeDejavu: probabilities of every cut, layout " \
      "and level of recompute are sharpened until they decide, and the best results are "   \
      "rounded and improved.")                                                              \
    X(dp, "dp", false, false,                                                               \
      "Dynamic programming over stages, devices, presets, recompute and ZeRO for every "    \
      "micro-batch, and over the layouts of each stage. Where all strategies of all "       \
      "stages can be listed, branch and bound follows, and proves the best plan.")          \
    X(ilp, "ilp", false, false,                                                             \
      "After TePDist: pipelines are cut as by dp, and the layouts of each stage are "       \
      "chosen exactly, by eliminating one op after the other or, where tables get too "     \
      "large, by integer programs between critical ops. It proves larger spaces than dp "   \
      "does.")                                                                              \
    X(exhaustive, "exhaustive", true, false,                                                \
      "Every plan of the space, layouts of single ops included, except for strategies of "  \
      "a stage that another one beats whatever its neighbours are. It proves the best "     \
      "plan of small spaces and refuses others.")                                           \
    X(presets, "presets", true, false,                                                      \
      "The same where each stage is laid out by one preset.")

#define ALGORITHM_DEFAULT "auto"

struct algorithm {
    const char *name;
    search_algorithm *run;
    bool exact, random;
    const char *about; /* whole sentences, for the manual */
};

#define X(...) +1
enum { ALGORITHM_COUNT = ALGORITHMS(X) };
#undef X

#define X(id, ...) search_algorithm search_##id;
ALGORITHMS(X)
#undef X

extern const struct algorithm algorithms[ALGORITHM_COUNT];

/* Returns NULL if no algorithm has this name. */
const struct algorithm *algorithm_find(const char *name);

/* All names in one string constant, such as "hops, exhaustive"; ALGORITHM_HELP adds the
 * default in brackets. */
#define ALGORITHM_LISTED_(id, name, ...) ", " name
#define ALGORITHM_NAMES                  (&(ALGORITHMS(ALGORITHM_LISTED_))[2])
#define ALGORITHM_HELP                   (&(ALGORITHMS(ALGORITHM_LISTED_) " (" ALGORITHM_DEFAULT ")")[2])

#endif
