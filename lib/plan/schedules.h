/* schedules.h - the table of schedules: one line each, from which the names, the checks of plans, the
 * options of the tools with their completions, the list in weft-plan(5) (make update-manual), the
 * order of actions (lib/program/schedule.c), estimates and the moves of searches come.
 *
 *     const struct schedule_traits *t = schedule_traits(plan->schedule);
 *     if (t->splits) ...                  // weight gradients have a turn of their own
 */
#ifndef WEFT_SCHEDULES_H
#define WEFT_SCHEDULES_H

#include <stdbool.h>

/* What stages a group of devices may have. */
enum schedule_stages {
    STAGES_ONE,  /* a single one */
    STAGES_ANY,  /* any */
    STAGES_ROUND /* its share of all that are dealt to the groups in turn */
};

/* Of a schedule whose forwards all run before the first backward. */
enum { FURTHER_ALL = 0 };

/* Identifier, name; the stages of a group; by how many forwards a stage runs further ahead of its first
 * backward than the stage behind it; is the backward pass split, so that gradients of weights
 * wait for a turn of their own? Then sentences for the manual. */
#define SCHEDULES(X)                                                                       \
    X(gpipe, "gpipe", STAGES_ANY, FURTHER_ALL, false,                                      \
      "The forward passes of all micro-batches, then all backward passes; activations of " \
      "every micro-batch are kept in between. Groups may have any stages. Each group "     \
      "waits (p - 1)(F + B + W) in a step.")                                               \
    X(1f1b, "1f1b", STAGES_ONE, 1, false,                                                  \
      "Stage s of S runs S - s forward passes ahead, then alternates backward and "        \
      "forward, and keeps that many micro-batches at most. Each group has one stage. It "  \
      "waits as long as under gpipe.")                                                     \
    X(interleaved, "interleaved", STAGES_ROUND, 1, false,                                  \
      "1f1b with v stages on each group, of which each is a v-th as long: the wait is a "  \
      "v-th of that, for v times as many messages, and somewhat more activations. Stages " \
      "are dealt to the groups in turn: the first p are on as many groups, in any order, " \
      "and each later one is on the group of the p-th stage before it. Micro-batches go "  \
      "through a stage in rounds of p; if p does not divide them, the first rounds are "   \
      "larger by one (with fewer than twice p, one round holds all).")                     \
    X(zero_bubble, "zero-bubble", STAGES_ONE, 1, true,                                     \
      "1f1b whose backward pass has two parts: what the stage before waits for, and the "  \
      "gradients of weights, which stage s leaves until s more backward passes have run: " \
      "the wait is (p - 1)(F + B - W). Each group has one stage. Every stage keeps as "    \
      "many micro-batches as the first one of 1f1b, and besides their activations the "    \
      "gradients that W needs. This is ZB-H1 of Qi et al., Zero Bubble Pipeline "          \
      "Parallelism, 2023.")                                                                \
    X(eager_1f1b, "eager-1f1b", STAGES_ONE, 2, false,                                      \
      "1f1b where stage s runs 2 (S - s) - 1 forward passes ahead: one more than the "     \
      "stage behind it needs, so that a message passes while both compute. On links that " \
      "take up to half as long as a stage takes for a micro-batch nobody waits for it in " \
      "the steady state, where 1f1b waits for each; it keeps nearly twice as many "        \
      "micro-batches. Each group has one stage. After Alpa and nnScaler.")

enum schedule {
#define X(id, ...) SCHEDULE_##id,
    SCHEDULES(X)
#undef X
        SCHEDULE_COUNT,
    SCHEDULE_DEFAULT = SCHEDULE_1f1b
};

struct schedule_traits {
    const char *name;
    enum schedule_stages stages;
    int further;
    bool splits;
    const char *about;
};

const struct schedule_traits *schedule_traits(enum schedule s);
const char *schedule_name(enum schedule s);
int schedule_find(const char *name); /* -1 if unknown */
/* Does a stage make the gradients of its weights apart? The first one does not: nobody waits for what
 * its backward pass makes. */
bool schedule_splits(enum schedule s, int stage);
/* The schedules of a set (bit s: schedule s) that deal several stages to each group in turn. */
unsigned schedules_round(unsigned set);

/* "gpipe, 1f1b" as a constant, of all; and with what is taken where nothing is said. */
#define SCHEDULE_LISTED_(id, name, ...) ", " name
#define SCHEDULE_NAMES                  (&(SCHEDULES(SCHEDULE_LISTED_))[2])
#define SCHEDULE_HELP(otherwise)        (&(SCHEDULES(SCHEDULE_LISTED_) " (" otherwise ")")[2])
#define SCHEDULE_ALL                    ((1u << SCHEDULE_COUNT) - 1)

#endif
