/* threads.h - one function run by several threads at once, which share out its work themselves.
 *
 *     struct job job = {.n = 100};   // work takes parts by atomic_fetch_add(&job.next, 1)
 *     threads_run(4, work, &job);    // returns when all calls of work have returned
 */
#ifndef WEFT_THREADS_H
#define WEFT_THREADS_H

/* Calls work(arg) in this thread and in n - 1 others, fewer where the system starts no more: the work
 * must be done whole by those that run. Signals stay with the calling thread. */
void threads_run(int n, void (*work)(void *arg), void *arg);

#endif
