/* Fuzzes the reader of what torch.export writes (libFuzzer): archives, and, since checksums keep a fuzzer
 * out of what is in them, the JSON of a program alone. */
#include "fuzz-import.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    import_fuzzed(bytes, size);
    return 0;
}
