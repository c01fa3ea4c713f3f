/* Computed rows: planning for hardware that is not there.
 *
 * An instruction takes its latency and the longer of its arithmetic and its traffic
 * (Williams, Waterman, Patterson 2009). A collective takes the latency of each of its
 * log2(n) rounds and the bytes that one rank must send over its link, as recursive halving
 * and doubling do (Thakur, Rabenseifner, Gropp 2005). Such rows say "roofline" as their
 * source, and are written only when they are asked for. */
#include "profile-op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "312T": a number with a suffix of thousands. Moves *text behind it. */
static int parse_rate(const char **text, double *out) {
    static const char suffixes[] = "KMGTP";
    char *end;
    *out = strtod(*text, &end);
    if (end == *text || !isfinite(*out) || *out <= 0)
        return -1;
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    for (const char *s = suffixes; suffix && s <= suffix; s++)
        *out *= 1000;
    *text = end + (suffix != NULL);
    return isfinite(*out) ? 0 : -1;
}

/* "5us", "0.5ms", "1s", "800ns". Moves *text behind it. */
static int parse_latency(const char **text, double *us) {
    static const struct {
        const char *name;
        double us;
    } units[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
    char *end;
    *us = strtod(*text, &end);
    if (end == *text || !isfinite(*us) || *us < 0)
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if (!strncmp(end, units[i].name, n)) {
            *us *= units[i].us;
            *text = end + n;
            return 0;
        }
    }
    return -1;
}

int roofline_parse(const char *text, struct roofline *r, struct err *err) {
    const char *p = text;
    *r = (struct roofline){0};
    bool good =
        parse_rate(&p, &r->flops) == 0 && *p++ == ':' && parse_rate(&p, &r->bytes) == 0;
    if (good && *p == ':')
        good = (p++, parse_latency(&p, &r->latency_us) == 0);
    if (good && !*p && strlen(text) < 64) {
        snprintf(r->source, sizeof r->source, "roofline %s", text);
        return 0;
    }
    err_usage(err, "--roofline: expected FLOPS:BYTES_PER_S[:LATENCY], got \"%.64s\"", text);
    return err_hint(err, "such as --roofline 312T:1.5T:5us");
}

/* One "node:200G:5us". Moves *text behind it. */
static int parse_link(const char **text, struct link *l) {
    size_t n = strcspn(*text, ": ");
    if (n >= sizeof l->name || (*text)[n] != ':')
        return -1;
    *l = (struct link){0};
    memcpy(l->name, *text, n);
    *text += n + 1;
    if ((strcmp(l->name, "node") && strcmp(l->name, "cross")) ||
        parse_rate(text, &l->bytes) < 0)
        return -1;
    if (**text == ':')
        return (++*text, parse_latency(text, &l->latency_us));
    return 0;
}

int links_parse(const char *text, struct link links[MAX_LINKS], struct err *err) {
    int n = 0;
    bool good = true;
    for (const char *p = text; good && *p;) {
        if (*p == ' ') {
            p++;
            continue;
        }
        good = n < MAX_LINKS && parse_link(&p, &links[n]) == 0 && (!*p || *p == ' ') &&
               (!n || strcmp(links[0].name, links[n].name));
        n++;
    }
    good = good && strlen(text) < 128;
    for (int i = 0; good && i < n; i++)
        snprintf(links[i].source, sizeof links[i].source, "roofline %s", text);
    if (good && n)
        return n;
    err_usage(err,
              "--links: expected LINK:BYTES_PER_S[:LATENCY] for node, cross or both, got "
              "\"%.64s\"",
              text);
    return err_hint(err, "such as --links \"node:200G:5us cross:25G:10us\"");
}

double roofline_us(const struct roofline *r, const struct instr_key *key) {
    struct instr_work w;
    instr_work(key->code, &key->n, &w);
    double arithmetic = w.flops / r->flops,
           traffic = instr_bytes(&w, key->dtype) / r->bytes;
    return r->latency_us + 1e6 * fmax(arithmetic, traffic);
}

int roofline_put_ops(struct profile *p, const char *device, const struct roofline *r,
                     const struct enumeration *e, int64_t *added, struct err *err) {
    for (int64_t i = 0; i < e->n; i++) {
        char shape[160];
        enum opcode code = e->p[i].code;
        instr_shape_format(code, &e->p[i].n, shape, sizeof shape);
        struct profile_op row = {.device = device,
                                 .instr = opcode_name(code),
                                 .shape = shape,
                                 .dtype = dtype_name(e->p[i].dtype),
                                 .median_us = roofline_us(r, &e->p[i]),
                                 .source = r->source};
        if (profile_has_op(p, device, row.instr, shape, row.dtype))
            continue;
        if (profile_put_op(p, &row, err) < 0)
            return -1;
        ++*added;
    }
    return 0;
}

/* ---- collectives --------------------------------------------------------- */

/* Bytes that a rank sends, of `bytes` as profile.h counts them; and the rounds it takes. */
static double comm_us(const char *collective, const struct link *l, int64_t g,
                      int64_t bytes) {
    double share = (double)(g - 1) / (double)g, rounds = ceil(log2((double)g));
    if (!strcmp(collective, "p2p"))
        share = rounds = 1;
    else if (!strcmp(collective, "all_reduce"))
        share *= 2, rounds *= 2;
    return rounds * l->latency_us + 1e6 * share * (double)bytes / l->bytes;
}

struct series {
    struct profile *profile;
    struct profile_comm row;
    const struct link *link;
    int64_t max_bytes, *added;
};

/* Times are straight lines over bytes, so a row every factor of 16 says all. */
static int put_series(struct series *s, const char *collective, int64_t g,
                      struct err *err) {
    s->row.collective = collective;
    s->row.group_size = g;
    for (int64_t bytes = 16;; bytes *= 16) {
        s->row.bytes = bytes;
        s->row.median_us = comm_us(collective, s->link, g, bytes);
        if (!profile_has_comm(s->profile, &s->row)) {
            if (profile_put_comm(s->profile, &s->row, err) < 0)
                return -1;
            ++*s->added;
        }
        if (bytes >= s->max_bytes)
            return 0;
    }
}

static bool wanted(const struct enumeration *e, int64_t size, int64_t max_devices) {
    enum { EVERY_SIZE = 64 }; /* beyond, only what axes of a mesh can make */
    bool named = false;
    for (int64_t i = 0; i < e->n_comm && !named; i++)
        named = e->comm[i].size == size;
    return named || size <= EVERY_SIZE || enumerate_factor(size, max_devices);
}

static int put_link(struct series *s, const struct enumeration *e, int64_t max_devices,
                    struct err *err) {
    static const char *const names[] = {"all_gather", "all_reduce", "reduce_scatter",
                                        "all_to_all"};
    if (put_series(s, "p2p", 2, err) < 0)
        return -1;
    for (int64_t g = 2; g <= max_devices; g++)
        for (int k = 0; k < 4 && wanted(e, g, max_devices); k++)
            if (put_series(s, names[k], g, err) < 0)
                return -1;
    return 0;
}

int links_put(struct profile *p, const char *device, const struct link *links, int n,
              int64_t max_devices, const struct enumeration *e, int64_t *added,
              struct err *err) {
    for (int l = 0; l < n; l++) {
        struct series s = {.profile = p,
                           .link = &links[l],
                           .max_bytes = e->largest_comm_bytes,
                           .added = added,
                           .row = {.device = device,
                                   .stride = 1,
                                   .groups = 1,
                                   .link = links[l].name,
                                   .source = links[l].source}};
        if (put_link(&s, e, max_devices, err) < 0)
            return -1;
    }
    return 0;
}
