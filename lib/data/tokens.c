#include "data/tokens.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LLMC_MAGIC = 20240520,    /* 16-bit tokens (GPT-2) */
    LLMC_MAGIC_32 = 20240801, /* 32-bit tokens (Llama 3) */
    LLMC_VERSION = 1,
    LLMC_VERSION_32 = 7, /* as llm.c's dev/data/data_common.py writes it */
    CHUNK =
        4096, /* bytes on the stack that tokens pass through: a multiple of SCAN_TOKENS tokens */
    SCAN_TOKENS = 64, /* tokens checked at a time: a constant trip count vectorizes */
};

/* Token i; bits of 32-bit ones are taken as they are, without a sign. */
static int64_t token_at(const unsigned char *p, int64_t i, int width) {
    if (width == 1)
        return p[i];
    return width == 2 ? load16(p + 2 * i) : (uint32_t)load32(p + 4 * i);
}

static int64_t id_at(const struct token_view *v, const unsigned char *p, int64_t i) {
    const int64_t token = token_at(p, i, v->width);
    return v->masked ? token & ~(uint32_t)TOKEN_MASK : token;
}

/* ---- one file ---------------------------------------------------------------------- */

static int64_t find_beyond16(const unsigned char *p, int64_t n, int64_t vocab) {
    int64_t i = 0;
    if (vocab > UINT16_MAX)
        return n;
    uint16_t limit = (uint16_t)vocab;
    for (; i + SCAN_TOKENS <= n; i += SCAN_TOKENS) {
        uint16_t part[SCAN_TOKENS], beyond = 0;
        memcpy(part, p + 2 * i, sizeof part);
        for (int j = 0; j < SCAN_TOKENS; j++)
            beyond |= part[j] >= limit;
        if (beyond)
            break;
    }
    while (i < n && load16(p + 2 * i) < limit)
        i++;
    return i;
}

int64_t token_find_beyond(const unsigned char *p, int64_t n, int width, int64_t vocab) {
    if (width == 2)
        return find_beyond16(p, n, vocab);
    int64_t i = 0;
    while (i < n && token_at(p, i, width) < vocab)
        i++;
    return i;
}

static int64_t find_beyond(const struct token_file *f, const unsigned char *p, int64_t n) {
    int64_t i = 0;
    if (!f->view.masked)
        return token_find_beyond(p, n, f->view.width, f->vocab.size);
    while (i < n && id_at(&f->view, p, i) < f->vocab.size)
        i++;
    return i;
}

static int beyond(const struct token_file *f, int64_t token, int64_t id, struct err *err) {
    const struct token_view *v = &f->view;
    err_input(err,
              "%s: byte %lld: token id %lld (token %lld of %lld), expected ids below the "
              "vocabulary of %lld%s",
              f->file.path, (long long)(v->offset + v->width * token), (long long)id,
              (long long)token, (long long)v->tokens, (long long)f->vocab.size,
              f->vocab.less);
    return err_hint(err, "the file was made with a tokenizer other than the model's");
}

/* Are n 16-bit tokens the halves of 32-bit ids? Then the upper ones are too small to be tokens, but
 * for text of one token. */
struct halves {
    bool possible, any;
};

static void look_for_halves(struct halves *h, const unsigned char *p, int64_t n,
                            int64_t vocab) {
    for (int64_t i = 0; i + 1 < n && h->possible; i += 2) {
        h->possible = load16(p + 2 * (i + 1)) <= vocab >> 16;
        h->any |= load16(p + 2 * i) != 0;
    }
}

static int check_halves(const struct token_file *f, const struct halves *h,
                        struct err *err) {
    enum { LEAST = 256 }; /* fewer may look so by chance */
    const struct token_view *v = &f->view;
    if (!h->possible || !h->any || v->tokens < LEAST || v->tokens % 2)
        return 0;
    err_input(err,
              "%s: every second token is %s: these are 32-bit tokens, expected 16-bit ones",
              f->file.path, f->vocab.size >> 16 ? "at most 1" : "0");
    return err_hint(err, "files of 32-bit tokens without a header are called FILE.u32");
}

int token_file_check(const struct token_file *f, struct err *err) {
    const struct token_view *v = &f->view;
    if (f->vocab.gaps || (v->width == 1 && f->vocab.size > UINT8_MAX))
        return 0;
    struct halves halves = {.possible = v->width == 2};
    int64_t most = DATAFILE_CHUNK / v->width;
    unsigned char *bytes = mem_alloc(DATAFILE_CHUNK);
    int rc = 0;
    for (int64_t at = 0, n; at < v->tokens && rc == 0; at += n) {
        n = v->tokens - at < most ? v->tokens - at : most;
        rc = datafile_read(&f->file, v->offset + v->width * at, v->width * n, bytes, err);
        int64_t i = rc == 0 ? find_beyond(f, bytes, n) : n;
        if (i < n)
            rc = beyond(f, at + i, id_at(v, bytes, i), err);
        else if (halves.possible)
            look_for_halves(&halves, bytes, n, f->vocab.size);
    }
    free(bytes);
    return rc < 0 ? -1 : check_halves(f, &halves, err);
}

/* Tokens as they are in the file, all of the vocabulary. */
static int read_ids(const struct token_file *f, int64_t first, int64_t n, void *out,
                    struct err *err) {
    const struct token_view *v = &f->view;
    if (datafile_read(&f->file, v->offset + first * v->width, n * v->width, out, err) < 0)
        return -1;
    int64_t good = find_beyond(f, out, n);
    if (good == n)
        return 0;
    return err_system(err, "%s: %sbyte %lld: token id %lld, expected ids below %lld",
                      f->file.path, f->vocab.gaps ? "" : "changed while in use: ",
                      (long long)(v->offset + v->width * (first + good)),
                      (long long)id_at(v, out, good), (long long)f->vocab.size);
}

int token_file_read(const struct token_file *f, int64_t first, int64_t count, int32_t *out,
                    struct err *err) {
    const int width = f->view.width;
    unsigned char bytes[CHUNK];
    for (int64_t n; count; first += n, out += n, count -= n) {
        n = count < CHUNK / width ? count : CHUNK / width;
        if (read_ids(f, first, n, bytes, err) < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            out[i] = (int32_t)token_at(bytes, i, width);
    }
    return 0;
}

static int parse_llmc(struct token_view *v, const unsigned char *head, int64_t size,
                      int width, struct err *err) {
    int64_t version = load32(head + 4), count = load32(head + 8);
    const int expected = width == 2 ? LLMC_VERSION : LLMC_VERSION_32;
    if (version != expected)
        return err_input(err, "byte 4: version %lld of llm.c's token file, expected %d",
                         (long long)version, expected);
    if (count != (size - TOKEN_HEADER) / width || size % width)
        return err_input(err,
                         "byte 8: the header counts %lld tokens (%lld bytes), "
                         "the file holds %lld bytes after it",
                         (long long)count, width * (long long)count,
                         (long long)(size - TOKEN_HEADER));
    *v = (struct token_view){TOKEN_HEADER, count, width, "llm.c tokens", false};
    return 0;
}

/* llm.c's header, or bare tokens as nanoGPT writes them. */
static int parse_binary(struct token_view *v, const unsigned char *head, int64_t size,
                        struct err *err) {
    int64_t magic = size >= TOKEN_HEADER ? load32(head) : 0;
    if (magic == LLMC_MAGIC || magic == LLMC_MAGIC_32)
        return parse_llmc(v, head, size, magic == LLMC_MAGIC ? 2 : 4, err);
    if (size % 2)
        return err_input(err, "%lld bytes, expected an even number (16-bit tokens)",
                         (long long)size);
    *v = (struct token_view){0, size / 2, 2, "nanoGPT tokens", false};
    return 0;
}

static int parse_u32(struct token_view *v, int64_t size, bool masked, struct err *err) {
    if (size % 4)
        return err_input(err, "%lld bytes, expected a multiple of 4 (32-bit tokens)",
                         (long long)size);
    *v = (struct token_view){0, size / 4, 4, masked ? "masked tokens" : "32-bit tokens",
                             masked};
    return 0;
}

static int parse_text(struct token_view *v, const unsigned char *head, int64_t size,
                      struct token_vocab vocab, struct err *err) {
    if (vocab.size < 256) {
        err_input(err,
                  "text is read byte by byte, which needs a vocabulary of 256; "
                  "the model has %lld%s",
                  (long long)vocab.size, vocab.less);
        return err_hint(
            err, "--set vocab=256, or a file of tokens whose name ends in .bin or .u32");
    }
    if (size >= 3 && !memcmp(head, "\0\0\x08", 3))
        return err_input(err, "is an IDX file (images or labels), expected text or tokens");
    *v = (struct token_view){0, size, 1, "text", false};
    return 0;
}

int token_view_parse(struct token_view *view, const unsigned char *head, int64_t size,
                     enum token_name name, struct token_vocab vocab, struct err *err) {
    switch (name) {
    case TOKEN_BIN: return parse_binary(view, head, size, err);
    case TOKEN_U32:
    case TOKEN_M32: return parse_u32(view, size, name == TOKEN_M32, err);
    default: return parse_text(view, head, size, vocab, err);
    }
}

/* ---- several files ----------------------------------------------------------------- */

static enum token_name name_of(const char *path) {
    size_t n = strlen(path);
    const char *end = n >= 4 ? path + n - 4 : "";
    return !strcmp(end, ".bin")   ? TOKEN_BIN
           : !strcmp(end, ".u32") ? TOKEN_U32
           : !strcmp(end, ".m32") ? TOKEN_M32
                                  : TOKEN_TEXT;
}

static int open_shard(struct token_file *f, const char *path, struct err *err) {
    unsigned char head[TOKEN_HEADER];
    if (datafile_open(&f->file, path, err) < 0)
        return -1;
    int64_t n = f->file.size < TOKEN_HEADER ? f->file.size : TOKEN_HEADER;
    if (datafile_read(&f->file, 0, n, head, err) < 0)
        return -1;
    if (token_view_parse(&f->view, head, f->file.size, name_of(path), f->vocab, err) < 0)
        return err_prefix(err, "%s", path);
    return token_file_check(f, err);
}

/* Appends one file to the stream. */
static int add_file(struct token_stream *s, const char *path, struct err *err) {
    s->shard = mem_grow(s->shard, (size_t)s->shards + 1, sizeof *s->shard);
    struct token_shard *shard = &s->shard[s->shards++];
    *shard = (struct token_shard){.tokens = {.vocab = s->vocab}, .begin = s->tokens};
    if (open_shard(&shard->tokens, path, err) < 0)
        return -1;
    const struct token_view *view = &shard->tokens.view, *first = &s->shard[0].tokens.view;
    if ((view->width == 1) != (first->width == 1))
        return err_input(err, "%s: holds %s, the files before it %s", path, view->format,
                         first->format);
    if (s->shards > 1 && (view->masked || first->masked))
        return err_input(err, "%s: masked tokens are one file", path);
    s->tokens += view->tokens;
    return 0;
}

static int add_list(struct token_stream *s, char *list, struct err *err) {
    for (char *path = list, *next; path; path = next) {
        next = strchr(path, ',');
        if (next)
            *next++ = '\0';
        if (!*path)
            return err_input(err, "an empty file name in the list of data files");
        if (add_file(s, path, err) < 0)
            return -1;
    }
    return 0;
}

/* A file whose name has commas is that file, not a list. */
int token_stream_open(struct token_stream *s, const char *source, struct token_vocab vocab,
                      struct err *err) {
    *s = (struct token_stream){.vocab = vocab};
    struct stat st;
    int bad;
    if (stat(source, &st) == 0) {
        bad = add_file(s, source, err);
    } else {
        char *list = mem_strdup(source);
        bad = add_list(s, list, err);
        free(list);
    }
    if (bad)
        token_stream_close(s);
    return bad;
}

void token_stream_close(struct token_stream *s) {
    for (int64_t i = 0; i < s->shards; i++)
        datafile_close(&s->shard[i].tokens.file);
    free(s->shard);
    *s = (struct token_stream){0};
}

/* The shard that holds token `first`: the last one that begins at or before it. */
static int64_t find_shard(const struct token_stream *s, int64_t first) {
    int64_t lo = 0, hi = s->shards - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (s->shard[mid].begin <= first)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Packed ones are as wide as in the files, which then agree in that. */
static int read_stream(const struct token_stream *s, int64_t first, int64_t count,
                       bool packed, char *out, struct err *err) {
    for (int64_t i = count ? find_shard(s, first) : 0; count; i++) {
        const struct token_shard *shard = &s->shard[i];
        const struct token_file *f = &shard->tokens;
        int64_t at = first - shard->begin, left = f->view.tokens - at;
        int64_t n = count < left ? count : left;
        int rc = packed ? read_ids(f, at, n, out, err)
                        : token_file_read(f, at, n, (int32_t *)out, err);
        if (rc < 0)
            return -1;
        first += n;
        out += n * (packed ? f->view.width : (int)sizeof(int32_t));
        count -= n;
    }
    return 0;
}

int token_stream_read(const struct token_stream *s, int64_t first, int64_t count,
                      int32_t *out, struct err *err) {
    return read_stream(s, first, count, false, (char *)out, err);
}

enum dtype token_stream_form(const struct token_stream *s) {
    int width = s->shard[0].tokens.view.width;
    for (int64_t i = 1; i < s->shards; i++)
        if (s->shard[i].tokens.view.width != width)
            return DTYPE_i32;
    return width == 1 ? DTYPE_u8 : width == 2 ? DTYPE_u16 : DTYPE_i32;
}

int token_stream_packed(const struct token_stream *s, int64_t first, int64_t count,
                        void *out, struct err *err) {
    bool packed = token_stream_form(s) != DTYPE_i32;
    return read_stream(s, first, count, packed, out, err);
}

int token_stream_hash(const struct token_stream *s, uint64_t *hash, struct err *err) {
    for (int64_t i = 0; i < s->shards; i++)
        if (datafile_hash(&s->shard[i].tokens.file, hash, err) < 0)
            return -1;
    return 0;
}
