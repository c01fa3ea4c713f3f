#include "data/tokens.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LLMC_HEADER = 1024,       /* bytes of the header of llm.c */
    LLMC_MAGIC = 20240520,    /* 16-bit tokens (GPT-2) */
    LLMC_MAGIC_32 = 20240801, /* 32-bit tokens (Llama 3) */
    LLMC_VERSION = 1,
    SCAN_BLOCK = 64, /* tokens checked at a time: a constant trip count vectorizes */
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

/* Index of the first 16-bit token that is not below limit (<= 65535), or n. The maximum
 * of whole blocks is taken without branches; only a block with a culprit is looked at. */
static int64_t find_beyond(const unsigned char *p, int64_t n, uint16_t limit) {
    int64_t i = 0;
    for (; i + SCAN_BLOCK <= n; i += SCAN_BLOCK) {
        uint16_t block[SCAN_BLOCK], beyond = 0;
        memcpy(block, p + 2 * i, sizeof block);
        for (int j = 0; j < SCAN_BLOCK; j++)
            beyond |= block[j] >= limit;
        if (beyond)
            break;
    }
    while (i < n && load16(p + 2 * i) < limit)
        i++;
    return i;
}

static int check_ids(const struct token_view *v, int64_t header, int64_t vocab,
                     struct err *err) {
    if (vocab > UINT16_MAX)
        return 0;
    int64_t i = find_beyond(v->bytes, v->tokens, (uint16_t)vocab);
    if (i == v->tokens)
        return 0;
    err_input(err,
              "byte %lld: token id %d (token %lld of %lld), expected ids below the "
              "vocabulary of %lld",
              (long long)(header + 2 * i), load16(v->bytes + 2 * i), (long long)i,
              (long long)v->tokens, (long long)vocab);
    return err_hint(err, "the file was made by another tokenizer than the model's vocab");
}

static int parse_llmc(struct token_view *v, const unsigned char *bytes, int64_t size,
                      struct err *err) {
    int64_t version = load32(bytes + 4), count = load32(bytes + 8);
    if (version != LLMC_VERSION)
        return err_input(err, "byte 4: version %lld of llm.c's token file, expected %d",
                         (long long)version, LLMC_VERSION);
    if (count != (size - LLMC_HEADER) / 2 || size % 2)
        return err_input(err,
                         "byte 8: the header counts %lld tokens (%lld bytes behind it), "
                         "the file holds %lld bytes behind it",
                         (long long)count, 2 * (long long)count,
                         (long long)(size - LLMC_HEADER));
    *v = (struct token_view){bytes + LLMC_HEADER, count, 2, "llm.c tokens"};
    return 0;
}

static int parse_binary(struct token_view *v, const unsigned char *bytes, int64_t size,
                        int64_t vocab, struct err *err) {
    int64_t header = 0, magic = size >= LLMC_HEADER ? load32(bytes) : 0;
    if (magic == LLMC_MAGIC_32)
        return err_input(err,
                         "byte 0: 32-bit tokens of llm.c (magic %d), expected 16-bit "
                         "tokens (magic %d)",
                         LLMC_MAGIC_32, LLMC_MAGIC);
    if (magic == LLMC_MAGIC) {
        header = LLMC_HEADER;
        if (parse_llmc(v, bytes, size, err) < 0)
            return -1;
    } else {
        if (size % 2)
            return err_input(err, "%lld bytes, expected an even number (16-bit tokens)",
                             (long long)size);
        *v = (struct token_view){bytes, size / 2, 2, "nanoGPT tokens"};
    }
    return check_ids(v, header, vocab, err);
}

static int parse_text(struct token_view *v, const unsigned char *bytes, int64_t size,
                      int64_t vocab, struct err *err) {
    if (vocab < 256) {
        err_input(err,
                  "the bytes of text are its tokens, which needs a vocabulary of 256; "
                  "the model has %lld",
                  (long long)vocab);
        return err_hint(err,
                        "--set vocab=256, or a file of tokens whose name ends in .bin");
    }
    if (size >= 3 && !memcmp(bytes, "\0\0\x08", 3))
        return err_input(err, "is an IDX file (images or labels), expected text or tokens");
    *v = (struct token_view){bytes, size, 1, "text"};
    return 0;
}

int token_view_parse(struct token_view *view, const unsigned char *bytes, int64_t size,
                     bool binary, int64_t vocab, struct err *err) {
    return binary ? parse_binary(view, bytes, size, vocab, err)
                  : parse_text(view, bytes, size, vocab, err);
}

void token_view_read(const struct token_view *view, int64_t first, int64_t count,
                     int32_t *out) {
    const unsigned char *p = view->bytes + first * view->width;
    if (view->width == 1) {
        for (int64_t i = 0; i < count; i++)
            out[i] = p[i];
    } else {
        for (int64_t i = 0; i < count; i++)
            out[i] = load16(p + 2 * i);
    }
}

/* ---- several files ----------------------------------------------------------------- */

static bool ends_in_bin(const char *path) {
    size_t n = strlen(path);
    return n >= 4 && !strcmp(path + n - 4, ".bin");
}

/* Appends one file to the stream. */
static int add_file(struct token_stream *s, const char *path, int64_t vocab,
                    struct err *err) {
    struct token_shard shard = {.begin = s->tokens};
    if (filemap_open(&shard.map, path, err) < 0)
        return -1;
    if (token_view_parse(&shard.view, shard.map.bytes, shard.map.size, ends_in_bin(path),
                         vocab, err) < 0) {
        filemap_close(&shard.map);
        return err_prefix(err, "%s", path);
    }
    if (s->shards && shard.view.width != s->shard[0].view.width) {
        filemap_close(&shard.map);
        return err_input(err, "%s: holds %s, the files before it %s", path,
                         shard.view.format, s->shard[0].view.format);
    }
    s->shard = mem_grow(s->shard, (size_t)s->shards + 1, sizeof *s->shard);
    s->shard[s->shards++] = shard;
    s->tokens += shard.view.tokens;
    return 0;
}

static int add_list(struct token_stream *s, char *list, int64_t vocab, struct err *err) {
    for (char *path = list, *next; path; path = next) {
        next = strchr(path, ',');
        if (next)
            *next++ = '\0';
        if (!*path)
            return err_input(err, "an empty file name in the list of data files");
        if (add_file(s, path, vocab, err) < 0)
            return -1;
    }
    return 0;
}

int token_stream_open(struct token_stream *s, const char *source, int64_t vocab,
                      struct err *err) {
    *s = (struct token_stream){0};
    struct stat st;
    int bad;
    if (stat(source, &st) == 0) {
        bad = add_file(s, source, vocab, err);
    } else {
        char *list = mem_strdup(source);
        bad = add_list(s, list, vocab, err);
        free(list);
    }
    if (bad)
        token_stream_close(s);
    return bad;
}

void token_stream_close(struct token_stream *s) {
    for (int64_t i = 0; i < s->shards; i++)
        filemap_close(&s->shard[i].map);
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

void token_stream_read(const struct token_stream *s, int64_t first, int64_t count,
                       int32_t *out) {
    for (int64_t i = count ? find_shard(s, first) : 0; count; i++) {
        const struct token_shard *shard = &s->shard[i];
        int64_t at = first - shard->begin, left = shard->view.tokens - at;
        int64_t n = count < left ? count : left;
        token_view_read(&shard->view, at, n, out);
        first += n;
        out += n;
        count -= n;
    }
}
