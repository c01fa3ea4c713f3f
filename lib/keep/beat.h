/* beat.h - what the ranks of a node tell the supervisor beside them: a file in shared memory.
 *
 * The supervisor makes the file, with one beat for each rank of the job, and names it in the environment
 * (BEAT_VARIABLE). Where ranks are on several hosts each host has such a file, made by an agent beside the ranks,
 * which tells the supervisor what it says. A rank writes its own beat alone, a few words at the end of a step and where its phase
 * changes; no message, no lock, no thread. Times are CLOCK_MONOTONIC, which all processes of a
 * host share. Whatever kills a rank, its last beat stays.
 *
 *     struct beats *b = beats_create("/dev/shm/weft-keep-1/beats", 4, &err);   // supervisor
 *     struct beat *own = beat_join();                       // rank: NULL where nobody watches
 *     beat_enter(own, BEAT_STEP);
 *     ... beats_at(b, 2)->phase ...
 */
#ifndef WEFT_BEAT_H
#define WEFT_BEAT_H

#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BEAT_VARIABLE       "WEFT_BEATS"
#define BEAT_HOSTS_VARIABLE "WEFT_HOSTS"

/* Where a rank is. Only in BEAT_STEP and BEAT_MEMORY is a long silence a hang: a checkpoint in memory takes
 * as long as the one before. The first, which touches the memory, is a BEAT_SAVE. */
#define BEAT_PHASES(X)                                                                     \
    X(NONE, "not started")                                                                 \
    X(START, "start")                                                                      \
    X(LOAD, "load")                                                                        \
    X(FIRST, "first step")                                                                 \
    X(STEP, "step")                                                                        \
    X(SAVE, "save")                                                                        \
    X(VALIDATE, "validation")                                                              \
    X(MEMORY, "save in memory")                                                            \
    X(END, "end")

enum beat_phase {
#define X(id, text) BEAT_##id,
    BEAT_PHASES(X)
#undef X
        BEAT_PHASE_COUNT
};

struct beat {
    atomic_llong pid;      /* 0 = not started */
    atomic_llong phase;    /* enum beat_phase */
    atomic_llong at_us;    /* when this beat changed: now_s() of progress.h */
    atomic_llong from;     /* steps done where this attempt began; */
    atomic_llong target;   /* steps that are to be done */
    atomic_llong step;     /* and now */
    atomic_llong sample;   /* first sample of the next step */
    atomic_llong batch;    /* samples of a step */
    atomic_llong first_us; /* when the first step of the attempt was done; 0 = not yet */
    atomic_llong steps_us; /* in all steps of it, */
    atomic_llong work_us;  /* of them without waiting for others; 0 = not known */
    atomic_llong group;    /* ranks of one group have the same work */
    atomic_llong last_us;  /* and in the last one */
    atomic_llong
        doubted; /* thousandths of this rank's gradients that are unlike its peers' */
    atomic_llong saves;   /* checkpoints on disk of it, */
    atomic_llong save_us; /* and their time; */
    atomic_llong copies;  /* the same of those in memory */
    atomic_llong copy_us;
    atomic_llong status; /* 1 + exit status, once the rank ends by itself */
    atomic_llong
        seen; /* 'R', 'S', 'T', ... of proc(5), by whoever watches; 0 = no such process */
    atomic_llong
        mirrored; /* of rank 0, by the supervisor: the last step in memory that is done with */
    char message[256]; /* of its error, written before the status */
};
/* What stands before the message, all of one type, from the pid on. */
enum { BEAT_NUMBERS = offsetof(struct beat, message) / sizeof(atomic_llong) };

const char *beat_phase_name(enum beat_phase phase);

/* ---- the supervisor -------------------------------------------------------------------- */

struct beats;

/* Makes the file, all beats zero, in place of an older one. NULL on failure. */
struct beats *beats_create(const char *path, int ranks, struct err *err);
/* Opens what another supervisor made, for the processes that it left; NULL where there
 * is none. */
struct beats *beats_open(const char *path);
void beats_close(struct beats *b); /* NULL is fine; the file stays */
int beats_ranks(const struct beats *b);
struct beat *beats_at(struct beats *b, int rank);

/* Asks the kernel what state a rank's process is in, and notes it; for a watcher on the same host. */
void beat_look(struct beat *b);
/* Was it seen dead? */
bool beat_is_dead(const struct beat *b);
/* Kills those of `count` ranks from `first` on that live on this host, and waits until they are gone, 5 s at most. NULL
 * is fine. */
void beats_kill(struct beats *b, int first, int count);
/* Sends a signal to those of `count` ranks from `first` on that live on this host. False where one has
 * never told its process, as on a host that nobody watches. */
bool beats_signal(struct beats *b, int first, int count, int sig);

/* ---- which host --------------------------------------------------------------------------- */

/* The path with the number of this rank's host in place of "%h"; fresh. Hosts are in BEAT_HOSTS_VARIABLE in the
 * order of ranks, as NUMBER:RANKS,NUMBER:RANKS. *first: is this the first rank of its host? */
char *beat_expand(const char *path, bool *first);

/* ---- a rank: all take NULL, and do nothing then ----------------------------------------------- */

/* This rank's beat, by the launcher's variables, and SIGKILL when the launcher dies:
 * ranks never outlive their job. NULL where no supervisor is. The memory stays mapped. */
struct beat *beat_join(void);
void beat_enter(struct beat *b, enum beat_phase phase);
/* A step is done: so many altogether, the next one begins with this sample. Of its seconds so many were
 * work, the others went by waiting for other ranks. */
void beat_step(struct beat *b, int64_t step, int64_t sample, double seconds, double work);
/* This share of the rank's gradients, of late, is unlike that of its replicas. */
void beat_doubted(struct beat *b, double share);
/* A checkpoint was written. */
void beat_saved(struct beat *b, int in_memory, double seconds);
void beat_ended(struct beat *b, int status, const char *message);

#endif
