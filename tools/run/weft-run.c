/* weft-run - trains a model under a plan: mpirun -n N weft-run --data FILE plan.json
 *
 * All ranks run this main. Rank 0 reads the plan and passes it on, prints the metrics and the
 * progress, and is the one that speaks when all fail alike. */
#include "run.h"

#include "common/file.h"
#include "common/json.h"
#include "common/progress.h"
#include "program/passes.h"
#include "program/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct run_options o = {.data = "synthetic",
                               .valid_batches = -1,
                               .keep = 2,
                               .non_finite = "skip",
                               .max_skips = 20,
                               .save_text = "0",
                               .memory_text = "1",
                               .failure_every_s = 3600,
                               .timeout_s = 600,
                               .set = {.steps = -1,
                                       .warmup = -1,
                                       .decay_steps = -1,
                                       .decay_from = -1,
                                       .lr = NAN,
                                       .min_lr = NAN,
                                       .clip = NAN,
                                       .weight_decay = NAN,
                                       .beta1 = NAN,
                                       .beta2 = NAN,
                                       .eps = NAN,
                                       .momentum = NAN,
                                       .validation = NAN}};

static const struct opt options[] = {
    {'d', "data", OPT_STR, "SOURCE", "text, tokens, pairs, images or synthetic", &o.data},
    {0, "valid-data", OPT_STR, "SOURCE", "validation data (else the end of --data)",
     &o.valid_data},
    {0, "validation", OPT_REAL, "SHARE", "share of --data kept for validation (0.1)",
     &o.set.validation},
    {'n', "steps", OPT_INT, "N", "optimizer steps in total (100)", &o.set.steps},
    {0, "seed", OPT_SEED, "N", "seed of weights, dropout and data order (1)", &o.seed},
    {0, "lr", OPT_REAL, "RATE", "peak learning rate (6e-4; sgd: 0.05; lion: 1e-4)",
     &o.set.lr},
    {0, "min-lr", OPT_REAL, "RATE", "learning rate at the end (a tenth of --lr)",
     &o.set.min_lr},
    {0, "warmup", OPT_INT, "N", "steps of linear warm-up (a tenth of --steps)",
     &o.set.warmup},
    {0, "decay-steps", OPT_INT, "N", "step at which the learning rate is lowest (--steps)",
     &o.set.decay_steps},
    {0, "decay", OPT_STR, "HOW", "how it falls: cosine, linear, constant or wsd (cosine)",
     &o.set.decay},
    {0, "decay-from", OPT_INT, "N", "wsd: the step from which on (4/5 of --decay-steps)",
     &o.set.decay_from},
    {0, "clip", OPT_REAL, "NORM", "largest gradient norm, 0 = any (1)", &o.set.clip},
    {0, "weight-decay", OPT_REAL, "X", "weight decay of matrices (0.1)",
     &o.set.weight_decay},
    {0, "beta1", OPT_REAL, "X", "of adamw and lion (0.9)", &o.set.beta1},
    {0, "beta2", OPT_REAL, "X", "of adamw and lion (0.95; lion: 0.99)", &o.set.beta2},
    {0, "eps", OPT_REAL, "X", "of adamw (1e-8)", &o.set.eps},
    {0, "momentum", OPT_REAL, "X", "of sgd and muon (0.9; muon: 0.95)", &o.set.momentum},
    {0, "valid-every", OPT_INT, "N", "validate every N steps (0 = never)", &o.valid_every},
    {0, "valid-batches", OPT_INT, "N", "batches of one validation (8)", &o.valid_batches},
    {0, "eval", OPT_FLAG, NULL,
     "train nothing: the loss of --resume or --init over the validation data", &o.eval},
    {0, "each", OPT_FLAG, NULL, "with --eval: a line for each batch, too", &o.each},
    {0, "save", OPT_STR, "DIR", "write checkpoints here; the last at the end", &o.save},
    {0, "save-every", OPT_STR, "N", "a checkpoint every N steps, or auto (0 = at the end)",
     &o.save_text},
    {0, "failure-every", OPT_TIME, "TIME", "for auto: mean time between failures (1h)",
     &o.failure_every_s},
    {0, "memory", OPT_STR, "DIR", "checkpoints in memory too, such as /dev/shm/NAME",
     &o.memory},
    {0, "memory-every", OPT_STR, "N", "one of those every N steps, or auto (1)",
     &o.memory_text},
    {0, "keep", OPT_INT, "N", "checkpoints kept, 0 = all (2)", &o.keep},
    {0, "keep-best", OPT_FLAG, NULL,
     "keep the checkpoint of the smallest validation loss, in DIR/best", &o.keep_best},
    {0, "metrics", OPT_STR, "FILE", "append the lines of standard output here, too",
     &o.metrics},
    {0, "tensorboard", OPT_STR, "DIR", "write the metrics as events here", &o.tensorboard},
    {0, "resume", OPT_STR, "DIR",
     "continue from the newest checkpoint in DIR, or DIR/step-N", &o.resume},
    {0, "init", OPT_STR, "FILE", "begin with these weights: .safetensors, or their folder",
     &o.init},
    {0, "adapter", OPT_STR, "FOLDER", "and with these adapters, as PEFT saves them",
     &o.adapter},
    {0, "auto-resume", OPT_FLAG, NULL, "continue from the newest one in --save, if any",
     &o.auto_resume},
    {0, "other-data", OPT_FLAG, NULL, "resume with data other than the checkpoint's",
     &o.other_data},
    {0, "non-finite", OPT_STR, "WHAT",
     "on a loss or norm that is not finite: skip or stop (skip)", &o.non_finite},
    {0, "balanced", OPT_FLAG, NULL,
     "images: batches in which labels are as frequent as in the data", &o.balanced},
    {0, "bad-samples", OPT_INT, "N",
     "samples that may be left out, for they cannot be read (0)", &o.bad_samples},
    {0, "ledger", OPT_STR, "FILE", "append the numbers of each step's samples here",
     &o.ledger},
    {0, "max-skips", OPT_INT, "N", "such steps in a row that end the run, 0 = any (20)",
     &o.max_skips},
    {0, "threads", OPT_INT, "N", "threads of each rank (a fair share of the cores)",
     &o.threads},
    {0, "device", OPT_STR, "WHAT", "cpu or cuda (what the plan is for)", &o.device},
    {'p', "profile", OPT_STR, "FILE",
     "on a GPU: compute products as this profile found best", &o.profile},
    {0, "deterministic", OPT_FLAG, NULL,
     "on a GPU: choose nothing by its speed, so that runs have the same bits",
     &o.deterministic},
    {0, "tf32", OPT_FLAG, NULL, "on a GPU: round operands of fp32 products to 10 bits",
     &o.tf32},
    {0, "timeout", OPT_TIME, "TIME", "longest wait for another rank, 0 = no limit (10m)",
     &o.timeout_s},
    {0, "trace", OPT_STR, "FILE", "write the timeline of all ranks (Chrome trace)",
     &o.trace},
    {0, "timing", OPT_FLAG, NULL, "time by instruction on stderr at the end", &o.timing},
    {0, "explain", OPT_WORD, "PASS",
     "print the program of every stage, or as it is after a pass, and stop", &o.explain},
    {0, "dry-run", OPT_WORD, "FORM",
     "replay all ranks without running, and stop; what it finds as json", &o.dry_run},
    {0}};

static const struct opt_tool tool = {"weft-run", "[options] [PLAN]",
                                     "Train a model under a plan, on the ranks of mpirun.",
                                     options};

static const char *plural(int n) {
    return n == 1 ? "" : "s";
}

static void print_found(const char *path, const struct program *g) {
    const struct plan *plan = g->plan;
    struct cluster c = plan->cluster ? *plan->cluster : cluster_single_node(plan->devices);
    int threads = o.threads ? (int)o.threads : 1;
    printf("%s: %d rank%s, %d stage%s, %d transfer%s: no fault found\n",
           strcmp(path, "-") ? path : "standard input", plan->devices,
           plural(plan->devices), g->n_stages, plural(g->n_stages), g->n_transfers,
           plural(g->n_transfers));
    for (int k = 0; k < plan->n_groups; k++) {
        char name[256];
        int stage = plan->chunks[plan->first_chunk[k]];
        plan_group_name(plan, k, name, sizeof name);
        printf("%s: %.1f MiB a rank, and up to %.1f MiB of workspace", name,
               (double)g->stages[stage].arena_bytes / (1 << 20),
               (double)run_workspace(g, stage, &c, threads) / (1 << 20));
        if (g->stages[stage].host_bytes)
            printf("; %.1f MiB on its host",
                   (double)g->stages[stage].host_bytes / (1 << 20));
        putchar('\n');
    }
}

/* The same for programs, of the largest ranks: one line. */
static void print_found_json(const struct program *g) {
    const struct plan *plan = g->plan;
    struct cluster c = plan->cluster ? *plan->cluster : cluster_single_node(plan->devices);
    int64_t bytes = 0, host = 0, workspace = 0;
    for (int s = 0; s < g->n_stages; s++) {
        const struct stage_program *sp = &g->stages[s];
        int64_t w = run_workspace(g, s, &c, o.threads ? (int)o.threads : 1);
        bytes = sp->arena_bytes > bytes ? sp->arena_bytes : bytes;
        host = sp->host_bytes > host ? sp->host_bytes : host;
        workspace = w > workspace ? w : workspace;
    }
    json_t *line =
        json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I}", "ranks", plan->devices, "stages",
                  g->n_stages, "transfers", g->n_transfers, "batch",
                  (json_int_t)plan->batch, "bytes", (json_int_t)bytes, "host_bytes",
                  (json_int_t)host, "workspace_bytes", (json_int_t)workspace);
    json_write_line(line, stdout);
    json_decref(line);
}

/* The pass that --explain names; the last one where it names none. -1 if there is no such pass. */
static int explained_pass(struct err *err) {
    const int pass = o.explain && *o.explain ? pass_find(o.explain) : PASS_COUNT - 1;
    char names[256] = "";
    for (int i = 0; i < PASS_COUNT; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 i == 0                ? ""
                 : i == PASS_COUNT - 1 ? " or "
                                       : ", ",
                 pass_name((enum pass)i));
    return pass >= 0
               ? pass
               : err_usage(err, "--explain: expected %s, got \"%s\"", names, o.explain);
}

/* The whole program with the memory it takes; or what one pass has made of it: a list of
 * instructions, or where buffers lie. */
static void print_program(const struct program *g, int stage) {
    const struct cluster *c = g->plan->cluster;
    const struct cluster node = cluster_single_node(g->plan->devices);
    const bool whole = !*o.explain, memory = !strcmp(o.explain, pass_name(PASS_memory));
    struct program_view view = {
        .memory = whole || memory, .buffers = memory, .instrs = !memory};
    if (view.memory)
        view.workspace =
            run_workspace(g, stage, c ? c : &node, o.threads ? (int)o.threads : 1);
    program_print(g, stage, &view, stdout);
}

/* --explain and --dry-run need no ranks. */
static int inspect(const char *path, struct err *err) {
    const int pass = explained_pass(err);
    struct plan *plan = pass < 0 ? NULL : plan_read(path, err);
    struct program *g = plan ? program_compile(plan, err) : NULL;
    struct program *seen = g ? program_compile_until(plan, (enum pass)pass, err) : NULL;
    int rc = seen ? 0 : -1;
    for (int s = 0; rc == 0 && o.explain && s < seen->n_stages; s++)
        print_program(seen, s);
    if (rc == 0 && o.dry_run && (rc = program_validate(g, err)) == 0)
        *o.dry_run ? print_found_json(g) : print_found(path, g);
    program_destroy(seen);
    program_destroy(g);
    plan_destroy(plan);
    return rc < 0 ? -1 : file_stdout_check(err);
}

static int train(struct comm *comm, const char *path, struct err *err) {
    if (run_agree_options(comm, options, err) < 0)
        return -1;
    struct plan *plan = run_shared_plan(comm, path, err);
    if (!plan)
        return -1;
    struct program *g = program_compile(plan, err);
    int rc = exec_agree(comm, g ? 0 : -1, err);
    if (rc == 0)
        rc = run_train(comm, g, &o, err);
    program_destroy(g);
    plan_destroy(plan);
    return rc;
}

/* Numbers that no training can use. */
static int check_reals(struct err *err) {
    static const struct {
        const char *name;
        const double *value;
        double below;
    } reals[] = {{"validation", &o.set.validation, 1},
                 {"lr", &o.set.lr, HUGE_VAL},
                 {"min-lr", &o.set.min_lr, HUGE_VAL},
                 {"clip", &o.set.clip, HUGE_VAL},
                 {"beta1", &o.set.beta1, 1},
                 {"beta2", &o.set.beta2, 1},
                 {"eps", &o.set.eps, HUGE_VAL},
                 {"momentum", &o.set.momentum, 1},
                 {"weight-decay", &o.set.weight_decay, HUGE_VAL}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (*reals[i].value < 0 || *reals[i].value >= reals[i].below)
            return err_usage(err, "--%s: expected at least 0%s, got %g", reals[i].name,
                             reals[i].below == 1 ? " and less than 1" : "",
                             *reals[i].value);
    return 0;
}

/* "auto" is -1. */
static int read_interval(const char *name, const char *text, int64_t *out,
                         struct err *err) {
    if (!strcmp(text, "auto"))
        *out = -1;
    else if (opt_parse_int(text, out) < 0)
        return err_usage(err, "--%s: expected a whole number or auto, got \"%.40s\"", name,
                         text);
    return 0;
}

/* An evaluation is of what is there, over all data for it. */
static int check_eval(struct err *err) {
    if (o.valid_batches < 0)
        o.valid_batches = o.eval ? INT64_MAX : 8;
    if (o.valid_batches < 1)
        return err_usage(err, "--valid-batches: expected at least 1");
    if (o.eval && !o.resume && !o.init)
        return err_usage(err,
                         "--eval: expected --resume DIR or --init FILE, to be evaluated");
    if (o.each && !o.eval)
        return err_usage(err, "--each: expected --eval");
    if (o.eval && (o.save || o.auto_resume))
        return err_usage(err, "--eval and --save exclude each other");
    return 0;
}

static int check_options(struct err *err) {
    if (read_interval("save-every", o.save_text, &o.save_every, err) < 0 ||
        read_interval("memory-every", o.memory_text, &o.memory_every, err) < 0)
        return -1;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (check_reals(err) < 0)
        return -1;
    if (o.set.steps == 0)
        return err_usage(err, "--steps: expected at least 1");
    if (check_eval(err) < 0)
        return -1;
    if (cores > 0 && o.threads > cores)
        return err_usage(err,
                         "--threads: expected at most %ld, the cores of this machine, "
                         "got %lld",
                         cores, (long long)o.threads);
    if (strcmp(o.non_finite, "skip") != 0 && strcmp(o.non_finite, "stop") != 0)
        return err_usage(err, "--non-finite: expected skip or stop, got \"%s\"",
                         o.non_finite);
    if (o.device && strcmp(o.device, "cpu") != 0 && strcmp(o.device, "cuda") != 0)
        return err_usage(err, "--device: expected cpu or cuda, got \"%s\"", o.device);
    if (o.dry_run && *o.dry_run && strcmp(o.dry_run, "json") != 0)
        return err_usage(err, "--dry-run: expected json, or nothing, got \"%s\"",
                         o.dry_run);
    if (o.set.decay && exec_decay_find(o.set.decay) < 0)
        return err_usage(err,
                         "--decay: expected cosine, linear, constant or wsd, got \"%.40s\"",
                         o.set.decay);
    if (o.memory) {
        o.memory_here = beat_expand(o.memory, &o.first_here);
        o.apart = strstr(o.memory, "%h") != NULL;
    }
    if (o.keep_best && (!o.save || o.valid_every < 1))
        return err_usage(err, "--keep-best: expected --save DIR, and --valid-every N");
    if (o.auto_resume && !o.save)
        return err_usage(err, "--auto-resume: expected --save DIR to resume from");
    if (o.memory && (!o.save || !strcmp(o.memory, o.save)))
        return err_usage(err, "--memory: expected --save DIR beside it, another folder");
    if (o.auto_resume && o.resume)
        return err_usage(err, "--auto-resume and --resume exclude each other");
    if ((o.init || o.adapter) && o.resume)
        return err_usage(err, "--init and --adapter exclude --resume");
    return 0;
}

/* Reports an error: once where all ranks hold it. One rank's alone ends the job, in which the others
 * wait for it. Returns the exit status. */
static int fail(struct comm *comm, const struct err *err) {
    const char *launched = getenv("OMPI_COMM_WORLD_RANK"); /* where MPI is not up */
    bool first = comm ? comm_rank(comm) == 0 : !launched || !strcmp(launched, "0");
    bool alone = comm && comm_size(comm) > 1 && !err->shared;
    int status = err->status ? err->status : EXIT_SYSTEM;
    beat_ended(o.beat, status, err->msg);
    if (alone ? comm_fail(comm, err) : first)
        err_report(err, tool.name);
    if (alone)
        comm_abort(comm, status);
    return status;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm *comm = NULL;
    interrupt_catch_requests();
    o.beat = beat_join();
    int n = opt_parse(&tool, argc, argv, &err);
    if (n > 1)
        err_usage(&err, "expected one plan, got %d operands", n);
    int rc = n < 0 || n > 1 ? -1 : check_options(&err);
    const char *path = n == 1 ? argv[0] : "-";
    if (rc == 0 && (o.explain || o.dry_run)) {
        rc = inspect(path, &err);
    } else if (rc == 0 || getenv("OMPI_COMM_WORLD_SIZE")) {
        /* A wrong command line, too, is told to the others, who would wait. */
        struct err mpi = {0};
        struct comm_options limits = COMM_OPTIONS_DEFAULT;
        limits.timeout_s = o.timeout_s;
        comm = comm_create(&argc, &argv, &limits, &mpi);
        if (!comm)
            err = mpi;
        rc = comm ? exec_agree(comm, rc, &err) : -1;
        if (rc == 0)
            rc = train(comm, path, &err);
    }
    beat_enter(o.beat, BEAT_END);
    int status = rc < 0 ? fail(comm, &err) : EXIT_DONE;
    if (rc == 0)
        beat_ended(o.beat, status, "");
    comm_destroy(comm);
    return status;
}
