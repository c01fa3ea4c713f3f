/* watch_traffic.h - inside the watcher: how many transactions the accesses of a kernel take, and how few
 * would do.
 *
 * Threads of the emulator do not run in lock step. So the n-th access that a lane makes at a place of the
 * program, between two exchanges of its warp, is taken for one with the n-th of the other lanes: as a
 * warp that stays together has it. Of shared memory a transaction serves 32 banks of 4 bytes, one word
 * each, and of lanes that want 8 or 16 bytes a half or a quarter at a time; of global memory it is a
 * sector of 32 bytes. What caches keep of a sector that is asked for again is not known here.
 */
#ifndef WEFT_EMULATE_WATCH_TRAFFIC_H
#define WEFT_EMULATE_WATCH_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void watch_traffic_access(const char *kernel, int thread, bool shared, uintptr_t at,
                          size_t bytes, uint32_t place);
/* The warp has exchanged something, or another one goes on. */
void watch_traffic_step(void);

#endif
