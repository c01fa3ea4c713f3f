/* Where weft is built without cuDNN: there is none to open. */
#include "cuda/cuda_dnn.h"

struct dnn *dnn_open(struct err *err) {
    err_system(err, "this weft was built without cuDNN");
    err_hint(err, "`make config` says what make found");
    return NULL;
}

void dnn_close(struct dnn *d) {
    (void)d;
}

int64_t dnn_version(const struct dnn *d) {
    (void)d;
    return 0;
}

int dnn_plan(const struct dnn *d, const struct dnn_wish *wish, int most,
             struct dnn_plans *out) {
    (void)d, (void)wish, (void)most, (void)out;
    return 0;
}

bool dnn_plan_name(const struct dnn *d, struct dnn_plans *plans, int i, char *buf,
                   size_t size) {
    (void)d, (void)plans, (void)i, (void)buf, (void)size;
    return false;
}

int dnn_plan_named(const struct dnn *d, const struct dnn_wish *wish, const char *name,
                   struct dnn_plans *out) {
    (void)d, (void)wish, (void)name, (void)out;
    return 0;
}

void dnn_forget(const struct dnn *d, struct dnn_plans *plans) {
    (void)d, (void)plans;
}

int dnn_run(const struct dnn *d, const struct dnn_plans *plans, int i,
            const struct dnn_operands *o, void *workspace, cudaStream_t stream,
            struct err *err) {
    (void)d, (void)plans, (void)i, (void)o, (void)workspace, (void)stream;
    return err_system(err, "this weft was built without cuDNN");
}

int dnn_attention_plan(const struct dnn *d, const struct dnn_attention *w, int most,
                       struct dnn_plans *out) {
    (void)d, (void)w, (void)most, (void)out;
    return 0;
}

int dnn_attention_named(const struct dnn *d, const struct dnn_attention *w,
                        const char *name, struct dnn_plans *out) {
    (void)d, (void)w, (void)name, (void)out;
    return 0;
}

int dnn_attention_run(const struct dnn *d, const struct dnn_attention *w,
                      const struct dnn_plans *plans, int i,
                      const struct dnn_attention_operands *o, void *workspace,
                      cudaStream_t stream, struct err *err) {
    (void)d, (void)w, (void)plans, (void)i, (void)o, (void)workspace, (void)stream;
    return err_system(err, "this weft was built without cuDNN");
}
