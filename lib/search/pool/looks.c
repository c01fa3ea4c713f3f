/* Looks: see looks.h. */
#include "search/pool/looks.h"

#include <stdlib.h>

bool search_has_budget(const struct search *s) {
    return s->p.time_budget_s > 0 || s->p.work_budget > 0;
}

static void write_down(struct search *s, const struct candidate *c,
                       const struct score *score, uint64_t hash, bool instead) {
    struct look l = {.k = {.score = *score, .hash = hash, .member = s->member},
                     .instead = instead};
    l.k.class = s->p.top > 1 ? search_class(s, c) : 0;
    l.k.c.stages = mem_array((size_t)c->n_stages, sizeof *c->stages);
    candidate_copy(&l.k.c, c);
    arr_push(&s->looks, l);
}

/* Is the best the last that was written down? */
static bool is_known(const struct search *s) {
    int64_t i = s->looks.n - 1;
    while (i > 0 && s->looks.p[i].instead)
        i--;
    return i >= 0 && s->looks.p[i].k.hash == s->kept[0].hash;
}

void search_look(struct search *s) {
    enum { SPARE = 4 };
    if (!s->n_kept || search_out_of_time(s))
        return;
    s->next_look = s->stages_scored + s->stages_scored / 2;
    for (int i = 0, known = is_known(s); i < s->n_kept && i <= SPARE && !known; i++)
        write_down(s, &s->kept[i].c, &s->kept[i].score, s->kept[i].hash, i > 0);
    search_verify(s);
}

void search_look_if_due(struct search *s) {
    if (s->stages_scored >= s->next_look)
        search_look(s);
    else if (!search_has_budget(s))
        search_verify(s);
}

void search_add_look(struct search *s, const struct candidate *c,
                     const struct score *score) {
    if (!score->overflow && !score->unknown)
        write_down(s, c, score, 0, false);
}

void search_forget_looks(struct search *s) {
    for (int64_t i = 0; i < s->looks.n; i++)
        candidate_release(&s->looks.p[i].k.c);
    s->looks.n = 0;
    s->looks_judged = 0;
    s->next_look = 0;
}
