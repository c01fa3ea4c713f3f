/* Messages between stages. A transfer has one staging, whichever instruction sends it: the last
 * backward of a step has instructions of its own. What a rank sends to itself, from one chunk of
 * its group to another, stays in the staging until it is taken from there. */
#include "common/mem.h"
#include "exec/exec_impl.h"

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

/* A box inside a block of elements of so many bytes as a strided copy to or from dense memory. */
static void box_copy(const struct shape *s, int64_t bytes, const struct box *block,
                     const struct box *box, struct exec_piece *out) {
    int64_t stride[TENSOR_MAX_RANK], dense[TENSOR_MAX_RANK];
    strides_of(s->rank, block->size, stride);
    strides_of(s->rank, box->size, dense);
    out->block_offset = 0;
    for (int i = 0; i < s->rank; i++)
        out->block_offset += bytes * (box->first[i] - block->first[i]) * stride[i];
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
static int prepare_end(struct exec *x, const struct transfer *t, bool source,
                       struct exec_transfer *r, struct err *err) {
    const struct exec_chunk *c = exec_chunk_of(x, source ? t->from : t->to);
    if (!c)
        return 0;
    const struct shape *s = transfer_shape(x->g, t);
    struct piece *pieces;
    r->n_pieces = transfer_pieces(x->g, t, x->rank, source, &pieces);
    r->pieces = mem_array((size_t)r->n_pieces, sizeof *r->pieces);
    r->depth = source ? t->depth : 1;
    r->works = exec_make_works(x, r->n_pieces * r->depth, err);
    struct box block = exec_box(c, s, source ? t->from_place : t->to_place);
    int64_t staged = 0, bytes = dtype_size(t->dtype);
    for (int i = 0; i < r->n_pieces; i++) {
        struct exec_piece *p = &r->pieces[i];
        box_copy(s, bytes, &block, &pieces[i].box, p);
        p->peer = source ? pieces[i].dst : pieces[i].src;
        p->elems = pieces[i].elems;
        p->staging = -1;
        bool own = p->peer == x->rank;
        if (source || (!own && !piece_is_contiguous(x->g, t, &pieces[i]))) {
            p->staging = staged;
            staged += bytes * p->elems;
        }
    }
    free(pieces);
    return r->works ? 0 : -1;
}

int exec_prepare_transfers(struct exec *x, struct err *err) {
    size_t n = (size_t)x->g->n_transfers;
    x->sends = mem_array(n, sizeof *x->sends);
    x->recvs = mem_array(n, sizeof *x->recvs);
    for (int i = 0; i < x->g->n_transfers; i++) {
        const struct transfer *t = &x->g->transfers[i];
        if (prepare_end(x, t, true, &x->sends[i], err) < 0 ||
            prepare_end(x, t, false, &x->recvs[i], err) < 0)
            return -1;
    }
    return 0;
}

static void release_end(struct exec_transfer *r) {
    free(r->pieces);
    exec_free_works(r->works, r->n_pieces * r->depth);
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
static int wait_all(struct exec *x, struct exec_transfer *r, int64_t use, struct err *err) {
    struct exec_work *works = r->works + use * r->n_pieces;
    int rc = 0;
    for (int i = 0; i < r->n_pieces && rc == 0; i++)
        rc = exec_wait(x, &works[i], err);
    return rc;
}

/* Room for n messages. */
static char *send_staging(struct exec *x, const struct transfer *t, int64_t n) {
    return exec_address(x, t->send_offset, n * dtype_size(t->dtype) * t->send_staging);
}

/* Between a box inside a block and the same box as dense memory. */
static int copy_piece(struct exec *x, enum dtype dtype, const struct exec_piece *p,
                      char *block, char *dense, bool packs, struct err *err) {
    char *box = block + p->block_offset;
    union instr_n n = {.copy = {.elems = p->elems, .inner = p->size[p->copy_rank - 1]}};
    union instr_src in = {.copy = {.x = packs ? box : dense}};
    union instr_dst out = {.copy = {.y = packs ? dense : box}};
    struct device_args args = {.dtype = dtype,
                               .copy = {.rank = p->copy_rank,
                                        .size = p->size,
                                        .src = packs ? p->block_stride : p->dense_stride,
                                        .dst = packs ? p->dense_stride : p->block_stride}};
    return device_launch(x->streams[STREAM_compute], I_copy, &n, &in, &out, &args, err);
}

/* The copies of one end, as sends and receives launch them. Where a block lies does not change which
 * kernel it is: all are aligned as the arena. */
static int load_copies(struct exec *x, enum dtype dtype, const struct exec_transfer *r,
                       bool packs, struct err *err) {
    struct device_stream *s = x->streams[STREAM_compute];
    int rc = 0;
    for (int i = 0; i < r->n_pieces && rc == 0; i++) {
        const struct exec_piece *p = &r->pieces[i];
        if (p->staging < 0 && p->peer != x->rank)
            continue;
        if (device_capture_begin(s, err) < 0)
            return -1;
        rc = copy_piece(x, dtype, p, x->arena, x->arena + (p->staging > 0 ? p->staging : 0),
                        packs, err);
        struct device_region *made = device_capture_end(s, rc < 0 ? NULL : err);
        rc = made ? rc : -1;
        device_region_destroy(made);
    }
    return rc;
}

int exec_load_transfers(struct exec *x, struct err *err) {
    int rc = 0;
    for (int i = 0; i < x->g->n_transfers && rc == 0; i++) {
        enum dtype dtype = x->g->transfers[i].dtype;
        rc = load_copies(x, dtype, &x->sends[i], true, err);
        if (rc == 0)
            rc = load_copies(x, dtype, &x->recvs[i], false, err);
    }
    return rc;
}

/* Packs and posts; a part of the staging is free again when its last message was taken. */
int exec_send(struct exec *x, int transfer, char *in, struct err *err) {
    const struct transfer *t = &x->g->transfers[transfer];
    struct exec_transfer *r = &x->sends[transfer];
    int64_t use = r->uses++ % r->depth;
    char *stage =
        send_staging(x, t, r->depth) + use * dtype_size(t->dtype) * t->send_staging;
    if (wait_all(x, r, use, err) < 0)
        return -1;
    for (int i = 0; i < r->n_pieces; i++) {
        const struct exec_piece *p = &r->pieces[i];
        struct exec_work *w = &r->works[use * r->n_pieces + i];
        char *dense = stage + p->staging;
        if (copy_piece(x, t->dtype, p, in, dense, true, err) < 0)
            return -1;
        if (p->peer == x->rank)
            continue;
        if (exec_before(x, STREAM_sends, w, err) < 0 ||
            comm_start_send(x->everyone, dense, p->elems, t->dtype, p->peer, transfer,
                            &w->work, err) < 0 ||
            exec_after(x, w, err) < 0)
            return -1;
    }
    return 0;
}

/* What this rank sent to itself lies in the staging of its send; the box is the same at both ends. */
static int take_own(struct exec *x, int transfer, const struct exec_piece *p, int64_t use,
                    char *out, struct err *err) {
    const struct transfer *t = &x->g->transfers[transfer];
    const struct exec_transfer *sent = &x->sends[transfer];
    const struct exec_piece *q = sent->pieces;
    while (q->peer != x->rank)
        q++;
    char *dense =
        send_staging(x, t, t->depth) + use * dtype_size(t->dtype) * t->send_staging;
    return copy_piece(x, t->dtype, p, out, dense + q->staging, false, err);
}

static int post_recv(struct exec *x, int transfer, const struct exec_piece *p,
                     struct exec_work *w, char *dst, struct err *err) {
    enum dtype dtype = x->g->transfers[transfer].dtype;
    if (exec_before(x, STREAM_receives, w, err) < 0 ||
        comm_start_recv(x->everyone, dst, p->elems, dtype, p->peer, transfer, &w->work,
                        err) < 0)
        return -1;
    return exec_after(x, w, err);
}

/* All receives are posted before the first is waited for. */
int exec_recv(struct exec *x, int transfer, char *out, struct err *err) {
    const struct transfer *t = &x->g->transfers[transfer];
    struct exec_transfer *r = &x->recvs[transfer];
    char *stage = exec_address(x, t->recv_offset, dtype_size(t->dtype) * t->recv_staging);
    int64_t use = r->uses++ % t->depth;
    int rc = 0;
    for (int i = 0; i < r->n_pieces && rc == 0; i++) {
        const struct exec_piece *p = &r->pieces[i];
        char *dst = p->staging < 0 ? out + p->block_offset : stage + p->staging;
        rc = p->peer == x->rank ? take_own(x, transfer, p, use, out, err)
                                : post_recv(x, transfer, p, &r->works[i], dst, err);
    }
    if (rc == 0)
        rc = wait_all(x, r, 0, err);
    for (int i = 0; i < r->n_pieces && rc == 0; i++)
        if (r->pieces[i].staging >= 0)
            rc = copy_piece(x, t->dtype, &r->pieces[i], out, stage + r->pieces[i].staging,
                            false, err);
    return rc;
}

int exec_drain(struct exec *x, struct err *err) {
    for (int i = 0; i < x->g->n_transfers; i++)
        for (int64_t use = 0; use < x->sends[i].depth; use++)
            if (wait_all(x, &x->sends[i], use, err) < 0)
                return -1;
    return device_synchronize(x->streams[STREAM_compute], err);
}
