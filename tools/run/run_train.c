/* The training loop around the executor: metrics, validation, checkpoints. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "run.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/progress.h"
#include "run_trace.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of checkpoints in a folder whose interval is measured. */
struct pace {
    double cost_s;      /* of one, mean of the last */
    int64_t last, told; /* step of the last one; the interval that was printed */
};

struct loop {
    const struct run_options *o;
    struct comm *comm;
    const struct plan *plan;
    const struct model *model;
    struct exec *x;
    struct run_inputs in;
    struct progress progress;
    int64_t batch;
    int group; /* of the plan, that this rank is in */
    bool speaks;
    bool stops;    /* at a step that is not finite */
    int64_t skips; /* steps in a row that were not finite */
    struct pace pace[RUN_FOLDERS];
    int64_t in_memory; /* step of the last checkpoint there */
    bool due
        [RUN_FOLDERS]; /* a checkpoint behind this step: rank 0's word, then all ranks' */
    double step_s;     /* mean of the last steps */
    int64_t skipped, tried;   /* such steps of this run, and all of it */
    bool diverges;            /* more in a row than --max-skips allows */
    const char *bad;          /* what was not in the last of them */
    double max_bytes;         /* largest arena of any rank */
    double start_s;           /* when the first step of this run began */
    double valid_loss;        /* of the last validation, NAN before */
    struct err output;        /* the metrics cannot be written any more */
    bool gpu, gpus;           /* this rank computes on one; some rank does */
    struct cuda_backend cuda; /* for this rank's */
    struct cuda_report report;
    struct nccl_report nccl;
    struct exec_progress moved; /* by the executor, of what it draws, reads or writes */
    struct profile_algorithms algorithms; /* that the profile knows */
    struct cuda_choices choices;          /* what becomes of them */
};

/* A launcher may have bound this process to fewer cores than its threads need; then it may use
 * them all. */
static int take_cores(struct comm *comm, int64_t wanted) {
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), threads = run_threads(comm, wanted);
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < threads) {
        CPU_ZERO(&set);
        for (int c = 0; c < cores; c++)
            CPU_SET(c, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    return threads;
}

static struct exec_options exec_options_of(const struct run_options *o, int threads) {
    struct exec_options e = exec_defaults();
    e.seed = o->seed.value;
    e.lr = o->set.lr;
    e.min_lr = o->set.min_lr;
    e.warmup = o->set.warmup;
    e.decay = (enum exec_decay)exec_decay_find(o->set.decay);
    e.decay_from = o->set.decay_from;
    e.decay_steps = o->set.decay_steps;
    e.clip = o->set.clip;
    e.weight_decay = o->set.weight_decay;
    e.beta1 = o->set.beta1;
    e.beta2 = o->set.beta2;
    e.eps = o->set.eps;
    e.momentum = o->set.momentum;
    e.threads = threads;
    return e;
}

/* A reader that went away is no reason to lose the work: it is remembered, and the training
 * stops after this step as after a signal. */
static void print_line(struct loop *l, json_t *line) {
    struct err *err = &l->output;
    if (l->in.events && !err->status)
        run_events_add(l->in.events, line, err);
    if (l->o->metrics && !err->status)
        run_append_line("--metrics", l->o->metrics, line, err);
    run_print_line(line, err);
    json_decref(line);
}

/* JSON has no word for what a training that diverges gives: null. */
static json_t *real_or_null(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

/* Ranks of which about half of what they gave lately was unlike their replicas'. */
static void add_suspects(json_t *line, const double *suspicion, int ranks) {
    json_t *suspects = json_object();
    for (int r = 0; r < ranks; r++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", r);
        if (suspicion[r] >= 0.5)
            json_object_set_new(suspects, rank, json_real(suspicion[r]));
    }
    if (json_object_size(suspects))
        json_object_set(line, "suspects", suspects);
    json_decref(suspects);
}

static void report_step(struct loop *l, const struct exec_metrics *m, double seconds,
                        double host_s) {
    if (!l->speaks)
        return;
    json_t *line = json_pack(
        "{s:I, s:o, s:o, s:f, s:f, s:I, s:f, s:I}", "step", (json_int_t)exec_steps(l->x),
        "loss", real_or_null(m->loss), "grad_norm", real_or_null(m->grad_norm), "lr", m->lr,
        "step_ms", 1e3 * seconds, "targets", (json_int_t)m->targets, "tokens_per_s",
        (double)m->targets / seconds, "bytes", (json_int_t)l->max_bytes);
    json_object_set_new(line, "epoch",
                        json_real(run_epochs(l->in.data, exec_sample(l->x))));
    json_object_set_new(line, "elapsed_s", json_real(now_s() - l->start_s));
    const double mfu = run_share_of_peak(l->plan, seconds);
    if (isfinite(mfu))
        json_object_set_new(line, "mfu", json_real(mfu));
    if (l->gpu)
        json_object_set_new(line, "host_ms", json_real(1e3 * host_s));
    for (int i = 0; i < METRIC_COUNT; i++)
        if (metric_ops(l->model, (enum metric)i))
            json_object_set_new(line, metric_name((enum metric)i),
                                real_or_null(m->more[i]));
    if (m->loss_scale > 0)
        json_object_set_new(line, "loss_scale", json_real(m->loss_scale));
    if (m->suspicion)
        add_suspects(line, m->suspicion, l->plan->devices);
    if (m->skipped)
        json_object_set_new(line, "skipped", json_true());
    if (m->missing)
        json_object_set_new(line, "missing", json_integer(m->missing));
    print_line(l, line);
}

/* A loss scale is found by trying: gradients that are too large for it are no fault of the training.
 * At 1 they are. */
static bool scale_was_too_large(const struct exec_metrics *m) {
    return m->skipped && isfinite(m->loss) && m->loss_scale > 1;
}

/* Says when steps begin to be skipped, and when that is over. */
static void count_skips(struct loop *l, const struct exec_metrics *m) {
    long long step = (long long)exec_steps(l->x);
    l->bad = isfinite(m->loss) ? "gradient norm" : "loss";
    if (m->skipped && l->skips++ == 0 && l->speaks && !l->stops)
        note("weft-run: step %lld: the %s is not finite: the step is skipped", step,
             l->bad);
    if (!m->skipped && l->skips && l->speaks)
        note("weft-run: step %lld: finite again, %lld steps were skipped", step,
             (long long)l->skips);
    if (!m->skipped)
        l->skips = 0;
    l->skipped += m->skipped;
    l->diverges = l->o->max_skips && l->skips >= l->o->max_skips;
}

/* A training that mostly stood still must not look like one that went well. */
static void report_skips(const struct loop *l) {
    if (l->speaks && l->skipped && !l->stops)
        note("weft-run: %lld of %lld steps were skipped, for they were not finite",
             (long long)l->skipped, (long long)l->tried);
}

/* Did any rank get a signal, or lose its output? All must stop after the same step. */
static int any_interrupted(struct loop *l, bool *stop, struct err *err) {
    double flag[1 + RUN_FOLDERS] = {interrupted() || l->output.status, l->due[RUN_DISK],
                                    l->due[RUN_MEMORY]};
    if (comm_max_double(comm_world(l->comm), flag, 1 + RUN_FOLDERS, err) < 0)
        return err_prefix(err, "step %lld", (long long)exec_steps(l->x));
    *stop = flag[0] > 0;
    for (int f = 0; f < RUN_FOLDERS; f++)
        l->due[f] = flag[1 + f] > 0;
    return 0;
}

static int between_batches(void *ctx, struct err *err) {
    bool stop;
    return any_interrupted(ctx, &stop, err) < 0 ? -1 : stop;
}

/* Each batch by itself. */
static int evaluate_each(struct loop *l, struct err *err) {
    double loss = 0;
    int rc = 0;
    for (int64_t b = 0; b < l->in.valid_batches && rc == 0 && !l->output.status; b++) {
        rc = exec_validate(l->x, b, 1, between_batches, l, &loss, err);
        if (rc == 0 && l->speaks)
            print_line(l, json_pack("{s:I, s:o, s:I}", "batch", (json_int_t)b, "valid_loss",
                                    real_or_null(loss), "targets",
                                    (json_int_t)exec_targets(l->x)));
    }
    return rc;
}

/* The loss of what was loaded, over the validation data, and nothing else. */
static int evaluate(struct loop *l, struct err *err) {
    const struct data_info *data = data_info(l->in.data);
    const int64_t batches = l->in.valid_batches;
    double loss;
    int rc = l->o->each ? evaluate_each(l, err) : 0;
    if (rc == 0)
        rc = exec_validate(l->x, 0, batches, between_batches, l, &loss, err);
    if (rc > 0)
        return err_system(err, "stopped by a signal, before all was evaluated");
    if (rc < 0 || !l->speaks)
        return rc;
    const double bits = loss / log(2);
    json_t *line = json_pack(
        "{s:I, s:o, s:o, s:o, s:I}", "step", (json_int_t)exec_steps(l->x), "valid_loss",
        real_or_null(loss), "perplexity", real_or_null(exp(loss)), "bits_per_token",
        real_or_null(bits), "samples", (json_int_t)(batches * l->batch));
    if (!strcmp(data->format, "text")) /* whose tokens are bytes */
        json_object_set_new(line, "bits_per_byte", real_or_null(bits));
    print_line(l, line);
    if (l->output.status && err)
        *err = l->output;
    return l->output.status ? -1 : 0;
}

static bool every(int64_t period, int64_t step) {
    return period > 0 && step % period == 0;
}

static struct pace *pace_of(struct loop *l, const char *dir) {
    return &l->pace[dir == l->o->memory_here ? RUN_MEMORY : RUN_DISK];
}

/* What a checkpoint took: the first one also touches memory that others find. */
static void note_cost(struct loop *l, const char *dir, double seconds) {
    struct pace *p = pace_of(l, dir);
    beat_saved(l->o->beat, dir == l->o->memory_here, seconds);
    p->cost_s = p->cost_s > 0 ? 0.7 * p->cost_s + 0.3 * seconds : seconds;
}

/* Young and Daly: what checkpoints cost and what failures undo is least, together, at the square root of
 * twice the cost of one times the mean time between failures. Rank 0 knows; it says what it finds. */
static int64_t best_interval(struct loop *l, struct pace *p, const char *where) {
    if (!(p->cost_s > 0) || !(l->step_s > 0))
        return 1;
    double best = sqrt(2 * p->cost_s * l->o->failure_every_s) / l->step_s;
    int64_t n = best < 1 ? 1 : best > 1e9 ? 1000000000 : (int64_t)best;
    if (n > 3 * p->told || 3 * n < p->told) {
        note(
            "weft-run: a checkpoint %s takes %.3g ms, a step %.3g ms: with a failure every "
            "%.0f s, one every %lld steps is best",
            where, 1e3 * p->cost_s, 1e3 * l->step_s, l->o->failure_every_s, (long long)n);
        p->told = n;
    }
    return n;
}

/* Is one due? Where the interval is measured that is rank 0's to say (l->due). */
static bool is_due(struct loop *l, int folder, int64_t period) {
    const int64_t step = exec_steps(l->x);
    struct pace *p = &l->pace[folder];
    if (period >= 0)
        return every(period, step);
    if (step < p->last + best_interval(l, p, folder == RUN_DISK ? "on disk" : "in memory"))
        return false;
    p->last = step;
    return true;
}

/* Where hosts keep each other's checkpoints in memory the next one waits until the last has got there: then one
 * of the two that are kept is always whole. The step does not wait. */
static bool has_peers(const struct loop *l) {
    return !l->o->apart || !l->o->beat ||
           atomic_load(&l->o->beat->mirrored) >= l->in_memory;
}

enum { MEMORY_KEPT = 2 }; /* the newest, and the one before while it is written */

/* What became of the samples of the step that is done. */
static int account(struct loop *l, const struct exec_metrics *m, struct err *err) {
    const struct run_options *o = l->o;
    const struct run_seen s = {.step = exec_steps(l->x),
                               .first = exec_sample(l->x) - l->batch,
                               .count = l->batch,
                               .missing = m->missing,
                               .all_missing = m->all_missing};
    if (l->speaks && o->ledger && !l->output.status)
        run_write_ledger(o->ledger, &s, comm_size(l->comm), l->in.data, &l->output);
    int rc = run_check_missing(o, &s, l->in.data, l->speaks, err);
    return s.missing ? exec_agree(l->comm, rc, err) : 0;
}

/* Behind a skipped step nothing new is worth the place of an older checkpoint. */
static int save(struct loop *l, const char *dir, struct err *err) {
    const bool memory = dir == l->o->memory_here, best = dir == l->in.best.dir;
    struct checkpoint_info about = l->in.about;
    about.valid_loss = best ? l->valid_loss : 0;
    const struct exec_folder to = {.dir = dir,
                                   .keep = best       ? CHECKPOINT_ALONE
                                           : l->skips ? 0
                                           : memory   ? MEMORY_KEPT
                                                      : l->o->keep,
                                   .apart = memory && l->o->apart,
                                   .first = l->o->first_here};
    double start = now_s();
    beat_enter(l->o->beat, memory && pace_of(l, dir)->cost_s > 0 ? BEAT_MEMORY : BEAT_SAVE);
    int rc = exec_save(l->x, &to, &about, err);
    if (rc == 0)
        note_cost(l, dir, now_s() - start);
    if (rc == 0 && l->speaks)
        note_verbose("weft-run: step %lld: saving took %.2f s, for %.3f GB of rank 0",
                     (long long)exec_steps(l->x), now_s() - start,
                     1e-9 * (double)atomic_load(&l->moved.done));
    return rc;
}

/* After a signal, or the step that ends the run where it may not be skipped. */
static int last_words(struct loop *l, bool saved, struct err *err) {
    struct exec *x = l->x;
    int rc = 0;
    report_skips(l);
    if (l->o->save && !saved && !l->diverges && (rc = save(l, l->o->save, err)) < 0)
        return -1;
    if (l->diverges) {
        rc =
            err_no(err,
                   "step %lld: %lld steps in a row were not finite: the training diverges; "
                   "its parameters were not saved",
                   (long long)exec_steps(x), (long long)l->skips);
        err_hint(err, "a lower --lr, a longer --warmup or --clip may help; --max-skips "
                      "sets the limit");
    } else if (l->output.status) {
        *err = l->output;
        rc = -1;
    } else if (rc > 0) {
        rc = err_no(err, "step %lld: parameters are not finite; they were not saved",
                    (long long)exec_steps(x));
    } else if (l->skips && l->stops) {
        rc = err_no(err, "step %lld: the %s is not finite", (long long)exec_steps(x),
                    l->bad);
    }
    return exec_agree(l->comm, rc, err);
}

/* A disk that is full now may not be so when the next checkpoint is due: the training is worth more than
 * one of them. What was written of it makes room. */
static int save_or_warn(struct loop *l, const char *dir, int64_t *saved, struct err *err) {
    struct err why = {0};
    int rc = save(l, dir, &why);
    if (rc == 0)
        *saved = exec_steps(l->x);
    if (rc >= 0)
        return 0;
    if (why.status != EXIT_SYSTEM) {
        *err = why;
        return -1;
    }
    if (l->speaks || (dir == l->o->memory_here && l->o->first_here))
        checkpoint_abandon(dir, exec_steps(l->x), NULL);
    if (l->speaks)
        note("weft-run: step %lld: not saved: %s; training goes on",
             (long long)exec_steps(l->x), why.msg);
    return 0;
}

/* What was best goes only when what is better is whole. */
static int save_if_best(struct loop *l, struct err *err) {
    struct run_best *best = &l->in.best;
    int64_t saved = -1;
    if (!best->dir || !(l->valid_loss < best->loss))
        return 0;
    if (save_or_warn(l, best->dir, &saved, err) < 0)
        return -1;
    if (saved >= 0)
        best->loss = l->valid_loss;
    return 0;
}

/* Sets *stop where a signal came in the midst of it: there is no loss then. */
static int validate(struct loop *l, bool *stop, struct err *err) {
    double loss;
    beat_enter(l->o->beat, BEAT_VALIDATE);
    int rc = exec_average(l->x, err); /* it is one model's loss */
    if (rc == 0)
        rc = exec_validate(l->x, 0, l->in.valid_batches, between_batches, l, &loss, err);
    *stop |= rc > 0;
    if (rc == 0)
        l->valid_loss = loss;
    if (rc == 0 && l->speaks)
        print_line(l, json_pack("{s:I, s:o}", "step", (json_int_t)exec_steps(l->x),
                                "valid_loss", real_or_null(loss)));
    return rc < 0 ? -1 : rc > 0 ? 0 : save_if_best(l, err);
}

static int save_if_due(struct loop *l, int64_t *saved, struct err *err) {
    const struct run_options *o = l->o;
    if (l->due[RUN_DISK] && save_or_warn(l, o->save, saved, err) < 0)
        return -1;
    if (l->due[RUN_MEMORY] && *saved != exec_steps(l->x))
        return save_or_warn(l, o->memory_here, &l->in_memory, err);
    return 0;
}

/* What this rank has computed, in s, for a supervisor; waiting for others is none of it. On GPUs the host does not
 * know. */
static double work_s(const struct loop *l) {
    double sum = 0;
    if (!l->o->beat || l->gpu)
        return 0;
    const double *s = exec_seconds(l->x);
    for (int i = 0; i < OPCODE_COUNT; i++)
        if (opcode_key((enum opcode)i) != KEY_COMM &&
            opcode_key((enum opcode)i) != KEY_P2P && i != I_wait)
            sum += s[i];
    return sum;
}

/* One step, and what is due after it. */
static int step(struct loop *l, bool *stop, int64_t *saved, struct err *err) {
    struct exec *x = l->x;
    struct exec_metrics m;
    double start = now_s(), waited = l->report.waited_s, work = work_s(l);
    beat_enter(l->o->beat, l->tried ? BEAT_STEP : BEAT_FIRST);
    memset(l->due, 0, sizeof l->due);
    if (exec_step(x, &m, err) < 0)
        return -1;
    double seconds = now_s() - start;
    report_step(l, &m, seconds, seconds - (l->report.waited_s - waited));
    beat_step(l->o->beat, exec_steps(x), l->o->beat ? exec_sample(x) : 0, seconds,
              work_s(l) - work);
    if (m.suspicion)
        beat_doubted(l->o->beat, m.suspicion[comm_rank(l->comm)]);
    /* The first one also allocates. */
    l->step_s = l->tried < 2 ? seconds : 0.98 * l->step_s + 0.02 * seconds;
    l->tried++;
    if (!scale_was_too_large(&m))
        count_skips(l, &m);
    if (l->speaks) {
        char detail[96];
        int n = snprintf(detail, sizeof detail, "epoch %.2f, loss %.4f",
                         run_epochs(l->in.data, exec_sample(x)), m.loss);
        if (isfinite(l->valid_loss))
            snprintf(detail + n, sizeof detail - (size_t)n, ", validation %.4f",
                     l->valid_loss);
        progress_step(&l->progress, exec_steps(x), detail);
    }
    if (account(l, &m, err) < 0)
        return -1;
    if (l->speaks && l->o->save)
        l->due[RUN_DISK] = is_due(l, RUN_DISK, l->o->save_every);
    if (l->speaks && l->o->memory)
        l->due[RUN_MEMORY] = has_peers(l) && is_due(l, RUN_MEMORY, l->o->memory_every);
    if (any_interrupted(l, stop, err) < 0)
        return -1;
    *stop |= l->diverges || (m.skipped && l->stops && !scale_was_too_large(&m));
    if (!*stop && every(l->o->valid_every, exec_steps(x)) && validate(l, stop, err) < 0)
        return -1;
    return m.skipped ? 0 : save_if_due(l, saved, err);
}

static int after_first(struct loop *l, struct err *err) {
    exec_forget_seconds(l->x);
    if (!l->gpus)
        return 0;
    if (l->o->profile && run_report_choices(l->comm, l->o->profile, &l->choices, err) < 0)
        return -1;
    return run_report_memory(l->comm, l->gpu ? &l->report : NULL, &l->nccl, err);
}

static int steps(struct loop *l, struct err *err) {
    struct exec *x = l->x;
    int64_t first = exec_steps(x), last = l->o->set.steps, saved = first;
    bool stop = false;
    if (l->o->beat) {
        atomic_store(&l->o->beat->from, first);
        atomic_store(&l->o->beat->step, first);
        atomic_store(&l->o->beat->sample, exec_sample(x));
        atomic_store(&l->o->beat->batch, l->batch);
        atomic_store(&l->o->beat->group, l->group);
        atomic_store(&l->o->beat->target, last);
    }
    for (int f = 0; f < RUN_FOLDERS; f++)
        l->pace[f].last = first;
    if (l->speaks && first >= last)
        note(
            "weft-run: nothing to do: %lld of %lld steps are done; --steps with more goes on, "
            "and --decay-steps says how long the learning rate falls",
            (long long)first, (long long)last);
    l->start_s = now_s();
    l->valid_loss = NAN;
    if (l->speaks && first < last)
        run_say_what(l->plan, l->in.data, l->gpus);
    progress_start(&l->progress, "step", l->speaks ? last : 0);
    while (exec_steps(x) < last && !stop) {
        if (step(l, &stop, &saved, err) < 0)
            return -1;
        /* The first touch of the memory is no part of the timing. */
        if (exec_steps(x) == first + 1 && after_first(l, err) < 0)
            return -1;
    }
    if (l->speaks)
        progress_end(&l->progress);
    if (l->speaks && stop && !l->output.status && !l->diverges && !(l->stops && l->skips))
        note("weft-run: stopped by a signal after step %lld", (long long)exec_steps(x));
    return last_words(l, saved == exec_steps(x), err);
}

/* At -v: how long on rank 0 what came before the first step has taken; the next begins. */
static void took(const struct loop *l, const char *what, double *start) {
    double now = now_s();
    if (l->speaks)
        note_verbose("weft-run: %s took %.2f s", what, now - *start);
    *start = now;
}

/* With --auto-resume a file whose bytes are not those that were written leads to an older step. Settings
 * are those of the newest: a run keeps them. */
static int load(struct loop *l, struct err *err) {
    struct err why = {0};
    while (exec_load(l->x, l->in.ck, &why) < 0) {
        int older = 0;
        if (l->o->auto_resume && why.status == EXIT_INPUT &&
            (older = run_open_older(l->comm, l->o, &l->in.search, &l->in.ck, err)) < 0)
            return -1;
        if (!older) {
            *err = why;
            return -1;
        }
        if (l->speaks)
            note("weft-run: %s; going back to %s", why.msg, checkpoint_path(l->in.ck));
        why = (struct err){0};
    }
    return 0;
}

/* The parameters as they are before the first step. */
static int begin(struct loop *l, struct err *err) {
    beat_enter(l->o->beat, BEAT_LOAD);
    const bool resumes = l->in.ck != NULL;
    double start = now_s();
    if (exec_init(l->x, err) < 0)
        return -1;
    took(l, "drawing the parameters", &start);
    if (resumes && load(l, err) < 0)
        return -1;
    if (resumes)
        took(l, "reading the checkpoint", &start);
    if ((l->in.init && exec_load_weights(l->x, l->in.init, err) < 0) ||
        (l->in.adapter && exec_load_weights(l->x, l->in.adapter, err) < 0))
        return -1;
    if (l->in.init)
        took(l, "reading the weights", &start);
    return 0;
}

static int train(struct loop *l, struct err *err) {
    struct exec *x = l->x;
    double bytes = (double)exec_arena_bytes(x);
    if (comm_max_double(comm_world(l->comm), &bytes, 1, err) < 0)
        return -1;
    l->max_bytes = bytes;
    if (begin(l, err) < 0)
        return -1;
    if (l->speaks && l->in.ck)
        note("weft-run: resuming from %s", checkpoint_path(l->in.ck));
    if (l->speaks && l->in.init)
        note("weft-run: beginning with the weights in %s", l->o->init);
    if (l->o->eval)
        return evaluate(l, err) < 0 ? -1 : exec_drain(x, err);
    if (steps(l, err) < 0 || exec_drain(x, err) < 0)
        return -1;
    return l->o->timing ? run_print_timing(l->comm, x, err) : 0;
}

static int run(struct loop *l, const struct program *g, struct err *err) {
    struct exec_options e = exec_options_of(l->o, take_cores(l->comm, l->o->threads));
    l->gpu = run_on_gpu(l->o, g->plan, comm_rank(l->comm));
    for (int r = 0; r < comm_size(l->comm); r++)
        l->gpus |= run_on_gpu(l->o, g->plan, r);
    l->cuda = run_cuda(l->o, g, comm_rank(l->comm), &l->choices, &l->report);
    e.progress = &l->moved;
    e.times = l->o->timing;
    if (l->gpu)
        e.device = &l->cuda.backend;
    struct run_trace *trace = NULL;
    int rc = run_share_algorithms(l->comm, l->o->profile, &l->algorithms, err);
    if (rc == 0)
        rc = exec_agree(l->comm,
                        l->gpu && l->o->profile
                            ? run_choices(l->comm, &l->algorithms, &l->choices, err)
                            : 0,
                        err);
    if (rc == 0 && l->o->trace && !(trace = run_trace_create(g, l->comm, &e, err)))
        rc = -1;
    if (rc == 0)
        rc = run_join(l->comm, l->o, g->plan, &l->nccl, err);
    if (rc == 0)
        rc = exec_agree(l->comm, run_check_memory(l->comm, l->o, g, &l->nccl, err), err);
    if (rc == 0) {
        interrupt_catch();
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ,
               SIG_IGN); /* a file that may not grow is an error as a full disk is */
        l->x = exec_create(g, l->comm, l->in.data, &e, err);
        rc = exec_agree(l->comm, l->x ? 0 : -1, err);
    }
    if (rc == 0 && l->gpus)
        rc = run_report_convolutions(l->comm, &l->report, err);
    if (rc == 0)
        rc = train(l, err);
    if (rc == 0 && trace)
        rc = run_trace_write(trace, l->o->trace, err);
    run_trace_destroy(trace);
    exec_destroy(l->x);
    arr_release(&l->algorithms);
    return rc;
}

int run_train(struct comm *comm, const struct program *g, struct run_options *o,
              struct err *err) {
    struct loop l = {.o = o,
                     .comm = comm,
                     .plan = g->plan,
                     .model = g->plan->model,
                     .batch = g->plan->batch,
                     .group = program_group_of_rank(g, comm_rank(comm)),
                     .speaks = comm_rank(comm) == 0,
                     .stops = !strcmp(o->non_finite, "stop")};
    int rc = run_open_inputs(&l.in, comm, g, o, err);
    if (rc == 0)
        rc = run(&l, g, err);
    run_close_inputs(&l.in);
    return rc;
}
