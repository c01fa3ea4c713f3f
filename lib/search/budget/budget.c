/* The budget (see budget.h). */
#include "search/budget/budget.h"

#include <math.h>

bool budget_is_limited(const struct budget *b) {
    return b->time_budget_s > 0 || b->work_limit > 0;
}

double budget_left_s(const struct budget *b) {
    return b->deadline_s > 0 ? fmax(b->deadline_s - now_s(), 1e-3) : 0;
}

double budget_time_left_s(const struct budget *b) {
    return b->deadline_s > 0 ? b->deadline_s - now_s() : 1e9;
}

bool budget_out_of_time(const struct budget *b) {
    watch_poll(b->watch);
    return interrupted() || budget_time_left_s(b) < 2 * b->evaluate_s ||
           (b->work_limit && b->work >= b->work_limit);
}

bool budget_stopped(const struct budget *b) {
    bool found = isfinite(b->best_us);
    bool closed = b->gap > 0 && found && b->best_us * (1 - b->gap) <= b->bound_us;
    return budget_out_of_time(b) || closed;
}
