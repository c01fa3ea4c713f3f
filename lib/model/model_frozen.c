/* What is not trained. A parameter is covered by the last pattern of "frozen" that has its name; one that
 * begins with ! takes back what those before it cover, as in a .gitignore. Where nothing upstream is trained
 * a tensor has no gradient, so the backward pass ends there. */
#include "model/pattern.h"
#include "model/read.h"

/* One pattern, on all parameters. */
static int apply(struct model *m, const char *text, struct err *err) {
    bool frozen = !text || text[0] != '!', used = false;
    struct pattern p = {.text = text && !frozen ? text + 1 : text};
    if (!text || !pattern_valid(p.text))
        return err_input(err,
                         "expected a pattern such as \"layer.0-3\" or \"!layer.*.norm1\"");
    for (int i = 0; i < m->n_params; i++)
        if (pattern_covers(&p, m->params[i].name)) {
            m->params[i].frozen = frozen;
            used = true;
        }
    return used ? 0 : err_input(err, "\"%.64s\" covers no parameter", text);
}

/* Where all is trained every result has one, be it of data alone. */
static void find_gradients(struct model *m, bool all) {
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        bool gradient = all;
        for (int k = 0; k < op->n_in; k++)
            gradient |= m->tensors[op->in[k]].gradient;
        for (int k = 0; k < op->n_param; k++) {
            const struct model_param *p = &m->params[op->param[k] < 0 ? 0 : op->param[k]];
            gradient |= op->param[k] >= 0 && !p->frozen && !p->running;
        }
        for (int k = 0; k < op->n_out; k++)
            m->tensors[op->out[k]].gradient = gradient && !m->tensors[op->out[k]].integer;
    }
}

int read_frozen(struct model *m, const json_t *list, struct err *err) {
    if (list && !json_is_array(list))
        return err_input(err, "frozen: expected an array, got %s", json_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (apply(m, json_string_value(json_array_get(list, i)), err) < 0)
            return err_prefix(err, "frozen[%zu]", i);
    find_gradients(m, !list);
    for (int i = 0; list && i < m->n_ops; i++)
        if (op_is(&m->ops[i], KIND_LOSS) && m->tensors[m->ops[i].in[0]].gradient)
            return 0;
    return !list
               ? 0
               : err_input(err, "frozen: nothing that a loss depends on is left to train");
}
