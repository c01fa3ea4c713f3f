/* kernel_dnnl.h - what matrix products and convolutions share of oneDNN: one engine, one stream, and
 * one room for what a primitive needs while it runs. All are made when they are first wanted, by the
 * master thread, which alone calls the library.
 *
 *     kernel_dnnl_place(scratch, kernel_dnnl_room(bytes));
 *     kernel_dnnl_run(primitive, 4, args);
 */
#ifndef WEFT_KERNEL_DNNL_H
#define WEFT_KERNEL_DNNL_H

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* No call can fail but for want of memory: shapes are checked by the model. */
static inline void must(dnnl_status_t status) {
    assert(status == dnnl_success);
    (void)status;
}

dnnl_engine_t kernel_dnnl_engine(void);
/* At least so many bytes, aligned to 64; valid until more are asked for. */
char *kernel_dnnl_room(int64_t bytes);
/* After everything that was made with the engine is destroyed. */
void kernel_dnnl_release(void);

/* Does this machine have all instructions of this set? */
bool kernel_dnnl_has(dnnl_cpu_isa_t isa);

/* A tensor at no address yet, and the address of the next run. */
dnnl_memory_t kernel_dnnl_memory(const dnnl_memory_desc_t *desc);
void kernel_dnnl_place(dnnl_memory_t m, const void *p);
/* Its size as the room counts it, a multiple of 64. */
int64_t kernel_dnnl_bytes(const dnnl_memory_desc_t *desc);

/* Attributes of a primitive; where it `adds`, its result is added to what is there. The caller destroys
 * them. */
dnnl_primitive_attr_t kernel_dnnl_attributes(bool adds);
dnnl_primitive_t kernel_dnnl_reorder(const dnnl_memory_desc_t *from,
                                     const dnnl_memory_desc_t *to, bool adds);
void kernel_dnnl_run(dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *args);
void kernel_dnnl_run_reorder(dnnl_primitive_t reorder, dnnl_memory_t from,
                             dnnl_memory_t to);

#endif
