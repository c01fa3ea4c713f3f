/* fuzz-import.h - what the fuzzers of programs share: one is refused with a message, or becomes a document that the
 * reader of models takes or refuses, too.
 *
 *     import_fuzzed(bytes, size);
 */
#ifndef WEFT_FUZZ_IMPORT_H
#define WEFT_FUZZ_IMPORT_H

#include "import/import.h"
#include "model/model.h"

#include <stdlib.h>

static void import_fuzzed(const uint8_t *bytes, size_t size) {
    struct err err = {0};
    json_t *notes = NULL;
    json_t *doc = import_exported_bytes(bytes, (int64_t)size, "fuzzed", &notes, &err);
    if (!doc && (err.status != EXIT_INPUT || !err.msg[0] || notes))
        abort();
    struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    if (doc && !m && (err.status != EXIT_INPUT || !err.msg[0]))
        abort();
    model_destroy(m);
    json_decref(notes);
    json_decref(doc);
}

#endif
