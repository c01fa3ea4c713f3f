/* What of the GPU backend needs no GPU: names of kinds, which of them are GPUs, messages where none is
 * there, and the workspace that a program plans. */
#include "cuda/cuda.h"

#include "cuda/cuda_workspace.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static void test_names(void) {
    static const char *const names[][2] = {{"NVIDIA H100 80GB HBM3", "h100-80gb"},
                                           {"NVIDIA H200", "h200"},
                                           {"NVIDIA A100-SXM4-80GB", "a100-80gb"},
                                           {"NVIDIA A100-PCIE-40GB", "a100-40gb"},
                                           {"Tesla V100-SXM2-32GB", "v100-32gb"},
                                           {"NVIDIA GeForce RTX 4090", "4090"},
                                           {"NVIDIA", "gpu"},
                                           {"", "gpu"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char kind[32];
        cuda_kind_of_name(names[i][0], kind, sizeof kind);
        ok(!strcmp(kind, names[i][1]), "\"%s\" is %s: %s", names[i][0], names[i][1], kind);
    }
}

static void test_clocks(void) {
    char text[200];
    const struct cuda_clocks fast = {1980, 1980, 41, 0x1},
                             slow = {1410, 1980, 84, 0x4 | 0x40};
    ok(!strcmp(cuda_clocks_format(&fast, text, sizeof text), "1980 of 1980 MHz, 41 C"),
       "%s", text);
    ok(!strcmp(cuda_clocks_format(&slow, text, sizeof text),
               "1410 of 1980 MHz, 84 C, held back by power and temperature"),
       "%s", text);
}

static void test_which(void) {
    ok(cluster_kind_is_gpu("h100-80gb") && cluster_kind_is_gpu("h200") &&
           cluster_kind_is_gpu("gb200") && cluster_kind_is_gpu("4090") &&
           cluster_kind_is_gpu("gpu"),
       "kinds of GPUs");
    ok(!cluster_kind_is_gpu("") && !cluster_kind_is_gpu("cpu-1t") &&
           !cluster_kind_is_gpu("cpu-2t-over4") && !cluster_kind_is_gpu("toy") &&
           !cluster_kind_is_gpu("this"),
       "kinds of CPUs, and none");
}

/* A plan for GPUs on a machine without any ends with a reason. */
static void test_none(void) {
    struct err err = {0};
    struct cuda_backend cuda = cuda_backend(&(struct cuda_options){0});
    if (cuda_count(&err) > 0) {
        printf("ok %d - a device where there is no GPU # SKIP there is one\n", ++tap_count);
        return;
    }
    err = (struct err){0};
    struct device *dev = device_create(&cuda.backend, 0, 1, &err);
    ok(!dev && err.status == EXIT_SYSTEM && *err.msg, "no GPU: %s", err.msg);
}

static void test_workspace(void) {
    const union instr_n n = {.linear = {.m = 8, .n = 8, .k = 8}};
    ok(cuda_workspace_instr(I_linear, &n, DTYPE_bf16) == CUDA_WORKSPACE_PRODUCT,
       "a product takes what the library may");
    ok(cuda_workspace_instr(I_add, &(union instr_n){.add = {.elems = 8}}, DTYPE_f32) == 0,
       "a sum takes none");
}

int main(void) {
    test_names();
    test_clocks();
    test_which();
    test_none();
    test_workspace();
    return done_testing();
}
