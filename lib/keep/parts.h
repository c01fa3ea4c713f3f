/* parts.h - which hosts have which files of the checkpoints in memory: what is whole among them, and whose copies
 * are where.
 *
 *     struct parts p = {0};
 *     parts_add(&p, &(struct part){.host = 0, .step = 12, .name = "rank-0000.safetensors", .bytes = 4096});
 *     parts_add(&p, &(struct part){.host = 0, .step = 12, .name = "rank-0000.safetensors", .bytes = 4096, .listed = true});
 *     int64_t step = parts_newest(&p, INT64_MAX, NULL);      // 12: all files that an index lists are somewhere
 *     parts_release(&p);
 */
#ifndef WEFT_PARTS_H
#define WEFT_PARTS_H

#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

/* A file that is on this host; or `listed`: that the index there says belongs to the step. */
struct part {
    int host;
    int64_t step, bytes;
    bool listed;
    char name[64];
};

struct parts {
    ARR(struct part) list;
};

void parts_add(struct parts *p, const struct part *one);
void parts_release(struct parts *p);

/* The newest step before this one of which an index is known and each file that it lists is on some host, with its
 * size; 0 where there is none. *lacks (NULL: nobody asks): a file that the newest step of all lacks, of `step`; borrowed;
 * or NULL. */
int64_t parts_newest(const struct parts *p, int64_t before, const struct part **lacks);
/* A host that has this file of it, with the size that is listed; -1 = none has. */
int parts_source(const struct parts *p, const struct part *listed);
/* Has this one it? */
bool parts_has(const struct parts *p, const struct part *listed, int host);

/* Where the copies of a host's checkpoint go: hosts stand in groups of copies + 1, the last group takes those that are
 * left over, and each gives its own to those behind it in its group, around. So all copies of a file are lost only with
 * a whole group, or in the last one with copies + 1 hosts of it (the mixed placement of Gemini, SOSP 2023). Returns the
 * host of copy c (from 1) of host i among n, or -1 where the group is too small. */
int parts_peer(int n, int copies, int i, int c);

#endif
