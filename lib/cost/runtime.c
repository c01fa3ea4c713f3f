/* Reading runtimes: see runtime.h. */
#include "cost/runtime.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/opt.h"
#include "model/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "linear": {"kernels": 2, "passes": 1} */
static int read_op(const char *name, const json_t *v, struct runtime *r, struct err *err) {
    int code = opcode_find(name);
    if (code < 0)
        return err_input(err, "no instruction is called so");
    struct runtime_op *op = &r->ops[code];
    *op = (struct runtime_op){.known = true, .kernels = 1};
    if (json_keys(v, "kernels passes waits", err) < 0 ||
        json_opt_num(v, "kernels", 0, 1000, &op->kernels, err) < 0)
        return -1;
    return json_opt_num(v, "passes", 0, 1000, &op->passes, err) < 0 ||
                   json_opt_bool(v, "waits", &op->waits, err) < 0
               ? -1
               : 0;
}

static int read_ops(const json_t *doc, bool like, struct runtime *r, struct err *err) {
    json_t *ops, *v;
    const char *name;
    if (like && !json_object_get(doc, "ops"))
        return 0;
    if (json_object_member(doc, "ops", &ops, err) < 0)
        return -1;
    json_object_foreach(ops, name, v) if (read_op(name, v, r, err) < 0) {
        err_prefix(err, "%.48s", name);
        return err_at(err, "ops");
    }
    return 0;
}

/* Reads one of two words; *out stays as it is where there is none. */
static int read_word(const json_t *doc, const char *key, const char *no, const char *yes,
                     bool *out, struct err *err) {
    const char *word = *out ? yes : no;
    if (json_opt_str(doc, key, &word, err) < 0)
        return -1;
    if (strcmp(word, no) && strcmp(word, yes))
        return err_input(err, "%s: expected %s or %s, got \"%.32s\"", key, no, yes, word);
    *out = !strcmp(word, yes);
    return 0;
}

static int read_fixed(const json_t *doc, struct runtime *r, struct err *err) {
    const char *text = NULL;
    if (json_opt_str(doc, "fixed_memory", &text, err) < 0)
        return -1;
    if (text && (opt_parse_bytes(text, &r->fixed_bytes) < 0 || r->fixed_bytes < 0))
        return err_input(err, "fixed_memory: expected bytes such as \"2G\", got \"%.32s\"",
                         text);
    return 0;
}

/* like: r holds the runtime that this one is like; only what the file states differs. */
static int read_members(const json_t *doc, bool like, struct runtime *r, struct err *err) {
    const char *name = "", *about;
    if (json_str(doc, "name", &name, err) < 0 ||
        json_opt_str(doc, "about", &about, err) < 0 ||
        (like ? json_opt_num(doc, "host_us", 0, 1e6, &r->host_us, err)
              : json_num(doc, "host_us", 0, 1e6, &r->host_us, err)) < 0 ||
        json_opt_num(doc, "message_us", 0, 1e6, &r->message_us, err) < 0 ||
        json_opt_num(doc, "collective_us", 0, 1e6, &r->collective_us, err) < 0 ||
        json_opt_num(doc, "step_us", 0, 1e9, &r->step_us, err) < 0 ||
        read_word(doc, "attention", "fused", "unfused", &r->unfused_attention, err) < 0 ||
        read_word(doc, "dropout", "drawn", "kept", &r->kept_masks, err) < 0 ||
        read_word(doc, "recompute", "needed", "whole", &r->whole_recompute, err) < 0 ||
        read_fixed(doc, r, err) < 0)
        return -1;
    snprintf(r->name, sizeof r->name, "%.63s", name);
    return read_ops(doc, like, r, err);
}

static bool is_path(const char *ref) {
    size_t n = strlen(ref);
    return strchr(ref, '/') || (n > 5 && !strcmp(ref + n - 5, ".json"));
}

static int find(const char *ref, char *path, size_t n, struct err *err) {
    char file[80], shipped[256] = "";
    if (is_path(ref))
        return snprintf(path, n, "%s", ref), 0;
    snprintf(file, sizeof file, "%.64s.json", ref);
    if (share_path("runtimes", file, path, n, NULL) == 0)
        return 0;
    share_list("runtimes", shipped, sizeof shipped);
    return err_input(err,
                     "runtime \"%.64s\": not among the shipped ones (there are: weft%s)",
                     ref, shipped);
}

/* Reads a runtime over the one that it is like. depth: how many wait for it. */
static int read_over(const char *ref, int depth, struct runtime *r, struct err *err) {
    enum { MOST = 4 };
    char path[PATH_MAX];
    const char *like = NULL;
    if (depth == MOST)
        return err_input(err, "%.64s: more than %d runtimes that are like each other", ref,
                         MOST);
    if (find(ref, path, sizeof path, err) < 0)
        return -1;
    json_t *doc = json_read(path, err);
    if (!doc)
        return -1;
    int rc = json_is_object(doc)
                 ? 0
                 : err_input(err, "expected an object, got %s", json_type_name(doc));
    if (rc < 0 ||
        json_keys(doc,
                  "$schema format name about like host_us message_us collective_us step_us "
                  "attention dropout recompute fixed_memory ops",
                  err) < 0 ||
        json_format(doc, "weft-runtime/1", err) < 0 ||
        json_opt_str(doc, "like", &like, err) < 0)
        rc = -1;
    if (rc == 0 && like && read_over(like, depth + 1, r, err) < 0)
        rc = err_prefix(err, "like");
    if (rc == 0)
        rc = read_members(doc, like, r, err);
    json_decref(doc);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

struct runtime *runtime_read(const char *ref, struct err *err) {
    struct runtime *r = mem_alloc(sizeof *r);
    if (read_over(ref, 0, r, err) == 0)
        return r;
    free(r);
    return NULL;
}

int runtime_check(const struct runtime *r, const struct program *g, struct err *err) {
    for (int s = 0; s < g->n_stages; s++)
        for (int k = 0; k < g->stages[s].n_instrs; k++) {
            const struct instr *i = &g->stages[s].instrs[k];
            enum key_kind key = opcode_key(i->code);
            if (r->ops[i->code].known || key == KEY_FREE || key == KEY_P2P ||
                i->code == I_norm)
                continue;
            const char *op = i->op >= 0 ? g->plan->model->ops[i->op].name : "the update";
            return err_input(err, "runtime %s: ops: does not know %s, which %s needs",
                             r->name, opcode_name(i->code), op);
        }
    return 0;
}
