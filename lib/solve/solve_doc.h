/* solve_doc.h - reads problem documents from a stream: large members are packed as they
 * come by, the rest becomes a tree.
 *
 *     static const struct solve_part parts[] = {{"edges", take_edges}, {0}};
 *     json_t *rest = solve_doc_read(stream, "partition", parts, &reader, &err);
 */
#ifndef WEFT_SOLVE_DOC_H
#define WEFT_SOLVE_DOC_H

#include "solve/solve.h"

/* A large member. `take` reads the next value of the stream, which is that of `key`. It
 * returns -1 with an error that names the place in the document, or has it from the stream
 * (s->failed). */
struct solve_part {
    const char *key; /* a member of the document; NULL ends the list */
    int (*take)(void *to, struct json_stream *s, struct err *err);
};

/* Reads the next value of the stream, an array of objects, and hands one after the other to
 * `take` as a tree. Errors of `take` begin with a key of the object (err_at, err.h) and
 * come out with key[index] in front. Other errors may have their place from the stream
 * (s->failed). */
typedef int solve_object_fn(void *to, const json_t *obj, struct err *err);
int solve_doc_objects(struct json_stream *s, const char *key, solve_object_fn *take,
                      void *to, struct err *err);

/* Reads the next value of the stream, an object, as a tree that the caller owns. Members in
 * `parts` (NULL: none) are read into `to` and leave only a null in the tree, so that keys
 * can be checked. EXIT_INPUT also when "problem" names another problem than this one (NULL:
 * any). Messages begin with the place, without the document's name unless s->failed.
 * EXIT_NO when the deadline of the stream or an interrupt came first. */
json_t *solve_doc_members(struct json_stream *s, const char *problem,
                          const struct solve_part *parts, void *to, struct err *err);

/* Reads the whole document, as solve_doc_members reads an object. */
json_t *solve_doc_read(struct json_stream *s, const char *problem,
                       const struct solve_part *parts, void *to, struct err *err);

/* Makes an answer document with what all solvers have in common. The caller adds the
 * solution. */
json_t *solve_answer(double value, double bound, const char *proof);

#endif
