#include "plan/aceso_lists.h"

static bool any_nonzero(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)))
            return true;
    return false;
}

static bool is_mixed(const json_t *list) {
    for (size_t i = 1; i < json_array_size(list); i++)
        if (!json_equal(json_array_get(list, i - 1), json_array_get(list, i)))
            return true;
    return false;
}

static void put(json_t *lists, const struct aceso_lists *l, int i, int value) {
    if (!i || l->stage[i] != l->stage[i - 1])
        json_array_append_new(lists, json_array());
    json_array_append_new(json_array_get(lists, json_array_size(lists) - 1),
                          json_integer(value));
}

/* What follows from the lists, stage by stage. */
static void put_stages(json_t *doc, const json_t *tp, const json_t *dp, const json_t *marks,
                       const json_t *algorithms) {
    json_t *gpus = json_array(), *ops = json_array(), *again = json_array();
    json_t *mixed = json_array();
    for (size_t s = 0; s < json_array_size(tp); s++) {
        const json_t *list = json_array_get(tp, s);
        json_int_t t = json_integer_value(json_array_get(list, 0));
        json_int_t d = json_integer_value(json_array_get(json_array_get(dp, s), 0));
        json_array_append_new(gpus, json_integer(t * d));
        json_array_append_new(ops, json_integer((json_int_t)json_array_size(list)));
        json_array_append_new(again, json_boolean(any_nonzero(json_array_get(marks, s))));
        json_array_append_new(
            mixed, json_boolean(is_mixed(list) || is_mixed(json_array_get(algorithms, s))));
    }
    json_object_set_new(doc, "num_stages", json_integer((json_int_t)json_array_size(tp)));
    json_object_set_new(doc, "num_gpus", gpus);
    json_object_set_new(doc, "num_ops_in_each_stage", ops);
    json_object_set_new(doc, "checkpoint_activations", again);
    json_object_set_new(doc, "resharding_stages", mixed);
}

void aceso_put_lists(json_t *doc, const struct aceso_lists *l) {
    json_t *tp = json_array(), *dp = json_array(), *marks = json_array();
    json_t *algorithms = json_array();
    for (int i = 0; i < l->n; i++) {
        put(tp, l, i, l->tp[i]);
        put(dp, l, i, l->dp[i]);
        put(marks, l, i, l->marks[i]);
        put(algorithms, l, i, l->algorithm[i]);
    }
    put_stages(doc, tp, dp, marks, algorithms);
    json_object_set_new(doc, "model_parallel_size_of_each_op", tp);
    json_object_set_new(doc, "data_parallel_size_of_each_op", dp);
    json_object_set_new(doc, "recompute_ops", marks);
    json_object_set_new(doc, "algo_of_each_op", algorithms);
}
