#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *out_of_memory(void) {
    static const char msg[] = "weft: error: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, msg, sizeof msg - 1);
    (void)ignored;
    _exit(4);
}

/* glibc hands small blocks that were freed out again by malloc, without looking further, but not by
 * calloc. */
enum { SMALL = 1024 };

static void *zeroed(size_t bytes) {
    bytes = bytes ? bytes : 1;
    void *p = bytes <= SMALL ? malloc(bytes) : calloc(1, bytes);
    if (!p)
        return out_of_memory();
    return bytes <= SMALL ? memset(p, 0, bytes) : p;
}

void *mem_alloc(size_t bytes) {
    return zeroed(bytes);
}

void *mem_array(size_t n, size_t bytes) {
    size_t total;
    return __builtin_mul_overflow(n, bytes, &total) ? out_of_memory() : zeroed(total);
}

void *mem_grow(void *p, size_t n, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(n, bytes, &total))
        return out_of_memory();
    p = realloc(p, total ? total : 1);
    return p ? p : out_of_memory();
}

char *mem_strdup(const char *s) {
    char *copy = strdup(s);
    return copy ? copy : out_of_memory();
}

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

enum { ARENA_BLOCK = 1 << 15 };

void *arena_alloc(struct arena *a, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    struct arena_block *b = a->head;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
        b = mem_alloc(sizeof *b + size);
        b->size = size;
        b->next = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(n, bytes, &total))
        return out_of_memory();
    return arena_alloc(a, total);
}

char *arena_strdup(struct arena *a, const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(arena_alloc(a, n), s, n);
}

char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

void arena_release(struct arena *a) {
    for (struct arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    a->head = NULL;
}
