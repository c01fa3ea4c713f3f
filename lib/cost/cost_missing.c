/* Keeps what the provider did not know in an array, in the order of first need, with a hash
 * table over it, so that 60,000 misses of 12 shapes stay 12 entries, and turns it into a
 * message and commands. */
#include "common/mem.h"
#include "common/rng.h"
#include "common/text.h"
#include "cost/cost.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_key(const void *missing, int64_t i, const void *key) {
    const struct cost_key *a = (const struct cost_key *)missing + i, *b = key;
    return instr_key_equal(&a->instr, &b->instr) && a->group == b->group &&
           !memcmp(&a->comm, &b->comm, sizeof a->comm);
}

void cost_note_missing(struct cost *c, const struct cost_key *k) {
    uint64_t h = hash_bytes(&k->comm, sizeof k->comm, instr_key_hash(&k->instr));
    int64_t i = hashtable_put(&c->missing_table, h, same_key, c->missing, k);
    if (i == c->n_missing) {
        if (i == c->cap_missing) {
            c->cap_missing = i ? 2 * i : 16;
            c->missing = mem_grow(c->missing, (size_t)c->cap_missing, sizeof *k);
        }
        c->missing[c->n_missing++] = *k;
    }
    c->missing[i].count++;
}

/* ---- reporting --------------------------------------------------------------------- */

bool cost_key_is_comm(const struct cost_key *k) {
    return opcode_key(k->instr.code) == KEY_COMM || opcode_key(k->instr.code) == KEY_P2P;
}

char *cost_key_format(const struct cost_key *k, char *buf, size_t n) {
    if (cost_key_is_comm(k)) {
        snprintf(buf, n, "%s size=%lld stride=%lld %s %lld",
                 k->instr.code == I_send ? "p2p" : opcode_name(k->instr.code),
                 (long long)k->comm.size, (long long)k->comm.stride,
                 k->comm.cross ? "cross" : "node", (long long)k->comm.bytes);
        return buf;
    }
    char name[40], shape[128];
    snprintf(buf, n, "%s %s",
             instr_name_format(k->instr.code, k->instr.dtype, name, sizeof name),
             instr_shape_format(k->instr.code, &k->instr.n, shape, sizeof shape));
    return buf;
}

static void list_missing(const struct cost *c, char *buf, size_t n) {
    enum { SHOWN = 3 };
    size_t used = 0;
    char key[160];
    buf[0] = '\0';
    for (int64_t i = 0; i < c->n_missing && i < SHOWN && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, "%s%s", i ? "; " : "",
                                 cost_key_format(&c->missing[i], key, sizeof key));
    if (c->n_missing > SHOWN && used < n)
        snprintf(buf + used, n - used, " ...");
}

/* Commands one after the other, cut off where the room ends. */
struct commands {
    char *p;
    size_t n, used;
};

static void add(struct commands *t, const char *fmt, ...) ERR_PRINTF(2, 3);

static void add(struct commands *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int more = vsnprintf(t->p + t->used, t->n - t->used, fmt, ap);
    va_end(ap);
    t->used += (size_t)more < t->n - t->used ? (size_t)more : t->n - t->used - 1;
    if (t->used == t->n - 1)
        memcpy(t->p + t->n - 4, "...", 4); /* so that nobody takes it for complete */
}

/* " -p 'my profile.db'" */
static void add_option(struct commands *t, const char *option, const char *word) {
    char *quoted = text_shell_word(word);
    add(t, " %s %s", option, quoted);
    free(quoted);
}

/* Passes on what a device's name says of its ranks: "cpu-2t-over4" means two threads, and
 * four ranks on each core. Left alone, both tools would share out the cores of the machine
 * at hand, and weft-profile-comm, which counts the ranks on a core itself, would name the
 * device so. */
static void add_device(struct commands *t, const char *device, bool comm) {
    int threads = 0, over = 1, end = 0;
    if (sscanf(device, "cpu-%dt%n-over%d%n", &threads, &end, &over, &end) >= 1 && end &&
        !device[end]) {
        add(t, " --threads %d", threads);
        if (comm)
            add_option(t, "--device", device);
        else if (over != 1)
            add(t, " --over %d", over);
    } else {
        add_option(t, "--device", device);
    }
}

/* Where the profile was computed from peaks, what it lacks is computed too. */
static void add_compute(struct commands *t, const struct cost_provider *p) {
    if (p && *p->roofline)
        add(t, " --roofline %s", p->roofline);
    if (p && *p->links)
        add(t, " --links \"%s\"", p->links);
}

static void add_comm(struct commands *t, const struct cost *c, const char *profile,
                     const struct plan *plan) {
    enum { USUAL_BYTES = 64 << 20 }; /* as far as weft-profile-comm goes unless told more */
    int64_t most = -1;
    bool odd = false;
    for (int64_t i = 0; i < c->n_missing; i++) {
        const struct cost_key *k = &c->missing[i];
        if (!cost_key_is_comm(k))
            continue;
        most = k->comm.bytes > most ? k->comm.bytes : most;
        odd |= plan->devices % k->comm.size != 0;
    }
    if (most < 0)
        return;
    add(t, "%smpirun -n %d weft-profile-comm", t->used ? "; " : "", plan->devices);
    add_option(t, "-p", profile);
    if (c->provider)
        add_device(t, c->provider->device, true);
    if (odd)
        add(t, " --all-sizes");
    int64_t enough = USUAL_BYTES; /* the sizes that it measures double */
    while (enough < most)
        enough *= 2;
    if (enough > USUAL_BYTES)
        add(t, " --max-bytes %lldM", (long long)(enough >> 20));
}

/* From a plan in a file, weft-profile-op reads off the program what is missing, so it
 * cannot leave anything out. While a search still looks for the plan, it measures all of
 * the model. */
static void add_what(struct commands *t, const char *plan_name, const struct plan *plan) {
    const struct model *m = plan->model;
    if (plan_name) {
        add_option(t, "--plan", plan_name);
        return;
    }
    add_option(t, "-m", m->ref ? m->ref : "MODEL");
    if (*m->set)
        add_option(t, "--set", m->set);
    if (plan->dtype != DTYPE_f32)
        add(t, " --dtype %s", plan_dtype_name(plan->dtype));
    add(t, " --max-devices %d --micro-batch %lld", plan->devices,
        (long long)plan->micro_batch);
}

/* The commands that measure what is missing. */
static int hint_commands(const struct cost *c, const char *profile, const char *plan_name,
                         const struct plan *plan, struct err *err) {
    char buf[1280] = "";
    struct commands t = {buf, sizeof buf, 0};
    const struct cost_provider *p = c->provider;
    bool op = false, computed = p && *p->links;
    for (int64_t i = 0; i < c->n_missing; i++)
        op |= !cost_key_is_comm(&c->missing[i]);
    if (op || computed) {
        add(&t, "weft-profile-op");
        add_what(&t, plan_name, plan);
        add_option(&t, "-p", profile);
        if (p)
            add_device(&t, p->device, false);
        add_compute(&t, p);
    }
    if (!computed)
        add_comm(&t, c, profile, plan);
    return err_hint(err, "measure with: %s", buf);
}

int cost_check(const struct cost *c, const char *profile, const char *plan_name,
               const struct plan *plan, struct err *err) {
    char list[600];
    if (!c->n_missing)
        return 0;
    list_missing(c, list, sizeof list);
    err_no(err, "%s lack%s %lld shape%s on device %s: %s",
           profile ? profile : "the cluster's datasheets", profile ? "s" : "",
           (long long)c->n_missing, c->n_missing > 1 ? "s" : "",
           c->provider ? c->provider->device : "", list);
    return hint_commands(c, profile ? profile : "FILE", plan_name, plan, err);
}
