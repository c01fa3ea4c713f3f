/* Which schedules plans may have. */
#include "search/space/space.h"

bool space_has_schedule(const struct space *sp, enum schedule schedule) {
    return sp->p.schedules >> schedule & 1;
}

bool space_goes_round(const struct space *sp) {
    return schedules_round(sp->p.schedules) != 0;
}

bool space_may_split(const struct space *sp) {
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (space_has_schedule(sp, (enum schedule)s) &&
            schedule_traits((enum schedule)s)->splits)
            return true;
    return false;
}

enum schedule space_schedule_for(const struct space *sp, enum schedule_stages takes) {
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (space_has_schedule(sp, (enum schedule)s) &&
            schedule_traits((enum schedule)s)->stages == takes)
            return (enum schedule)s;
    return (enum schedule)0;
}

enum schedule space_plain_schedule(const struct space *sp) {
    return space_schedule_for(sp, STAGES_ONE);
}

enum schedule space_first_schedule(const struct space *sp) {
    int64_t pinned = space_pinned(sp, PIN_schedule);
    return pinned == PIN_FREE ? space_plain_schedule(sp) : (enum schedule)pinned;
}

unsigned space_schedules_of(const struct space *sp, const struct candidate *c) {
    unsigned round = schedules_round(sp->p.schedules);
    if (c->n_groups < c->n_stages)
        return round;
    return c->n_stages > 1 ? sp->p.schedules & ~round : 1u << space_first_schedule(sp);
}
