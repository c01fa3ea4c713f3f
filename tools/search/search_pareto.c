/* weft-search --pareto: the front of time against memory.
 *
 * The epsilon-constraint method (Haimes et al. 1971): the fastest plan, the fastest that needs less
 * than that, and so on, in steps of a sixteenth of the memory at least, until nothing fits. A search
 * with less memory may by luck find what one with more has missed; then the slower plan goes. */
#include "search_tool.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/progress.h"
#include "common/text.h"

enum { STEPS = 16, MOST_POINTS = 200 };

struct point {
    double time_us;
    int64_t bytes;
    json_t *plan;
    char words[WORDS_LINE];
};

struct front {
    ARR(struct point) points;
};

static void drop_points(struct front *front, int64_t from) {
    while (front->points.n > from)
        json_decref(front->points.p[--front->points.n].plan);
}

/* Points come with less memory each; those that are no faster than the new one go. */
static void add_point(struct front *front, const struct search_plan *found) {
    struct point x = {.time_us = found->time_us,
                      .bytes = found->max_bytes,
                      .plan = plan_to_json(found->plan)};
    words_line(found->plan, x.words, sizeof x.words);
    int64_t n = front->points.n;
    while (n > 0 && front->points.p[n - 1].time_us >= x.time_us)
        n--;
    drop_points(front, n);
    arr_push(&front->points, x);
}

static void write_points(const struct front *front, FILE *f) {
    for (int64_t i = 0; i < front->points.n; i++) {
        const struct point *x = &front->points.p[i];
        json_t *line = json_pack("{s:f, s:I, s:s, s:O}", "time", x->time_us / 1e6, "memory",
                                 (json_int_t)x->bytes, "words", x->words, "plan", x->plan);
        json_dumpf(line, f, JSON_COMPACT | JSON_REAL_PRECISION(9));
        fputc('\n', f);
        json_decref(line);
    }
}

int search_pareto(const char *target, const struct search_problem *p,
                  search_algorithm *algorithm, FILE *f, struct err *err) {
    struct search_problem now = *p;
    struct front front = {{0}};
    struct err last = {0};
    now.top = 1;
    now.slack = 0;
    now.no_bound = true;
    now.may_offload = false;
    while (front.points.n < MOST_POINTS && !interrupted()) {
        struct search_result r;
        if (search_for_run(target, &now, algorithm, &r, &last) < 0)
            break;
        note("weft-search: %s in %s", text_time(r.plans[0].time_us).s,
             text_bytes((double)r.plans[0].max_bytes).s);
        add_point(&front, &r.plans[0]);
        now.memory_bytes = r.plans[0].max_bytes - r.plans[0].max_bytes / STEPS - 1;
        search_result_release(&r);
    }
    bool any = front.points.n > 0;
    if (any)
        write_points(&front, f);
    else if (err)
        *err = last;
    drop_points(&front, 0);
    arr_release(&front.points);
    return any ? 0 : -1;
}
