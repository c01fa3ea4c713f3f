/* Clears gradients for the next step.
 *
 * Gradients that no instruction of the first micro-batch writes (pass_fresh.c) are set to
 * zero when the optimizer has read them, by the step's last instruction. They lie together
 * in memory (pass_persistent.c), so one buffer covers them. */
#include "program/passes/pass.h"

void pass_clear(struct emit *e) {
    int64_t bytes = 0;
    for (int64_t g = 0; g < e->grads.n; g++)
        if (e->grads.p[g].cleared)
            bytes += buffer_bytes(&e->buffers.p[e->grads.p[g].buffer]);
    if (!bytes)
        return;
    const int64_t elems = bytes / dtype_size(DTYPE_f32);
    const int all = emit_buffer(e, elems, DTYPE_f32, MEM_gradients);
    e->buffers.p[all].offset = e->out->own[MEM_parameters];
    struct instr *fill = emit_instr(e, I_fill);
    fill->n.fill.elems = elems;
    fill->out.fill.y = all;
    emit_end_segment(e, SEG_UPDATE);
}
