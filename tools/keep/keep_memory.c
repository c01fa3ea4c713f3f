/* Whom the kernel has killed since memory was full, as far as it says. */
#include "keep.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* A number of a group of processes: of one line of cgroup(7), "0::/path" of version 2 or "4:memory:/path" of version 1, the
 * file and the word in it. */
static int64_t number_of(const char *line, const char *const v2[2],
                         const char *const v1[2]) {
    char path[4400];
    const char *old = strstr(line, ":memory:");
    if (!strncmp(line, "0::", 3)) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", line + 3, v2[0]);
        return read_number(path, v2[1]);
    }
    if (!old)
        return 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup/memory%s/%s", old + strlen(":memory:"),
             v1[0]);
    return read_number(path, v1[1]);
}

/* Of both versions the one that says something. */
static int64_t number(const char *const v2[2], const char *const v1[2]) {
    char line[4200];
    int64_t n = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        n += number_of(line, v2, v1);
    }
    if (f)
        fclose(f);
    return n;
}

int64_t keep_oom_kills(void) {
    return number((const char *[]){"memory.events", "oom_kill"},
                  (const char *[]){"memory.oom_control", "oom_kill "});
}

double keep_memory_limit(void) {
    const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
                 group = (double)number((const char *[]){"memory.max", ""},
                                        (const char *[]){"memory.limit_in_bytes", ""});
    return group > 0 && group < machine ? group : machine;
}
