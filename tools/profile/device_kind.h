/* device_kind.h - what the profilers' --device means: a name for what is measured, or a GPU.
 *
 *     if (device_kind_check(o->device, &err) < 0) ...                    // "h100-80gb" is no name for a CPU
 *     if (device_kind_is_gpu(o->device) && device_kind_of_gpu(o->device, 0, false, kind, sizeof kind, &err) < 0) ...
 */
#ifndef WEFT_DEVICE_KIND_H
#define WEFT_DEVICE_KIND_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Is a GPU to be measured: does it say "cuda" or "cuda:NAME"? device may be NULL. */
bool device_kind_is_gpu(const char *device);

/* Refuses the name of a GPU's kind for what is none: its times would pass for the GPU's. Returns 0 or
 * -1. */
int device_kind_check(const char *device, struct err *err);

/* The kind that rows of the GPU of this number have: NAME, or what it is; with tf32, whose rows must not
 * be taken for others, "-tf32" behind it. Returns 0 or -1. */
int device_kind_of_gpu(const char *device, int number, bool tf32, char *buf, size_t size,
                       struct err *err);

#endif
