/* Messages between stages. A transfer has one staging, whichever instruction sends it: the last
 * backward of a step has instructions of its own. */
#include "common/mem.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

/* Row-major strides of a block. */
static void strides_of(int rank, const int64_t *size, int64_t *stride) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= size[i];
    }
}

/* A box inside a block as a strided copy to or from dense memory. */
static void box_copy(const struct shape *s, const struct box *block, const struct box *box,
                     struct exec_piece *out) {
    int64_t stride[TENSOR_MAX_RANK], dense[TENSOR_MAX_RANK];
    strides_of(s->rank, block->size, stride);
    strides_of(s->rank, box->size, dense);
    out->block_offset = 0;
    for (int i = 0; i < s->rank; i++)
        out->block_offset += (box->first[i] - block->first[i]) * stride[i];
    /* Merge neighbouring dims that are one run in the block, too. */
    int64_t size[TENSOR_MAX_RANK], from[TENSOR_MAX_RANK], to[TENSOR_MAX_RANK];
    int n = 0;
    for (int i = 0; i < s->rank; i++) {
        if (box->size[i] == 1)
            continue;
        if (n && from[n - 1] == box->size[i] * stride[i]) {
            size[n - 1] *= box->size[i];
            from[n - 1] = stride[i];
            to[n - 1] = dense[i];
        } else {
            size[n] = box->size[i];
            from[n] = stride[i];
            to[n++] = dense[i];
        }
    }
    if (!n) {
        size[0] = from[0] = to[0] = 1;
        n = 1;
    }
    out->copy_rank = n;
    memcpy(out->size, size, sizeof size);
    memcpy(out->block_stride, from, sizeof from);
    memcpy(out->dense_stride, to, sizeof to);
}

/* Pieces that are no run of memory in the block are packed into staging; a sender packs all, so that
 * the block may be overwritten while they travel. */
static void prepare_end(struct exec *x, const struct transfer *t, bool source,
                        struct exec_transfer *r) {
    const struct shape *s = transfer_shape(x->g, t);
    struct piece *pieces;
    r->n_pieces = transfer_pieces(x->g, t, x->rp.rank, source, &pieces);
    r->pieces = mem_array((size_t)r->n_pieces, sizeof *r->pieces);
    r->depth = source ? t->depth : 1;
    r->works = mem_array((size_t)(r->n_pieces * r->depth), sizeof *r->works);
    struct box block = exec_box(x, s, source ? t->from_place : t->to_place);
    int64_t staged = 0;
    for (int i = 0; i < r->n_pieces; i++) {
        struct exec_piece *p = &r->pieces[i];
        box_copy(s, &block, &pieces[i].box, p);
        p->peer = source ? pieces[i].dst : pieces[i].src;
        p->elems = pieces[i].elems;
        p->staging = -1;
        if (source || !piece_is_contiguous(x->g, t, &pieces[i])) {
            p->staging = staged;
            staged += p->elems;
        }
    }
    free(pieces);
}

void exec_prepare_transfers(struct exec *x) {
    size_t n = (size_t)x->g->n_transfers;
    x->sends = mem_array(n, sizeof *x->sends);
    x->recvs = mem_array(n, sizeof *x->recvs);
    for (int i = 0; i < x->g->n_transfers; i++) {
        const struct transfer *t = &x->g->transfers[i];
        if (t->from == x->rp.stage)
            prepare_end(x, t, true, &x->sends[i]);
        if (t->to == x->rp.stage)
            prepare_end(x, t, false, &x->recvs[i]);
    }
}

static void release_end(struct exec_transfer *r) {
    free(r->pieces);
    free(r->works);
}

void exec_release_transfers(struct exec *x) {
    for (int i = 0; x->sends && i < x->g->n_transfers; i++) {
        release_end(&x->sends[i]);
        release_end(&x->recvs[i]);
    }
    free(x->sends);
    free(x->recvs);
}

/* Waits for the messages of one use. */
static int wait_all(struct exec_transfer *r, int64_t use, struct err *err) {
    struct comm_work *works = r->works + use * r->n_pieces;
    int rc = 0;
    for (int i = 0; i < r->n_pieces && rc == 0; i++)
        rc = comm_wait(&works[i], err);
    return rc;
}

/* Where staged messages of this many elements stand; notes how far into the arena they reach. */
static float *staging(struct exec *x, int64_t at, int64_t elems) {
    int64_t end = memory_aligned(at + dtype_size(DTYPE_f32) * elems);
    if (elems && end > x->high_water)
        x->high_water = end;
    return (float *)(x->arena + at);
}

/* Packs and posts; a part of the staging is free again when its last message was taken. */
int exec_send(struct exec *x, int transfer, const float *in, struct err *err) {
    const struct transfer *t = &x->g->transfers[transfer];
    struct exec_transfer *r = &x->sends[transfer];
    int64_t use = r->uses++ % r->depth;
    float *stage =
        staging(x, t->send_offset, r->depth * t->send_staging) + use * t->send_staging;
    if (wait_all(r, use, err) < 0)
        return -1;
    for (int i = 0; i < r->n_pieces; i++) {
        const struct exec_piece *p = &r->pieces[i];
        float *dense = stage + p->staging;
        kernel_copy(p->copy_rank, p->size, in + p->block_offset, p->block_stride, dense,
                    p->dense_stride, false);
        if (comm_start_send(comm_world(x->comm), dense, p->elems, DTYPE_f32, p->peer,
                            transfer, &r->works[use * r->n_pieces + i], err) < 0)
            return -1;
    }
    return 0;
}

/* All receives are posted before the first is waited for. */
int exec_recv(struct exec *x, int transfer, float *out, struct err *err) {
    const struct transfer *t = &x->g->transfers[transfer];
    struct exec_transfer *r = &x->recvs[transfer];
    float *stage = staging(x, t->recv_offset, t->recv_staging);
    for (int i = 0; i < r->n_pieces; i++) {
        const struct exec_piece *p = &r->pieces[i];
        float *dst = p->staging < 0 ? out + p->block_offset : stage + p->staging;
        if (comm_start_recv(comm_world(x->comm), dst, p->elems, DTYPE_f32, p->peer,
                            transfer, &r->works[i], err) < 0)
            return -1;
    }
    if (wait_all(r, 0, err) < 0)
        return -1;
    for (int i = 0; i < r->n_pieces; i++) {
        const struct exec_piece *p = &r->pieces[i];
        if (p->staging >= 0)
            kernel_copy(p->copy_rank, p->size, stage + p->staging, p->dense_stride,
                        out + p->block_offset, p->block_stride, false);
    }
    return 0;
}

int exec_drain(struct exec *x, struct err *err) {
    for (int i = 0; i < x->g->n_transfers; i++)
        for (int64_t use = 0; use < x->sends[i].depth; use++)
            if (wait_all(&x->sends[i], use, err) < 0)
                return -1;
    return 0;
}
