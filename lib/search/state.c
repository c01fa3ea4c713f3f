/* The state of a search (see state.h). */
#include "search/state.h"

#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

bool search_in_time(const struct search_problem *p) {
    return !interrupted() && (p->deadline_s <= 0 || now_s() < p->deadline_s);
}

void options_insert(struct option *list, int *n, int most, const struct candidate *c,
                    struct score score) {
    int at = *n;
    while (at > 0 && score_better(&score, &list[at - 1].score))
        at--;
    if (score.unknown || at == most)
        return;
    *n += *n < most;
    struct option last = list[*n - 1];
    memmove(&list[at + 1], &list[at], sizeof *list * (size_t)(*n - 1 - at));
    list[at] = last;
    candidate_copy(&list[at].c, c);
    list[at].score = score;
}

void search_begin(struct search *s, const struct search_problem *p) {
    *s = (struct search){.budget = {.start_s = now_s(),
                                    .time_budget_s = p->time_budget_s,
                                    .deadline_s = p->deadline_s,
                                    .work_limit = p->work_budget,
                                    .gap = p->gap}};
    space_survey(&s->space, p);
    eval_begin(&s->eval, &s->space, &s->budget);
    pool_begin(&s->pool, &s->eval, &s->budget);
    s->from = candidate_make(&s->space);
}

void search_forget_starts(struct search *s) {
    for (int64_t i = 0; i < s->n_starts; i++)
        candidate_release(&s->starts[i].c);
    free(s->starts);
    s->starts = NULL;
    s->n_starts = 0;
}

void search_end(struct search *s) {
    candidate_release(&s->from);
    search_forget_starts(s);
    pool_end(&s->pool);
    eval_end(&s->eval);
    space_release(&s->space);
}

void search_mark_complete(struct search *s, double space) {
    s->complete = true;
    s->space_size = space;
}
