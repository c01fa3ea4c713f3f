/* What a compiler calls with -fsanitize=thread, in the place of the sanitizer's library. Programs that are
 * linked with this have no other. */
#include "watch_access.h"

#include <stdint.h>

#define PC __builtin_return_address(0)

void __tsan_init(void);
void __tsan_init(void) {
}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc) {
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {
}

#define ACCESS(touch, name, size, writes)                                                  \
    void __tsan_##name(void *p);                                                           \
    void __tsan_##name(void *p) {                                                          \
        touch(p, size, writes, PC);                                                        \
    }
#define ACCESSES(size)                                                                     \
    ACCESS(watch_touch, read##size, size, false)                                           \
    ACCESS(watch_touch, write##size, size, true)                                           \
    ACCESS(watch_touch, unaligned_read##size, size, false)                                 \
    ACCESS(watch_touch, unaligned_write##size, size, true)                                 \
    ACCESS(watch_touch_volatile, volatile_read##size, size, false)                         \
    ACCESS(watch_touch_volatile, volatile_write##size, size, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void *p, size_t bytes);
void __tsan_read_range(void *p, size_t bytes) {
    watch_touch(p, bytes, false, PC);
}
void __tsan_write_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes) {
    watch_touch(p, bytes, true, PC);
}
