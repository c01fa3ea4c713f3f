/* solve_doc.h - problem documents from a stream: large members packed as they come by, the rest
 * as a tree.
 *
 *     static const struct solve_part parts[] = {{"edges", take_edges}, {0}};
 *     json_t *rest = solve_doc_read(stream, "partition", parts, &reader, &err);
 */
#ifndef WEFT_SOLVE_DOC_H
#define WEFT_SOLVE_DOC_H

#include "solve/solve.h"

/* Takes the next value of the stream, which is that of `key`. -1 with an error that names the
 * place in the document, or has it from the stream (s->failed). */
struct solve_part {
    const char *key; /* a member of the document; NULL ends the list */
    int (*take)(void *to, struct json_stream *s, struct err *err);
};

/* Takes the next value of the stream, an array of objects, one after the other as trees. Errors of
 * `take` begin with a key of the object (err_at, err.h); they come out with key[index] before. -1
 * also with an error that has its place from the stream (s->failed). */
typedef int solve_object_fn(void *to, const json_t *obj, struct err *err);
int solve_doc_objects(struct json_stream *s, const char *key, solve_object_fn *take,
                      void *to, struct err *err);

/* Takes the next value of the stream, an object: `parts` (NULL: none) are handed `to` and leave only
 * a null behind, so that keys can be checked. The caller owns the tree. EXIT_INPUT also for one whose
 * "problem" is another than this one (NULL: any); messages begin with the place, without the
 * document's name unless s->failed. EXIT_NO when the deadline of the stream or an interrupt came
 * first. */
json_t *solve_doc_members(struct json_stream *s, const char *problem,
                          const struct solve_part *parts, void *to, struct err *err);

/* Reads the whole document in the same manner. */
json_t *solve_doc_read(struct json_stream *s, const char *problem,
                       const struct solve_part *parts, void *to, struct err *err);

/* Makes an answer document with what is common to all solvers, to which the solution is
 * added. */
json_t *solve_answer(double value, double bound, const char *proof);

#endif
