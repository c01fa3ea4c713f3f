/* cp.async: the copies that threads have under way, in the order in which they began, and their groups.
 *
 * What is copied is taken when the copy begins and put when it is waited for; until then NaN stands
 * there. */
#include "emulate.h"

#include <string.h>

enum { COPIES = 128, THREADS = 1024 };

struct copy {
    void *to;
    const void *from, *pc;
    size_t bytes;
    bool there;
    int group;
    uint32_t begun; /* what the watcher said */
    char is[16];
};

static struct copies {
    struct copy copy[COPIES];
    int n, groups;
} of_thread[THREADS];
static int used; /* no thread from here on has any */

void emu_copy_forget(void) {
    for (int i = 0; i < used; i++)
        of_thread[i].n = of_thread[i].groups = 0;
    used = 0;
}

void emu_copy_begin(void *to, const void *from, bool there, size_t bytes) {
    struct copies *all = &of_thread[emu_position.number];
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes)
        emu_die("an asynchronous copy of what does not lie on its size");
    if (all->n == COPIES)
        emu_die("more asynchronous copies than are foreseen");
    if (used <= emu_position.number)
        used = emu_position.number + 1;
    struct copy *c = &all->copy[all->n++];
    *c = (struct copy){to, from, __builtin_return_address(0), bytes, there, all->groups,
                       0,  {0}};
    if (emu_watcher)
        c->begun = emu_watcher->copy(to, from, there, bytes, c->pc);
    if (there)
        memcpy(c->is, from, bytes);
    memset(to, 0xff, bytes);
}

void emu_copy_commit(void) {
    of_thread[emu_position.number].groups++;
}

static void put(const struct copy *c) {
    memcpy(c->to, c->is, c->bytes);
    if (emu_watcher)
        emu_watcher->copied(c->to, c->from, c->there, c->bytes, c->pc, c->begun);
}

void emu_copy_wait(int left) {
    struct copies *all = &of_thread[emu_position.number];
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (all->copy[i].group < all->groups - left)
            put(&all->copy[i]);
        else
            all->copy[n++] = all->copy[i];
    all->n = n;
}
