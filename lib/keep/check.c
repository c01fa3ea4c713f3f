#include "keep/check.h"

#include "common/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 6 }; /* hosts, of which all pairs can be measured */

static const char *const keys[] = {
#define X(id, key, text) key,
    CHECK_SPEEDS(X)
#undef X
};
static const char *const names[] = {
#define X(id, key, text) text,
    CHECK_SPEEDS(X)
#undef X
};

const char *check_speed_key(enum check_speed s) {
    return keys[s];
}

const char *check_state_name(enum check_state s) {
    static const char *const states[] = {"good", "unclear", "bad"};
    return states[s];
}

void check_add(struct check *c, const struct check_link *l) {
    for (int64_t i = 0; i < c->links.n; i++) {
        struct check_link *was = &c->links.p[i];
        if (was->a != l->a || was->b != l->b || was->round != l->round)
            continue;
        if (l->bytes_per_s > was->bytes_per_s)
            *was = *l;
        return;
    }
    arr_push(&c->links, *l);
}

void check_release(struct check *c) {
    arr_release(&c->links);
}

/* ---- links --------------------------------------------------------------------------------- */

/* One that is slow beside the others is no better than one that fails. */
static bool link_is_good(const struct check *c, const struct check_link *l) {
    double *others = mem_array((size_t)c->links.n + 1, sizeof *others);
    int n = 0;
    for (int64_t j = 0; j < c->links.n; j++)
        if (&c->links.p[j] != l && c->links.p[j].bytes_per_s > 0)
            others[n++] = c->links.p[j].bytes_per_s;
    const double usual = stats_median(others, n);
    free(others);
    return l->bytes_per_s > 0 && l->bytes_per_s >= CHECK_SHARE * usual;
}

static void judge_links(struct check *c) {
    for (int64_t i = 0; i < c->links.n; i++)
        c->links.p[i].good = link_is_good(c, &c->links.p[i]);
}

static bool has_good_link(const struct check *c, int host) {
    for (int64_t i = 0; i < c->links.n; i++) {
        const struct check_link *l = &c->links.p[i];
        if (l->good && (l->a == host || l->b == host))
            return true;
    }
    return false;
}

/* A link of this host to one that has a good link elsewhere, and so is not at fault; NULL where there is none. */
static const struct check_link *link_to_good(const struct check *c, int host) {
    for (int64_t i = 0; i < c->links.n; i++) {
        const struct check_link *l = &c->links.p[i];
        const int other = l->a == host ? l->b : l->b == host ? l->a : -1;
        if (other >= 0 && has_good_link(c, other))
            return l;
    }
    return NULL;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static double best_link(const struct check *c, int host) {
    double best = 0;
    for (int64_t i = 0; i < c->links.n; i++) {
        const struct check_link *l = &c->links.p[i];
        if ((l->a == host || l->b == host) && l->bytes_per_s > best)
            best = l->bytes_per_s;
    }
    return best;
}

/* Hosts from the fastest to the slowest; those alike in their order. */
static void rank_hosts(const struct check *c, int *order) {
    for (int i = 0; i < c->n; i++) {
        int at = i;
        for (; at > 0 && best_link(c, order[at - 1]) < best_link(c, i); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void add_pair(struct check_link *pairs, int *n, int a, int b, int round) {
    pairs[(*n)++] = (struct check_link){.a = a, .b = b, .round = round};
}

static void pair_neighbours(const struct check *c, struct check_link *pairs, int *n) {
    for (int i = 0; i + 1 < c->n; i += 2)
        add_pair(pairs, n, i, i + 1, 1);
    if (c->n % 2 && c->n > 1)
        add_pair(pairs, n, c->n - 2, c->n - 1, 1);
}

static void pair_ends(const struct check *c, struct check_link *pairs, int *n) {
    int *order = mem_array((size_t)c->n, sizeof *order);
    rank_hosts(c, order);
    for (int i = 0; i < c->n / 2; i++)
        add_pair(pairs, n, order[i], order[c->n - 1 - i], 2);
    if (c->n % 2)
        add_pair(pairs, n, order[c->n / 2], order[0], 2);
    free(order);
}

static bool are_linked(const struct check *c, int a, int b) {
    for (int64_t i = 0; i < c->links.n; i++) {
        const struct check_link *l = &c->links.p[i];
        if ((l->a == a && l->b == b) || (l->a == b && l->b == a))
            return true;
    }
    return false;
}

static bool some_link_is_good(const struct check *c) {
    for (int i = 0; i < c->n; i++)
        if (has_good_link(c, i))
            return true;
    return false;
}

/* Where no link is good that may be chance of the pairs: all others, or of many hosts each with the next but one. */
static void pair_others(const struct check *c, int round, struct check_link *pairs,
                        int *n) {
    for (int i = 0; i < c->n; i++)
        for (int j = i + 1; j < c->n; j++)
            if (!are_linked(c, i, j) && (c->n <= FEW || j - i == 2))
                add_pair(pairs, n, i, j, round);
}

/* Those without a good link, with those that have one: two, or as many as there are. */
static void pair_undecided(struct check *c, int round, struct check_link *pairs, int *n) {
    judge_links(c);
    if (!some_link_is_good(c))
        pair_others(c, round, pairs, n);
    for (int i = 0; i < c->n; i++) {
        int met = 0;
        for (int j = 0; j < c->n; j++)
            met += has_good_link(c, j) && are_linked(c, i, j);
        for (int j = 1; j < c->n && met < 2 && !has_good_link(c, i); j++) {
            const int other = (i + j) % c->n;
            if (!has_good_link(c, other) || are_linked(c, i, other))
                continue;
            add_pair(pairs, n, i, other, round);
            met++;
        }
    }
}

int check_pairs(struct check *c, int round, struct check_link *pairs) {
    int n = 0;
    if (round == 1)
        pair_neighbours(c, pairs, &n);
    else if (round == 2 && c->n == 3) /* else all pairs might have the bad one */
        add_pair(pairs, &n, 0, 2, 2);
    else if (round == 2 && c->n > 3)
        pair_ends(c, pairs, &n);
    else if (c->n > 3)
        pair_undecided(c, round, pairs, &n);
    return n;
}

int check_pairs_again(const struct check *c, int round, struct check_link *pairs) {
    int n = 0;
    for (int64_t i = 0; i < c->links.n; i++) {
        const struct check_link *l = &c->links.p[i];
        if (l->round == round && l->bytes_per_s > 0 && !link_is_good(c, l))
            add_pair(pairs, &n, l->a, l->b, round);
    }
    return n;
}

/* ---- verdict ------------------------------------------------------------------------------- */

static void blame(struct check_host *h, enum check_state state, const char *why) {
    if (h->state >= state)
        return;
    h->state = state;
    snprintf(h->why, sizeof h->why, "%s", why);
}

/* The median of the others that could be measured; 0 where none could. */
static double usual(const struct check *c, int host, enum check_speed s) {
    double *others = mem_array((size_t)c->n, sizeof *others);
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (i != host && c->hosts[i].speed[s] > 0)
            others[n++] = c->hosts[i].speed[s];
    double median = stats_median(others, n);
    free(others);
    return median;
}

/* The first speed that is bad beside the others'; CHECK_SPEED_COUNT where none is. */
static int slow_speed(const struct check *c, int host) {
    int s = 0;
    while (s < CHECK_SPEED_COUNT &&
           c->hosts[host].speed[s] >= CHECK_SHARE * usual(c, host, (enum check_speed)s))
        s++;
    return s;
}

bool check_doubts_host(const struct check *c, int host) {
    return !*c->hosts[host].failed && slow_speed(c, host) < CHECK_SPEED_COUNT;
}

void check_take(struct check_host *h, const struct check_host *measured) {
    const bool differs = h->times && h->result != measured->result;
    for (int s = 0; s < CHECK_SPEED_COUNT; s++)
        if (measured->speed[s] > h->speed[s])
            h->speed[s] = measured->speed[s];
    h->result = measured->result;
    h->times++;
    if (*measured->failed)
        memcpy(h->failed, measured->failed, sizeof h->failed);
    else if (differs)
        snprintf(h->failed, sizeof h->failed, "its products differ from time to time");
}

static void judge_speeds(struct check *c, int host) {
    struct check_host *h = &c->hosts[host];
    const int s = slow_speed(c, host);
    char why[200];
    if (*h->failed)
        blame(h, CHECK_BAD, h->failed);
    if (s == CHECK_SPEED_COUNT)
        return;
    snprintf(why, sizeof why, "%s: %.2f times as fast as the others", names[s],
             h->speed[s] / usual(c, host, (enum check_speed)s));
    blame(h, CHECK_BAD, why);
}

/* Of three or more hosts the one whose numbers most others do not have. */
static void judge_result(struct check *c, int host) {
    int same = 0, others = 0;
    for (int i = 0; i < c->n; i++)
        if (!*c->hosts[i].failed) {
            others += c->hosts[i].result != c->hosts[host].result;
            same += c->hosts[i].result == c->hosts[host].result;
        }
    if (*c->hosts[host].failed || !others)
        return;
    if (same < others)
        blame(&c->hosts[host], CHECK_BAD, "its products are not those of the others");
    else if (same == others)
        blame(&c->hosts[host], CHECK_UNCLEAR, "its products differ from others'");
}

static void judge_host_links(struct check *c, int host) {
    char why[240];
    const struct check_link *l = link_to_good(c, host);
    if (!c->links.n || has_good_link(c, host))
        return;
    if (!l) {
        blame(&c->hosts[host], CHECK_UNCLEAR,
              "no link of it is good, nor is any of its partners'");
        return;
    }
    snprintf(why, sizeof why, "no link of it is good: %s%.180s",
             *l->failed ? "" : "slower than half of the others", l->failed);
    blame(&c->hosts[host], CHECK_BAD, why);
}

int check_judge(struct check *c) {
    int bad = 0;
    judge_links(c);
    for (int i = 0; i < c->n; i++) {
        c->hosts[i].state = CHECK_GOOD;
        *c->hosts[i].why = '\0';
        judge_speeds(c, i);
        judge_host_links(c, i);
        judge_result(c, i);
        bad += c->hosts[i].state == CHECK_BAD;
    }
    return bad;
}
