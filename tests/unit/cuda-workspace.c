/* Workspace: what a rank takes beside its arena follows from its threads, devices and nodes. */
#include "comm/comm_workspace.h"
#include "cuda/cuda_workspace.h"
#include "device/cpu_workspace.h"
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

static int64_t total(const struct program *g, const struct cluster *c, int threads) {
    static workspace_query *const floors[] = {cpu_workspace, comm_workspace, cuda_workspace,
                                              NULL};
    return workspace_total(&(struct workspace_site){g, 0, c, threads}, floors);
}

int main(void) {
    struct plan *plan;
    struct cluster one, two, gpus;
    struct program *g = compile("dp:4", &plan);
    cluster_read(&one, "node:1 cpu:4", NULL);
    cluster_read(&two, "node:2 cpu:2", NULL);
    struct workspace_site a = {g, 0, &one, 1}, b = {g, 0, &one, 3}, c = {g, 0, &two, 1};
    ok(cpu_workspace(&a) == (4 + 24) << 20, "one thread: 4 MiB, and 24 to multiply");
    ok(cpu_workspace(&b) == (12 + 40) << 20, "three threads: 12 and 40");
    ok(comm_workspace(&a) == COMM_WORKSPACE_DESK,
       "on one node ranks meet in shared memory");
    /* The group of the gradients and the whole job: 2 x 4 segments of 256 KiB each. */
    ok(comm_workspace(&c) == COMM_WORKSPACE_DESK + 2 * (2 << 20),
       "on two nodes each group stages 2 MiB: %lld", (long long)comm_workspace(&c));
    ok(total(g, &one, 1) == cpu_workspace(&a) + comm_workspace(&a) && !cuda_workspace(&a) &&
           total(g, &two, 1) > total(g, &one, 1),
       "in all");
    ok(2 * 16 * 4 * comm_workspace_segment(16) == 8 << 20 &&
           2 * 64 * 4 * comm_workspace_segment(64) == 8 << 20,
       "a group of 16 to 256 stages 8 MiB");
    cluster_read(&gpus, "h200-8", NULL);
    int64_t bytes = total(g, &gpus, 1);
    ok(bytes == cuda_workspace_of(g, 0) && bytes >= CUDA_WORKSPACE_PRODUCT,
       "on GPUs, the largest of an instruction: %lld", (long long)bytes);
    program_destroy(g);
    plan_destroy(plan);
    g = compile("dp:1", &plan);
    ok(comm_workspace(&(struct workspace_site){g, 0, &one, 1}) == 0,
       "one rank has nobody to meet");
    program_destroy(g);
    plan_destroy(plan);
    return done_testing();
}
