/* Fuzzes the reader of what torch.export writes (libFuzzer): archives, and, since checksums keep a fuzzer
 * out of what is in them, the JSON of a program alone. What is accepted is a document that the reader
 * of models takes or refuses, too. */
#include "import/import.h"
#include "model/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
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
    return 0;
}
