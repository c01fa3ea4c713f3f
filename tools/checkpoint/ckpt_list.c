/* weft-ckpt list. */
#include "ckpt.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/stset.h"
#include "common/file.h"
#include "common/opt.h"

static void print_tensor(const char *kind, const char *name, const char *dtype, int dims,
                         const int64_t *shape) {
    json_t *sizes = json_array();
    for (int d = 0; d < dims; d++)
        json_array_append_new(sizes, json_integer(shape[d]));
    json_t *line =
        json_pack("{s:s, s:s, s:o}", "name", name, "dtype", dtype, "shape", sizes);
    if (kind)
        json_object_set_new(line, "kind", json_string(kind));
    json_write_line(line, stdout);
    json_decref(line);
}

static int list_checkpoint(const char *path, struct err *err) {
    struct checkpoint *ck;
    if (checkpoint_open(&ck, path, err) < 0)
        return -1;
    enum checkpoint_kind kind;
    const char *name;
    const struct checkpoint_box *box;
    for (int64_t i = 0; (box = checkpoint_tensor(ck, i, &kind, &name)); i++)
        print_tensor(checkpoint_kind_name(kind), name, st_dtype_name(ST_F32), box->dims,
                     box->shape);
    checkpoint_close(ck);
    return file_stdout_check(err);
}

int ckpt_list(const struct ckpt_options *o, const char *path, struct err *err) {
    struct st_set set;
    if (o->model || o->set || o->output)
        return err_usage(err, "list takes none of --model, --set and --output");
    if (checkpoint_is(path))
        return list_checkpoint(path, err);
    if (st_set_open(&set, path, err) < 0)
        return -1;
    for (int64_t i = 0; i < set.entries; i++) {
        const struct st_tensor *t = set.entry[i].tensor;
        print_tensor(NULL, t->name, st_dtype_name(t->dtype), t->dims, t->shape);
    }
    st_set_close(&set);
    return file_stdout_check(err);
}
