/* The training loop around the executor: data, resume, metrics, validation, checkpoints. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "run.h"

#include "checkpoint/checkpoint.h"
#include "common/file.h"
#include "common/json.h"
#include "common/progress.h"
#include "run_trace.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct loop {
    const struct run_options *o;
    struct comm *comm;
    struct exec *x;
    bool speaks;
    double max_bytes; /* largest arena of any rank */
    int64_t terms;    /* targets per step: tokens or images */
    double start_s;
    struct err output; /* the metrics cannot be written any more */
};

/* A fair share of the node's cores. A launcher may have bound this process to fewer cores than
 * its threads need; then it may use them all. */
static int share_of_cores(struct comm *comm, int64_t wanted) {
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int threads = wanted ? (int)wanted : cores / comm_node_size(comm);
    if (threads < 1)
        threads = 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < threads) {
        CPU_ZERO(&set);
        for (int c = 0; c < cores; c++)
            CPU_SET(c, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    return threads;
}

static struct exec_options exec_options_of(const struct run_options *o,
                                           const struct plan *p, int threads) {
    struct exec_options e = exec_defaults();
    e.seed = o->seed < 0 ? 1 : (uint64_t)o->seed;
    e.lr = !isnan(o->lr) ? o->lr : p->optimizer == OPTIMIZER_sgd ? 0.05 : e.lr;
    e.min_lr = !isnan(o->min_lr) ? o->min_lr : e.lr / 10;
    e.warmup = o->warmup < 0 ? o->steps / 10 : o->warmup;
    e.decay_steps = o->steps;
    e.clip = o->clip;
    e.weight_decay = o->weight_decay;
    e.beta1 = o->beta1;
    e.beta2 = o->beta2;
    e.momentum = o->momentum;
    e.threads = threads;
    return e;
}

/* What the model reads, from its data inputs. */
static int open_data(struct data **data, const struct model *m, const struct run_options *o,
                     uint64_t seed, struct err *err) {
    struct data_spec spec = {.source = o->data,
                             .valid_source = o->valid_data,
                             .seed = seed,
                             .validation = o->valid_data ? 0 : o->validation};
    int loss = 0;
    while (!op_is(&m->ops[loss], KIND_LOSS))
        loss++;
    const struct shape *logits = &m->tensors[m->ops[loss].in[0]].shape;
    int64_t classes = m->dims[logits->dim[logits->rank - 1]].size;
    for (int i = 0; i < m->n_tensors; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (t->producer >= 0)
            continue;
        if (t->source == DATA_TOKEN || t->source == DATA_NEXT_TOKEN) {
            spec.kind = DATA_TOKENS;
            spec.seq = m->dims[t->shape.dim[1]].size;
            spec.vocab = classes;
        } else if (t->source == DATA_IMAGE) {
            spec.kind = DATA_IMAGES;
            spec.pixels = m->dims[t->shape.dim[1]].size;
            spec.classes = classes;
        }
    }
    return data_open(data, &spec, err);
}

/* The seed of the checkpoint to go on from, where there is one. */
static int resume_seed(const struct run_options *o, char **path, uint64_t *seed,
                       struct err *err) {
    *path = NULL;
    if (!o->resume)
        return 0;
    int found = checkpoint_latest(o->resume, path, err);
    if (found <= 0)
        return found;
    struct checkpoint *ck = NULL;
    if (checkpoint_open(&ck, *path, err) < 0)
        return -1;
    *seed = (uint64_t)checkpoint_info(ck)->seed;
    checkpoint_close(ck);
    if (o->seed >= 0 && (uint64_t)o->seed != *seed)
        return err_usage(err, "--seed %lld: the checkpoint was made with seed %llu",
                         (long long)o->seed, (unsigned long long)*seed);
    return 0;
}

/* After a signal mpirun may not read any more what its ranks print: a write would never end. */
static bool still_read(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return !interrupted() || poll(&p, 1, 200) > 0;
}

/* A reader that went away is no reason to lose the work: it is remembered, and the training
 * stops after this step as after a signal. */
static void print_line(struct loop *l, json_t *line) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (f) {
        json_write_line(line, f);
        fclose(f);
    }
    json_decref(line);
    for (size_t at = 0; at < n && still_read();) {
        ssize_t wrote = write(STDOUT_FILENO, text + at, n - at);
        if (wrote > 0) {
            at += (size_t)wrote;
        } else if (errno != EINTR) {
            err_system(&l->output, "standard output: %s", strerror(errno));
            break;
        }
    }
    free(text);
}

/* JSON has no word for what a training that diverges gives: null. */
static json_t *real_or_null(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static void report_step(struct loop *l, const struct exec_metrics *m, double seconds) {
    if (!l->speaks)
        return;
    json_t *line =
        json_pack("{s:I, s:o, s:o, s:f, s:f, s:f, s:I}", "step", (json_int_t)l->x->step,
                  "loss", real_or_null(m->loss), "grad_norm", real_or_null(m->grad_norm),
                  "lr", m->lr, "step_ms", 1e3 * seconds, "tokens_per_s",
                  (double)l->terms / seconds, "bytes", (json_int_t)l->max_bytes);
    print_line(l, line);
}

static int validate(struct loop *l, struct err *err) {
    double loss;
    if (!data_size(l->x->data, DATA_VALID))
        return 0;
    if (exec_validate(l->x, l->o->valid_batches, &loss, err) < 0)
        return -1;
    if (l->speaks)
        print_line(l, json_pack("{s:I, s:o}", "step", (json_int_t)l->x->step, "valid_loss",
                                real_or_null(loss)));
    return 0;
}

/* Did any rank get a signal, or lose its output? All must stop after the same step. */
static int any_interrupted(struct loop *l, bool *stop, struct err *err) {
    double flag = interrupted() || l->output.status;
    if (comm_max_double(comm_world(l->comm), &flag, 1, err) < 0)
        return -1;
    *stop = flag > 0;
    return 0;
}

static bool every(int64_t period, int64_t step) {
    return period > 0 && step % period == 0;
}

static int steps(struct loop *l, struct err *err) {
    struct exec *x = l->x;
    struct progress pr;
    int64_t saved = -1;
    int64_t steps_done = 0;
    bool stop = false;
    progress_start(&pr, "step", l->speaks ? l->o->steps : 0);
    while (x->step < l->o->steps && !stop) {
        struct exec_metrics m;
        double start = now_s();
        if (exec_step(x, &m, err) < 0)
            return -1;
        if (steps_done++ == 0) /* the first touch of the memory is no part of the timing */
            memset(x->seconds, 0, sizeof x->seconds);
        report_step(l, &m, now_s() - start);
        char detail[64];
        snprintf(detail, sizeof detail, "loss %.4f", m.loss);
        if (l->speaks)
            progress_step(&pr, x->step, detail);
        if (any_interrupted(l, &stop, err) < 0 ||
            (every(l->o->valid_every, x->step) && validate(l, err) < 0))
            return -1;
        if (l->o->save && every(l->o->save_every, x->step)) {
            if (exec_save(x, l->o->save, l->o->keep, err) < 0)
                return -1;
            saved = x->step;
        }
    }
    if (l->speaks)
        progress_end(&pr);
    if (l->speaks && stop && !l->output.status)
        note("weft-run: stopped by a signal after step %lld", (long long)x->step);
    if (l->o->save && saved != x->step)
        return exec_save(x, l->o->save, l->o->keep, err);
    return 0;
}

/* Time by instruction over all ranks, and the share outside matrix products. */
static int print_timing(struct loop *l, struct err *err) {
    double s[OPCODE_COUNT], total = 0;
    memcpy(s, l->x->seconds, sizeof s);
    if (comm_sum_double(comm_world(l->comm), s, OPCODE_COUNT, err) < 0)
        return -1;
    for (int i = 0; i < OPCODE_COUNT; i++)
        total += s[i];
    if (!l->speaks)
        return 0;
    double products = s[I_linear] + s[I_linear_dx] + s[I_linear_dw];
    for (int i = 0; i < OPCODE_COUNT; i++)
        if (s[i] > 0.0005 * total)
            fprintf(stderr, "%-22s %8.3f s %5.1f %%\n", opcode_name((enum opcode)i), s[i],
                    100 * s[i] / total);
    fprintf(stderr, "%-22s %8.3f s %5.1f %%\n", "outside products", total - products,
            100 * (total - products) / total);
    return 0;
}

static int train(struct loop *l, const char *resume, struct err *err) {
    struct exec *x = l->x;
    double bytes = (double)x->sp->arena_bytes;
    if (comm_max_double(comm_world(l->comm), &bytes, 1, err) < 0)
        return -1;
    l->max_bytes = bytes;
    exec_init(x);
    if (resume && exec_load(x, resume, err) < 0)
        return -1;
    if (l->speaks && resume)
        note("weft-run: going on from %s", resume);
    if (steps(l, err) < 0 || exec_drain(x, err) < 0)
        return -1;
    if (l->output.status)
        *err = l->output;
    if (exec_agree(l->comm, l->output.status ? -1 : 0, err) < 0)
        return -1;
    return l->o->timing ? print_timing(l, err) : 0;
}

/* Memory is promised freely and taken at the first touch, so a plan that is too large would be
 * killed in the middle of its first step, with whatever else runs there. */
static int check_memory(struct comm *comm, const struct program *g, struct err *err) {
    int stage = program_stage_of_rank(g, comm_rank(comm));
    double own = (double)g->stages[stage].arena_bytes, sum = own;
    if (comm_sum_double(comm_world(comm), &sum, 1, err) < 0)
        return -1;
    double node = comm_node_size(comm) == comm_size(comm) ? sum : own;
    double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (has <= 0 || node <= has)
        return 0;
    return err_system(
        err,
        "stages[%d]: one rank needs %.1f GB and the ranks of this node %.1f GB; "
        "it has %.1f GB",
        stage, 1e-9 * own, 1e-9 * node, 1e-9 * has);
}

/* What is written at the end must be writable at the beginning. */
static int check_outputs(const struct run_options *o, struct err *err) {
    if (o->save && checkpoint_prepare(o->save, err) < 0)
        return -1;
    return o->trace ? file_out_check(o->trace, err) : 0;
}

int run_train(struct comm *comm, const struct program *g, const struct run_options *o,
              struct err *err) {
    const struct plan *p = g->plan;
    struct loop l = {.o = o,
                     .comm = comm,
                     .speaks = comm_rank(comm) == 0,
                     .terms = g->loss_terms,
                     .start_s = now_s()};
    struct exec_options e = exec_options_of(o, p, share_of_cores(comm, o->threads));
    char *resume = NULL;
    struct data *data = NULL;
    struct run_trace *trace = NULL;
    int rc = resume_seed(o, &resume, &e.seed, err);
    if (rc == 0)
        rc = open_data(&data, p->model, o, e.seed, err);
    if (rc == 0 && l.speaks)
        rc = check_outputs(o, err);
    rc = exec_agree(comm, rc, err);
    if (rc == 0)
        rc = exec_agree(comm, check_memory(comm, g, err), err);
    if (rc == 0 && o->trace && !(trace = run_trace_create(g, comm, &e, err)))
        rc = -1;
    if (rc == 0) {
        interrupt_catch();
        signal(SIGPIPE, SIG_IGN);
        l.x = exec_create(g, comm, data, &e, err);
        rc = exec_agree(comm, l.x ? 0 : -1, err);
        if (rc == 0)
            rc = train(&l, resume, err);
    }
    if (rc == 0 && trace)
        rc = run_trace_write(trace, o->trace, err);
    run_trace_destroy(trace);
    exec_destroy(l.x);
    data_close(data);
    free(resume);
    return rc;
}
