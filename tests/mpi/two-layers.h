/* two-layers.h - a classifier of two layers, as text: replicas of it are small, and learn from data that is drawn. */
#ifndef WEFT_TEST_TWO_LAYERS_H
#define WEFT_TEST_TWO_LAYERS_H

#include "common/json.h"
#include "tap_ranks.h"

#include <string.h>

/* Of 12 pixels and 10 classes; hidden: how wide it is between them, as text. */
#define TWO_LAYERS(hidden)                                                                    \
    "{'format': 'weft-model/1', 'name': 'two', 'sizes': {'pixels': 12, 'hidden': " hidden     \
    ", 'classes': 10}, 'inputs': {'image': {'dims': ['batch', 'pixels'],"                     \
    " 'source': 'image'}, 'label': {'dims': ['batch'], 'source': 'label'}}, 'ops': ["         \
    "{'name': 'in', 'kind': 'einsum', 'in': ['image'], 'out': 'x',"                           \
    " 'dims': ['batch', 'hidden'], 'weight': {'dims': ['pixels', 'hidden'], 'std': 0.3},"     \
    " 'bias': {'dims': ['hidden']}},"                                                         \
    "{'name': 'relu', 'kind': 'relu', 'in': ['x'], 'out': 'x', 'dims': ['batch', 'hidden']}," \
    "{'name': 'out', 'kind': 'einsum', 'in': ['x'], 'out': 'y',"                              \
    " 'dims': ['batch', 'classes'], 'weight': {'dims': ['hidden', 'classes'], 'std': 0.3},"   \
    " 'bias': {'dims': ['classes']}},"                                                        \
    "{'name': 'loss', 'kind': 'cross-entropy', 'in': ['y', 'label'], 'out': 'loss',"          \
    " 'dims': []}]}"

/* A document from text with single quotes; the job ends where it is none. */
static json_t *json_of(const char *text) {
    char buf[2048];
    struct err err = {0};
    snprintf(buf, sizeof buf, "%s", text);
    for (char *p = buf; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *doc = json_parse(buf, strlen(buf), "text", &err);
    must(doc ? 0 : -1, &err);
    return doc;
}

#endif
