/* mem.h - allocation: checked heap, growable arrays, arenas.
 *
 * Small allocations never return NULL: when the machine has no memory left for a few
 * kilobytes there is nothing useful to do, so mem_* print one line and exit with status 4
 * (the only place below main that does). Large, user-sized memory (the executor's arena,
 * a data file) is asked for with plain calloc/mmap and reported as an error value.
 *
 *     ARR(int64_t) sizes = {0};
 *     arr_push(&sizes, 42);
 *     for (int64_t i = 0; i < sizes.n; i++) use(sizes.p[i]);
 *     arr_release(&sizes);
 */
#ifndef WEFT_MEM_H
#define WEFT_MEM_H

#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t bytes);                   /* zeroed; free() it */
void *mem_array(size_t n, size_t bytes);         /* zeroed n*bytes, overflow checked */
void *mem_grow(void *p, size_t n, size_t bytes); /* realloc to n*bytes, overflow checked */
char *mem_strdup(const char *s);

#define ARR(T)                                                                             \
    struct {                                                                               \
        T *p;                                                                              \
        int64_t n;                                                                         \
        int64_t cap;                                                                       \
    }

/* Appends v; amortized constant time. */
#define arr_push(a, ...)                                                                   \
    do {                                                                                   \
        if ((a)->n == (a)->cap) {                                                          \
            (a)->cap = (a)->cap ? 2 * (a)->cap : 8;                                        \
            (a)->p = mem_grow((a)->p, (size_t)(a)->cap, sizeof *(a)->p);                   \
        }                                                                                  \
        (a)->p[(a)->n++] = (__VA_ARGS__);                                                  \
    } while (0)
#define arr_last(a)    ((a)->p[(a)->n - 1])
#define arr_release(a) (free((a)->p), (a)->p = NULL, (a)->n = (a)->cap = 0)

/* An arena: many small pieces freed together. Zero-initialized is empty and ready. */
struct arena {
    struct arena_block *head;
};
void *arena_alloc(struct arena *a, size_t bytes); /* zeroed, aligned to 16 */
void *arena_array(struct arena *a, size_t n, size_t bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void arena_release(struct arena *a);

#endif
