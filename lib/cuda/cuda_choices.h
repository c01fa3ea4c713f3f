/* cuda_choices.h - algorithms that were found before (cuda_choices of cuda.h), by what they are called in a
 * profile.
 *
 * Who is to compute something names it: problem, version of the library, shape, types. What is known of this
 * name comes first; what is found by trying is told under it.
 */
#ifndef WEFT_CUDA_CHOICES_H
#define WEFT_CUDA_CHOICES_H

#include "cuda/cuda.h"

/* "1,2,3" */
void cuda_choices_join(const int64_t *numbers, int n, char *buf, size_t size);

/* What is known of this problem by this version of the library; NULL: nothing, which counts where another
 * version is known. c may be NULL. Borrowed. */
const struct library_algorithm *cuda_choices_find(struct cuda_choices *c,
                                                  enum cuda_library library,
                                                  const struct library_algorithm *name);
/* It is computed so from here on; or the library refuses to. */
void cuda_choices_count(struct cuda_choices *c, enum cuda_library library, bool taken);
/* What was counted as taken failed after all. */
void cuda_choices_failed(struct cuda_choices *c, enum cuda_library library);
/* Says what was found, where anybody wants to hear it. c may be NULL. Returns 0 or -1. */
int cuda_choices_tell(const struct cuda_choices *c, const struct library_algorithm *found,
                      struct err *err);

#endif
