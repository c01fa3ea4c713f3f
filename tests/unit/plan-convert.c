/* Conversions, exactly: tensors of global indices go through the steps in the memory of all
 * ranks, and every rank compares what it has with what the placement says. */
#include "common/mem.h"
#include "common/rng.h"
#include "plan/convert.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a rank holds ----------------------------------------------------------------- */

struct world {
    struct mesh mesh;
    struct extents x;
    int n;             /* devices */
    int64_t **held;    /* [n]: each one's part, dense */
    int64_t *room;     /* all parts, twice: before and after a step */
    int64_t **scratch; /* [n] */
    int64_t part;      /* elements of one part at most */
};

static void world_init(struct world *w, const char *mesh, int rank, const int64_t *size) {
    struct err err = {0};
    *w = (struct world){.x = {.rank = rank}};
    if (mesh_parse(mesh, 4096, &w->mesh, &err) < 0)
        ok(0, "%s", err.msg);
    w->n = mesh_devices(&w->mesh);
    w->part = 1;
    for (int i = 0; i < rank; i++)
        w->part *= w->x.size[i] = size[i];
    w->held = mem_array((size_t)w->n, sizeof *w->held);
    w->scratch = mem_array((size_t)w->n, sizeof *w->scratch);
    w->room = mem_array(2 * (size_t)(w->n * w->part), sizeof *w->room);
    for (int r = 0; r < w->n; r++) {
        w->held[r] = w->room + r * w->part;
        w->scratch[r] = w->room + (w->n + r) * w->part;
    }
}

static void world_release(struct world *w) {
    free(w->held);
    free(w->scratch);
    free(w->room);
}

/* The value of an element at one of the ranks whose values add up to its index. */
static int64_t summand(int64_t index, int member, int members) {
    if (member < members - 1)
        return (int64_t)(rng_bits(7, (uint64_t)index, (uint64_t)member) >> 8);
    for (int i = 0; i < members - 1; i++)
        index -= summand(index, i, members);
    return index;
}

/* What a rank should have of an element after the axes `summed` of a tensor that was Partial on
 * `partial` are summed. */
static int64_t value(const struct world *w, int64_t index, unsigned partial,
                     unsigned summed, const int *coord) {
    int64_t sum = 0;
    int members = mesh_group_size(&w->mesh, partial);
    unsigned left = partial & ~summed;
    for (int i = 0; i < members; i++) {
        int at[MESH_MAX_AXES] = {0};
        for (int a = w->mesh.n_axes - 1, rest = i; a >= 0; a--)
            if (partial >> a & 1) {
                at[a] = rest % w->mesh.size[a];
                rest /= w->mesh.size[a];
            }
        if (mesh_group_index(&w->mesh, left, at) == mesh_group_index(&w->mesh, left, coord))
            sum += summand(index, i, members);
    }
    return sum;
}

/* Fills a rank's part for a placement, or counts what differs from it. `from`: what the tensor
 * was Partial on at first. */
static int64_t visit(const struct world *w, int r, struct placement from,
                     struct placement now, bool fill) {
    int coord[MESH_MAX_AXES];
    mesh_coords(&w->mesh, r, coord);
    struct box box = placement_box(&w->mesh, &w->x, now, coord);
    unsigned partial = placement_axes(&w->mesh, from, PLACE_PARTIAL),
             summed = partial & ~placement_axes(&w->mesh, now, PLACE_PARTIAL);
    int64_t n = placement_elements(&w->mesh, &w->x, now), wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = 0, rest = i, stride = 1;
        for (int d = w->x.rank - 1; d >= 0; d--) {
            index += (box.first[d] + rest % box.size[d]) * stride;
            rest /= box.size[d];
            stride *= w->x.size[d];
        }
        int64_t want = value(w, index, partial, summed, coord);
        if (fill)
            w->held[r][i] = want;
        else
            wrong += w->held[r][i] != want;
    }
    return wrong;
}

/* ---- the steps ------------------------------------------------------------------------- */

/* Elements of a part before and from axis `axis` of the tensor. */
static void around(const struct world *w, struct placement p, int axis, int64_t *pre,
                   int64_t *rest) {
    *pre = *rest = 1;
    for (int i = 0; i < w->x.rank; i++)
        *(i < axis ? pre : rest) *= placement_size(&w->mesh, &w->x, p, i);
}

/* Chunk i of [pre][g][chunk] to or from a dense [pre][chunk]. */
static void chunk_copy(int64_t *whole, int64_t *dense, int64_t pre, int64_t g, int64_t i,
                       int64_t chunk, bool out) {
    for (int64_t p = 0; p < pre; p++) {
        int64_t *a = whole + (p * g + i) * chunk, *b = dense + p * chunk;
        memcpy(out ? b : a, out ? a : b, sizeof *a * (size_t)chunk);
    }
}

/* What the chunk is that member `from` sends to member `to` in an all-to-all, woven in. */
static void exchange(const struct world *w, const struct convert_step *s, int64_t *src,
                     int64_t *dst, int from, int to, int64_t *tmp) {
    int64_t pre, rest, g = mesh_group_size(&w->mesh, s->axes);
    around(w, s->before, s->to, &pre, &rest);
    chunk_copy(src, tmp, pre, g, to, rest / g, true);
    around(w, s->after, s->from, &pre, &rest);
    chunk_copy(dst, tmp, pre, g, from, rest / g, false);
}

/* One rank's result of a step, as lib/program lowers it: members in the order of their ranks. */
static void run_step(struct world *w, const struct convert_step *s, int r, int64_t *tmp) {
    int ranks[4096], coord[MESH_MAX_AXES];
    int g = mesh_group(&w->mesh, s->axes, r, ranks);
    mesh_coords(&w->mesh, r, coord);
    int me = mesh_group_index(&w->mesh, s->axes, coord);
    int64_t n = placement_elements(&w->mesh, &w->x, s->after), pre = 1, rest = n;
    int64_t *out = w->scratch[r];
    if (s->kind == CONVERT_all_gather)
        around(w, s->before, s->from, &pre, &rest);
    else if (s->to >= 0)
        around(w, s->after, s->to, &pre, &rest);
    if (s->kind == CONVERT_all_reduce || s->kind == CONVERT_reduce_scatter)
        memset(out, 0, sizeof *out * (size_t)n);
    for (int i = 0; i < g; i++) {
        int64_t *in = w->held[ranks[i]];
        switch (s->kind) {
        case CONVERT_all_gather: chunk_copy(out, in, pre, g, i, rest, false); break;
        case CONVERT_all_reduce:
            for (int64_t k = 0; k < n; k++)
                out[k] += in[k];
            break;
        case CONVERT_reduce_scatter:
            chunk_copy(in, tmp, pre, g, me, rest, true);
            for (int64_t k = 0; k < n; k++)
                out[k] += tmp[k];
            break;
        case CONVERT_all_to_all: exchange(w, s, in, out, i, me, tmp); break;
        case CONVERT_slice:
            if (i == me)
                chunk_copy(in, out, pre, g, me, rest, true);
            break;
        }
    }
}

static void run_path(struct world *w, const struct convert_step *steps, int n) {
    int64_t *tmp = mem_array((size_t)w->part, sizeof *tmp);
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < w->n; r++)
            run_step(w, &steps[i], r, tmp);
        int64_t **held = w->held;
        w->held = w->scratch;
        w->scratch = held;
    }
    free(tmp);
}

/* ---- pairs of placements --------------------------------------------------------------- */

static bool is_even(const struct world *w, struct placement p) {
    for (int i = 0; i < w->x.rank; i++) {
        int64_t g = mesh_group_size(&w->mesh, placement_axes(&w->mesh, p, i));
        if (w->x.size[i] % g)
            return false;
    }
    return true;
}

/* Placement number k of all; false where it is not legal. */
static bool placement_number(const struct world *w, int64_t k, struct placement *p) {
    int choices = w->x.rank + 2;
    *p = placement_replicate();
    for (int a = 0; a < w->mesh.n_axes; a++, k /= choices) {
        p->at[a] = (int8_t)(k % choices + PLACE_PARTIAL);
        if (w->mesh.size[a] == 1 && p->at[a] != PLACE_REPLICATE)
            return false;
    }
    return is_even(w, *p);
}

static int64_t placements(const struct world *w) {
    int64_t n = 1;
    for (int a = 0; a < w->mesh.n_axes; a++)
        n *= w->x.rank + 2;
    return n;
}

/* Steps follow each other, move only innermost axes, and end at `to`. */
static bool is_chain(const struct world *w, struct placement from, struct placement to,
                     const struct convert_step *steps, int n) {
    struct placement now = from;
    for (int i = 0; i < n; i++) {
        const struct convert_step *s = &steps[i];
        if (!placement_equal(now, s->before) || !is_even(w, s->after))
            return false;
        for (int a = 0; a < w->mesh.n_axes; a++) {
            bool moves = s->axes >> a & 1;
            if (s->after.at[a] != (moves ? s->to : s->before.at[a]) ||
                (moves && s->before.at[a] != s->from))
                return false;
        }
        now = s->after;
    }
    return placement_equal(now, to);
}

static bool check_pair(struct world *w, struct placement from, struct placement to) {
    struct convert_step steps[CONVERT_MAX_STEPS + 1];
    memset(&steps[CONVERT_MAX_STEPS], 0x55, sizeof *steps);
    struct convert_step guard = steps[CONVERT_MAX_STEPS];
    int n = convert_path(&w->mesh, &w->x, from, to, steps, NULL);
    if (n > CONVERT_MAX_STEPS || memcmp(&guard, &steps[CONVERT_MAX_STEPS], sizeof guard) ||
        !is_chain(w, from, to, steps, n))
        return false;
    int64_t wrong = 0;
    for (int r = 0; r < w->n; r++)
        visit(w, r, from, from, true);
    run_path(w, steps, n);
    for (int r = 0; r < w->n; r++)
        wrong += visit(w, r, from, to, false);
    return wrong == 0;
}

static void print_pair(const struct world *w, struct placement from, struct placement to) {
    const struct placement *both[] = {&from, &to};
    printf("#");
    for (int i = 0; i < 2; i++, printf(i < 2 ? " ->" : "\n"))
        for (int a = 0; a < w->mesh.n_axes; a++)
            printf(" %d", both[i]->at[a]);
}

/* All pairs, or `drawn` of them. */
static void test_pairs(const char *mesh, int rank, const int64_t *size, int64_t drawn,
                       uint64_t seed) {
    struct world w;
    world_init(&w, mesh, rank, size);
    struct rng r = {seed, 0};
    int64_t n = placements(&w), tested = 0, wrong = 0;
    for (int64_t i = 0; i < (drawn ? 100 * drawn : n * n) && (!drawn || tested < drawn);
         i++) {
        int64_t k = drawn ? rng_below(&r, n * n) : i;
        struct placement from, to;
        if (!placement_number(&w, k / n, &from) || !placement_number(&w, k % n, &to) ||
            placement_axes(&w.mesh, to, PLACE_PARTIAL) &
                ~placement_axes(&w.mesh, from, PLACE_PARTIAL))
            continue;
        tested++;
        if (check_pair(&w, from, to))
            continue;
        if (wrong++ < 5)
            print_pair(&w, from, to);
    }
    ok(tested && !wrong, "%s, tensor of rank %d: %lld %s, %lld wrong (seed %llu)", mesh,
       rank, (long long)tested, drawn ? "pairs drawn" : "pairs, which are all",
       (long long)wrong, (unsigned long long)seed);
    world_release(&w);
}

/* ---- what a conversion should look like ------------------------------------------------ */

/* Letters: i, j, k an axis of the tensor, = Replicate, + Partial. */
static struct placement placement_of(const char *text) {
    struct placement p = placement_replicate();
    for (int a = 0; text[a]; a++)
        p.at[a] = text[a] == '+'   ? PLACE_PARTIAL
                  : text[a] == '=' ? PLACE_REPLICATE
                                   : (int8_t)(text[a] - 'i');
    return p;
}

static void looks(const char *mesh, const char *from, const char *to, const char *want) {
    static const char *const names[] = {
#define X(id) #id,
        CONVERT_KINDS(X)
#undef X
    };
    struct world w;
    const int64_t size[] = {48, 48, 48};
    char got[512] = "";
    struct convert_step steps[CONVERT_MAX_STEPS];
    world_init(&w, mesh, 3, size);
    int n = convert_path(&w.mesh, &w.x, placement_of(from), placement_of(to), steps, NULL);
    for (int i = 0; i < n; i++) {
        size_t used = strlen(got);
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s ", i ? ", " : "",
                                 names[steps[i].kind]);
        for (int a = 0; a < w.mesh.n_axes; a++)
            if (steps[i].axes >> a & 1)
                used +=
                    (size_t)snprintf(got + used, sizeof got - used, "%s", w.mesh.name[a]);
    }
    ok(!strcmp(got, want), "%s on %s -> %s: %s", from, mesh, to, got);
    world_release(&w);
}

static void test_looks(void) {
    const char *two = "a:2 b:4", *four = "a:2 b:2 c:2 d:2";
    looks(two, "ij", "ij", "");
    looks(two, "=i", "==", "all_gather b");
    looks(two, "i+", "ij", "reduce_scatter b");
    looks(two, "++", "==", "all_reduce ab");
    looks(two, "==", "ii", "slice ab");
    looks(two, "ii", "==", "all_gather ab");
    looks(two, "ii", "jj", "all_to_all ab");
    looks(two, "++", "ii", "reduce_scatter ab");
    /* b is in the way of a */
    looks(two, "=i", "ii", "all_gather b, slice ab");
    /* twice the elements for the scatter, or twice for the sum: fewer steps */
    looks(two, "i+", "=i", "all_gather a, reduce_scatter b");
    looks("a:4 b:2", "i+", "=i", "all_reduce b, all_gather a, slice b");
    /* what an all-to-all waits for is gathered first */
    looks(four, "ii=k", "j===", "all_gather b, all_to_all a, all_gather d");
    /* a and b change places: one of them is gathered */
    looks(two, "ij", "ji", "all_gather a, all_to_all b, slice a");
    /* cut first what costs nothing, gather last */
    looks(four, "=i=j", "j=k=", "slice c, all_gather d, slice a, all_gather b");
    /* the embedding of a plan that overran the path of thirteen steps */
    looks(four, "kk+i", "i=ik",
          "all_reduce c, all_gather b, all_gather d, all_to_all a, slice c, slice d");
}

static void test_cost(void) {
    struct world w;
    const int64_t size[] = {64, 64};
    double none, gather, reduce, scatter;
    struct convert_step steps[CONVERT_MAX_STEPS];
    world_init(&w, "a:2", 2, size);
    convert_path(&w.mesh, &w.x, placement_of("i"), placement_of("i"), steps, &none);
    convert_path(&w.mesh, &w.x, placement_of("i"), placement_of("="), steps, &gather);
    convert_path(&w.mesh, &w.x, placement_of("+"), placement_of("="), steps, &reduce);
    convert_path(&w.mesh, &w.x, placement_of("+"), placement_of("i"), steps, &scatter);
    ok(none == 0 && reduce - gather == 2048 && scatter == gather,
       "costs: what moves, and a start each");
    world_release(&w);
}

int main(void) {
    const bool all = getenv("WEFT_LONG") != NULL;
    const int64_t s12[] = {12, 12, 12}, s24[] = {24, 24}, s8[] = {8, 16, 4},
                  s6[] = {6, 2, 8, 3}, s64[] = {64, 16};
    test_looks();
    test_cost();
    test_pairs("a:4", 3, s12, 0, 0);
    test_pairs("a:2 b:3", 3, s12, 0, 0);
    test_pairs("a:2 b:1 c:3", 2, s12, 0, 0);
    test_pairs("a:2 b:3 c:2", 1, s12, 0, 0);
    test_pairs("a:2 b:3 c:2", 2, s12, 0, 0);
    test_pairs("a:2 b:2 c:2", 3, s8, all ? 0 : 2000, 1);
    test_pairs("a:2 b:3 c:2 d:2", 1, s24, 0, 0);
    test_pairs("a:2 b:3 c:2 d:2", 2, s24, all ? 0 : 500, 2);
    test_pairs("a:2 b:2 c:3 d:2", 4, s6, all ? 20000 : 1000, 3);
    test_pairs("a:2 b:2 c:2 d:2 e:2", 3, s8, all ? 20000 : 1000, 4);
    test_pairs("a:2 b:2 c:2 d:2 e:2 f:2", 2, s64, all ? 3000 : 50, 5);
    test_pairs("a:2 b:2 c:2 d:2 e:2 f:2", 3, s8, all ? 10000 : 300, 6);
    return done_testing();
}
