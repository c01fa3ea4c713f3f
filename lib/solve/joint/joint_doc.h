/* joint_doc.h - a joint problem as its document has it, packed, without a tree of the
 * whole.
 *
 * Both the problem (joint_read.c) and the check of an answer (joint_check.c) start from it.
 *
 *     struct joint_doc doc;
 *     if (joint_doc_read(&doc, stream, &err) == 0)
 *         use(doc.nodes.p[0].choices[0].time);
 *     joint_doc_release(&doc);
 */
#ifndef WEFT_SOLVE_JOINT_DOC_H
#define WEFT_SOLVE_JOINT_DOC_H

#include "common/mem.h"
#include "solve/solve.h"

/* What an alternative adds to the bytes of the edges with one neighbour. */
struct joint_sync {
    int64_t node; /* the neighbour's id */
    double bytes;
};

struct joint_alternative {
    const char *id;
    int degree, at;     /* TMPCs[degree][at] */
    double time;        /* per sample, in s */
    double params;      /* bytes of gradients to be added up */
    double memory_a;    /* bytes per sample in flight ... */
    double memory_b;    /* ... and once */
    int num_fw, num_bw; /* neighbours before, after */
    struct joint_sync *fw, *bw;
};

struct joint_doc_node {
    int64_t id;
    int n;
    struct joint_alternative *choices;
};

struct joint_doc_edge {
    int64_t from, to; /* ids */
    double bytes;
};

struct joint_doc {
    json_t *rest; /* the document without what follows; large members are null */
    /* the same of the instance; = rest where that is the document */
    json_t *instance;
    ARR(struct joint_doc_node) nodes;
    ARR(struct joint_doc_edge) edges;
    struct arena arena; /* owns alternatives, their names and neighbours */
};

#define JOINT_MOST_NODES   4096
#define JOINT_MOST_DEVICES 16384

/* Reads the whole stream. Ids are unique and numbers in their ranges afterwards, but the
 * ends of edges are not checked. Release it even on failure. Messages begin with the place,
 * without the document's name unless s->failed. */
int joint_doc_read(struct joint_doc *doc, struct json_stream *s, struct err *err);
void joint_doc_release(struct joint_doc *doc);

#endif
