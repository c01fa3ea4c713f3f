/* The parameters of a model of ONNX, as a file of safetensors that has them under the names that its document says. */
#include "checkpoint/safetensors.h"
#include "import/translate_onnx.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 1 << 16 };

static struct st_tensor tensor_of(const struct exported_value *v) {
    struct st_tensor t = {.name = v->path, .dtype = ST_F32, .dims = v->rank};
    memcpy(t.shape, v->size, sizeof *t.shape * (size_t)v->rank);
    return t;
}

static int append(struct st_writer *w, const struct onnx_tensor *t, const char *folder,
                  int64_t n, struct err *err) {
    double *v = mem_array(AT_ONCE, sizeof *v);
    float *f = mem_array(AT_ONCE, sizeof *f);
    int rc = 0;
    for (int64_t at = 0; at < n && rc == 0; at += AT_ONCE) {
        const int64_t count = n - at < AT_ONCE ? n - at : AT_ONCE;
        rc = onnx_part(t, folder, at, count, v, err);
        for (int64_t i = 0; i < count && rc == 0; i++)
            f[i] = (float)v[i];
        if (rc == 0)
            rc = st_append(w, f, count * (int64_t)sizeof *f, err);
    }
    free(f);
    free(v);
    return rc;
}

int onnx_write_weights(const struct onnx_reading *r, const char *path, struct err *err) {
    struct st_tensor *tensors = mem_array((size_t)r->sources.n + 1, sizeof *tensors);
    struct st_writer w = {0};
    int64_t n = 0, bytes;
    uint64_t hash;
    for (int64_t i = 0; i < r->sources.n; i++)
        if (r->sources.p[i].read)
            tensors[n++] = tensor_of(onnx_value(r, r->sources.p[i].value));
    int rc = st_create(&w, path, tensors, n, NULL, err), k = 0;
    const bool begun = rc == 0;
    for (int64_t i = 0; i < r->sources.n && rc == 0; i++) {
        const struct onnx_source *s = &r->sources.p[i];
        if (s->read)
            rc = append(&w, s->tensor, r->folder,
                        tensors[k++].bytes / (int64_t)sizeof(float), err);
    }
    if (rc == 0)
        rc = st_finish(&w, &bytes, &hash, err);
    else if (begun)
        st_abort(&w);
    free(tensors);
    return rc;
}
