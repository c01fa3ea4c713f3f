#include "common/threads.h"

#include <pthread.h>
#include <signal.h>

enum { MOST = 64 /* beyond these neither a disk nor memory becomes any faster */ };

struct call {
    void (*work)(void *arg);
    void *arg;
};

static void *run(void *arg) {
    const struct call *c = arg;
    c->work(c->arg);
    return NULL;
}

void threads_run(int n, void (*work)(void *arg), void *arg) {
    pthread_t others[MOST];
    struct call call = {work, arg};
    sigset_t all, old;
    int started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (started < n - 1 && started < MOST &&
           pthread_create(&others[started], NULL, run, &call) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    work(arg);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}
