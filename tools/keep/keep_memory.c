/* Whom the kernel has killed since memory was full, as far as it says. */
#include "keep.h"

#include <stdio.h>
#include <string.h>

/* The number behind this word at the beginning of a line; 0 where there is none. */
static int64_t read_number(const char *path, const char *word) {
    char line[256];
    const size_t n = strlen(word);
    long long found = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, word, n) && sscanf(line + n, " %lld", &found) == 1)
            break;
    if (f)
        fclose(f);
    return found;
}

/* One line of cgroup(7): "0::/path" of version 2, "4:memory:/path" of version 1. */
static int64_t kills_of(const char *line) {
    char path[4300];
    const char *v1 = strstr(line, ":memory:");
    if (!strncmp(line, "0::", 3)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.events", line + 3);
        return read_number(path, "oom_kill");
    }
    if (!v1)
        return 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/memory.oom_control",
             v1 + strlen(":memory:"));
    return read_number(path, "oom_kill ");
}

int64_t keep_oom_kills(void) {
    char line[4200];
    int64_t n = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        n += kills_of(line);
    }
    if (f)
        fclose(f);
    return n;
}
