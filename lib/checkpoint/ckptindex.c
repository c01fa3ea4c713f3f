#include "checkpoint/ckptindex.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More pieces than any job has ranks; bounds the work of the overlap check. */
enum { PIECES_MAX = 1 << 16, NAME_MAX_LENGTH = 200 };

const char *checkpoint_kind_name(enum checkpoint_kind kind) {
    static const char *const names[] = {
#define X(id, text) text,
        CHECKPOINT_KINDS(X)
#undef X
    };
    return names[kind];
}

bool ckpt_name_good(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
            return false;
    return n > 0 && n <= NAME_MAX_LENGTH;
}

/* ---- boxes ------------------------------------------------------------------------- */

int ckpt_box_check(const struct checkpoint_box *box, int64_t *count, struct err *err) {
    int64_t total = 1;
    *count = 1;
    if (box->dims < 0 || box->dims > CHECKPOINT_DIMS)
        return err_input(err, "%d dims, expected at most %d", box->dims, CHECKPOINT_DIMS);
    for (int d = 0; d < box->dims; d++) {
        int64_t n = box->shape[d], first = box->first[d], size = box->size[d];
        if (n < 1 || size < 1 || first < 0 || first > n - size)
            return err_input(err, "dim %d: %lld elements from %lld on are not inside %lld",
                             d, (long long)size, (long long)first, (long long)n);
        if (__builtin_mul_overflow(total, n, &total))
            return err_input(err, "the sizes of the dims overflow");
        *count *= size;
    }
    if (total > INT64_MAX / (int64_t)sizeof(float))
        return err_input(err, "the sizes of the dims overflow");
    return 0;
}

bool ckpt_box_meet(const struct checkpoint_box *a, const struct checkpoint_box *b,
                   struct checkpoint_box *both) {
    *both = *a;
    for (int d = 0; d < a->dims; d++) {
        int64_t a_end = a->first[d] + a->size[d], b_end = b->first[d] + b->size[d];
        int64_t end = a_end < b_end ? a_end : b_end;
        both->first[d] = a->first[d] > b->first[d] ? a->first[d] : b->first[d];
        both->size[d] = end - both->first[d];
        if (both->size[d] <= 0)
            return false;
    }
    return true;
}

static int64_t box_count(const struct checkpoint_box *box) {
    int64_t n = 1;
    for (int d = 0; d < box->dims; d++)
        n *= box->size[d];
    return n;
}

static bool same_shape(const struct checkpoint_box *a, const struct checkpoint_box *b) {
    return a->dims == b->dims &&
           !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof a->shape[0]);
}

char *ckpt_slice_name(struct arena *arena, enum checkpoint_kind kind, const char *name,
                      const struct checkpoint_box *box) {
    char slice[CHECKPOINT_DIMS * 44] = "";
    size_t n = 0;
    bool whole = true;
    for (int d = 0; d < box->dims; d++) {
        whole &= box->size[d] == box->shape[d];
        n += (size_t)snprintf(slice + n, sizeof slice - n, "%c%lld:%lld", d ? ',' : '[',
                              (long long)box->first[d],
                              (long long)(box->first[d] + box->size[d]));
    }
    return arena_printf(arena, "%s/%s%s%s", checkpoint_kind_name(kind), name,
                        whole ? "" : slice, whole ? "" : "]");
}

/* ---- check ------------------------------------------------------------------------- */

static int compare_tensor(enum checkpoint_kind ak, const char *an, enum checkpoint_kind bk,
                          const char *bn) {
    return ak != bk ? (ak < bk ? -1 : 1) : strcmp(an, bn);
}

static int compare_pieces(const void *a, const void *b) {
    const struct ckpt_piece *x = a, *y = b;
    int c = compare_tensor(x->kind, x->name, y->kind, y->name);
    if (!c)
        c = x->box.dims - y->box.dims;
    for (int d = 0; !c && d < x->box.dims; d++)
        c = (x->box.first[d] > y->box.first[d]) - (x->box.first[d] < y->box.first[d]);
    return c;
}

static int check_piece(const struct ckpt_index *ix, const struct ckpt_piece *p,
                       struct err *err) {
    int64_t count;
    if (!ckpt_name_good(p->name))
        return err_input(err, "not the name of a tensor");
    if (ckpt_box_check(&p->box, &count, err) < 0)
        return -1;
    if (p->file < 0 || p->file >= ix->files.n)
        return err_input(err, "file %lld, expected 0..%lld", (long long)p->file,
                         (long long)ix->files.n - 1);
    const struct ckpt_file *f = &ix->files.p[p->file];
    int64_t bytes = count * (int64_t)sizeof(float);
    if (p->offset < 0 || p->offset % 4 || bytes > f->bytes || p->offset > f->bytes - bytes)
        return err_input(err,
                         "offset %lld: %lld bytes from there are not inside the %lld of "
                         "%.60s",
                         (long long)p->offset, (long long)bytes, (long long)f->bytes,
                         f->name);
    return 0;
}

/* Pieces are ordered by first[0]: only those beginning before this one ends can meet it.
 * */
static int check_overlap(const struct ckpt_piece *p, int64_t n, struct err *err) {
    struct checkpoint_box both;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) {
            const struct checkpoint_box *a = &p[i].box, *b = &p[j].box;
            if (a->dims && b->first[0] >= a->first[0] + a->size[0])
                break;
            if (ckpt_box_meet(a, b, &both))
                return err_input(err, "stored twice: pieces %lld and %lld overlap",
                                 (long long)i, (long long)j);
        }
    return 0;
}

static int check_tensor(const struct ckpt_index *ix, const struct ckpt_tensor *t,
                        struct err *err) {
    const struct ckpt_piece *p = &ix->pieces.p[t->begin];
    int64_t covered = 0, whole = box_count(&t->box);
    if (t->count > PIECES_MAX)
        return err_input(err, "%lld pieces, expected at most %d", (long long)t->count,
                         PIECES_MAX);
    for (int64_t i = 0; i < t->count; i++) {
        if (!same_shape(&p[i].box, &t->box))
            return err_input(err, "pieces %lld and 0 have different shapes", (long long)i);
        if (__builtin_add_overflow(covered, box_count(&p[i].box), &covered))
            return err_input(err, "stored more than once");
    }
    if (check_overlap(p, t->count, err) < 0)
        return -1;
    if (covered != whole)
        return err_input(err, "its pieces hold %lld of %lld elements", (long long)covered,
                         (long long)whole);
    return 0;
}

static void add_tensor(struct ckpt_index *ix, int64_t begin, int64_t end) {
    const struct ckpt_piece *p = &ix->pieces.p[begin];
    struct ckpt_tensor t = {p->kind, p->name, p->box, begin, end - begin};
    for (int d = 0; d < t.box.dims; d++) {
        t.box.first[d] = 0;
        t.box.size[d] = t.box.shape[d];
    }
    arr_push(&ix->tensors, t);
}

int ckpt_index_check(struct ckpt_index *ix, struct err *err) {
    for (int64_t i = 0; i < ix->pieces.n; i++) {
        const struct ckpt_piece *p = &ix->pieces.p[i];
        if (check_piece(ix, p, err) < 0)
            return err_prefix(err, "%s/%.100s", checkpoint_kind_name(p->kind), p->name);
    }
    if (ix->pieces.n)
        qsort(ix->pieces.p, (size_t)ix->pieces.n, sizeof *ix->pieces.p, compare_pieces);
    for (int64_t i = 0, j; i < ix->pieces.n; i = j) {
        const struct ckpt_piece *p = ix->pieces.p;
        for (j = i + 1; j < ix->pieces.n; j++)
            if (compare_tensor(p[i].kind, p[i].name, p[j].kind, p[j].name))
                break;
        add_tensor(ix, i, j);
        if (check_tensor(ix, &arr_last(&ix->tensors), err) < 0)
            return err_prefix(err, "%s/%.100s", checkpoint_kind_name(p[i].kind), p[i].name);
    }
    return 0;
}

const struct ckpt_tensor *ckpt_index_find(const struct ckpt_index *ix,
                                          enum checkpoint_kind kind, const char *name) {
    int64_t lo = 0, hi = ix->tensors.n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct ckpt_tensor *t = &ix->tensors.p[mid];
        int c = compare_tensor(t->kind, t->name, kind, name);
        if (!c)
            return t;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

void ckpt_index_release(struct ckpt_index *ix) {
    arr_release(&ix->files);
    arr_release(&ix->pieces);
    arr_release(&ix->tensors);
    arena_release(&ix->arena);
}
