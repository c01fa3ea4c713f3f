/* provider.h - what answers "how long does this take": a measured table, datasheets, or one
 * after the other.
 *
 * A provider gets a question (an instruction with its shape on a device of the cluster, a
 * collective or a message with the link that it runs over) and says how long it takes, within
 * which bounds, and what that rests on. One that does not know says so (from == COST_UNKNOWN);
 * nothing is ever guessed silently. A new source of times is one more file with its three
 * functions.
 *
 *     struct cost_provider *p = provider_open("profile.db", NULL, &cluster, true, &err);
 *     struct instr_key key = instr_key(I_gelu, DTYPE_bf16, &i->n);
 *     struct cost_time t = p->kind->op(p, &(struct op_question){.key = &key});
 *     if (t.from != COST_UNKNOWN) ... t.us ...
 *     provider_destroy(p);
 */
#ifndef WEFT_PROVIDER_H
#define WEFT_PROVIDER_H

#include "cost/links.h"
#include "cost/profile.h"
#include "program/program.h"

/* What a time rests on. */
#define COST_SOURCES(X) X(unknown) X(measured) X(fitted) X(model) X(datasheet)
enum cost_source {
    COST_UNKNOWN,
    COST_MEASURED,
    COST_FITTED, /* a curve through measured rows of the same instruction and device */
    COST_MODEL,  /* the device model that the cluster names */
    COST_DATASHEET,
    COST_SOURCES_COUNT
};
const char *cost_source_name(enum cost_source s);

struct cost_time {
    double us;
    double low_us, high_us; /* where the truth is expected */
    /* the host's time before it can begin; 0 where launches are replayed */
    double issue_us;
    bool waits;     /* the host waits until it is done */
    double overlap; /* of communication: the fraction that overlaps computation, 0..1 */
    enum cost_source from; /* COST_UNKNOWN: all the rest is 0 */
};

/* A sum of times: what it rests on, and its bounds. */
struct cost_sum {
    double us[COST_SOURCES_COUNT]; /* by source */
    double low_us, high_us;
};
void cost_sum_add(struct cost_sum *sum, struct cost_time t, double uses);

struct op_question {
    int group; /* the cluster's group of devices */
    const struct instr_key *key;
};

/* A collective, or (code == I_send) one message. */
struct comm_question {
    int group; /* the cluster's group of the first rank */
    enum opcode code;
    int64_t size, stride, bytes; /* as the profile counts them (profile.h) */
    struct link_class link;
};

struct cost_provider {
    const struct provider_kind *kind;
    char device[CLUSTER_MAX_NAME]; /* what its times are of, for messages: "cpu-1t" */
    /* How the rows of a computed database were made, as weft-profile-op takes it: "312T:1.5T:5us",
     * "node:200G:5us cross:25G:10us"; "" = they were measured. */
    char roofline[64], links[128];
    /* the largest fraction of a collective that overlaps computation, 0..1 */
    double overlap;
    /* parts of an instruction, each on a device, never take less together than the whole */
    bool subadditive;
};

struct provider_kind {
    struct cost_time (*op)(const struct cost_provider *p, const struct op_question *q);
    struct cost_time (*collective)(const struct cost_provider *p,
                                   const struct comm_question *q);
    struct cost_time (*message)(const struct cost_provider *p,
                                const struct comm_question *q);
    void (*destroy)(struct cost_provider *p);
};

/* The provider that tools use. path: the profile, or NULL for none. device: the kind whose
 * rows are used; NULL means the kinds that the cluster names, or else the only one.
 * datasheets: what the profile lacks (or everything, without one) is answered from the
 * cluster's datasheets. NULL with a message; exit status 2 where neither can answer
 * anything. The cluster is copied. */
struct cost_provider *provider_open(const char *path, const char *device,
                                    const struct cluster *c, bool datasheets,
                                    struct err *err);
void provider_destroy(struct cost_provider *p); /* NULL is fine */

/* Checks that the datasheets of all groups give flops for this type; V100s have no bf16. -1
 * with exit status 2, and a hint that lists the types that they all give. */
int provider_check_dtype(const struct cluster *c, enum dtype dtype, struct err *err);

/* Measured rows (provider_profile.c). times[i] are those of the cluster's group i; with n == 1,
 * of all groups. Takes them over. */
struct cost_provider *provider_profile(struct profile_times *const *times, int n);
/* Lets it answer nothing for a size below half of the smallest row of its curve, because a
 * curve through the rows stands behind it. */
void provider_profile_near(struct cost_provider *p);
/* Datasheets of a cluster (provider_analytic.c). Fails where the cluster gives no speeds. */
struct cost_provider *provider_analytic(const struct cluster *c, struct err *err);
/* Curves of the device models that the cluster's groups name (provider_device.c). It knows
 * nothing of groups that name none, nor of copies to and from hosts. *named: whether any
 * group names one. NULL if none does or, with a message, where a model cannot be read. */
struct cost_provider *provider_device(const struct cluster *c, bool *named,
                                      struct err *err);
/* Curves through the rows of a profile, fitted when they are first asked for. They begin
 * with the device models of the cluster, where it names them. times: as above, but the rows
 * are copied. */
struct cost_provider *provider_fit(struct profile_times *const *times, int n,
                                   const struct cluster *c, struct err *err);
/* p's times, with those of instructions divided by the speed of their group of the cluster
 * (provider_speed.c); p itself where no group has one. Takes p over. */
struct cost_provider *provider_speed(struct cost_provider *p, const struct cluster *c);
/* Asks first, then second where first does not know (provider_stack.c). Takes both over. */
struct cost_provider *provider_stack(struct cost_provider *first,
                                     struct cost_provider *second);

#endif
