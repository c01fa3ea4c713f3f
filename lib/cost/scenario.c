/* Reading scenarios: see scenario.h. */
#include "cost/scenario.h"

#include "common/json.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static int read_stragglers(const json_t *doc, struct scenario *s, struct err *err) {
    json_t *v = json_object_get(doc, "stragglers");
    if (!v)
        return 0;
    if (json_object_member(doc, "stragglers", &v, err) < 0)
        return -1;
    if (json_keys(v, "share slower", err) < 0 ||
        json_num(v, "share", 0, 1, &s->stragglers, err) < 0 ||
        json_num(v, "slower", 1, 1e3, &s->slower, err) < 0)
        return err_at(err, "stragglers");
    return 0;
}

static int read_link(const json_t *v, struct scenario_link *l, struct err *err) {
    const char *where = "";
    *l = (struct scenario_link){.share = 1, .to_s = 1e300};
    if (!json_is_object(v))
        return err_input(err, "expected an object, got %s", json_type_name(v));
    if (json_keys(v, "links share speed from_s to_s every_s", err) < 0 ||
        json_str(v, "links", &where, err) < 0 ||
        json_opt_num(v, "share", 0, 1, &l->share, err) < 0 ||
        json_num(v, "speed", 1e-3, 1, &l->speed, err) < 0 ||
        json_opt_num(v, "from_s", 0, 1e12, &l->from_s, err) < 0 ||
        json_opt_num(v, "to_s", 0, 1e12, &l->to_s, err) < 0 ||
        json_opt_num(v, "every_s", 1, 1e12, &l->every_s, err) < 0)
        return -1;
    if (strcmp(where, "node") && strcmp(where, "cross"))
        return err_input(err, "links: expected node or cross, got \"%.32s\"", where);
    if (l->to_s <= l->from_s)
        return err_input(err, "to_s: expected more than from_s, got %g", l->to_s);
    l->cross = !strcmp(where, "cross");
    return 0;
}

static int read_links(const json_t *doc, struct scenario *s, struct err *err) {
    json_t *list = NULL;
    if (!json_object_get(doc, "slow_links"))
        return 0;
    if (json_array_member(doc, "slow_links", &list, err) < 0)
        return -1;
    if (json_array_size(list) > SCENARIO_LINKS)
        return err_input(err, "slow_links: expected at most %d, got %zu", SCENARIO_LINKS,
                         json_array_size(list));
    for (; s->n_links < (int)json_array_size(list); s->n_links++)
        if (read_link(json_array_get(list, (size_t)s->n_links), &s->links[s->n_links],
                      err) < 0)
            return err_at(err, "slow_links[%d]", s->n_links);
    return 0;
}

static int read_failures(const json_t *doc, struct scenario *s, struct err *err) {
    json_t *v = json_object_get(doc, "failures");
    if (!v)
        return 0;
    if (json_object_member(doc, "failures", &v, err) < 0)
        return -1;
    if (json_keys(v, "mtbf_hours restart_s checkpoint_s every_s", err) < 0 ||
        json_num(v, "mtbf_hours", 1, 1e12, &s->mtbf_hours, err) < 0 ||
        json_num(v, "restart_s", 0, 1e9, &s->restart_s, err) < 0 ||
        json_num(v, "checkpoint_s", 0, 1e6, &s->write_s, err) < 0 ||
        json_opt_num(v, "every_s", 1, 1e9, &s->every_s, err) < 0)
        return err_at(err, "failures");
    if (s->write_s <= 0 && s->every_s <= 0)
        err_input(err,
                  "every_s: expected how often checkpoints are written that take no time");
    else
        return 0;
    return err_at(err, "failures");
}

static int read_sizes(const json_t *doc, struct scenario *s, struct err *err) {
    json_t *list = NULL;
    if (!json_object_get(doc, "devices"))
        return 0;
    if (json_array_member(doc, "devices", &list, err) < 0)
        return -1;
    if (json_array_size(list) > SCENARIO_SIZES)
        return err_input(err, "devices: expected at most %d, got %zu", SCENARIO_SIZES,
                         json_array_size(list));
    for (; s->n_sizes < (int)json_array_size(list); s->n_sizes++) {
        const json_t *v = json_array_get(list, (size_t)s->n_sizes);
        if (!json_is_integer(v) || json_integer_value(v) < 1 ||
            json_integer_value(v) > 100000000)
            return err_input(err, "devices[%d]: expected a number from 1 to 100000000",
                             s->n_sizes);
        s->sizes[s->n_sizes] = json_integer_value(v);
    }
    return 0;
}

static int read_scenario(const json_t *doc, struct scenario *s, struct err *err) {
    const char *about;
    int64_t seed = 1;
    *s = (struct scenario){.steps = 32, .hours = 720, .slower = 1};
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    if (json_keys(doc,
                  "$schema format about seed steps hours jitter stragglers slow_links "
                  "failures devices",
                  err) < 0 ||
        json_format(doc, "weft-scenario/1", err) < 0 ||
        json_opt_str(doc, "about", &about, err) < 0 ||
        json_opt_int(doc, "seed", 0, INT64_MAX, &seed, err) < 0 ||
        json_opt_int(doc, "steps", 1, 100000, &s->steps, err) < 0 ||
        json_opt_num(doc, "hours", 1e-3, 1e6, &s->hours, err) < 0 ||
        json_opt_num(doc, "jitter", 0, 2, &s->jitter, err) < 0 ||
        read_stragglers(doc, s, err) < 0 || read_links(doc, s, err) < 0 ||
        read_failures(doc, s, err) < 0 || read_sizes(doc, s, err) < 0)
        return -1;
    s->seed = (uint64_t)seed;
    return 0;
}

struct scenario *scenario_read(const char *path, struct err *err) {
    json_t *doc = json_read(path, err);
    if (!doc)
        return NULL;
    struct scenario *s = mem_alloc(sizeof *s);
    int rc = read_scenario(doc, s, err);
    json_decref(doc);
    if (rc == 0)
        return s;
    err_prefix(err, "%s", path);
    free(s);
    return NULL;
}
