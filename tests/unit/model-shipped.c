/* Shipped models: parameters of the published sizes against the number in their names. */
#include "model.h"

/* Elements of the parameters whose first dim is `dim`; of all for NULL. */
static int64_t count(const struct model *m, const char *dim) {
    int64_t n = 0;
    for (int p = 0; m && p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        if (!dim || m->params[p].shape.dim[0] == model_dim_find(m, dim))
            n += extents_count(&x);
    }
    return n;
}

static void counts(const char *ref, const char *dim, double want, double error) {
    struct err err = {0};
    struct model *m = model_load(ref, NULL, &err);
    double n = (double)count(m, dim);
    ok(n >= want * (1 - error) && n <= want * (1 + error), "%s has %.4g parameters%s%s %s",
       ref, n, dim ? " in its " : "", dim ? dim : "", err.msg);
    model_destroy(m);
}

int main(void) {
    counts("moe:380M", NULL, 380e6, 0.02);
    counts("moe:690M", NULL, 690e6, 0.02);
    counts("moe:1.3B", NULL, 1.3e9, 0.04);
    counts("moe:2.4B", NULL, 2.4e9, 0.02);
    counts("moe:7.1B", NULL, 7.1e9, 0.02);
    counts("moe:10B", NULL, 10e9, 0.02);
    counts("moe:27B", NULL, 27e9, 0.02);
    counts("moe:70B", NULL, 70e9, 0.02);
    counts("moe:140B", NULL, 140e9, 0.02);
    counts("moe:lm_moe", "experts", 768 << 20, 0);
    return done_testing();
}
