/* Fuzzes the reader of clusters (libFuzzer): as a synthetic string, and as a document in a file
 * that exists in memory only. */
#define _GNU_SOURCE /* memfd_create */
#include "plan/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const char *ref) {
    struct err err = {0};
    struct cluster c;
    if (cluster_read(&c, ref, &err) < 0) {
        if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        return;
    }
    int64_t n = cluster_devices(&c);
    struct cluster_unit u;
    for (int k = 0; cluster_unit(&c, n - 1, k, &u); k++)
        if (u.first > n - 1 || u.end < n || u.link->size < 1)
            abort();
    if (n < 1 || cluster_memory(&c, 0, n) < 0 ||
        !(cluster_flops(&c, DTYPE_f32, 0, n) >= 0) ||
        cluster_node_of(&c, n - 1) != cluster_nodes(&c) - 1 ||
        cluster_alias(&c, n - 1, 1) < 0)
        abort();
    json_decref(cluster_to_json(&c));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *text = malloc(size + 1), path[64];
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (!strchr(text, '/') && !strstr(text, ".json") && strcmp(text, "-"))
        check(text);
    free(text);
    int fd = memfd_create("cluster", 0);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(path);
    close(fd);
    return 0;
}
