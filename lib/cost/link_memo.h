/* link_memo.h - what links groups and messages run over, each asked of the cluster once.
 *
 * A search asks for the same few groups and ends millions of times.
 *
 *     struct link_memo m = {0};
 *     struct link_class l = link_memo_group(&m, &cluster, &mesh, first_rank, axes);
 *     link_memo_release(&m);
 */
#ifndef WEFT_LINK_MEMO_H
#define WEFT_LINK_MEMO_H

#include "common/hashtable.h"
#include "common/mem.h"
#include "cost/links.h"

/* A group, identified by how its stage's ranks alternate along and across it. */
struct group_shape {
    int first_rank;
    int along; /* 1: the first of the sizes is along the group, 0: across it */
    int size[MESH_MAX_AXES]; /* outermost first, the rest 0 */
};
struct known_group {
    struct group_shape shape;
    struct link_class link;
};

/* Zero-initialized is empty. All questions to one are about the same cluster. */
struct link_memo {
    ARR(struct known_group) groups;
    struct hashtable table; /* over groups */
    struct known_message {
        int64_t sender, receiver, n; /* n == 0: not asked yet */
        struct link_class link;
        /* by a hash of their ends; later ones replace earlier ones; NULL: none yet */
    } * messages;
    int job_devices; /* ranks of the job that `job` is about; 0: not asked yet */
    struct link_class job;
};

/* links_of_group, links_of_ranks from rank 0 on, and links_of_message. */
struct link_class link_memo_group(struct link_memo *m, const struct cluster *c,
                                  const struct mesh *mesh, int first_rank, unsigned axes);
struct link_class link_memo_job(struct link_memo *m, const struct cluster *c, int devices);
struct link_class link_memo_message(struct link_memo *m, const struct cluster *c,
                                    int64_t sender, int64_t receiver, int64_t n);
void link_memo_release(struct link_memo *m);

#endif
