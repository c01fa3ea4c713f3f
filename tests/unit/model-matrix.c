/* Which weights are matrices, and of how many rows and columns: of shipped models, and where it could be taken
 * otherwise. */
#include "model.h"

#include <stdio.h>
#include <string.h>

/* "name outer*inner*rows*columns" of each, those of one block; as they are after the dims of weights. */
static void list(const struct model *m, const char *under, char *text, size_t size) {
    text[0] = '\0';
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        const struct extents x = model_extents(m, &p->shape, 1);
        if (!p->matrix ||
            (strchr(p->name, '.') && strncmp(p->name, under, strlen(under)) != 0))
            continue;
        const struct matrix_sizes n = model_matrix_sizes(p, &x);
        snprintf(text + strlen(text), size - strlen(text), "%s%s %lld*%lld*%lld*%lld",
                 text[0] ? ", " : "", p->name, (long long)n.outer, (long long)n.inner,
                 (long long)n.rows, (long long)n.columns);
    }
}

static void are(const char *ref, const char *set, const char *under, const char *want) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    char got[1000] = "";
    if (m)
        list(m, under, got, sizeof got);
    ok(m && !strcmp(got, want), "%s: %s %s", ref, got, err.msg);
    model_destroy(m);
}

int main(void) {
    are("gpt:nano", "hidden=48,heads=6", "layer.0",
        "layer.0.qkv.weight 1*3*48*48, layer.0.proj.weight 1*1*48*48, "
        "layer.0.fc1.weight 1*1*48*192, layer.0.fc2.weight 1*1*192*48");
    are("llama:nano", "hidden=48,heads=6,kv_heads=2,ffn=96,tied=0", "layer.0",
        "layer.0.q.weight 1*1*48*48, layer.0.k.weight 1*1*48*16, "
        "layer.0.v.weight 1*1*48*16, layer.0.proj.weight 1*1*48*48, "
        "layer.0.gate.weight 1*1*48*96, layer.0.up.weight 1*1*48*96, "
        "layer.0.down.weight 1*1*96*48");
    are("mixtral:nano", "hidden=48,heads=6,kv_heads=2,ffn=96,experts=4", "layer.0",
        "layer.0.q.weight 1*1*48*48, layer.0.k.weight 1*1*48*16, "
        "layer.0.v.weight 1*1*48*16, layer.0.proj.weight 1*1*48*48, "
        "layer.0.router.weight 1*1*48*4, layer.0.gate.weight 4*1*48*96, "
        "layer.0.up.weight 4*1*48*96, layer.0.down.weight 4*1*96*48");
    are("bert:nano", "hidden=48,heads=6", "map", "map.weight 1*1*48*48");
    are("vit:nano", "hidden=48,heads=6", "head", "");
    are("wide-resnet:nano", NULL, "", "");
    return done_testing();
}
