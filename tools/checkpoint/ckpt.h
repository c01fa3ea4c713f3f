/* ckpt.h - the commands of weft-ckpt. Each returns 0 or -1. */
#ifndef WEFT_CKPT_H
#define WEFT_CKPT_H

#include "common/err.h"

struct ckpt_options {
    const char *model, *output;
    char *set;
};

/* The tensors of a checkpoint, a safetensors file or a set of them, one JSON object a line. */
int ckpt_list(const struct ckpt_options *o, const char *path, struct err *err);
/* A checkpoint's parameters under the names that other programs have for them. */
int ckpt_export(const struct ckpt_options *o, const char *path, struct err *err);

#endif
