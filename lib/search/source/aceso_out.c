/* Aceso's configuration files: what a plan over its chain says. */
#include "plan/aceso_lists.h"
#include "search/source/aceso_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- sizes that the runtime reads ------------------------------------------------------- */

static void put_gpt(const struct aceso *a, json_t *doc) {
    static const struct {
        const char *size;
        int hidden, heads;
    } sizes[] = {{"350M", 1024, 16}, {"1_3B", 2048, 32}, {"2_6B", 2560, 32},
                 {"6_7B", 4096, 32}, {"13B", 5120, 40},  {"scale-layer", 512, 8}};
    json_object_set_new(doc, "num_layers", json_integer(a->n_layers));
    json_object_set_new(doc, "seq_length", json_integer(2048));
    json_object_set_new(doc, "max_position_embeddings", json_integer(2048));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(a->size, sizes[i].size)) {
            json_object_set_new(doc, "num_attention_heads", json_integer(sizes[i].heads));
            json_object_set_new(doc, "hidden_size", json_integer(sizes[i].hidden));
        }
}

static void put_t5(const struct aceso *a, json_t *doc) {
    static const struct {
        const char *size;
        int ffn, heads, kv;
    } sizes[] = {{"770M", 4096, 16, 64},
                 {"3B", 16384, 32, 128},
                 {"6B", 32768, 64, 128},
                 {"11B", 65536, 128, 128},
                 {"22B", 65536, 128, 128}};
    json_object_set_new(doc, "num_layers", json_integer(a->n_layers));
    json_object_set_new(doc, "encoder_seq_length", json_integer(2048));
    json_object_set_new(doc, "decoder_seq_length", json_integer(512));
    json_object_set_new(doc, "max_position_embeddings", json_integer(2048));
    json_object_set_new(doc, "hidden_size", json_integer(1024));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(a->size, sizes[i].size)) {
            json_object_set_new(doc, "num_attention_heads", json_integer(sizes[i].heads));
            json_object_set_new(doc, "kv_channels", json_integer(sizes[i].kv));
            json_object_set_new(doc, "ffn_hidden_size", json_integer(sizes[i].ffn));
        }
}

static void put_resnet(const struct aceso *a, json_t *doc) {
    static const struct {
        const char *size;
        int channels, width;
    } sizes[] = {{"250M", 160, 2}, {"500M", 224, 2},  {"1B", 320, 2},  {"2B", 448, 2},
                 {"4B", 640, 2},   {"6_8B", 320, 16}, {"13B", 320, 16}};
    int deep = !strcmp(a->size, "13B") ? 23 : 6;
    json_object_set_new(doc, "num_layers", json_pack("[i, i, i, i]", 3, 4, deep, 3));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(a->size, sizes[i].size)) {
            json_object_set_new(doc, "in_channels", json_integer(sizes[i].channels));
            json_object_set_new(doc, "width_factor", json_integer(sizes[i].width));
        }
}

/* ---- the document ----------------------------------------------------------------------- */

json_t *aceso_document(const struct source *src, const struct plan *plan) {
    static const char *const names[] = {
        [ACESO_gpt] = "gpt", [ACESO_t5] = "t5", [ACESO_resnet] = "resnet"};
    const struct aceso *a = (const struct aceso *)src;
    size_t n = (size_t)a->n_ops;
    int *stage = mem_array(4 * n, sizeof *stage), *tp = stage + n, *dp = tp + n;
    int *algorithm = dp + n;
    bool *marks = mem_array(n, sizeof *marks);
    for (int k = 0, op = 0; k < plan->n_stages; k++) {
        const struct stage *st = &plan->stages[k];
        for (int i = 0; i < st->n_ops; i++, op++) {
            struct aceso_said s = {1, 1, 0};
            aceso_say_op(a, op, plan->micro_batch, &st->mesh, &st->layouts[i], &s);
            stage[op] = k;
            tp[op] = s.tp;
            dp[op] = s.dp;
            algorithm[op] = s.algorithm;
            marks[op] = st->recompute[i];
        }
    }
    bool scale = !strcmp(a->size, "scale-layer");
    json_t *doc = json_pack(
        "{s:s, s:s, s:I, s:I}", "model_name", scale ? a->size : names[a->family],
        "model_size", scale ? "" : a->size, "global_batch_size", (json_int_t)plan->batch,
        "micro_batch_size", (json_int_t)plan->micro_batch);
    (a->family == ACESO_gpt  ? put_gpt
     : a->family == ACESO_t5 ? put_t5
                             : put_resnet)(a, doc);
    aceso_put_lists(doc, &(struct aceso_lists){a->n_ops, stage, tp, dp, algorithm, marks});
    free(stage);
    free(marks);
    return doc;
}
