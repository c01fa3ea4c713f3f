#include "common/text.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

struct text text_time(double us) {
    return text_time_beside(us, us);
}

struct text text_time_beside(double us, double other_us) {
    struct text t;
    if (other_us < 1e4)
        snprintf(t.s, sizeof t.s, "%.1f us", us);
    else if (other_us < 1e7)
        snprintf(t.s, sizeof t.s, "%.2f ms", us / 1e3);
    else
        snprintf(t.s, sizeof t.s, "%.3f s", us / 1e6);
    return t;
}

struct text text_bytes(double bytes) {
    static const double mib = 1 << 20;
    struct text t;
    if (bytes < mib / 10)
        snprintf(t.s, sizeof t.s, "%.0f bytes", bytes);
    else if (bytes < 1024 * mib)
        snprintf(t.s, sizeof t.s, "%.1f MiB", bytes / mib);
    else
        snprintf(t.s, sizeof t.s, "%.2f GiB", bytes / mib / 1024);
    return t;
}

char *text_shell_word(const char *word) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        "_-./:,=+@%";
    if (*word && !word[strspn(word, plain)])
        return mem_strdup(word);
    char *quoted = mem_alloc(4 * strlen(word) + 3), *to = quoted;
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(to, "'\\'", 3); /* ends the quotes, and a quote; then they begin again */
            to += 3;
        }
        *to++ = *word;
    }
    *to = '\'';
    return quoted;
}
