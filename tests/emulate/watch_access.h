/* watch_access.h - inside the watcher: what the compiler's calls before each access come to. */
#ifndef WEFT_EMULATE_WATCH_ACCESS_H
#define WEFT_EMULATE_WATCH_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

/* The thread that runs reads or writes so many bytes; pc: where it goes on. Does nothing where no kernel
 * runs, for what is the emulator's and for the stacks of threads. What is volatile is atomic to the GPU
 * (PTX: ld.volatile is ld.relaxed.sys). */
void watch_touch(const void *p, size_t bytes, bool writes, const void *pc);
void watch_touch_volatile(const void *p, size_t bytes, bool writes, const void *pc);

#endif
