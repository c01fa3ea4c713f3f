#include "model/saved.h"

#include <stdlib.h>
#include <string.h>

static struct model *find(const struct checkpoint_info *info, const char *ref,
                          const char *set, struct err *err) {
    if (ref)
        return model_load(ref, set, err);
    if (!set)
        set = info->set;
    if (info->ref)
        return model_load(info->ref, set, err);
    if (!info->doc) { /* of before models of the user's own were kept */
        err_usage(err, "-m MODEL is missing");
        err_hint(err, "the checkpoint is of a model of the user's own: %.100s",
                 info->model);
        return NULL;
    }
    json_t *doc = json_parse(info->doc, strlen(info->doc), "model_file", err);
    struct model *m = doc ? model_from_json(doc, NULL, set, err) : NULL;
    if (doc && !m)
        err_prefix(err, "model_file");
    json_decref(doc);
    return m;
}

struct model *model_of_checkpoint(const struct checkpoint *ck, const char *ref,
                                  const char *set, struct err *err) {
    struct model *m = find(checkpoint_info(ck), ref, set, err);
    char *facts = m ? model_facts(m) : NULL;
    int rc = m ? checkpoint_check_model(ck, m->name, m->hash, facts, err) : -1;
    free(facts);
    if (rc == 0)
        return m;
    model_destroy(m);
    return NULL;
}
