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

/* Bits of NVML's nvmlClocksThrottleReasons, but for that of a GPU which has nothing to do. */
char *cuda_clocks_format(const struct cuda_clocks *c, char *buf, size_t size) {
    static const struct {
        unsigned long long bit;
        const char *name;
    } reasons[] = {{0x2, "its setting"},        {0x4, "power"},
                   {0x8, "slowed by hardware"}, {0x10, "another GPU"},
                   {0x20, "temperature"},       {0x40, "temperature"},
                   {0x80, "the power plug"},    {0x100, "its setting"}};
    snprintf(buf, size, "%d of %d MHz, %d C", c->mhz, c->most_mhz, c->celsius);
    const char *before = ", held back by ";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (c->reasons & reasons[i].bit) {
            size_t at = strlen(buf);
            snprintf(buf + at, size - at, "%s%s", before, reasons[i].name);
            before = " and ";
        }
    return buf;
}
