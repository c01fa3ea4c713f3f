/* Fuzzes the reader of HLO modules (libFuzzer): the wire format, the fields, calls and loops written out,
 * and what follows the nodes. What is accepted is a document that the reader of models takes or refuses,
 * too. */
#include "import/import.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct err err = {0};
    json_t *notes = NULL;
    if (!size)
        return 0;
    uint8_t *module = malloc(size);
    memcpy(module, bytes, size);
    module[0] = 0x0a; /* the name: what else there is, fuzz-pt2 reads */
    json_t *doc = import_exported_bytes(module, (int64_t)size, "fuzzed", &notes, &err);
    if (!doc && (err.status != EXIT_INPUT || !err.msg[0] || notes))
        abort();
    struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    if (doc && !m && (err.status != EXIT_INPUT || !err.msg[0]))
        abort();
    model_destroy(m);
    json_decref(notes);
    json_decref(doc);
    free(module);
    return 0;
}
