/* comm_stage.h - memory of devices between ranks by way of their hosts.
 *
 * comm_backend_stage is a backend on streams that is made of MPI and of copies: a work is copied
 * from the device to pinned memory of the host, piece by piece, goes through MPI there, and back to
 * the device; while one piece is in MPI the next is copied. It needs nothing of the device but
 * device.h, so any device can use it, and ranks that share one.
 *
 *     struct comm_options options = COMM_OPTIONS_DEFAULT;
 *     options.backend = &comm_backend_stage;
 *     options.backend_arg = &(struct comm_stage_options){.piece_bytes = 1 << 20};   // or NULL
 *
 * A start puts copies on streams of the backend's own, behind what the work's stream was given
 * before, and returns. All else is done by the host while it waits for anything: a work, a
 * collective of the world, the device (device_watch). comm_wait returns when the last piece lies in
 * the device's memory. Sums are MPI's: in the order of ranks, with the bits of a run on the CPU.
 *
 * Each group and each pair of ranks with a tag has pinned memory of its own, COMM_STAGE_SLOTS pieces,
 * made when first needed; so what waits for one peer never holds up what is for another. All of it
 * goes with the last group that is open: groups end before their device.
 */
#ifndef WEFT_COMM_STAGE_H
#define WEFT_COMM_STAGE_H

#include "comm/comm_backend.h"

enum { COMM_STAGE_PIECE = 1 << 20, COMM_STAGE_SLOTS = 4 };

/* Does MPI send and receive memory of the device itself? Then messages are not copied. */
enum comm_stage_direct { COMM_STAGE_ASK, COMM_STAGE_COPY, COMM_STAGE_DIRECT };

struct comm_stage_options {
    int64_t piece_bytes; /* of a piece; 0 = COMM_STAGE_PIECE. The same on all ranks */
    enum comm_stage_direct direct; /* ASK: MPI is asked */
};

extern const struct comm_backend comm_backend_stage;

#endif
