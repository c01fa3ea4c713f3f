/* Captured regions are CUDA graphs: the stream is captured, and one call replays it as a whole. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_state.h"

/* Memory cannot be had while a stream is captured. Relaxed: libraries may load a kernel when it is
 * first launched. */
int cuda_capture_begin(struct device_stream *s, struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    if (cuda_open_workspace(s, err) < 0)
        return -1;
    if (cuda_check(cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeRelaxed),
                   "capturing", err) < 0)
        return -1;
    q->capturing = true;
    return 0;
}

int cuda_capture_end(struct device_stream *s, struct device_region *r, struct err *err) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    struct cuda_queue *q = cuda_queue_of(s);
    int rc = cuda_launch_rest(s, err);
    const cudaError_t ended = cudaStreamEndCapture(q->stream, &graph);
    q->capturing = false;
    if (rc == 0)
        rc = cuda_check(ended, "capturing", err);
    if (rc == 0)
        rc = cuda_check(cudaGraphInstantiate(&exec, graph, 0), "making a graph", err);
    if (rc == 0) /* the first launch would, and may wait for all of the GPU then */
        rc = cuda_check(cudaGraphUpload(exec, q->stream), "bringing up a graph", err);
    if (graph)
        cudaGraphDestroy(graph);
    r->state = exec;
    return rc;
}

int cuda_replay(struct device_region *r, struct device_stream *s, struct err *err) {
    return cuda_check(cudaGraphLaunch(r->state, cuda_queue_of(s)->stream), "replaying",
                      err);
}

void cuda_region_destroy(struct device_region *r) {
    if (r->state)
        cudaGraphExecDestroy(r->state);
}
