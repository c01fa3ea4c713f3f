/* Fuzzes the reader of HLO modules (libFuzzer): the wire format, the fields, calls and loops written out,
 * and what follows the nodes. */
#include "fuzz-import.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!size)
        return 0;
    uint8_t *module = malloc(size);
    memcpy(module, bytes, size);
    module[0] = 0x0a; /* the name: what else there is, fuzz-pt2 reads */
    import_fuzzed(module, size);
    free(module);
    return 0;
}
