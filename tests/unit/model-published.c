/* The shipped models have as many parameters as was published of them, or as the names of their sizes
 * say. */
#include "model.h"

#include <math.h>

static int64_t count(const struct model *m) {
    int64_t n = 0;
    for (int p = 0; m && p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        n += extents_count(&x);
    }
    return n;
}

/* Exactly as many, where the authors' own models can be counted. */
static void has(const char *ref, const char *set, int64_t want) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    int64_t got = count(m);
    ok(got == want, "%s %s: %lld parameters, expected %lld %s", ref, set ? set : "",
       (long long)got, (long long)want, err.msg);
    model_destroy(m);
}

/* About as many as the size is called after, in billions. */
static void about(const char *ref, double want, double within) {
    struct err err = {0};
    struct model *m = model_load(ref, NULL, &err);
    double got = (double)count(m) * 1e-9;
    ok(fabs(got / want - 1) <= within, "%s: %.3f billion parameters, expected %.2f %s", ref,
       got, want, err.msg);
    model_destroy(m);
}

static void test_exact(void) {
    has("gpt:gpt2", NULL, 124439808);
    has("gpt-qkv:gpt2", NULL, 124439808);
    has("llama:160M", NULL, 162417408); /* llama-160m */
    has("llama:1B", NULL, 1100048384);  /* TinyLlama */
    has("llama:7B", NULL, 6738415616);  /* Llama 2 */
    has("llama:13B", NULL, 13015864320);
    has("llama:70B", NULL, 68976648192);
    has("mixtral:8x7B", NULL, 46702792704);
    has("mixtral:8x22B", NULL, 140620634112);
    has("mixtral:8x22B", "vocab=32768", 140630071296); /* its third release */
    has("t5:770M", "vocab=32128",
        737668096); /* T5 large, 3B and 11B of the first release */
    has("t5:3B", "vocab=32128", 2851598336);
    has("t5:11B", "vocab=32128", 11307321344);
}

static void test_names(void) {
    about("gpt:350M", 0.35, 0.17); /* with an output table of its own */
    about("gpt:1.3B", 1.3, 0.1);
    about("gpt:2.6B", 2.6, 0.1);
    about("gpt:6.7B", 6.7, 0.05);
    about("gpt:13B", 13, 0.02);
    about("t5:770M", 0.77, 0.05);
    about("t5:3B", 3, 0.06);
    about("t5:6B", 6, 0.06);
    about("t5:11B", 11, 0.03);
    about("t5:22B", 22, 0.03);
    about("transformer:140M", 0.14, 0.05);
    about("transformer:220M", 0.22, 0.01);
    about("transformer:370M", 0.37, 0.01);
    about("transformer:670M", 0.67, 0.01);
    about("transformer:1.3B", 1.28, 0.01);
    about("transformer:2.5B", 2.48, 0.01);
    about("transformer:4.9B", 4.90, 0.01);
}

int main(void) {
    test_exact();
    test_names();
    return done_testing();
}
