/* Groups are identified by how the ranks of a stage alternate along and across them: dp:2
 * tp:4 along tp and a:2 b:2 c:2 along b and c are the same groups. So a stage of 2^k ranks
 * has at most 2^k of them, whatever its meshes. */
#include "cost/link_memo.h"

#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 512 };

static struct group_shape shape_of(const struct mesh *mesh, int first_rank, unsigned axes) {
    struct group_shape s = {.first_rank = first_rank};
    int n = 0, before = -1; /* whether the axis before is along the group */
    for (int a = 0; a < mesh->n_axes; a++) {
        const int along = (int)(axes >> a & 1);
        if (mesh->size[a] == 1)
            continue;
        if (along == before) {
            s.size[n - 1] *= mesh->size[a];
            continue;
        }
        s.along = n ? s.along : along;
        s.size[n++] = mesh->size[a];
        before = along;
    }
    return s;
}

static bool same_group(const void *groups, int64_t i, const void *shape) {
    const struct known_group *g = groups;
    return !memcmp(&g[i].shape, shape, sizeof g[i].shape);
}

struct link_class link_memo_group(struct link_memo *m, const struct cluster *c,
                                  const struct mesh *mesh, int first_rank, unsigned axes) {
    const struct group_shape s = shape_of(mesh, first_rank, axes);
    int64_t i =
        hashtable_put(&m->table, hash_bytes(&s, sizeof s, 0), same_group, m->groups.p, &s);
    if (i == m->groups.n)
        arr_push(&m->groups,
                 (struct known_group){s, links_of_group(c, mesh, first_rank, axes)});
    return m->groups.p[i].link;
}

struct link_class link_memo_job(struct link_memo *m, const struct cluster *c, int devices) {
    if (m->job_devices != devices) {
        m->job = links_of_ranks(c, 0, devices);
        m->job_devices = devices;
    }
    return m->job;
}

struct link_class link_memo_message(struct link_memo *m, const struct cluster *c,
                                    int64_t sender, int64_t receiver, int64_t n) {
    if (!m->messages)
        m->messages = mem_array(MESSAGES, sizeof *m->messages);
    uint64_t ends = (uint64_t)sender * 31 + (uint64_t)receiver, h = ends * 31 + (uint64_t)n;
    struct known_message *k = &m->messages[h % MESSAGES];
    if (k->sender != sender || k->receiver != receiver || k->n != n)
        *k = (struct known_message){sender, receiver, n,
                                    links_of_message(c, sender, receiver, n)};
    return k->link;
}

void link_memo_release(struct link_memo *m) {
    arr_release(&m->groups);
    hashtable_release(&m->table);
    free(m->messages);
    *m = (struct link_memo){0};
}
