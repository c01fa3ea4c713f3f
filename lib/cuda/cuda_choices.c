/* What is known of a problem: a row of the same name. */
#include "cuda/cuda_choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void cuda_choices_join(const int64_t *numbers, int n, char *buf, size_t size) {
    size_t at = 0;
    for (int i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%" PRId64, i ? "," : "", numbers[i]);
}

static bool same(const struct library_algorithm *a, const struct library_algorithm *b) {
    return !strcmp(a->problem, b->problem) && !strcmp(a->shape, b->shape) &&
           !strcmp(a->dtype, b->dtype) && !strcmp(a->dtype_y, b->dtype_y);
}

const struct library_algorithm *cuda_choices_find(struct cuda_choices *c,
                                                  enum cuda_library library,
                                                  const struct library_algorithm *name) {
    const struct library_algorithm *other = NULL;
    if (!c)
        return NULL;
    c->of[library].library = name->library;
    for (int64_t i = 0; i < c->n_known; i++) {
        const struct library_algorithm *known = &c->known[i];
        if (!same(known, name))
            continue;
        if (known->library == name->library)
            return known;
        other = known;
    }
    if (other) {
        c->of[library].other_version++;
        c->of[library].other = other->library;
    }
    return NULL;
}

void cuda_choices_count(struct cuda_choices *c, enum cuda_library library, bool taken) {
    ++*(taken ? &c->of[library].taken : &c->of[library].refused);
}

void cuda_choices_failed(struct cuda_choices *c, enum cuda_library library) {
    c->of[library].taken--;
    c->of[library].refused++;
}

int cuda_choices_tell(const struct cuda_choices *c, const struct library_algorithm *found,
                      struct err *err) {
    return c && c->found ? c->found(c->arg, found, err) : 0;
}
