/* Windows over split dims: blocks of a tensor of global indices become the rows that
 * windows slide over, exactly, and what comes back is the sum over all windows. */
#include "device.h"

enum { OUTER = 3, INNER = 2, MOST_PARTS = 8 };

static float value(int64_t o, int64_t row, int64_t i) {
    return (float)((o * 1000 + row) * 10 + i);
}

/* The kernels' arguments for a rank, with pieces that it sends or gets. */
static struct kernel_halo args(const struct halo *h, int me, bool sends, float padding,
                               struct halo_piece *pieces) {
    struct halo_run own = halo_run(h, me, me);
    for (int p = 0; p < h->parts; p++)
        pieces[p] = sends ? halo_sent(h, me, p) : halo_got(h, me, p);
    return (struct kernel_halo){OUTER,  INNER,    own.n ? own : (struct halo_run){0},
                                pieces, h->parts, padding};
}

/* What each rank packs goes to whom it is for; got[] is what each finds in its message. */
static void exchange(const struct halo *h, int64_t rows, float *const *held, float **got) {
    float *sent[MOST_PARTS], *at[MOST_PARTS];
    struct halo_piece pieces[MOST_PARTS];
    int64_t most_sent, most_got;
    halo_most(h, &most_sent, &most_got);
    for (int r = 0; r < h->parts; r++) {
        struct kernel_halo a = args(h, r, true, 0, pieces);
        sent[r] = at[r] = floats(most_sent * OUTER * INNER);
        kernel_halo_pack(&a, rows, held[r], sent[r]);
    }
    for (int r = 0; r < h->parts; r++) {
        float *to = got[r] = floats(most_got * OUTER * INNER);
        for (int p = 0; p < h->parts; p++) {
            int64_t n = halo_got(h, r, p).n * OUTER * INNER;
            memcpy(to, at[p], (size_t)n * sizeof *to);
            to += n, at[p] += n;
        }
    }
    for (int r = 0; r < h->parts; r++)
        free(sent[r]);
}

/* Ranks send in the order of peers, and peers are asked in the order of ranks: the same. */
static bool joins(struct halo h) {
    float *block[MOST_PARTS], *got[MOST_PARTS];
    struct halo_piece pieces[MOST_PARTS];
    int64_t all = h.rows * h.parts;
    bool good = true;
    for (int r = 0; r < h.parts; r++) {
        block[r] = floats(OUTER * h.rows * INNER);
        for (int64_t i = 0; i < OUTER * h.rows * INNER; i++)
            block[r][i] =
                value(i / INNER / h.rows, r * h.rows + i / INNER % h.rows, i % INNER);
    }
    exchange(&h, h.rows, block, got);
    for (int r = 0; r < h.parts; r++) {
        struct kernel_halo a = args(&h, r, false, -1, pieces);
        float *y = floats(OUTER * h.window * INNER);
        kernel_halo_join(&a, h.rows, h.window, block[r], got[r], y);
        for (int64_t i = 0; i < OUTER * h.window * INNER; i++) {
            int64_t row = r * h.step - h.lead + i / INNER % h.window;
            float want =
                row < 0 || row >= all ? -1 : value(i / INNER / h.window, row, i % INNER);
            good &= y[i] == want;
        }
        free(y), free(block[r]), free(got[r]);
    }
    return good;
}

/* Each window holds the number of its rank plus one in all rows: a row's sum says whose
 * it was in. */
static bool adds(struct halo h) {
    float *window[MOST_PARTS], *got[MOST_PARTS];
    struct halo_piece pieces[MOST_PARTS];
    bool good = true;
    h.back = true;
    for (int r = 0; r < h.parts; r++) {
        window[r] = floats(OUTER * h.window * INNER);
        for (int64_t i = 0; i < OUTER * h.window * INNER; i++)
            window[r][i] = (float)(1 << r);
    }
    exchange(&h, h.window, window, got);
    for (int r = 0; r < h.parts; r++) {
        struct kernel_halo a = args(&h, r, false, 0, pieces);
        float *dx = floats(OUTER * h.rows * INNER);
        kernel_halo_add(&a, h.rows, h.window, window[r], got[r], dx);
        for (int64_t i = 0; i < OUTER * h.rows * INNER; i++) {
            int64_t row = r * h.rows + i / INNER % h.rows;
            float want = 0;
            for (int p = 0; p < h.parts; p++) {
                int64_t from = p * h.step - h.lead;
                want += row >= from && row < from + h.window ? (float)(1 << p) : 0;
            }
            good &= dx[i] == want;
        }
        free(dx), free(window[r]), free(got[r]);
    }
    return good;
}

/* Every kernel, stride and padding over every even split of a few sizes: those whose
 * results can be cut evenly too. */
static void test_all(void) {
    int checked = 0, wrong = 0, far = 0;
    for (int64_t size = 1; size <= 24; size++)
        for (int64_t taps = 1; taps <= 9; taps++)
            for (int64_t stride = 1; stride <= 4; stride++)
                for (int64_t padding = 0; padding < taps; padding++)
                    for (int parts = 2; parts <= MOST_PARTS; parts++) {
                        int64_t room = size + 2 * padding - taps,
                                places = room / stride + 1;
                        if (room < 0 || size % parts || places % parts)
                            continue;
                        places /= parts;
                        struct halo h = {.rows = size / parts,
                                         .window = (places - 1) * stride + taps,
                                         .step = places * stride,
                                         .lead = padding,
                                         .parts = parts};
                        bool good = joins(h) && adds(h);
                        if (!good && !wrong++)
                            printf("# size %d taps %d stride %d padding %d parts %d\n",
                                   (int)size, (int)taps, (int)stride, (int)padding, parts);
                        far += parts > 2 && halo_got(&h, 0, 2).n > 0;
                        checked++;
                    }
    ok(!wrong && checked > 1000, "%d splits of windows: rows and sums exactly (%d wrong)",
       checked, wrong);
    ok(far > 100, "in %d of them windows reach beyond the neighbour", far);
}

int main(void) {
    with_threads(test_all);
    return done_testing();
}
