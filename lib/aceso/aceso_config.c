/* Writes a configuration as the JSON that Aceso's runtime reads: the model's sizes, then
 * the properties of the stages and of each stage's ops. */
#include "aceso/aceso_config.h"

#include <string.h>

/* ---- sizes of the model ---------------------------------------------------------------------- */

static void put_int(json_t *doc, const char *key, int64_t value) {
    json_object_set_new(doc, key, json_integer(value));
}

static void put_gpt(const struct aceso_model *m, json_t *doc) {
    static const struct {
        const char *size;
        int hidden, heads;
    } sizes[] = {{"350M", 1024, 16}, {"1_3B", 2048, 32}, {"2_6B", 2560, 32},
                 {"6_7B", 4096, 32}, {"13B", 5120, 40},  {"scale-layer", 512, 8}};
    put_int(doc, "num_layers", m->n_layers);
    put_int(doc, "seq_length", 2048);
    put_int(doc, "max_position_embeddings", 2048);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(m->size, sizes[i].size)) {
            put_int(doc, "num_attention_heads", sizes[i].heads);
            put_int(doc, "hidden_size", sizes[i].hidden);
        }
}

static void put_t5(const struct aceso_model *m, json_t *doc) {
    static const struct {
        const char *size;
        int ffn, heads, kv;
    } sizes[] = {{"770M", 4096, 16, 64},
                 {"3B", 16384, 32, 128},
                 {"6B", 32768, 64, 128},
                 {"11B", 65536, 128, 128},
                 {"22B", 65536, 128, 128}};
    put_int(doc, "num_layers", m->n_layers);
    put_int(doc, "encoder_seq_length", 2048);
    put_int(doc, "decoder_seq_length", 512);
    put_int(doc, "max_position_embeddings", 2048);
    put_int(doc, "hidden_size", 1024);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(m->size, sizes[i].size)) {
            put_int(doc, "num_attention_heads", sizes[i].heads);
            put_int(doc, "kv_channels", sizes[i].kv);
            put_int(doc, "ffn_hidden_size", sizes[i].ffn);
        }
}

static void put_resnet(const struct aceso_model *m, json_t *doc) {
    static const struct {
        const char *size;
        int channels, width;
    } sizes[] = {{"250M", 160, 2}, {"500M", 224, 2},  {"1B", 320, 2},  {"2B", 448, 2},
                 {"4B", 640, 2},   {"6_8B", 320, 16}, {"13B", 320, 16}};
    int deep = !strcmp(m->size, "13B") ? 23 : 6;
    json_object_set_new(doc, "num_layers", json_pack("[i, i, i, i]", 3, 4, deep, 3));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(m->size, sizes[i].size)) {
            put_int(doc, "in_channels", sizes[i].channels);
            put_int(doc, "width_factor", sizes[i].width);
        }
}

/* ---- stages and their ops ------------------------------------------------------------------- */

static json_t *list_in(json_t *doc, const char *key) {
    json_t *list = json_array();
    json_object_set_new(doc, key, list);
    return list;
}

static void append(json_t *list, int value) {
    json_array_append_new(list, json_integer(value));
}

static json_t *append_list(json_t *lists) {
    json_t *list = json_array();
    json_array_append_new(lists, list);
    return list;
}

/* Adds what a configuration says of each stage and of each stage's ops to doc, one list per
 * property. */
static void put_lists(json_t *doc, const struct aceso_config *c) {
    json_t *gpus = list_in(doc, "num_gpus"), *ops = list_in(doc, "num_ops_in_each_stage");
    json_t *recomputes = list_in(doc, "checkpoint_activations");
    json_t *reshards = list_in(doc, "resharding_stages");
    json_t *tps = list_in(doc, "model_parallel_size_of_each_op");
    json_t *dps = list_in(doc, "data_parallel_size_of_each_op");
    json_t *algorithms = list_in(doc, "algo_of_each_op"),
           *marks = list_in(doc, "recompute_ops");
    put_int(doc, "num_stages", c->n_stages);
    for (int s = 0; s < c->n_stages; s++) {
        json_t *tp = append_list(tps), *dp = append_list(dps);
        json_t *algorithm = append_list(algorithms), *mark = append_list(marks);
        bool any = false, mixed = false;
        append(gpus, c->devices[s]);
        append(ops, c->first[s + 1] - c->first[s]);
        for (int i = c->first[s]; i < c->first[s + 1]; i++) {
            const struct aceso_layout *l = &c->layout[i], *first = &c->layout[c->first[s]];
            append(tp, l->tp);
            append(dp, l->dp);
            append(algorithm, l->algorithm);
            append(mark, c->recompute[i]);
            any |= c->recompute[i];
            mixed |= l->tp != first->tp || l->algorithm != first->algorithm;
        }
        json_array_append_new(recomputes, json_boolean(any));
        json_array_append_new(reshards, json_boolean(mixed));
    }
}

json_t *aceso_config_json(const struct aceso_model *m, const struct aceso_config *c) {
    static const char *const names[] = {
        [ACESO_gpt] = "gpt", [ACESO_t5] = "t5", [ACESO_resnet] = "resnet"};
    bool scale = !strcmp(m->size, "scale-layer");
    json_t *doc = json_object();
    json_object_set_new(doc, "model_name", json_string(scale ? m->size : names[m->family]));
    json_object_set_new(doc, "model_size", json_string(scale ? "" : m->size));
    put_int(doc, "global_batch_size", c->batch);
    put_int(doc, "micro_batch_size", c->micro_batch);
    switch (m->family) {
    case ACESO_gpt: put_gpt(m, doc); break;
    case ACESO_t5: put_t5(m, doc); break;
    case ACESO_resnet: put_resnet(m, doc); break;
    }
    put_lists(doc, c);
    return doc;
}
