/* Sets of files, and views of their tensors. */
#include "checkpoint/stset.h"

#include "checkpoint/ckptdir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX "model.safetensors.index.json"

/* ---- the index --------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int64_t st_index_files(struct arena *arena, const json_t *index, const char ***files,
                       struct err *err) {
    json_t *map, *v;
    const char *name;
    if (json_object_member(index, "weight_map", &map, err) < 0)
        return -1;
    int64_t n = 0, kept = 0;
    const char **list = arena_array(arena, json_object_size(map), sizeof *list);
    json_object_foreach(map, name, v) {
        const char *file = json_string_value(v);
        if (!file || !file[0] || file[0] == '.' || strchr(file, '/'))
            return err_input(err,
                             "weight_map: tensor \"%.100s\": expected a file beside "
                             "the index, got %s%.100s",
                             name, file ? "" : json_type_name(v), file ? file : "");
        list[n++] = arena_strdup(arena, file);
    }
    if (!n)
        return err_input(err, "weight_map: is empty");
    qsort(list, (size_t)n, sizeof *list, by_text);
    for (int64_t i = 0; i < n; i++)
        if (!kept || strcmp(list[kept - 1], list[i]) != 0)
            list[kept++] = list[i];
    *files = list;
    return kept;
}

/* ---- opening ----------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b) {
    const struct st_entry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

/* All tensors of all files, by name. */
static int collect(struct st_set *set, const char *const *paths, struct err *err) {
    int64_t n = 0;
    for (int64_t i = 0; i < set->files; i++)
        n += set->file[i].tensors;
    set->entry = arena_array(&set->arena, (size_t)n, sizeof *set->entry);
    for (int64_t i = 0; i < set->files; i++)
        for (int64_t k = 0; k < set->file[i].tensors; k++)
            set->entry[set->entries++] =
                (struct st_entry){&set->file[i].tensor[k], &set->file[i], paths[i]};
    if (n)
        qsort(set->entry, (size_t)n, sizeof *set->entry, compare_entries);
    for (int64_t i = 1; i < n; i++)
        if (!compare_entries(&set->entry[i - 1], &set->entry[i]))
            return err_input(err, "%s: tensor \"%.100s\": is in %s too", set->entry[i].path,
                             set->entry[i].tensor->name, set->entry[i - 1].path);
    return 0;
}

static int open_files(struct st_set *set, const char *const *paths, int64_t n,
                      struct err *err) {
    set->file = arena_array(&set->arena, (size_t)n, sizeof *set->file);
    for (int64_t i = 0; i < n; i++, set->files++)
        if (st_open(&set->file[i], paths[i], err) < 0)
            return -1;
    return collect(set, paths, err);
}

/* Every tensor of the index lies where it says. */
static int check_map(const struct st_set *set, const json_t *map, const char *folder,
                     struct err *err) {
    const char *name;
    json_t *v;
    size_t n = strlen(folder) + 1; /* "folder/file" */
    json_object_foreach((json_t *)map, name, v) {
        const struct st_entry *e = st_set_find(set, name);
        const char *file = json_string_value(v);
        if (!e || strcmp(e->path + n, file) != 0)
            return err_input(err, "weight_map: tensor \"%.100s\": is not in %s", name,
                             file);
    }
    return 0;
}

static int open_index(struct st_set *set, const char *folder, const char *path,
                      struct err *err) {
    const char **files;
    json_t *index = json_read(path, err);
    if (!index)
        return -1;
    int64_t n = st_index_files(&set->arena, index, &files, err);
    int rc = n < 0 ? err_prefix(err, "%s", path) : 0;
    for (int64_t i = 0; i < n; i++)
        files[i] = arena_printf(&set->arena, "%s/%s", folder, files[i]);
    if (rc == 0)
        rc = open_files(set, files, n, err);
    if (rc == 0 && check_map(set, json_object_get(index, "weight_map"), folder, err) < 0)
        rc = err_prefix(err, "%s", path);
    json_decref(index);
    return rc;
}

static bool there(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static int open_folder(struct st_set *set, const char *folder, struct err *err) {
    char *file = ckpt_join(folder, "model.safetensors"), *index = ckpt_join(folder, INDEX);
    int rc;
    if (there(file)) {
        const char *path = arena_strdup(&set->arena, file);
        rc = open_files(set, &path, 1, err);
    } else if (there(index)) {
        rc = open_index(set, folder, index, err);
    } else {
        rc = err_input(err, "%s: holds neither model.safetensors nor " INDEX, folder);
        err_hint(err, "weft-ckpt export writes such a folder from a checkpoint");
    }
    free(file);
    free(index);
    return rc;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

int st_set_open(struct st_set *set, const char *path, struct err *err) {
    *set = (struct st_set){0};
    struct stat st;
    char *kept = arena_strdup(&set->arena, path);
    int rc;
    for (size_t n = strlen(kept); n > 1 && kept[n - 1] == '/'; n--)
        kept[n - 1] = '\0';
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        rc = open_folder(set, kept, err);
    } else if (ends_with(path, ".json")) {
        char *slash = strrchr(kept, '/');
        if (slash)
            *slash = '\0';
        rc = open_index(set, slash ? kept : ".", path, err);
    } else {
        const char *file = kept;
        rc = open_files(set, &file, 1, err);
    }
    if (rc < 0)
        st_set_close(set);
    return rc;
}

void st_set_close(struct st_set *set) {
    for (int64_t i = 0; i < set->files; i++)
        st_close(&set->file[i]);
    arena_release(&set->arena);
    *set = (struct st_set){0};
}

const struct st_entry *st_set_find(const struct st_set *set, const char *name) {
    struct st_tensor t = {.name = name};
    struct st_entry key = {.tensor = &t};
    if (!set->entries)
        return NULL;
    return bsearch(&key, set->entry, (size_t)set->entries, sizeof key, compare_entries);
}

uint64_t st_set_hash(const struct st_set *set) {
    struct xxh64 h;
    xxh64_begin(&h);
    for (int64_t i = 0; i < set->entries; i++) {
        const struct st_tensor *t = set->entry[i].tensor;
        int64_t numbers[] = {t->dtype, t->dims, t->offset, t->bytes};
        xxh64_add(&h, t->name, strlen(t->name) + 1);
        xxh64_add(&h, numbers, sizeof numbers);
        xxh64_add(&h, t->shape, sizeof *t->shape * (size_t)t->dims);
    }
    return xxh64_end(&h);
}

/* ---- views ------------------------------------------------------------------------- */

bool st_widens(enum st_dtype dtype) {
    return dtype == ST_F32 || dtype == ST_F16 || dtype == ST_BF16;
}

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE 754 binary16. Subnormal numbers are multiples of 2^-24. */
static float from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, m = h & 1023;
    if (exponent == 0) {
        float f = (float)m * 0x1p-24F;
        return sign ? -f : f;
    }
    exponent = exponent == 31 ? 255 : exponent + 112;
    return from_bits(sign | exponent << 23 | m << 13);
}

/* n elements from `in` on, `stride` elements apart; data of a file need not be aligned. */
static void widen(enum st_dtype dtype, const unsigned char *in, int64_t stride, int64_t n,
                  float *out) {
    uint16_t half;
    if (dtype == ST_F32 && stride == 1) {
        memcpy(out, in, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (dtype == ST_F32) {
            memcpy(&out[i], in + i * stride * 4, 4);
        } else {
            memcpy(&half, in + i * stride * 2, 2);
            out[i] = dtype == ST_F16 ? from_f16(half) : from_bits((uint32_t)half << 16);
        }
    }
}

/* Moves *i on over all dims but the last; false after the last row. */
static bool next_row(const struct st_view *v, int64_t *i, int64_t *at) {
    for (int d = v->dims - 2; d >= 0; d--) {
        *at += v->stride[d];
        if (++i[d] < v->size[d])
            return true;
        *at -= i[d] * v->stride[d];
        i[d] = 0;
    }
    return false;
}

static bool is_empty(const struct st_view *v) {
    for (int d = 0; d < v->dims; d++)
        if (v->size[d] == 0)
            return true;
    return false;
}

void st_view_get(const struct st_entry *e, const struct st_view *v, float *out) {
    const unsigned char *data = e->file->bytes + e->tensor->offset;
    int64_t width = e->tensor->dtype == ST_F32 ? 4 : 2, i[ST_DIMS] = {0}, at = v->base;
    int64_t n = v->dims ? v->size[v->dims - 1] : 1;
    int64_t stride = v->dims ? v->stride[v->dims - 1] : 1;
    if (is_empty(v))
        return;
    do {
        widen(e->tensor->dtype, data + at * width, stride, n, out);
        out += n;
    } while (next_row(v, i, &at));
}

void st_view_put(float *tensor, const struct st_view *v, const float *in) {
    int64_t i[ST_DIMS] = {0}, at = v->base;
    int64_t n = v->dims ? v->size[v->dims - 1] : 1;
    int64_t stride = v->dims ? v->stride[v->dims - 1] : 1;
    if (is_empty(v))
        return;
    do {
        for (int64_t k = 0; k < n; k++)
            tensor[at + k * stride] = in[k];
        in += n;
    } while (next_row(v, i, &at));
}
