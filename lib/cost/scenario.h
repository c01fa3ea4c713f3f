/* scenario.h - what goes wrong on a real cluster (weft-scenario(5)): devices that are slow, or now and
 * then slower, links that are slow for a while, devices that fail.
 *
 * A step is simulated as often as the scenario says, each time with factors drawn for it. A
 * stage is as slow as the slowest of its devices, since its collectives wait for all of
 * them. Failures are drawn along the whole run, with checkpoints and restarts between them.
 * All draws follow from the seed, the device's or node's number and the step, so memory
 * grows with neither steps nor events.
 *
 *     struct scenario *s = scenario_read("bad-week.json", &err);
 *     struct scenario_steps steps;
 *     if (scenario_simulate(s, program, &cost, &steps, &err) < 0) ...      // mean and spread of steps
 *     struct scenario_run run;
 *     scenario_failures(s, devices, &run);                                // run.goodput
 *     free(s);
 */
#ifndef WEFT_SCENARIO_H
#define WEFT_SCENARIO_H

#include "cost/simulate.h"

enum { SCENARIO_LINKS = 16, SCENARIO_SIZES = 16 };

/* Links that are slow: between nodes or within them, at some of the nodes, for some of the time. */
struct scenario_link {
    bool cross;
    double share;        /* of the nodes, drawn once */
    double speed;        /* the part of their speed that is left, 0..1 */
    double from_s, to_s; /* of the run, or of every period; seconds */
    double every_s;      /* the period; 0 = once */
};

struct scenario {
    uint64_t seed;
    int64_t steps; /* that are simulated, spread over the run */
    double hours;  /* how long the run is */
    double jitter; /* deviation of the logarithm of a device's time, drawn for each step */
    double stragglers,
        slower; /* share of devices, drawn once; how many times as long they take */
    int n_links;
    struct scenario_link links[SCENARIO_LINKS];
    double mtbf_hours; /* of one device; 0 = none fails */
    double restart_s;  /* until a job that lost a device trains again */
    double write_s;    /* how long a checkpoint holds training up */
    double every_s;    /* from one checkpoint to the next; 0 = as Daly's formula says */
    int n_sizes;
    int64_t sizes[SCENARIO_SIZES]; /* other numbers of devices to find the goodput for */
};

/* NULL with a message; exit status 3. free() it. */
struct scenario *scenario_read(const char *path, struct err *err);

struct scenario_steps {
    double mean_us, least_us, most_us;
};
/* Simulates s->steps steps. c costs the program's instructions, and is left as it was. */
int scenario_simulate(const struct scenario *s, const struct program *g, struct cost *c,
                      struct scenario_steps *out, struct err *err);

struct scenario_run {
    double mtbf_s;              /* of all devices together; 0 = none fails */
    double interval_s;          /* training from one checkpoint to the next */
    double goodput;             /* share of the run spent on steps that are not lost */
    double expected;            /* the same by Daly's formula */
    double writing, lost, down; /* shares: checkpoints, work done again, restarts */
    int64_t failures, checkpoints;
};
/* Simulates the failures of a job on so many devices. */
void scenario_failures(const struct scenario *s, int64_t devices, struct scenario_run *out);

/* Daly, A higher order estimate of the optimum checkpoint interval for restart dumps
 * (2006), after Young (1974): seconds of training between checkpoints, and their
 * goodput. */
double daly_interval_s(double write_s, double mtbf_s);
double daly_goodput(double interval_s, double write_s, double restart_s, double mtbf_s);

#endif
