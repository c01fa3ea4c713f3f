#include "data/indexed.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    VERSION = 1,
    CHUNK = 4096, /* sequences whose places are checked at a time */
};
static const char magic[] = "MMIDIDX\0"; /* nine bytes with its end */

/* ---- the index ----------------------------------------------------------------------- */

static int width_of_type(int type) {
    return type == 1 ? 1 : type == 8 ? 2 : type == 4 ? 4 : 0;
}

int indexed_parse(struct indexed_view *view, const unsigned char *head, int64_t size,
                  struct err *err) {
    if (size < INDEXED_HEADER || memcmp(head, magic, sizeof magic) != 0)
        return err_input(err, "byte 0: expected the magic MMIDIDX of an index of token "
                              "sequences (Megatron-LM)");
    int64_t version = load64(head + 9), items = load64(head + 18), docs = load64(head + 26);
    if (version != VERSION)
        return err_input(err, "byte 9: version %lld of the index, expected %d",
                         (long long)version, VERSION);
    int width = width_of_type(head[17]);
    if (!width)
        return err_input(
            err, "byte 17: tokens of type %d, expected 1, 8 or 4 (8, 16 or 32 bits)",
            head[17]);
    const int64_t most = INT64_C(1) << 48;
    if (items < 1 || items > most || docs < 0 || docs > most)
        return err_input(err, "byte 18: %lld sequences in %lld documents", (long long)items,
                         (long long)docs);
    int64_t want = INDEXED_HEADER + 12 * items + 8 * docs;
    if (size != want)
        return err_input(
            err,
            "%s: %lld sequences and %lld documents make %lld bytes, the file holds %lld",
            size < want ? "truncated" : "too long", (long long)items, (long long)docs,
            (long long)want, (long long)size);
    *view = (struct indexed_view){items, width};
    return 0;
}

static int64_t at_length(int64_t item) {
    return INDEXED_HEADER + 4 * item;
}

static int64_t at_place(const struct indexed *s, int64_t item) {
    return INDEXED_HEADER + 4 * s->view.items + 8 * item;
}

/* A sequence of `length` tokens at byte `place`; false where no such one is in the file. */
static bool make_run(const struct indexed *s, int64_t length, int64_t place,
                     struct token_run *run) {
    int64_t width = s->view.width, tokens = s->tokens.view.tokens;
    *run = (struct token_run){place / width, length};
    return length > 0 && place >= 0 && place % width == 0 && run->first <= tokens - length;
}

int indexed_find(const struct indexed *s, int64_t item, struct token_run *run,
                 struct err *err) {
    unsigned char length[4], place[8];
    if (datafile_read(&s->index, at_length(item), 4, length, err) < 0 ||
        datafile_read(&s->index, at_place(s, item), 8, place, err) < 0)
        return -1;
    if (make_run(s, load32(length), load64(place), run))
        return 0;
    return err_system(err, "%s: changed while in use: sequence %lld is not in the tokens",
                      s->index.path, (long long)item);
}

/* ---- opening ------------------------------------------------------------------------- */

static int check_runs(struct indexed *s, const unsigned char *lengths,
                      const unsigned char *places, int64_t first, int64_t n,
                      struct err *err) {
    for (int64_t i = 0; i < n; i++) {
        struct token_run run;
        int64_t length = load32(lengths + 4 * i), place = load64(places + 8 * i);
        if (length == 0)
            return err_input(err, "%s: byte %lld: sequence %lld is empty", s->index.path,
                             (long long)at_length(first + i), (long long)(first + i));
        if (!make_run(s, length, place, &run))
            return err_input(err,
                             "%s: sequence %lld: %lld tokens at byte %lld are not in %s, "
                             "which holds %lld tokens of %d bytes",
                             s->index.path, (long long)(first + i), (long long)length,
                             (long long)place, s->tokens.file.path,
                             (long long)s->tokens.view.tokens, s->view.width);
        s->longest = length > s->longest ? length : s->longest;
    }
    return 0;
}

static int check_index(struct indexed *s, struct err *err) {
    unsigned char *room = mem_alloc(12 * CHUNK);
    int rc = 0;
    for (int64_t at = 0, n; at < s->view.items && rc == 0; at += n) {
        n = s->view.items - at < CHUNK ? s->view.items - at : CHUNK;
        rc = datafile_read(&s->index, at_length(at), 4 * n, room, err);
        if (rc == 0)
            rc = datafile_read(&s->index, at_place(s, at), 8 * n, room + 4 * n, err);
        if (rc == 0)
            rc = check_runs(s, room, room + 4 * n, at, n, err);
    }
    free(room);
    return rc;
}

static int open_index(struct indexed *s, const char *path, struct err *err) {
    unsigned char head[INDEXED_HEADER];
    if (datafile_open(&s->index, path, err) < 0)
        return -1;
    int64_t n = s->index.size < INDEXED_HEADER ? s->index.size : INDEXED_HEADER;
    if (datafile_read(&s->index, 0, n, head, err) < 0)
        return -1;
    return indexed_parse(&s->view, head, s->index.size, err) < 0
               ? err_prefix(err, "%s", path)
               : 0;
}

static int open_tokens(struct indexed *s, const char *path, int64_t vocab,
                       struct err *err) {
    struct token_file *f = &s->tokens;
    char *bin = mem_strdup(path);
    memcpy(bin + strlen(bin) - 3, "bin", 3);
    int rc = datafile_open(&f->file, bin, err);
    free(bin);
    if (rc < 0)
        return -1;
    if (f->file.size % s->view.width)
        return err_input(err, "%s: %lld bytes, expected a multiple of %d (%d-bit tokens)",
                         f->file.path, (long long)f->file.size, s->view.width,
                         8 * s->view.width);
    f->view = (struct token_view){0, f->file.size / s->view.width, s->view.width,
                                  "token sequences", false};
    f->vocab = (struct token_vocab){.size = vocab, .less = ""};
    return token_file_check(f, err);
}

int indexed_open(struct indexed *s, const char *path, int64_t vocab, struct err *err) {
    *s = (struct indexed){0};
    if (open_index(s, path, err) == 0 && open_tokens(s, path, vocab, err) == 0 &&
        check_index(s, err) == 0)
        return 0;
    indexed_close(s);
    return -1;
}

void indexed_close(struct indexed *s) {
    datafile_close(&s->index);
    datafile_close(&s->tokens.file);
    *s = (struct indexed){0};
}

int indexed_hash(const struct indexed *s, uint64_t *hash, struct err *err) {
    return datafile_hash(&s->index, hash, err) < 0 ||
                   datafile_hash(&s->tokens.file, hash, err) < 0
               ? -1
               : 0;
}
