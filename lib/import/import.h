/* import.h - programs that torch.export wrote, HLO modules of XLA and models of ONNX, as models.
 *
 * An archive (.pt2) is read (exported.h); a module is read (hlo.h), or a model of ONNX (onnx.h), and put into the same
 * words (translate.h). Constants are folded (fold.h), and nodes are followed to ops over named dims
 * (follow.h); blocks that repeat are found by their modules (build.h). What weft
 * has no op for is refused by target, count and module. Nothing of the file is executed.
 *
 *     json_t *notes, *doc = import_exported("gpt.pt2", &notes, &err);
 *     struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
 */
#ifndef WEFT_IMPORT_H
#define WEFT_IMPORT_H

#include "common/json.h"

#include <stdbool.h>

/* Does a file begin as a program that import_exported reads? The bytes end with a zero. */
bool import_is_program(const void *bytes, size_t size);
/* The weft-model(5) document of an archive or of an HLO module; a new reference, NULL on failure. *notes gets an array of
 * strings for people (a new reference, on failure NULL): what is not as it was in the program. */
json_t *import_exported(const char *path, json_t **notes, struct err *err);
/* The same of a file in memory, or of the JSON of a program alone; the model has this name. */
json_t *import_exported_bytes(const void *bytes, int64_t size, const char *name,
                              json_t **notes, struct err *err);
/* Writes the parameters of a model of ONNX under the names that its document has, as floats, to a file of safetensors:
 * one of what lies in the file several times. Returns 0 or -1. */
int import_weights(const char *path, const char *to, struct err *err);

#endif
