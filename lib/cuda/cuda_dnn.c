/* cuDNN: the library, and running what was planned. */
#include "cuda/cuda_dnn_impl.h"

#include <stdlib.h>

#define TEXT_OF(x)      #x
#define TEXT(x)         TEXT_OF(x)
#define LIBRARY_VERSION TEXT(CUDNN_MAJOR)

static const char *const names[] = {CUDA_LIBRARY_NAMES(DNN_LIBRARY) NULL};

/* Every call is made inside of this: 0, or -1 with what the library says about it. */
static int check(const struct dnn *d, cudnnStatus_t rc, const char *what, struct err *err) {
    if (rc == CUDNN_STATUS_SUCCESS)
        return 0;
    return err_system(err, "cuDNN: %s: %s", what, d->lib.cudnnGetErrorString(rc));
}

struct dnn *dnn_open(struct err *err) {
    struct dnn *d = mem_alloc(sizeof *d);
    if (cuda_library_open("libcudnn.so." LIBRARY_VERSION, names, &d->lib, err) == 0 &&
        check(d, d->lib.cudnnCreate(&d->handle), "opening the library", err) == 0)
        return d;
    free(d);
    return NULL;
}

void dnn_close(struct dnn *d) {
    if (d && d->handle)
        d->lib.cudnnDestroy(d->handle);
    free(d);
}

int64_t dnn_version(const struct dnn *d) {
    return d ? (int64_t)d->lib.cudnnGetVersion() : 0;
}

enum { PLACES = 16 };

static cudnnStatus_t fill(const struct dnn *d, cudnnBackendDescriptor_t pack,
                          const struct dnn_place *at, int n, void *workspace) {
    void *pointers[PLACES];
    int64_t ids[PLACES];
    for (int i = 0; i < n; i++)
        pointers[i] = at[i].p, ids[i] = at[i].id;
    cudnnStatus_t rc = d->lib.cudnnBackendSetAttribute(
        pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = d->lib.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                             CUDNN_TYPE_INT64, n, ids);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = d->lib.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                             CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = d->lib.cudnnBackendFinalize(pack);
    return rc;
}

int dnn_execute(const struct dnn *d, void *plan, const struct dnn_place *at, int n,
                void *workspace, cudaStream_t stream, struct err *err) {
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t rc =
        n > PLACES ? CUDNN_STATUS_BAD_PARAM : d->lib.cudnnSetStream(d->handle, stream);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = d->lib.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                                                 &pack);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = fill(d, pack, at, n, workspace);
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = d->lib.cudnnBackendExecute(d->handle, plan, pack);
    if (pack)
        d->lib.cudnnBackendDestroyDescriptor(pack);
    return check(d, rc, "running a plan", err);
}
