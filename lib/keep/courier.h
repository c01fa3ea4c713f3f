/* courier.h - files of checkpoints from the memory of one host to that of another, over TCP.
 *
 * Each host's agent listens, and forks for each caller. Who knows the token, which the supervisor draws and tells the
 * agents through their standard input, may put a file there or get one; it then lies in DIR/step-N under its name, whole or
 * not at all. Whether its bytes are those that were written, the checksums of the index say, not this.
 *
 *     struct courier here = {"/dev/shm/x/memory", token};
 *     int port, fd = courier_listen(&port, &err);                          // one host
 *     courier_serve(&here, accept(fd, NULL, NULL));
 *     struct courier_peer b = {"b", port};                                 // another
 *     courier_put(&here, &b, 12, "rank-0001.safetensors", &err);
 */
#ifndef WEFT_COURIER_H
#define WEFT_COURIER_H

#include "common/err.h"

#include <stdint.h>

struct courier {
    const char *dir;   /* with the folders step-N */
    const char *token; /* of this run; no blanks */
};

struct courier_peer {
    const char *host; /* a name or an address */
    int port;
};

/* A socket that listens on a free port of all addresses. Returns it, or -1. */
int courier_listen(int *port, struct err *err);
/* Serves one caller, and closes the connection. */
void courier_serve(const struct courier *c, int connection);

/* Sends a file of a step to a peer, or fetches one; a peer that is silent for 10 s is an error. Returns 0 or -1. */
int courier_put(const struct courier *c, const struct courier_peer *to, int64_t step,
                const char *name, struct err *err);
int courier_get(const struct courier *c, const struct courier_peer *from, int64_t step,
                const char *name, struct err *err);

/* Bytes per second to a peer: so many are sent, which it throws away, a few times, of which the fastest counts; and the
 * time of the shortest message and its answer, in s. Returns 0 or -1. */
int courier_measure(const struct courier *c, const struct courier_peer *to, int64_t bytes,
                    double *bytes_per_s, double *round_s, struct err *err);

#endif
