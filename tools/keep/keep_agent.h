/* keep_agent.h - the agent of a host: what the supervisor's hand is there.
 *
 * weft-keep starts one on each host, by the remote shell, where the ranks are on several. They talk in lines, through its
 * standard input and output; when that ends the agent kills its ranks and goes, and the checkpoints in memory stay. An
 * order that takes long is done by a process of its own, so beats never wait.
 *
 *     order                           what it does; its answer
 *     hello FOLDER TOKEN              first of all: "hello PORT VERSION"
 *     begin RANKS FIRST COUNT         a new attempt: makes the file of beats; this host has COUNT ranks from FIRST on
 *     again FIRST COUNT               the same attempt, after the agent was lost
 *     end                             kills its ranks; their last beats, and "ended"
 *     stop                            its ranks are to save and end: SIGUSR1
 *     mirrored STEP                   tells rank 0, here
 *     JOB send STEP PEER PORT own     the files of the ranks here, with the index that rank 0 made, to a peer
 *     JOB fetch STEP PEER PORT NAME   a file from a peer
 *     JOB list                        "file STEP BYTES NAME", "listed STEP BYTES NAME" of all steps
 *     JOB keep STEP                   checks all sums of it, and removes the others; 0: all
 *     JOB copy STEP DIR               the files of the ranks here, to disk
 *     JOB copy-all STEP DIR           all files here
 *     JOB measure 0 DIR               this host alone: "done JOB RESULT SPEEDS WHY"
 *     JOB link 0 PEER PORT -          the link to a peer: "done JOB BYTES_PER_S ROUND_S"
 *     remove                          all that is in memory, and ends
 *
 * "ready" or "broken WHY" answer the first three.
 * Unasked: "beat NOW RANK NUMBERS MESSAGE", "state NOW" a few times a second, "whole STEP" when a step is in memory.
 * Of a job: "done JOB TEXT" or "failed JOB TEXT".
 */
#ifndef WEFT_KEEP_AGENT_H
#define WEFT_KEEP_AGENT_H

/* Runs it until its input ends. Returns the exit status. */
int agent_run(void);

#endif
