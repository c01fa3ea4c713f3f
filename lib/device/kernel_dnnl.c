/* oneDNN's engine, stream and room (kernel_dnnl.h); nothing where weft is built with another library. */
#include "kernel_impl.h"

#ifdef WEFT_GEMM_dnnl

#include "kernel_dnnl.h"

#include <stdlib.h>
#include <string.h>

static struct {
    dnnl_engine_t engine; /* NULL before the first use */
    dnnl_stream_t stream;
    char *room;
    int64_t bytes; /* of room */
} state;

dnnl_engine_t kernel_dnnl_engine(void) {
    if (!state.engine) {
        must(dnnl_engine_create(&state.engine, dnnl_cpu, 0));
        must(dnnl_stream_create(&state.stream, state.engine, dnnl_stream_default_flags));
    }
    return state.engine;
}

char *kernel_dnnl_room(int64_t bytes) {
    if (bytes > state.bytes) {
        free(state.room);
        state.bytes = (bytes + 63) & ~(int64_t)63;
        state.room = aligned_alloc(64, (size_t)state.bytes);
        assert(state.room && "no memory for what a primitive of oneDNN needs");
    }
    return state.room;
}

void kernel_dnnl_release(void) {
    if (state.engine) {
        dnnl_stream_destroy(state.stream);
        dnnl_engine_destroy(state.engine);
    }
    free(state.room);
    memset(&state, 0, sizeof state);
}

bool kernel_dnnl_has(dnnl_cpu_isa_t isa) {
    return ((int)dnnl_get_effective_cpu_isa() & (int)isa) == (int)isa;
}

dnnl_memory_t kernel_dnnl_memory(const dnnl_memory_desc_t *desc) {
    dnnl_memory_t m;
    must(dnnl_memory_create(&m, desc, kernel_dnnl_engine(), DNNL_MEMORY_NONE));
    return m;
}

void kernel_dnnl_place(dnnl_memory_t m, const void *p) {
    must(dnnl_memory_set_data_handle(m, (void *)p));
}

int64_t kernel_dnnl_bytes(const dnnl_memory_desc_t *desc) {
    return ((int64_t)dnnl_memory_desc_get_size(desc) + 63) & ~(int64_t)63;
}

dnnl_primitive_attr_t kernel_dnnl_attributes(bool adds) {
    dnnl_primitive_attr_t attr;
    must(dnnl_primitive_attr_create(&attr));
    if (adds) {
        dnnl_post_ops_t sum;
        must(dnnl_post_ops_create(&sum));
        must(dnnl_post_ops_append_sum(sum, 1));
        must(dnnl_primitive_attr_set_post_ops(attr, sum));
        must(dnnl_post_ops_destroy(sum));
    }
    return attr;
}

dnnl_primitive_t kernel_dnnl_reorder(const dnnl_memory_desc_t *from,
                                     const dnnl_memory_desc_t *to, bool adds) {
    dnnl_engine_t engine = kernel_dnnl_engine();
    dnnl_primitive_attr_t attr = kernel_dnnl_attributes(adds);
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t made;
    must(dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr));
    must(dnnl_primitive_create(&made, desc));
    must(dnnl_primitive_desc_destroy(desc));
    must(dnnl_primitive_attr_destroy(attr));
    return made;
}

void kernel_dnnl_run(dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *args) {
    must(dnnl_primitive_execute(primitive, state.stream, n, args));
}

void kernel_dnnl_run_reorder(dnnl_primitive_t reorder, dnnl_memory_t from,
                             dnnl_memory_t to) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    kernel_dnnl_run(reorder, 2, args);
}

#endif
