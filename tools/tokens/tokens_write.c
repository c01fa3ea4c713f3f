/* Files of ids, as weft-run reads them; all are little-endian, as this machine is. */
#include "tokens.h"

#include "common/file.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "written as they lie");

enum {
    SMALL_VOCAB = 1 << 16, /* ids of 16 bits up to here */
    LLMC_HEADER = 256,     /* numbers of 32 bits */
};

static void write_ids(FILE *f, const struct token_ids *ids, int width) {
    for (int64_t i = 0; i < ids->n; i++) {
        const uint16_t narrow = (uint16_t)ids->p[i];
        fwrite(width == 2 ? (const void *)&narrow : &ids->p[i], (size_t)width, 1, f);
    }
}

static int write_llmc(const char *path, int width, const struct token_ids *ids,
                      struct err *err) {
    if (ids->n > INT32_MAX)
        return err_input(err, "%s: %lld tokens, the format counts up to %d", path,
                         (long long)ids->n, INT32_MAX);
    struct file_out out;
    const int32_t head[LLMC_HEADER] = {width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7,
                                       (int32_t)ids->n};
    if (file_out_open(&out, path, err) < 0)
        return -1;
    fwrite(head, sizeof head, 1, out.f);
    write_ids(out.f, ids, width);
    return file_out_close(&out, err);
}

/* Ids and nothing else: nanoGPT's 16 bits, or 32. */
static int write_raw(const char *path, int width, const struct token_ids *ids,
                     struct err *err) {
    struct file_out out;
    if (file_out_open(&out, path, err) < 0)
        return -1;
    write_ids(out.f, ids, width);
    return file_out_close(&out, err);
}

/* The index: see data/indexed.h. Each document is a sequence. */
static void write_index(FILE *f, int width, const struct document *d, int64_t n) {
    const int64_t version = 1, counts[2] = {n, n + 1};
    const unsigned char type = width == 2 ? 8 : 4;
    fwrite("MMIDIDX\0", 9, 1, f);
    fwrite(&version, 8, 1, f);
    fwrite(&type, 1, 1, f);
    fwrite(counts, sizeof counts, 1, f);
    for (int64_t i = 0; i < n; i++) {
        const int32_t length = (int32_t)d[i].n;
        fwrite(&length, 4, 1, f);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = d[i].first * width;
        fwrite(&place, 8, 1, f);
    }
    for (int64_t i = 0; i <= n; i++)
        fwrite(&i, 8, 1, f);
}

static int write_indexed(const char *path, int width, const struct token_ids *ids,
                         const struct document *documents, int64_t n, struct err *err) {
    struct file_out out;
    for (int64_t i = 0; i < n; i++)
        if (documents[i].n == 0 || documents[i].n > INT32_MAX)
            return err_input(err, "%s: document %lld has %lld tokens, expected 1 to %d",
                             path, (long long)i, (long long)documents[i].n, INT32_MAX);
    char *bin = mem_strdup(path);
    memcpy(bin + strlen(bin) - 3, "bin", 3);
    int rc = file_out_open(&out, bin, err);
    free(bin);
    if (rc < 0)
        return -1;
    write_ids(out.f, ids, width);
    if (file_out_close(&out, err) < 0 || file_out_open(&out, path, err) < 0)
        return -1;
    write_index(out.f, width, documents, n);
    return file_out_close(&out, err);
}

int tokens_write_masked(const char *path, const struct token_ids *ids, struct err *err) {
    static const int32_t behind = TOKENS_MASK;
    struct file_out out;
    if (file_out_open(&out, path, err) < 0)
        return -1;
    fwrite(ids->p, sizeof *ids->p, (size_t)ids->n, out.f);
    fwrite(&behind, sizeof behind, 1, out.f);
    return file_out_close(&out, err);
}

bool tokens_ends(const char *path, const char *end) {
    const size_t length = strlen(path), n = strlen(end);
    return length > n && !strcmp(path + length - n, end);
}

int tokens_write(const char *path, bool raw, int64_t vocab, const struct token_ids *ids,
                 const struct document *documents, int64_t n, struct err *err) {
    const int width = vocab <= SMALL_VOCAB ? 2 : 4;
    if (tokens_ends(path, ".bin") && raw && width != 2)
        return err_input(err,
                         "--raw: %lld ids, expected at most %d of 16 bits, or FILE.u32",
                         (long long)vocab, SMALL_VOCAB);
    if (tokens_ends(path, ".bin"))
        return raw ? write_raw(path, width, ids, err) : write_llmc(path, width, ids, err);
    if (tokens_ends(path, ".u32"))
        return write_raw(path, 4, ids, err);
    if (tokens_ends(path, ".idx"))
        return write_indexed(path, width, ids, documents, n, err);
    return err_usage(err, "-o: expected FILE.bin, FILE.u32 or FILE.idx, got \"%.80s\"",
                     path);
}
