/* Which provider a tool gets: the profile, the datasheets of the cluster, or both. */
#include "cost/provider.h"

#include <stdio.h>
#include <string.h>

/* The rows of the kind that each group of the cluster names, or of the only kind where it
 * names none; one set for all where a kind is asked for. fits: curves stand in for what
 * they lack. */
static struct cost_provider *load(struct profile *db, const char *device,
                                  const struct cluster *c, bool fits, struct err *err) {
    struct profile_times *times[CLUSTER_MAX_GROUPS];
    int n = 0, wanted = device ? 1 : c->n_groups;
    for (; n < wanted; n++) {
        const char *kind = device ? device : c->groups[n].device;
        times[n] = profile_load(db, *kind ? kind : NULL, err);
        if (!times[n])
            break;
    }
    struct cost_provider *fit = n == wanted && fits ? provider_fit(times, n, c, err) : NULL;
    if (n == wanted && (fit || !fits)) {
        struct cost_provider *table = provider_profile(times, n);
        if (!fit)
            return table;
        provider_profile_near(table);
        return provider_stack(table, fit);
    }
    while (n > 0)
        profile_times_destroy(times[--n]);
    return NULL;
}

static struct cost_provider *open_profile(const char *path, const char *device,
                                          const struct cluster *c, bool fits,
                                          struct err *err) {
    struct profile *db = profile_open(path, false, err);
    struct cost_provider *p = db ? load(db, device, c, fits, err) : NULL;
    profile_close(db);
    return p;
}

/* The device models of the cluster, where it names some, before its datasheets. */
static struct cost_provider *open_sheets(const struct cluster *c, struct err *err) {
    bool named = false;
    struct cost_provider *models = provider_device(c, &named, err);
    if (named && !models)
        return NULL;
    struct cost_provider *sheets = provider_analytic(c, err);
    if (sheets)
        return models ? provider_stack(models, sheets) : sheets;
    provider_destroy(models);
    err_hint(err, "name a cluster with datasheets (--cluster v100-4x8) or a profile "
                  "(-p FILE)");
    return NULL;
}

static struct cost_provider *open_any(const char *path, const char *device,
                                      const struct cluster *c, bool datasheets,
                                      struct err *err) {
    struct cost_provider *table =
        path ? open_profile(path, device, c, datasheets, err) : NULL;
    if (!datasheets || (path && !table))
        return table;
    struct cost_provider *sheets = open_sheets(c, err);
    if (!sheets) {
        provider_destroy(table);
        return NULL;
    }
    return table ? provider_stack(table, sheets) : sheets;
}

struct cost_provider *provider_open(const char *path, const char *device,
                                    const struct cluster *c, bool datasheets,
                                    struct err *err) {
    struct cost_provider *p = open_any(path, device, c, datasheets, err);
    return p ? provider_speed(p, c) : NULL;
}
