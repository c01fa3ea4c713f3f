/* Signals to the supervisor: the first stops the run, after a checkpoint; a second one
 * at once. */
#include "keep.h"

#include <signal.h>

static volatile sig_atomic_t came;

/* SIGUSR1 is a request, which may come from several who do not know of each other: once more it says nothing new. */
static void on_signal(int sig) {
    if (sig != SIGUSR1 || !came)
        came = came + 1;
}

void keep_catch_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    for (int i = 0; i < 4; i++)
        sigaction(signals[i], &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* of copies: an error as a full disk is */
}

int keep_signals(void) {
    return came;
}
