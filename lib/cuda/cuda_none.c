/* What cuda.h promises where weft is built without CUDA: devices cannot be created, and the message
 * says why. */
#include "cuda/cuda.h"

static int none(struct err *err) {
    err_system(err, "this weft was built without CUDA");
    return err_hint(err, "`make config` says what make found");
}

static int create(struct device *dev, struct err *err) {
    (void)dev;
    return none(err);
}

static void destroy(struct device *dev) {
    (void)dev;
}

struct cuda_backend cuda_backend(const struct cuda_options *o) {
    return (struct cuda_backend){
        .backend = {.name = "cuda", .create = create, .destroy = destroy}, .options = *o};
}

int cuda_try(struct device *dev, const struct instr *instrs, int64_t n, int64_t most_bytes,
             struct err *err) {
    (void)dev, (void)instrs, (void)n, (void)most_bytes;
    return none(err);
}

int cuda_count(struct err *err) {
    return none(err);
}

int cuda_kind(int index, char *buf, size_t size, struct err *err) {
    (void)index, (void)buf, (void)size;
    return none(err);
}

int cuda_index(int number, struct err *err) {
    (void)number;
    return none(err);
}

int cuda_memory(int index, int64_t *total, int64_t *left, struct err *err) {
    (void)index, (void)total, (void)left;
    return none(err);
}

int cuda_clocks(int index, struct cuda_clocks *out, struct err *err) {
    (void)index, (void)out;
    return none(err);
}

int cuda_launch_pair(struct device_stream *s, const struct cuda_given *first,
                     const struct cuda_given *second, struct err *err) {
    (void)s, (void)first, (void)second;
    return none(err);
}

bool cuda_is_pair(const struct instr *a, const struct instr *b) {
    (void)a, (void)b;
    return false;
}

struct cuda_timer *cuda_timer_create(struct err *err) {
    none(err);
    return NULL;
}

void cuda_timer_destroy(struct cuda_timer *t) {
    (void)t;
}

int cuda_timer_begin(struct cuda_timer *t, struct device_stream *s, struct err *err) {
    (void)t, (void)s;
    return none(err);
}

int cuda_timer_end(struct cuda_timer *t, struct device_stream *s, double *us,
                   struct err *err) {
    (void)t, (void)s, (void)us;
    return none(err);
}
