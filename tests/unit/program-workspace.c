/* Workspace: what a rank takes beside its arena follows from its threads and the nodes. */
#include "program/workspace.h"
#include "tap.h"

#include <string.h>

static struct program *compile(const char *mesh, struct plan **plan) {
    char text[512];
    struct err err = {0};
    snprintf(text, sizeof text,
             "{\"format\":\"weft-plan/1\",\"model\":\"mlp\",\"batch\":64,\"stages\":["
             "{\"mesh\":\"%s\",\"layout\":{\"dp\":\"batch\"}}]}",
             mesh);
    json_t *doc = json_parse(text, strlen(text), "plan", &err);
    *plan = plan_from_json(doc, &err);
    json_decref(doc);
    struct program *g = *plan ? program_compile(*plan, &err) : NULL;
    ok(g != NULL, "a plan on \"%s\" %s", mesh, err.msg);
    return g;
}

int main(void) {
    struct plan *plan;
    struct cluster one, two, gpus;
    struct program *g = compile("dp:4", &plan);
    cluster_read(&one, "node:1 cpu:4", NULL);
    cluster_read(&two, "node:2 cpu:2", NULL);
    struct workspace a = workspace_of(g, 0, &one, 1), b = workspace_of(g, 0, &one, 3),
                     c = workspace_of(g, 0, &two, 1);
    ok(a.kernels == 4 << 20 && a.products == 24 << 20,
       "one thread: 4 MiB, and 24 to multiply");
    ok(b.kernels == 12 << 20 && b.products == 40 << 20, "three threads: 12 and 40");
    ok(a.lanes > 0 && a.rings == 0, "on one node ranks meet in shared memory");
    /* The group of the gradients and the whole job: 2 x 4 segments of 256 KiB each. */
    ok(c.rings == 2 * (2 << 20), "on two nodes each group stages 2 MiB: %lld",
       (long long)c.rings);
    ok(a.total == a.kernels + a.products + a.lanes + a.rings && c.total > a.total,
       "in all");
    ok(2 * 16 * 4 * workspace_segment(16) == 8 << 20 &&
           2 * 64 * 4 * workspace_segment(64) == 8 << 20,
       "a group of 16 to 256 stages 8 MiB");
    cluster_read(&gpus, "h200-8", NULL);
    struct workspace d = workspace_of(g, 0, &gpus, 1);
    ok(d.total == d.kernels && d.total == workspace_gpu_of(g, 0) &&
           d.total >= WORKSPACE_GPU_PRODUCT,
       "on GPUs, the largest of an instruction: %lld", (long long)d.total);
    program_destroy(g);
    plan_destroy(plan);
    g = compile("dp:1", &plan);
    ok(workspace_of(g, 0, &one, 1).lanes == 0, "one rank has nobody to meet");
    program_destroy(g);
    plan_destroy(plan);
    return done_testing();
}
