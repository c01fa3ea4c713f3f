/* weft-run - trains a model under a plan: mpirun -n N weft-run --data FILE plan.json
 *
 * All ranks run this main. Rank 0 reads the plan and passes it on, prints the metrics and the
 * progress, and is the one that speaks when all fail alike. */
#include "run.h"

#include "common/file.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/opt.h"
#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 4096 };

static struct run_options o = {.data = "synthetic",
                               .steps = 100,
                               .valid_batches = 8,
                               .seed = -1,
                               .lr = NAN,
                               .min_lr = NAN,
                               .clip = 1,
                               .weight_decay = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .momentum = 0.9,
                               .keep = 2,
                               .warmup = -1,
                               .threads = 0,
                               .validation = 0.1};

static const struct opt options[] = {
    {'d', "data", OPT_STR, "SOURCE", "text, .bin tokens, IDX images or synthetic", &o.data},
    {0, "valid-data", OPT_STR, "SOURCE", "validation data (else the end of --data)",
     &o.valid_data},
    {0, "validation", OPT_REAL, "SHARE", "share of --data kept for validation (0.1)",
     &o.validation},
    {'n', "steps", OPT_INT, "N", "optimizer steps in all (100)", &o.steps},
    {0, "seed", OPT_INT, "N", "of weights, dropout and data order (1)", &o.seed},
    {0, "lr", OPT_REAL, "RATE", "peak learning rate (6e-4; sgd: 0.05)", &o.lr},
    {0, "min-lr", OPT_REAL, "RATE", "learning rate at the end (a tenth of --lr)",
     &o.min_lr},
    {0, "warmup", OPT_INT, "N", "steps of linear warm-up (a tenth of --steps)", &o.warmup},
    {0, "clip", OPT_REAL, "NORM", "largest gradient norm, 0 = any (1)", &o.clip},
    {0, "weight-decay", OPT_REAL, "X", "of matrices (0.1)", &o.weight_decay},
    {0, "beta1", OPT_REAL, "X", "of adamw (0.9)", &o.beta1},
    {0, "beta2", OPT_REAL, "X", "of adamw (0.95)", &o.beta2},
    {0, "momentum", OPT_REAL, "X", "of sgd (0.9)", &o.momentum},
    {0, "valid-every", OPT_INT, "N", "validate every N steps (0 = never)", &o.valid_every},
    {0, "valid-batches", OPT_INT, "N", "batches of one validation (8)", &o.valid_batches},
    {0, "save", OPT_STR, "DIR", "write checkpoints here; the last at the end", &o.save},
    {0, "save-every", OPT_INT, "N", "a checkpoint every N steps (0 = at the end)",
     &o.save_every},
    {0, "keep", OPT_INT, "N", "checkpoints kept, 0 = all (2)", &o.keep},
    {0, "resume", OPT_STR, "DIR", "go on from the newest checkpoint in DIR, if any",
     &o.resume},
    {0, "threads", OPT_INT, "N", "threads of each rank (a fair share of the cores)",
     &o.threads},
    {0, "trace", OPT_STR, "FILE", "write the timeline of all ranks (Chrome trace)",
     &o.trace},
    {0, "timing", OPT_FLAG, NULL, "time by instruction on stderr at the end", &o.timing},
    {0, "explain", OPT_FLAG, NULL, "print the program of every stage and stop", &o.explain},
    {0, "dry-run", OPT_FLAG, NULL, "replay all ranks without running, and stop",
     &o.dry_run},
    {0}};

static const struct opt_tool tool = {"weft-run", "[options] PLAN",
                                     "Train a model under a plan, on the ranks of mpirun.",
                                     options};

/* Only one of many equal messages is wanted; before MPI is up its launcher tells which rank
 * this is. */
static bool speaks(const struct comm *comm) {
    if (comm)
        return comm_rank(comm) == 0;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return !rank || !strcmp(rank, "0");
}

/* --explain and --dry-run need no ranks. */
static int inspect(const char *path, struct err *err) {
    struct plan *plan = plan_read(path, err);
    struct program *g = plan ? program_compile(plan, err) : NULL;
    int rc = g ? 0 : -1;
    for (int s = 0; g && o.explain && s < g->n_stages; s++)
        program_print(g, s, stdout);
    if (g && o.dry_run && (rc = program_validate(g, err)) == 0)
        printf("%s: %d ranks, %d stages, %d transfers: no fault found\n", path,
               plan->devices, g->n_stages, g->n_transfers);
    program_destroy(g);
    plan_destroy(plan);
    return rc;
}

/* Rank 0 reads the text; everybody parses it. */
static struct plan *shared_plan(struct comm *comm, const char *path, struct err *err) {
    size_t size = 0;
    bool reads = comm_rank(comm) == 0;
    char *text = reads ? file_read(path, 0, &size, err) : NULL;
    if (exec_agree(comm, reads && !text ? -1 : 0, err) < 0)
        return NULL;
    int64_t n = (int64_t)size;
    if (comm_broadcast(comm_world(comm), &n, sizeof n, 0, err) < 0) {
        free(text);
        return NULL;
    }
    if (!text)
        text = mem_alloc((size_t)n + 1);
    struct plan *plan = NULL;
    if (comm_broadcast(comm_world(comm), text, n, 0, err) == 0) {
        const char *name = strcmp(path, "-") ? path : "standard input";
        json_t *doc = json_parse(text, (size_t)n, name, err);
        plan = doc ? plan_from_json(doc, err) : NULL;
        if (doc && !plan)
            err_prefix(err, "%s", name);
        json_decref(doc);
    }
    free(text);
    return plan;
}

static int train(struct comm *comm, const char *path, struct err *err) {
    struct plan *plan = shared_plan(comm, path, err);
    struct program *g = plan ? program_compile(plan, err) : NULL;
    int rc = g ? run_train(comm, g, &o, err) : -1;
    program_destroy(g);
    plan_destroy(plan);
    return rc;
}

/* Numbers that no training can use. */
static int check_options(struct err *err) {
    static const struct {
        const char *name;
        const double *value;
        double below;
    } reals[] = {
        {"validation", &o.validation, 1}, {"lr", &o.lr, HUGE_VAL},
        {"min-lr", &o.min_lr, HUGE_VAL},  {"clip", &o.clip, HUGE_VAL},
        {"beta1", &o.beta1, 1},           {"beta2", &o.beta2, 1},
        {"momentum", &o.momentum, 1},     {"weight-decay", &o.weight_decay, HUGE_VAL}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (*reals[i].value < 0 || *reals[i].value >= reals[i].below)
            return err_usage(err, "--%s: expected at least 0%s, got %g", reals[i].name,
                             reals[i].below == 1 ? " and less than 1" : "",
                             *reals[i].value);
    if (o.steps < 1)
        return err_usage(err, "--steps: expected at least 1");
    if (o.valid_batches < 1)
        return err_usage(err, "--valid-batches: expected at least 1");
    if (o.threads > MAX_THREADS)
        return err_usage(err, "--threads: expected at most %d, got %lld", MAX_THREADS,
                         (long long)o.threads);
    return 0;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm *comm = NULL;
    int n = opt_parse(&tool, argc, argv, &err), rc = -1;
    if (n > 1)
        err_usage(&err, "expected one plan, got %d operands", n);
    else if (n < 0 || check_options(&err) < 0)
        rc = -1;
    else if (o.explain || o.dry_run)
        rc = inspect(n ? argv[0] : "-", &err);
    else if ((comm = comm_create(&argc, &argv, NULL, &err)))
        rc = train(comm, n ? argv[0] : "-", &err);
    int status = EXIT_DONE;
    if (rc < 0) {
        status = err.status ? err.status : EXIT_SYSTEM;
        /* The launcher ends the job with the first rank that ends: none may before rank 0 has
         * said why, and comm_destroy waits for all. */
        if (!comm && getenv("OMPI_COMM_WORLD_SIZE"))
            comm = comm_create(&argc, &argv, NULL, NULL);
        /* What is wrong with the input all ranks know alike; a failure in the middle of the work
         * may be one rank's alone, which tells it and ends the job. */
        bool alone = status == EXIT_SYSTEM && !err.shared;
        if (comm && alone ? comm_fail(comm, &err) : speaks(comm))
            err_report(&err, tool.name);
        if (comm && alone)
            comm_abort(comm, status);
    }
    comm_destroy(comm);
    return status;
}
