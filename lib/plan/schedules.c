#include "plan/schedules.h"

#include <string.h>

static const struct schedule_traits table[SCHEDULE_COUNT] = {
#define X(id, ...) [SCHEDULE_##id] = {__VA_ARGS__},
    SCHEDULES(X)
#undef X
};

const struct schedule_traits *schedule_traits(enum schedule s) {
    return &table[s];
}

const char *schedule_name(enum schedule s) {
    return table[s].name;
}

int schedule_find(const char *name) {
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (!strcmp(table[s].name, name))
            return s;
    return -1;
}

bool schedule_splits(enum schedule s, int stage) {
    return table[s].splits && stage > 0;
}

unsigned schedules_round(unsigned set) {
    unsigned round = 0;
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (table[s].stages == STAGES_ROUND)
            round |= set & 1u << s;
    return round;
}
