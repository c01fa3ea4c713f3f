/* Why an attempt ended: by what mpirun and the ranks say. And beats, as two processes see them. */
#include "common/err.h"
#include "keep/beat.h"
#include "keep/cause.h"
#include "keep/straggler.h"
#include "tap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *what;
    struct ending e;
    enum cause cause;
    bool restarts;
    const char *line;
} cases[] = {
    {"all done", {.all_ended = true}, CAUSE_DONE, false, "done"},
    {"stopped by a signal",
     {.all_ended = true, .steps_left = true},
     CAUSE_STOPPED,
     false,
     "signal"},
    {"kill -9 of a rank", {.wait = 137 << 8, .ranks_status = -1}, CAUSE_SIGNAL, true, "9"},
    {"a crash", {.wait = 139 << 8, .ranks_status = -1}, CAUSE_SIGNAL, true, "11"},
    {"the same with a kill for memory",
     {.wait = 137 << 8, .ranks_status = -1, .oom_kills = 1},
     CAUSE_OOM,
     true,
     "memory"},
    {"kill -9 of mpirun", {.wait = 9, .ranks_status = -1}, CAUSE_LAUNCHER, true, "9"},
    {"no host",
     {.wait = 255 << 8, .ranks_status = -1, .said = "mpirun: no route\n"},
     CAUSE_LAUNCH,
     true,
     "255: mpirun: no route"},
    {"a daemon that could not begin",
     {.wait = 9,
      .ranks_status = -1,
      .unstarted = true,
      .said = "[vm:1] ORTE_ERROR_LOG: Error in file ess_base_std_orted.c at line 264\n"},
     CAUSE_LAUNCH,
     true,
     "no rank: a daemon of it could not begin"},
    {"a daemon that went without a word",
     {.wait = 9, .ranks_status = -1, .unstarted = true, .said = ""},
     CAUSE_LAUNCH,
     true,
     "does not answer"},
    {"a daemon that has gone",
     {.wait = 205 << 8,
      .ranks_status = -1,
      .said =
          "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on "
          "node a\n  Remote daemon: [[1,0],2] on node b7\n"},
     CAUSE_HOST,
     true,
     "b7"},
    {"not finite",
     {.wait = 1 << 8, .ranks_status = 1, .message = "step 21: 20 steps"},
     CAUSE_DIVERGED,
     false,
     "step 21"},
    {"a wrong option", {.wait = 2 << 8, .ranks_status = 2}, CAUSE_USAGE, false, ""},
    {"a wrong plan", {.wait = 3 << 8, .ranks_status = 3}, CAUSE_INPUT, false, ""},
    {"a time-out",
     {.wait = 4 << 8, .ranks_status = 4, .message = "rank 1 is gone"},
     CAUSE_SYSTEM,
     true,
     "rank 1 is gone"},
    {"a full disk",
     {.wait = 4 << 8, .ranks_status = 4, .message = "x: write: No space left on device"},
     CAUSE_DISK,
     false,
     "No space"},
    {"a plan too large",
     {.wait = 4 << 8, .ranks_status = 4, .message = "stages[0]: one rank needs 9 GB"},
     CAUSE_MEMORY,
     false,
     "9 GB"},
    {"a plan too large for a GPU",
     {.wait = 4 << 8,
      .ranks_status = 4,
      .message = "GPU 0: out of memory: 9.000 GB more are planned"},
     CAUSE_MEMORY,
     false,
     "9.000 GB"},
    {"a rank that is stopped",
     {.wait = 9, .ranks_status = -1, .hung = true, .stuck = "rank 2 is stopped"},
     CAUSE_HANG,
     true,
     "rank 2"},
    {"a GPU that fell off its bus",
     {.wait = 4 << 8,
      .ranks_status = 4,
      .message = "cuda: unspecified launch failure",
      .gpu = "GPU 3: Xid 79"},
     CAUSE_GPU,
     true,
     "GPU 3: Xid 79: cuda"},
    {"a wrong plan beside an old error",
     {.wait = 3 << 8, .ranks_status = 3, .message = "x", .gpu = "GPU 3: Xid 79"},
     CAUSE_INPUT,
     false,
     "x"},
    {"SIGTERM to mpirun",
     {.wait = 1 << 8, .ranks_status = -1, .begun = true, .said = ""},
     CAUSE_STOPPED,
     false,
     "told to end"},
    {"status 1 before the ranks are at work",
     {.wait = 1 << 8, .ranks_status = -1, .said = ""},
     CAUSE_LAUNCH,
     true,
     "status 1"},
};

static void try_causes(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ending e = cases[i].e;
        e.message = e.message ? e.message : "";
        e.said = e.said ? e.said : "";
        e.stuck = e.stuck ? e.stuck : "";
        struct verdict v = cause_judge(&e);
        ok(v.cause == cases[i].cause && v.restarts == cases[i].restarts &&
               strstr(v.line, cases[i].line),
           "%s: %s: %s", cases[i].what, cause_word(v.cause), v.line);
    }
    ok(!strcmp(cause_judge(&cases[9].e).host, "b7"), "the host is named");
}

/* What a rank wrote stays when it is killed in the midst of it. */
static void try_beats(void) {
    char path[] = "/tmp/weft-beats-XXXXXX";
    struct err err = {0};
    close(mkstemp(path));
    ok(!beats_open(path), "an empty file holds no beats");
    struct beats *b = beats_create(path, 3, &err);
    ok(b && beats_ranks(b) == 3, "beats of three ranks %s", err.msg);
    setenv(BEAT_VARIABLE, path, 1);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    pid_t pid = fork();
    if (pid == 0) {
        struct beat *own = beat_join();
        beat_enter(own, BEAT_STEP);
        beat_step(own, 7, 56, 0.25, 0.125);
        raise(SIGKILL);
    }
    int status;
    waitpid(pid, &status, 0);
    const struct beat *seen = beats_at(b, 2);
    ok(WIFSIGNALED(status) && atomic_load(&seen->pid) == pid &&
           atomic_load(&seen->step) == 7 && atomic_load(&seen->sample) == 56 &&
           atomic_load(&seen->last_us) == 250000 && atomic_load(&seen->work_us) == 125000 &&
           atomic_load(&seen->phase) == BEAT_STEP && !atomic_load(&seen->status),
       "a killed rank's last beat: step %lld in phase %s",
       (long long)atomic_load(&seen->step),
       beat_phase_name((enum beat_phase)atomic_load(&seen->phase)));
    ok(!atomic_load(&beats_at(b, 0)->pid), "the others have none");
    setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    ok(!beat_join(), "a rank too many has no beat");
    beats_close(b);
    unlink(path);
    ok(!beat_join(), "nor has any where there is no supervisor");
    beat_enter(NULL, BEAT_STEP);
}

/* So many steps in which each rank works so long. */
static void work(struct beats *b, int64_t steps, const double *seconds) {
    for (int r = 0; r < beats_ranks(b); r++)
        for (int64_t i = 0; i < steps; i++)
            beat_step(beats_at(b, r), atomic_load(&beats_at(b, r)->step) + 1, 0, 1,
                      seconds[r]);
}

/* Six ranks: two, three and one with the same work. */
static void try_stragglers(void) {
    char path[] = "/tmp/weft-beats-XXXXXX";
    close(mkstemp(path));
    struct beats *b = beats_create(path, 6, NULL);
    struct straggler *s = straggler_create(6);
    static const int group[] = {0, 0, 1, 1, 1, 2};
    for (int r = 0; r < 6; r++)
        atomic_store(&beats_at(b, r)->group, group[r]);
    double times = 0;
    ok(straggler_look(s, b, &times) == -1, "before the first step none is slow");
    work(b, 50, (double[]){0.1, 0.1, 0.2, 0.2, 0.2, 0.9});
    ok(straggler_look(s, b, &times) == -1, "another stage has more work, and is not slow");
    work(b, 49, (double[]){0.1, 0.1, 0.2, 0.28, 0.2, 0.9});
    ok(straggler_look(s, b, &times) == -1, "fewer than 50 steps say nothing");
    work(b, 1, (double[]){0.1, 0.1, 0.2, 0.28, 0.2, 0.9});
    ok(straggler_look(s, b, &times) == 3 && times > 1.39 && times < 1.41,
       "rank 3 took %.2f times as long as its peers", times);
    work(b, 50, (double[]){0.1, 0.1, 0.2, 0.25, 0.2, 0.9});
    ok(straggler_look(s, b, &times) == -1, "1.25 times is not enough");
    work(b, 50, (double[]){0.1, 0.15, 0.2, 0.28, 0.2, 0.9});
    ok(straggler_look(s, b, &times) == 1, "of two the slower is named");
    const double two = straggler_ratio(s, b, 1) / straggler_ratio(s, b, 0);
    const double three = straggler_ratio(s, b, 3) / straggler_ratio(s, b, 2);
    ok(two > 1.49 && two < 1.51 && three > 1.39 && three < 1.41,
       "ratios of peers are those of their times: %.2f, %.2f", two, three);
    ok(straggler_ratio(s, b, 5) == 0, "one alone has none");
    straggler_destroy(s);
    beats_close(b);
    unlink(path);
}

int main(void) {
    try_causes();
    try_beats();
    try_stragglers();
    return done_testing();
}
