/* --keep-best: the checkpoint whose validation loss was the smallest, in DIR/best. */
#include "run.h"

#include "checkpoint/ckptdir.h"

#include <math.h>
#include <stdlib.h>

/* On rank 0: may this run write there, and how good is what it has written before? The lock of DIR stands for
 * both. */
static int look(struct run_best *b, uint64_t run, bool resumes, struct err *err) {
    int lock = checkpoint_lock(b->dir, err);
    struct checkpoint *ck = NULL;
    checkpoint_unlock(lock);
    if (lock < 0 || checkpoint_check_run(b->dir, resumes ? run : 0, INT64_MAX, err) < 0 ||
        (checkpoint_is(b->dir) && checkpoint_open(&ck, b->dir, err) < 0))
        return -1;
    if (ck && checkpoint_info(ck)->valid_loss > 0)
        b->loss = checkpoint_info(ck)->valid_loss;
    checkpoint_close(ck);
    return 0;
}

int run_open_best(struct run_best *b, struct comm *comm, const char *dir, uint64_t run,
                  bool resumes, struct err *err) {
    b->dir = ckpt_join(dir, "best");
    b->loss = INFINITY;
    int rc = comm_rank(comm) == 0 ? look(b, run, resumes, err) : 0;
    if (exec_agree(comm, rc, err) < 0)
        return -1;
    double negative = -b->loss;
    rc = comm_max_double(comm_world(comm), &negative, 1, err);
    b->loss = -negative;
    return rc;
}
