/* The descriptors, parsed from the patterns of kind.h at first use. */
#include "model/kind.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct kind kinds[KIND_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct attr_info attrs[] = {
#define X(id, type, least, below) {#id, type, least, below},
    KIND_ATTRS(X)
#undef X
};

const struct attr_info *attr_info(enum attr a) {
    return &attrs[a];
}

const char *role_name(enum role role) {
    static const char *const names[] = {
#define X(id) #id,
        KIND_ROLES(X)
#undef X
    };
    return names[role];
}

bool role_splits(enum role role) {
    return role != ROLE_gathered && role != ROLE_whole;
}

static const char *skip(const char *p) {
    return p + strspn(p, " ");
}

/* "b s 3 h/ d]" */
static const char *parse_dims(const char *p, struct kind_slot *s) {
    for (p = skip(p); *p != ']'; p = skip(p)) {
        struct pattern_dim *d = &s->dim[s->rank++];
        if (isdigit((unsigned char)*p)) {
            d->size = (int)strtol(p, (char **)&p, 10);
            continue;
        }
        d->name = *p++;
        d->group = !strncmp(p, "..", 2);
        p += d->group ? 2 : 0;
        d->primed = *p == '\'';
        p += d->primed;
        d->grouped = *p == '/';
        p += d->grouped;
        if (*p == '%')
            d->multiple = (int)strtol(p + 1, (char **)&p, 10);
    }
    return p + 1;
}

/* "+name[dims]=init?", "~name[dims]", "!name[dims]", "name:int[dims]", "name:f32[dims]" */
static const char *parse_slot(const char *p, struct kind_slot *s) {
    s->once = *p == '+';
    p += s->once;
    s->running = *p == '~';
    p += s->running;
    s->fixed = *p == '!';
    p += s->fixed;
    size_t n = strcspn(p, ":[");
    memcpy(s->name, p, n);
    p += n;
    s->integer = !strncmp(p, ":int", 4);
    s->wide = !strncmp(p, ":f32", 4);
    p = parse_dims(strchr(p, '[') + 1, s);
    if (!strncmp(p, "=ones", 5)) {
        s->init = SLOT_ONES;
        p += 5;
    } else if (!strncmp(p, "=zeros", 6)) {
        s->init = SLOT_ZEROS;
        p += 6;
    }
    s->optional = *p == '?';
    return p + s->optional;
}

static int parse_slots(const char *p, struct kind_slot *slots) {
    int n = 0;
    for (p = skip(p); *p; p = skip(p))
        p = parse_slot(p, &slots[n++]);
    return n;
}

/* A letter that the result lacks is summed over; the list says otherwise for some ("h halo:r"), and
 * what is not larger than what. */
static void parse_roles(const char *p, struct kind *k) {
    for (int c = 0; c < 128; c++)
        k->role[c] = ROLE_contracted;
    for (int o = 0; o < k->n_out; o++)
        for (int i = 0; i < k->out[o].rank; i++)
            k->role[(int)k->out[o].dim[i].name] = ROLE_parallel;
    for (p = skip(p); *p; p = skip(p)) {
        int letter = *p;
        p = skip(p + 1);
        size_t n = strcspn(p, " :");
        if (!strncmp(p, "<=", 2))
            k->at_most[letter] = p[2];
        for (int r = 0; r <= ROLE_whole; r++)
            if (strlen(role_name((enum role)r)) == n &&
                !strncmp(role_name((enum role)r), p, n))
                k->role[letter] = (enum role)r;
        p += n;
        if (*p == ':') {
            k->window[letter] = p[1];
            p += 2;
        }
    }
}

/* "eps=1e-5 rate=0 group=?" */
static void parse_attrs(const char *p, struct kind *k) {
    for (p = skip(p); *p; p = skip(p)) {
        size_t n = strcspn(p, "=");
        char *end = NULL;
        bool needed = p[n + 1] == '?';
        double value = strtod(p + n + 1, &end);
        for (int a = 0; a < ATTR_COUNT; a++) {
            if (strlen(attrs[a].name) == n && !strncmp(attrs[a].name, p, n)) {
                k->has_attr[a] = true;
                k->needs_attr[a] = needed;
                k->attr[a] = value;
            }
        }
        p = needed ? p + n + 2 : end;
    }
}

static void parse_all(void) {
    static const struct {
        const char *name, *in, *param, *out, *roles, *attrs;
        unsigned flags;
    } lines[] = {
#define X(id, name, in, param, out, roles, attrs, flags)                                   \
    {name, in, param, out, roles, attrs, flags},
        KINDS(X)
#undef X
    };
    for (int i = 0; i < KIND_COUNT; i++) {
        struct kind *k = &kinds[i];
        k->name = lines[i].name;
        k->flags = lines[i].flags;
        k->n_in = parse_slots(lines[i].in, k->in);
        k->n_param = parse_slots(lines[i].param, k->param);
        k->n_out = parse_slots(lines[i].out, k->out);
        parse_roles(lines[i].roles, k);
        parse_attrs(lines[i].attrs, k);
    }
}

const struct kind *kind_of(enum kind_id id) {
    pthread_once(&once, parse_all);
    return &kinds[id];
}

enum kind_id kind_find(const char *name) {
    int id = 0;
    while (id < KIND_COUNT && strcmp(kind_of((enum kind_id)id)->name, name))
        id++;
    return (enum kind_id)id;
}

int kind_least(const struct kind *k) {
    int n = 0;
    for (int i = 0; i < k->n_in; i++)
        n += !k->in[i].optional;
    return n;
}

/* Has a slot room for so many dims? */
static bool takes_rank(const struct kind_slot *s, int rank) {
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i].group)
            return true;
    return rank < 0 || s->rank == rank;
}

enum kind_id kind_form(enum kind_id id, int n_in, const int *ranks) {
    int first = -1;
    for (int i = 0; i < KIND_COUNT; i++) {
        const struct kind *k = kind_of((enum kind_id)i);
        if (strcmp(k->name, kind_of(id)->name) != 0 || kind_least(k) > n_in ||
            n_in > k->n_in)
            continue;
        bool fits = true;
        for (int j = 0; j < n_in; j++)
            fits &= takes_rank(&k->in[j], ranks[j]);
        if (fits)
            return (enum kind_id)i;
        first = first < 0 ? i : first;
    }
    return first < 0 ? id : (enum kind_id)first;
}
