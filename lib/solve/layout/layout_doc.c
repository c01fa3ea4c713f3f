/* layout_doc.c - which keys go to which tables, in the contest's form and Alpa's. */
#include "solve/layout/layout_doc.h"

#include <string.h>

static int take_tree(struct json_stream *s, const char *key, json_t **out,
                     struct err *err) {
    if (*out)
        return err_input(err, "%s: this key stands here a second time", key);
    *out = json_stream_tree(s, err);
    return *out ? 0 : -1;
}

/* A key and the table that its value goes to. */
struct place {
    const char *key, *name;
    size_t at; /* in struct layout_doc */
    enum layout_table_form form;
};

/* Reads the value of a key that is in the list, and skips any other. */
static int take_place(struct json_stream *s, const struct place *list, const char *key,
                      struct layout_doc *d, struct err *err) {
    for (; list->key; list++)
        if (!strcmp(list->key, key)) {
            struct layout_table *t = (struct layout_table *)((char *)d + list->at);
            return layout_table_read(t, s, list->name, list->form, err);
        }
    return json_stream_skip(s, err);
}

#define AT(field) offsetof(struct layout_doc, field)
static const struct place nodes_places[] = {
    {"costs", "nodes.costs", AT(costs), LAYOUT_TABLE_COSTS},
    {"usages", "nodes.usages", AT(usages), LAYOUT_TABLE_COSTS},
    {"intervals", "nodes.intervals", AT(intervals), LAYOUT_TABLE_ROWS},
    {0},
};
static const struct place edges_places[] = {
    {"nodes", "edges.nodes", AT(ends), LAYOUT_TABLE_ROWS},
    {"costs", "edges.costs", AT(matrices), LAYOUT_TABLE_COSTS},
    {0},
};
static const struct place alias_places[] = {
    {"nodes", "alias.nodes", AT(alias), LAYOUT_TABLE_ROWS},
    {"excluded", "alias.excluded", AT(excluded), LAYOUT_TABLE_COSTS},
    {0},
};
static const struct place alpa_places[] = {
    {"compute_cost", "compute_cost", AT(costs), LAYOUT_TABLE_COSTS},
    {"comm_cost", "comm_cost", AT(more_costs), LAYOUT_TABLE_COSTS},
    {"memory_cost", "memory_cost", AT(usages), LAYOUT_TABLE_COSTS},
    {"edges", "edges", AT(ends), LAYOUT_TABLE_ROWS},
    {"edge_cost", "edge_cost", AT(matrices), LAYOUT_TABLE_COSTS},
    {"alias", "alias", AT(alias), LAYOUT_TABLE_ROWS},
    {"alias_cost", "alias_cost", AT(excluded), LAYOUT_TABLE_COSTS},
    {"live", "live", AT(live), LAYOUT_TABLE_ROWS},
    {"s_len", "s_len", AT(lens), LAYOUT_TABLE_FLAT},
    {"s_follow", "s_follow", AT(follow), LAYOUT_TABLE_FLAT},
    {0},
};
/* Members that are objects in the contest's form. */
static const struct {
    const char *key;
    const struct place *places;
} groups[] = {{"nodes", nodes_places}, {"edges", edges_places}, {"alias", alias_places}};

static int take_group(struct json_stream *s, const struct place *places,
                      struct layout_doc *d, struct err *err) {
    char key[32];
    int more = json_stream_enter(s, '{', err);
    while (more >= 0 && (more = json_stream_key(s, key, sizeof key, err)) > 0)
        more = take_place(s, places, key, d, err);
    return more;
}

static int take_member(struct json_stream *s, const char *key, struct layout_doc *d,
                       struct err *err);

static int take_members(struct json_stream *s, struct layout_doc *d, struct err *err) {
    char key[32];
    int more = json_stream_enter(s, '{', err);
    while (more >= 0 && (more = json_stream_key(s, key, sizeof key, err)) > 0)
        more = take_member(s, key, d, err);
    return more;
}

/* Reads the object inside "problem", or the name of the problem that the document is
 * about. */
static int take_problem(struct json_stream *s, int type, struct layout_doc *d,
                        struct err *err) {
    if (type == JSON_OBJECT)
        return take_members(s, d, err);
    json_t *named = json_stream_tree(s, err);
    if (!named)
        return -1;
    const char *text = json_string_value(named);
    int rc = 0;
    if (text && strcmp(text, "layout") != 0)
        rc = err_input(err, "problem: this is a %.40s problem, not a layout problem", text);
    json_decref(named);
    return rc;
}

static int take_member(struct json_stream *s, const char *key, struct layout_doc *d,
                       struct err *err) {
    int type = json_stream_type(s, err);
    if (type < 0)
        return -1;
    for (size_t g = 0; type == JSON_OBJECT && g < sizeof groups / sizeof *groups; g++)
        if (!strcmp(key, groups[g].key))
            return take_group(s, groups[g].places, d, err);
    if (!strcmp(key, "problem"))
        return take_problem(s, type, d, err);
    if (!strcmp(key, "name"))
        return take_tree(s, key, &d->name, err);
    if (!strcmp(key, "test"))
        return take_tree(s, key, &d->test, err);
    if (!strcmp(key, "usage_limit"))
        return take_tree(s, key, &d->limit, err);
    if (!strcmp(key, "memory_budget"))
        return take_tree(s, key, &d->budget, err);
    return take_place(s, alpa_places, key, d, err);
}

void layout_doc_release(struct layout_doc *d) {
    struct layout_table *const all[] = {
        &d->costs,    &d->more_costs, &d->usages, &d->ends, &d->matrices, &d->alias,
        &d->excluded, &d->intervals,  &d->live,   &d->lens, &d->follow};
    for (size_t t = 0; t < sizeof all / sizeof *all; t++)
        layout_table_release(all[t]);
    json_decref(d->name);
    json_decref(d->test);
    json_decref(d->limit);
    json_decref(d->budget);
}

int layout_doc_read(struct layout_doc *d, struct json_stream *s, struct err *err) {
    *d = (struct layout_doc){0};
    int type = json_stream_type(s, err);
    if (type >= 0 && type != JSON_OBJECT)
        return err_input(err, "expected an object, got %s", json_stream_type_name(type));
    if (type < 0 || take_members(s, d, err) < 0)
        return -1;
    return json_stream_end(s, err);
}
