#include "data/tokens.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LLMC_MAGIC = 20240520,    /* 16-bit tokens (GPT-2) */
    LLMC_MAGIC_32 = 20240801, /* 32-bit tokens (Llama 3) */
    LLMC_VERSION = 1,
    CHUNK =
        4096, /* bytes on the stack that tokens pass through: a multiple of SCAN_TOKENS tokens */
    SCAN_TOKENS = 64, /* tokens checked at a time: a constant trip count vectorizes */
};

static uint16_t load16(const unsigned char *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static int64_t load32(const unsigned char *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- one file ---------------------------------------------------------------------- */

/* Whole blocks first, without a branch per token, so that the compiler uses vectors. */
int64_t token_find_beyond(const unsigned char *p, int64_t n, int64_t vocab) {
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

static int beyond(const struct token_view *v, int64_t token, int id, int64_t vocab,
                  struct err *err) {
    err_input(err,
              "byte %lld: token id %d (token %lld of %lld), expected ids below the "
              "vocabulary of %lld",
              (long long)(v->offset + 2 * token), id, (long long)token,
              (long long)v->tokens, (long long)vocab);
    return err_hint(err, "the file was made with a tokenizer other than the model's");
}

/* Reads the file once from end to end. */
static int check_ids(const struct token_shard *s, int64_t vocab, struct err *err) {
    const struct token_view *v = &s->view;
    if (v->width == 1 || vocab > UINT16_MAX)
        return 0;
    unsigned char *bytes = mem_alloc(DATAFILE_CHUNK);
    int rc = 0;
    for (int64_t at = 0, n; at < v->tokens && rc == 0; at += n) {
        n = v->tokens - at < DATAFILE_CHUNK / 2 ? v->tokens - at : DATAFILE_CHUNK / 2;
        rc = datafile_read(&s->file, v->offset + 2 * at, 2 * n, bytes, err);
        int64_t i = rc == 0 ? token_find_beyond(bytes, n, vocab) : n;
        if (i < n) {
            beyond(v, at + i, load16(bytes + 2 * i), vocab, err);
            rc = err_prefix(err, "%s", s->file.path);
        }
    }
    free(bytes);
    return rc;
}

static int parse_llmc(struct token_view *v, const unsigned char *head, int64_t size,
                      struct err *err) {
    int64_t version = load32(head + 4), count = load32(head + 8);
    if (version != LLMC_VERSION)
        return err_input(err, "byte 4: version %lld of llm.c's token file, expected %d",
                         (long long)version, LLMC_VERSION);
    if (count != (size - TOKEN_HEADER) / 2 || size % 2)
        return err_input(err,
                         "byte 8: the header counts %lld tokens (%lld bytes), "
                         "the file holds %lld bytes after it",
                         (long long)count, 2 * (long long)count,
                         (long long)(size - TOKEN_HEADER));
    *v = (struct token_view){TOKEN_HEADER, count, 2, "llm.c tokens"};
    return 0;
}

/* llm.c's header, or bare tokens as nanoGPT writes them. */
static int parse_binary(struct token_view *v, const unsigned char *head, int64_t size,
                        struct err *err) {
    int64_t magic = size >= TOKEN_HEADER ? load32(head) : 0;
    if (magic == LLMC_MAGIC_32)
        return err_input(err,
                         "byte 0: 32-bit tokens of llm.c (magic %d), expected 16-bit "
                         "tokens (magic %d)",
                         LLMC_MAGIC_32, LLMC_MAGIC);
    if (magic == LLMC_MAGIC)
        return parse_llmc(v, head, size, err);
    if (size % 2)
        return err_input(err, "%lld bytes, expected an even number (16-bit tokens)",
                         (long long)size);
    *v = (struct token_view){0, size / 2, 2, "nanoGPT tokens"};
    return 0;
}

static int parse_text(struct token_view *v, const unsigned char *head, int64_t size,
                      int64_t vocab, struct err *err) {
    if (vocab < 256) {
        err_input(
            err,
            "text is read byte by byte, which needs a vocabulary of 256; the model has %lld",
            (long long)vocab);
        return err_hint(err,
                        "--set vocab=256, or a file of tokens whose name ends in .bin");
    }
    if (size >= 3 && !memcmp(head, "\0\0\x08", 3))
        return err_input(err, "is an IDX file (images or labels), expected text or tokens");
    *v = (struct token_view){0, size, 1, "text"};
    return 0;
}

int token_view_parse(struct token_view *view, const unsigned char *head, int64_t size,
                     bool binary, int64_t vocab, struct err *err) {
    return binary ? parse_binary(view, head, size, err)
                  : parse_text(view, head, size, vocab, err);
}

/* Reads count tokens from first on, both inside the file. The file may have changed since it was
 * checked: no id beyond the vocabulary gets through. */
static int shard_read(const struct token_shard *s, int64_t first, int64_t count,
                      int64_t vocab, int32_t *out, struct err *err) {
    const struct token_view *v = &s->view;
    unsigned char bytes[CHUNK];
    for (int64_t n; count; first += n, out += n, count -= n) {
        n = count < CHUNK / v->width ? count : CHUNK / v->width;
        if (datafile_read(&s->file, v->offset + first * v->width, n * v->width, bytes,
                          err) < 0)
            return -1;
        for (int64_t i = 0; v->width == 1 && i < n; i++)
            out[i] = bytes[i];
        int64_t good = v->width == 1 ? n : token_find_beyond(bytes, n, vocab);
        if (good < n)
            return err_system(err,
                              "%s: changed while in use: byte %lld: token id "
                              "%d, expected ids below %lld",
                              s->file.path, (long long)(v->offset + 2 * (first + good)),
                              load16(bytes + 2 * good), (long long)vocab);
        for (int64_t i = 0; v->width == 2 && i < n; i++)
            out[i] = load16(bytes + 2 * i);
    }
    return 0;
}

/* ---- several files ----------------------------------------------------------------- */

static bool ends_in_bin(const char *path) {
    size_t n = strlen(path);
    return n >= 4 && !strcmp(path + n - 4, ".bin");
}

static int open_shard(struct token_shard *s, const char *path, int64_t vocab,
                      struct err *err) {
    unsigned char head[TOKEN_HEADER];
    if (datafile_open(&s->file, path, err) < 0)
        return -1;
    int64_t n = s->file.size < TOKEN_HEADER ? s->file.size : TOKEN_HEADER;
    if (datafile_read(&s->file, 0, n, head, err) < 0)
        return -1;
    if (token_view_parse(&s->view, head, s->file.size, ends_in_bin(path), vocab, err) < 0)
        return err_prefix(err, "%s", path);
    return check_ids(s, vocab, err);
}

/* Appends one file to the stream. */
static int add_file(struct token_stream *s, const char *path, struct err *err) {
    s->shard = mem_grow(s->shard, (size_t)s->shards + 1, sizeof *s->shard);
    struct token_shard *shard = &s->shard[s->shards++];
    *shard = (struct token_shard){.begin = s->tokens};
    if (open_shard(shard, path, s->vocab, err) < 0)
        return -1;
    if (shard->view.width != s->shard[0].view.width)
        return err_input(err, "%s: holds %s, the files before it %s", path,
                         shard->view.format, s->shard[0].view.format);
    s->tokens += shard->view.tokens;
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
int token_stream_open(struct token_stream *s, const char *source, int64_t vocab,
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
        datafile_close(&s->shard[i].file);
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

int token_stream_read(const struct token_stream *s, int64_t first, int64_t count,
                      int32_t *out, struct err *err) {
    for (int64_t i = count ? find_shard(s, first) : 0; count; i++) {
        const struct token_shard *shard = &s->shard[i];
        int64_t at = first - shard->begin, left = shard->view.tokens - at;
        int64_t n = count < left ? count : left;
        if (shard_read(shard, at, n, s->vocab, out, err) < 0)
            return -1;
        first += n;
        out += n;
        count -= n;
    }
    return 0;
}

int token_stream_hash(const struct token_stream *s, uint64_t *hash, struct err *err) {
    for (int64_t i = 0; i < s->shards; i++)
        if (datafile_hash(&s->shard[i].file, hash, err) < 0)
            return -1;
    return 0;
}
