/* Names of GPUs, as clusters and profiles have them. */
#include "cuda/cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_maker(const char *word) {
    return !strcmp(word, "nvidia") || !strcmp(word, "tesla") || !strcmp(word, "geforce") ||
           !strcmp(word, "rtx");
}

/* "80gb", "80g" */
static bool is_memory(const char *word) {
    size_t n = strspn(word, "0123456789");
    return n && (!strcmp(word + n, "gb") || !strcmp(word + n, "g"));
}

/* The first word that is no maker's name, and behind it the memory where it is said. */
char *cuda_kind_of_name(const char *name, char *buf, size_t size) {
    char model[64] = "", memory[16] = "";
    for (const char *p = name; *p;) {
        char word[64];
        size_t n = strcspn(p, " -"), kept = n < sizeof word ? n : sizeof word - 1;
        for (size_t i = 0; i < kept; i++)
            word[i] = (char)tolower((unsigned char)p[i]);
        word[kept] = '\0';
        if (!*model && kept && !is_maker(word))
            snprintf(model, sizeof model, "%s", word);
        else if (*model && is_memory(word))
            snprintf(memory, sizeof memory, "-%.*sgb", (int)strspn(word, "0123456789"),
                     word);
        p += n + strspn(p + n, " -");
    }
    snprintf(buf, size, "%s%s", *model ? model : "gpu", memory);
    return buf;
}
