#include "device/attention.h"

struct kernel_attention attention_of(const struct attention_n *n, const int32_t *lengths,
                                     const int32_t *starts, const void *positions,
                                     const struct device_args *a) {
    const int64_t value = n->value ? n->value : n->dim, o_width = n->heads * value;
    const int64_t width = n->heads * n->dim, q_width = n->packed ? 3 * width : width;
    const int64_t kv_width = n->packed ? q_width : n->kv_heads * n->dim;
    const int64_t v_width = n->packed ? q_width : n->kv_heads * value;
    return (struct kernel_attention){.batch = n->batch,
                                     .heads = n->heads,
                                     .q_len = n->seq,
                                     .kv_len = n->kv_seq,
                                     .dim = n->dim,
                                     .value = value,
                                     .kv_heads = n->kv_heads,
                                     .group = n->group,
                                     .first_head = a->first_head,
                                     .q_batch = n->seq * q_width,
                                     .q_seq = q_width,
                                     .kv_batch = n->kv_seq * kv_width,
                                     .kv_seq = kv_width,
                                     .v_batch = n->kv_seq * v_width,
                                     .v_seq = v_width,
                                     .o_batch = n->seq * o_width,
                                     .o_seq = o_width,
                                     .first = a->first - a->first_key,
                                     .first_key = a->first_key,
                                     .causal = n->causal != 0,
                                     .scale = a->scale,
                                     .lengths = lengths,
                                     .starts = starts,
                                     .positions = positions,
                                     .buckets = n->buckets,
                                     .distance = a->distance,
                                     .window = n->window,
                                     .cap = n->capped ? a->cap : 0,
                                     .slope = n->sloped ? a->slope : (struct alibi){0}};
}

struct kernel_attention attention_more_of(const struct attention_more_n *n,
                                          const int32_t *lengths, const int32_t *starts,
                                          const void *positions,
                                          const struct device_args *a) {
    const struct attention_n all = {.batch = n->batch,
                                    .heads = n->heads,
                                    .group = n->group,
                                    .kv_heads = n->kv_heads,
                                    .seq = n->seq,
                                    .kv_seq = n->kv_seq,
                                    .dim = n->dim,
                                    .causal = n->causal,
                                    .buckets = n->buckets,
                                    .lengths = n->lengths,
                                    .window = n->window,
                                    .capped = n->capped,
                                    .starts = n->starts,
                                    .sloped = n->sloped,
                                    .value = n->value};
    struct kernel_attention t = attention_of(&all, lengths, starts, positions, a);
    t.more = true;
    return t;
}
