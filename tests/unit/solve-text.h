/* solve-text.h - problems as trees or text, given to the solvers as streams. */
#ifndef WEFT_TEST_SOLVE_TEXT_H
#define WEFT_TEST_SOLVE_TEXT_H

#include "solve/solve.h"

#include <stdlib.h>
#include <string.h>

static inline json_t *solve_text(const struct solve_kind *kind, const char *text,
                                 const struct solve_limits *limits, struct err *err) {
    struct json_stream s;
    json_stream_text(&s, text, strlen(text), "t");
    json_t *answer = solve_document(kind, &s, limits, err);
    json_stream_close(&s);
    return answer;
}

static inline json_t *solve_tree(const struct solve_kind *kind, const json_t *doc,
                                 const struct solve_limits *limits, struct err *err) {
    char *text = json_dumps(doc, JSON_ENCODE_ANY);
    json_t *answer = solve_text(kind, text, limits, err);
    free(text);
    return answer;
}

#endif
