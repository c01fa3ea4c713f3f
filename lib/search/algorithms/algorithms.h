/* algorithms.h - the table of search algorithms: one line each, from which the functions'
 * declarations, the help and message of --algorithm, the list in weft-search(1) (make
 * update-manual) and the tests come. A new algorithm is a file and a line here.
 *
 *     const struct algorithm *a = algorithm_find("hops");
 *     if (a && search_run(&p, a->run, &r, &err) < 0) ...
 */
#ifndef WEFT_ALGORITHMS_H
#define WEFT_ALGORITHMS_H

#include "search/search.h"

/* Function (behind search_), name, is it exact, is it random, and sentences for the manual. Exact: what
 * it ends with by itself is the best of the space that it searches. Random: the seed steers it. */
#define ALGORITHMS(X)                                                                           \
    X(auto, "auto", false, true,                                                                \
      "A portfolio: dp alone where that soon proves the best plan; else hops while the "        \
      "bound is worked out beside it, and if the gap is open then mcmc and gradient, "          \
      "which start from the best plan so far. Each ends by its own measure of work, so "        \
      "that the plan depends neither on the machine nor on --threads.")                         \
    X(hops, "hops", false, true,                                                                \
      "Iterative bottleneck alleviation: find the stage that bounds time or memory, and "       \
      "try the changes that relieve it of that resource: move ops to a neighbour, trade "       \
      "devices, change layouts, the micro-batch, recomputation, sharding, the schedule. "       \
      "A chain of several such changes is followed even where the first ones alone make "       \
      "the plan worse. No plan is visited twice. It starts from uniform pipelines and "         \
      "from those that the stages solver of weft-solve(1) cuts, and lays out all ops of "       \
      "a stage at once by its layout solver. The best plans are annealed as by mcmc; in "       \
      "the end the best one is changed at random a few times and improved again.")              \
    X(grid, "grid", false, false,                                                               \
      "What a person would try, after Megatron-LM: all stages have as many devices and "        \
      "as many whole blocks, and are split alike, tensor, context, expert and data "            \
      "parallelism multiplied, with every micro-batch, schedule and level of ZeRO; "            \
      "nothing is recomputed, what is cheap, or all of every block.")                           \
    X(dp_only, "dp-only", false, false,                                                         \
      "One stage whose devices all split the batch, with the best micro-batch, level of "       \
      "ZeRO and recomputation.")                                                                \
    X(mcmc, "mcmc", false, true,                                                                \
      "Annealed sampling, after FlexFlow: anything that a plan decides is changed at "          \
      "random, and a change that makes the plan worse is kept with a probability that "         \
      "falls. Memory that is missing has a price that rises meanwhile. Chains start in "        \
      "turns from the best of some random pipelines and from the best plan so far, until "      \
      "one of either kind finds nothing better.")                                               \
    X(random, "random", false, true,                                                            \
      "The baseline of every comparison: random pipelines, each followed by random "            \
      "changes that are all kept; every legal plan on the way is scored, and the best one "     \
      "wins.")                                                                                  \
    X(gradient, "gradient", false, true,                                                        \
      "Descent on the relaxed problem, after pipeDejavu: probabilities of every cut, "          \
      "layout and level of recompute, sharpened until they decide. It starts from many "        \
      "random points in several shapes of pipeline, half of which end after each of "           \
      "several laps; the best are rounded, cut anew within the memory, and improved by "        \
      "single hops.")                                                                           \
    X(dp, "dp", false, false,                                                                   \
      "Cuts pipelines by the stages solver for every micro-batch, with their devices, "         \
      "uniform presets, recompute and ZeRO, and lays out their stages by the layout "           \
      "solver. Where all ways of a stage can be listed, branch and bound over all else "        \
      "follows: then the plan is proven to be the best.")                                       \
    X(ilp, "ilp", false, false,                                                                 \
      "After TePDist: cuts pipelines as dp does, but lays out their stages exactly, by "        \
      "what ops cost alone and beside each other: they are eliminated one after the "           \
      "other. Where tables get too large, or a limit of memory leaves a gap, a stage is "       \
      "cut at its critical ops, each piece is a program for lp_solve for every pair of "        \
      "layouts at its ends, and dynamic programming joins them. The same tables say what a "    \
      "stage takes at least, before its ways are listed: so the branch and bound that "         \
      "follows where they can be proves larger spaces than dp does.")                           \
    X(exhaustive, "exhaustive", true, false,                                                    \
      "Lists every plan of the space, layouts of single ops and all, but for stages that "      \
      "another way beats whatever their neighbours are. It proves which plan is best in small " \
      "spaces and refuses others.")                                                             \
    X(presets, "presets", true, false,                                                          \
      "The same where all ops of a stage are laid out in one uniform preset.")

#define ALGORITHM_DEFAULT "auto"

struct algorithm {
    const char *name;
    search_algorithm *run;
    bool exact, random;
    const char *about; /* sentences */
};

#define X(...) +1
enum { ALGORITHM_COUNT = ALGORITHMS(X) };
#undef X

#define X(id, ...) search_algorithm search_##id;
ALGORITHMS(X)
#undef X

extern const struct algorithm algorithms[ALGORITHM_COUNT];

/* NULL if there is none of this name. */
const struct algorithm *algorithm_find(const char *name);

/* "hops, exhaustive" as a constant, and the same with the default in brackets. */
#define ALGORITHM_LISTED_(id, name, ...) ", " name
#define ALGORITHM_NAMES                  (&(ALGORITHMS(ALGORITHM_LISTED_))[2])
#define ALGORITHM_HELP                   (&(ALGORITHMS(ALGORITHM_LISTED_) " (" ALGORITHM_DEFAULT ")")[2])

#endif
