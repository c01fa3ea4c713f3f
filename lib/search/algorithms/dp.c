/* dp - stages, sub-meshes, layouts, micro-batch, recompute and ZeRO at once.
 *
 * First come the pipelines of the stages solver for every micro-batch (slice.c):
 * exact, by dynamic programming, for uniform presets and cuts between blocks. The
 * layout solver then lays them out and their cuts are balanced. Branch and bound over
 * everything else follows if the strategies of stages can be listed (branch.h). */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/branch.h"
#include "search/algorithms/improve.h"
#include "search/algorithms/sliced.h"

static bool lay_out(struct search *s, struct candidate *c, int k, void *ctx) {
    (void)ctx;
    return search_relayout(s, c, k);
}

int search_dp(struct search *s, struct err *err) {
    (void)err;
    sliced_pipelines(s, lay_out, NULL);
    branch_to_proof(s, NULL, NULL);
    return 0;
}
