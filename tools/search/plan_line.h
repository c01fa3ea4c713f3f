/* plan_line.h - what a launch line or a configuration says, read one setting after the other: what has
 * been read is taken out, and in the end nothing may be left that could mean something. */
#ifndef WEFT_PLAN_LINE_H
#define WEFT_PLAN_LINE_H

#include "plan_tool.h"

/* What a line says; what has been read of it is taken out. */
struct line {
    json_t *flags;      /* name -> text, owned by whoever made it */
    const char *dash;   /* before a name in messages: "--" or "" */
    const char *unread; /* patterns of names that say nothing of a model or a plan */
    struct plan_words w;
    int64_t layers, chunks, world;
    const char *family;
    char machines[64]; /* "node:4 gpu:8" */
    struct err *err;
};

/* The words behind a flag, NULL where it is not given; it stays. */
const char *line_peek(const struct line *l, const char *name);
/* Was the flag given? It no longer is. */
bool line_flag(struct line *l, const char *name);
/* Its words, which live as long as the line. */
const char *line_text(struct line *l, const char *name, const char *otherwise);
/* "true" or "false". */
bool line_truth(struct line *l, const char *name, bool otherwise);
/* A whole number from 1; `otherwise` below 0: it must be given. These return 0 or -1. */
int line_int(struct line *l, const char *name, int64_t otherwise, int64_t *out);
/* A number from 0. */
int line_real(struct line *l, const char *name, double otherwise, double *out);
/* The number of one of some words, the first where it is not given; -1 on failure. The list ends with
 * NULL. */
int line_word(struct line *l, const char *name, const char *const *words);
/* What is left must be of no concern: data, logs, checkpoints, rates of learning, which kernels. */
int line_check_rest(struct line *l);

#endif
