/* op_memo.h - what a provider says of instructions, each asked once while it is remembered.
 *
 * A search asks for the same few thousand shapes millions of times, and finding a time from
 * a fit and the rows near it takes microseconds.
 *
 *     struct op_memo m = {0};
 *     struct cost_time t = op_memo_ask(&m, provider, &question);
 *     op_memo_release(&m);
 */
#ifndef WEFT_OP_MEMO_H
#define WEFT_OP_MEMO_H

#include "cost/provider.h"

/* Zero-initialized is empty. All questions to one are for the same provider. */
struct op_memo {
    /* by a hash of the question; later ones replace earlier ones; NULL: none yet */
    struct known_op *ops;
};

struct cost_time op_memo_ask(struct op_memo *m, const struct cost_provider *p,
                             const struct op_question *q);
void op_memo_release(struct op_memo *m);

#endif
