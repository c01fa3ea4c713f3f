/* Where the settings of a training come from: the command line, else the checkpoint that it goes on
 * from, else the usual values. */
#include "run.h"

#include "common/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A model without parameters has no state of any optimizer, and one without matrices no other of muon than of
 * adamw. What of adamw's state is there does not say of which parameters it is. */
static int check_optimizer(const struct checkpoint *ck, const struct model *m,
                           enum optimizer optimizer, struct err *err) {
    bool wanted[CHECKPOINT_KIND_COUNT] = {false}, same = true;
    for (int i = 0; i < m->n_params; i++)
        if (!m->params[i].frozen && !m->params[i].running)
            wanted[exec_state_kind(optimizer, &m->params[i], STATE_FIRST)] = true;
    for (int k = 0; k < CHECKPOINT_KIND_COUNT; k++)
        same &= !wanted[k] || checkpoint_has(ck, (enum checkpoint_kind)k);
    same &= wanted[CHECKPOINT_MUON_M] || !checkpoint_has(ck, CHECKPOINT_MUON_M);
    if (!checkpoint_has(ck, CHECKPOINT_PARAM) || same)
        return 0;
    err_input(err, "%s: trained with another optimizer than the plan's, %s",
              checkpoint_path(ck), optimizer_name(optimizer));
    return err_hint(err,
                    "a new run can begin with its weights: weft-ckpt export, then --init");
}

int run_check_resume(const struct run_options *o, const struct model *m,
                     enum optimizer optimizer, const struct checkpoint *ck,
                     struct err *err) {
    char *facts = model_facts(m);
    int rc = checkpoint_check_model(ck, m->name, m->hash, facts, err);
    free(facts);
    if (rc < 0 || check_optimizer(ck, m, optimizer, err) < 0)
        return -1;
    const char *decay = checkpoint_info(ck)->settings.decay;
    if (decay && exec_decay_find(decay) < 0)
        return err_input(err, "%s: settings.decay: \"%.40s\" is not known",
                         checkpoint_path(ck), decay);
    uint64_t seed = checkpoint_info(ck)->seed;
    if (o->seed.given && o->seed.value != seed)
        return err_usage(err,
                         "--seed %" PRIu64 ": the checkpoint was made with seed %" PRIu64,
                         o->seed.value, seed);
    return 0;
}

void run_note_batch(const struct checkpoint_info *ck, int64_t batch) {
    if (ck->batch && ck->batch != batch)
        note("weft-run: resume: a batch of %" PRId64 " samples replaces %" PRId64
             " of the checkpoint; the samples go on from number %" PRId64,
             batch, ck->batch, ck->sample);
}

/* A member of the settings as the option that sets it. */
static const char *option_name(const char *member, char name[32]) {
    size_t n = 0;
    for (; member[n] && n < 31; n++)
        name[n] = member[n] == '_' ? '-' : member[n];
    name[n] = '\0';
    return name;
}

static void settle_whole(const char *member, int64_t *v, const int64_t *was, bool speaks) {
    char name[32];
    if (*v < 0)
        *v = *was;
    else if (*v != *was && speaks)
        note("weft-run: resume: --%s %" PRId64 " replaces %" PRId64 " of the checkpoint",
             option_name(member, name), *v, *was);
}

static void settle_real(const char *member, double *v, const double *was, bool speaks) {
    char name[32];
    if (isnan(*v))
        *v = *was;
    else if (*v != *was && speaks)
        note("weft-run: resume: --%s %g replaces %g of the checkpoint",
             option_name(member, name), *v, *was);
}

/* A checkpoint of before there was a choice has none. The name is the table's own, since a checkpoint may
 * be closed for an older one. */
static void settle_decay(const char **v, const char *was, bool speaks) {
    was = was ? was : exec_decay_name(EXEC_DECAY_cosine);
    if (*v && strcmp(*v, was) != 0 && speaks)
        note("weft-run: resume: --decay %s replaces %s of the checkpoint", *v, was);
    *v = exec_decay_name((enum exec_decay)exec_decay_find(*v ? *v : was));
}

static void settle_as(struct checkpoint_settings *s, const struct checkpoint_settings *was,
                      bool speaks) {
#define X(name) settle_whole(#name, &s->name, &was->name, speaks);
    CHECKPOINT_WHOLES(X)
#undef X
#define X(name) settle_real(#name, &s->name, &was->name, speaks);
    CHECKPOINT_REALS(X)
#undef X
#define X(name, before) settle_whole(#name, &s->name, &was->name, speaks);
    CHECKPOINT_LATER_WHOLES(X)
#undef X
#define X(name, before) settle_real(#name, &s->name, &was->name, speaks);
    CHECKPOINT_LATER_REALS(X)
#undef X
    settle_decay(&s->decay, was->decay, speaks);
}

/* Some usual values follow from others that are given. */
static struct checkpoint_settings usual(const struct checkpoint_settings *s,
                                        enum optimizer optimizer) {
    static const double lr[] = {[OPTIMIZER_adamw] = 6e-4,
                                [OPTIMIZER_sgd] = 0.05,
                                [OPTIMIZER_lion] = 1e-4,
                                [OPTIMIZER_muon] = 6e-4};
    struct checkpoint_settings u = {.clip = 1,
                                    .weight_decay = 0.1,
                                    .beta1 = 0.9,
                                    .beta2 = optimizer == OPTIMIZER_lion ? 0.99 : 0.95,
                                    .eps = 1e-8,
                                    .momentum = optimizer == OPTIMIZER_muon ? 0.95 : 0.9,
                                    .validation = DATA_VALIDATION};
    u.steps = s->steps < 0 ? 100 : s->steps;
    u.warmup = u.steps / 10;
    u.decay_steps = u.steps;
    const int64_t end = s->decay_steps < 0 ? u.steps : s->decay_steps;
    u.decay_from = end - end / 5;
    u.lr = !isnan(s->lr) ? s->lr : lr[optimizer];
    u.min_lr = u.lr / 10;
    return u;
}

void run_settle(struct run_options *o, const struct checkpoint_info *ck,
                enum optimizer optimizer, bool speaks) {
    bool decay_given = o->set.decay_steps >= 0;
    if (ck) {
        settle_as(&o->set, &ck->settings, speaks);
        o->seed.value = ck->seed;
    } else {
        struct checkpoint_settings u = usual(&o->set, optimizer);
        settle_as(&o->set, &u, false);
        if (!o->seed.given)
            o->seed.value = 1;
    }
    o->seed.given = true;
    if (ck && speaks && !decay_given && strcmp(o->set.decay, "constant") != 0 &&
        o->set.steps > o->set.decay_steps)
        note("weft-run: resume: the learning rate stays at %g from step %" PRId64
             " on; --decay-steps changes that",
             o->set.min_lr, o->set.decay_steps);
}

int run_check_data(const struct run_options *o, const struct checkpoint *ck,
                   const struct data *data, bool speaks, struct err *err) {
    const struct checkpoint_data *was = &checkpoint_info(ck)->data;
    const struct data_info *is = data_info(data);
    if (was->hash == is->hash[DATA_TRAIN])
        return 0;
    if (o->other_data) {
        if (speaks)
            note("weft-run: resume: --data replaces the data of the checkpoint");
        return 0;
    }
    err_input(err,
              "--data: %s, %" PRId64 " items, hash %016" PRIx64
              "; the checkpoint %s was trained on %s, %" PRId64 " items, hash %016" PRIx64,
              is->format, is->items, is->hash[DATA_TRAIN], checkpoint_path(ck), was->format,
              was->items, was->hash);
    return err_hint(err, "--other-data continues with it nevertheless");
}
