/* Opening Aceso's source: which tables a model's name means, and how many layers it has. */
#include "search/source/aceso_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void close_source(struct source *src) {
    struct aceso *a = (struct aceso *)src;
    src->forget(src);
    aceso_free_chain(a);
    aceso_tables_release(&a->tables);
    free(a->work_us);
    free(a);
}

/* "gpt:1.3B" is gpt_1_3B. */
static int read_name(struct aceso *a, const char *model, char *name, size_t n,
                     struct err *err) {
    static const struct {
        const char *name, *file;
        enum aceso_family family;
    } families[] = {{"gpt", "gpt", ACESO_gpt},
                    {"t5", "t5", ACESO_t5},
                    {"wide-resnet", "resnet", ACESO_resnet},
                    {"resnet", "resnet", ACESO_resnet}};
    size_t length = strcspn(model, ":");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i].name) != length ||
            strncmp(model, families[i].name, length) != 0 || !model[length])
            continue;
        a->family = families[i].family;
        snprintf(a->size, sizeof a->size, "%s", model + length + 1);
        for (char *c = a->size; (c = strchr(c, '.'));)
            *c = '_';
        /* The ops of the largest T5 are those of the one before it. */
        bool shared = a->family == ACESO_t5 && !strcmp(a->size, "22B");
        snprintf(name, n, "%s_%s", families[i].file, shared ? "11B" : a->size);
        return 0;
    }
    return err_input(err,
                     "--model: Aceso's tables are of gpt:SIZE, t5:SIZE and "
                     "wide-resnet:SIZE, got \"%s\"",
                     model);
}

/* What the tables do not say of a model: layers. */
static int usual_layers(const struct aceso *a) {
    static const struct {
        const char *size;
        int layers;
    } gpt[] = {{"2_6B", 32}, {"6_7B", 32}, {"13B", 40}};
    for (size_t i = 0; a->family == ACESO_gpt && i < sizeof gpt / sizeof *gpt; i++)
        if (!strcmp(a->size, gpt[i].size))
            return gpt[i].layers;
    return a->family == ACESO_t5 && !strcmp(a->size, "22B") ? 48 : 24;
}

static int read_layers(struct aceso *a, const char *set, struct err *err) {
    enum { MOST_LAYERS = 1 << 14 };
    a->n_layers = usual_layers(a);
    if (!set)
        return 0;
    int n = 0, end = 0;
    if (sscanf(set, "layers=%d%n", &n, &end) != 1 || set[end] || n < 1 || n > MOST_LAYERS)
        return err_usage(err, "--set: with Aceso's tables layers=N is all, got \"%s\"",
                         set);
    if (a->family == ACESO_resnet)
        return err_usage(err, "--set: the tables have all layers of a ResNet");
    a->n_layers = n;
    return 0;
}

/* What ops take with nothing split, and the least that any op may take. */
static void weigh(struct aceso *a) {
    const struct aceso_tables *t = &a->tables;
    a->work_us = mem_array((size_t)a->n_ops, sizeof *a->work_us);
    for (int i = 0; i < a->n_ops; i++) {
        const struct aceso_cell *c = NULL;
        for (int m = t->n_mbs - 1; m >= 0; m--)
            for (int tp = t->n_tp - 1; tp >= 0; tp--)
                if (t->rows[a->row_of[i]].cells[m][tp][0].known)
                    c = &t->rows[a->row_of[i]].cells[m][tp][0];
        a->work_us[i] = c ? c->forward + c->backward : 0;
    }
}

struct source *aceso_open(const char *dir, const char *model, const char *set,
                          struct err *err) {
    struct aceso *a = mem_alloc(sizeof *a);
    char name[64];
    a->source = (struct source){.name = "aceso", .model = &a->model, .close = close_source};
    aceso_put_costs(a);
    if (read_name(a, model, name, sizeof name, err) < 0 || read_layers(a, set, err) < 0 ||
        aceso_read(dir, name, a->family != ACESO_t5, &a->tables, err) < 0 ||
        aceso_make_chain(a, err) < 0) {
        close_source(&a->source);
        return NULL;
    }
    a->state = a->family == ACESO_resnet ? 4 : 8;
    a->converts = a->family != ACESO_t5;
    weigh(a);
    for (int d = 0; d < 3; d++)
        a->dims[d] = DIM_tp + d;
    a->source.inner = a->dims;
    a->source.n_inner = 3;
    a->source.work_us = a->work_us;
    a->source.micro = a->tables.mbs;
    a->source.n_micro = a->tables.n_mbs;
    return &a->source;
}
