#include "data/spans.h"

#include "common/rng.h"

/* ---- lengths ------------------------------------------------------------------------- */

static int64_t bounded(double x, int64_t least, int64_t most) {
    int64_t n = (int64_t)nearbyint(x);
    return n < least ? least : n > most ? most : n;
}

/* What a window of n >= 2 tokens gives. */
static void cut_window(struct spans *s, int64_t n, double density, double mean) {
    int64_t end = s->eos >= 0;
    s->window = n;
    s->noise = bounded((double)n * density, 1, n - 1);
    int64_t rest = n - s->noise;
    s->spans = bounded((double)s->noise / mean, 1, s->noise < rest ? s->noise : rest);
    s->input = rest + s->spans + end;
    s->target = s->noise + s->spans + end;
}

int spans_init(struct spans *s, int64_t seq, double density, double mean, int64_t sentinel,
               int64_t eos, struct err *err) {
    *s = (struct spans){.sentinel = sentinel, .eos = eos};
    cut_window(s, 2, density, mean);
    if (s->input > seq)
        return err_input(err,
                         "inputs of %lld positions are too short for spans to be left out: "
                         "expected at least %lld",
                         (long long)seq, (long long)s->input);
    struct spans longer = *s;
    while (longer.input <= seq) {
        *s = longer;
        cut_window(&longer, s->window + 1, density, mean);
    }
    return 0;
}

/* ---- a walk over the spans ------------------------------------------------------------ */

/* Lengths of so many parts of a sum, all orders equally likely: parts-1 of the items behind the first
 * begin a part. */
struct parts {
    struct rng rng;
    int64_t items, begin; /* items to come; those of them that begin a part */
};

static int64_t next_part(struct parts *p) {
    int64_t length = 1;
    while (p->begin && rng_below(&p->rng, p->items) >= p->begin) {
        p->items--;
        length++;
    }
    if (!p->begin) {
        length += p->items;
        p->items = 0;
        return length;
    }
    p->items--;
    p->begin--;
    return length;
}

/* The positions that are wanted of a sequence that is written from its beginning on. */
struct sink {
    int64_t at, first, end;
    int32_t *out;
    spans_reader read;
    const void *ctx;
};

static void put_id(struct sink *k, int64_t id) {
    if (k->at >= k->first && k->at < k->end)
        k->out[k->at - k->first] = (int32_t)id;
    k->at++;
}

/* Tokens [from, from+n) of the window. */
static int put_run(struct sink *k, int64_t from, int64_t n, struct err *err) {
    int64_t lo = k->at > k->first ? k->at : k->first;
    int64_t hi = k->at + n < k->end ? k->at + n : k->end, skip = lo - k->at;
    k->at += n;
    return lo < hi ? k->read(k->ctx, from + skip, hi - lo, k->out + (lo - k->first), err)
                   : 0;
}

int spans_read(const struct spans *s, const struct spans_part *part, spans_reader read,
               const void *ctx, int32_t *out, struct err *err) {
    struct sink k = {.first = part->first,
                     .end = part->first + part->count,
                     .out = out,
                     .read = read,
                     .ctx = ctx};
    const uint64_t key = part->key;
    struct parts noise = {{rng_bits(key, 0, 0), 0}, s->noise - 1, s->spans - 1};
    struct parts rest = {{rng_bits(key, 1, 0), 0}, s->window - s->noise - 1, s->spans - 1};
    for (int64_t i = 0, at = 0; i < s->spans && k.at < k.end; i++) {
        int64_t kept = next_part(&rest), lost = next_part(&noise);
        if (!part->target && put_run(&k, at, kept, err) < 0)
            return -1;
        put_id(&k, s->sentinel - i);
        if (part->target && put_run(&k, at + kept, lost, err) < 0)
            return -1;
        at += kept + lost;
    }
    if (s->eos >= 0)
        put_id(&k, s->eos);
    return 0;
}
