/* What decides the numbers of a model, each by a name that its author knows: so that
 * two models that differ can be told apart in words (model_hash only says that they
 * do). */
#include "model/read.h"

#include <stdio.h>
#include <stdlib.h>

static void add_real(json_t *facts, const char *name, double v) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    json_object_set_new(facts, name, json_string(text));
}

static void add_sizes(const struct model *m, json_t *facts) {
    char name[128];
    for (int i = 0; i < m->n_dims; i++) {
        if (i == m->batch)
            continue;
        snprintf(name, sizeof name, "the size of %.100s", m->dims[i].name);
        add_real(facts, name, (double)m->dims[i].size);
    }
}

/* An op of a repeated block once: of the first instance that has it. */
static void add_ops(const struct model *m, json_t *facts) {
    char name[200];
    bool *seen = mem_array((size_t)m->n_file_ops, sizeof *seen);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        if (seen[op->file_op])
            continue;
        seen[op->file_op] = true;
        snprintf(name, sizeof name, "the kind of %.100s", op->name);
        json_object_set_new(facts, name, json_string(kind_of(op->kind)->name));
        for (int a = 0; a < ATTR_COUNT; a++) {
            if (!kind_of(op->kind)->has_attr[a])
                continue;
            snprintf(name, sizeof name, "%s of %.100s", attr_info((enum attr)a)->name,
                     op->name);
            add_real(facts, name, op->attr[a]);
        }
        for (int k = 0; op->slower && k < (int)op->attr[ATTR_short]; k++) {
            snprintf(name, sizeof name, "how much slower pair %d of %.100s turns", k,
                     op->name);
            add_real(facts, name, op->slower[k]);
        }
    }
    free(seen);
}

char *model_facts(const struct model *m) {
    json_t *facts = json_object();
    add_sizes(m, facts);
    add_real(facts, "the number of ops", m->n_ops);
    add_real(facts, "the number of parameters", m->n_params);
    add_real(facts, "what is trained of them", model_count_parameters(m, true));
    add_ops(m, facts);
    char *text = json_dumps(facts, JSON_COMPACT);
    json_decref(facts);
    return text;
}
