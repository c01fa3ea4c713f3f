/* Fuzzes the reader of models of ONNX (libFuzzer): the wire format, shapes that follow from ops, what decides them,
 * and what follows the nodes. */
#include "fuzz-import.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 2)
        return 0;
    uint8_t *model = malloc(size);
    memcpy(model, bytes, size);
    model[0] = 0x08; /* the version: what else there is, fuzz-pt2 and fuzz-hlo read */
    import_fuzzed(model, size);
    free(model);
    return 0;
}
