/* saved.h - the model of a checkpoint.
 *
 *     struct checkpoint *ck;
 *     if (checkpoint_open(&ck, "ckpt", &err) < 0) ...
 *     struct model *m = model_of_checkpoint(ck, NULL, NULL, &err);
 */
#ifndef WEFT_SAVED_H
#define WEFT_SAVED_H

#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* The one that is named, with its overrides; where ref is NULL, the one that the checkpoint names or
 * holds, whose overrides `set` (or NULL) takes the place of. It is checked to be the one that was
 * trained. NULL on failure. */
struct model *model_of_checkpoint(const struct checkpoint *ck, const char *ref,
                                  const char *set, struct err *err);

#endif
