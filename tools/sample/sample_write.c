/* Tokens one after the other, for all prompts side by side: at every position each sequence has
 * either a token of its prompt or one that was chosen, so a short prompt goes on while a long one
 * is still read. */
#include "sample.h"

#include "common/file.h"
#include "common/json.h"
#include "common/progress.h"
#include "common/rng.h"
#include "text/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *p;
    int64_t n, cap;
};

struct writing {
    struct sample_decoding *x;
    const struct prompts *p;
    const struct sample_options *o;
    const struct tokenizer *t; /* NULL: ids are bytes */
    int64_t batch, positions, vocab;
    bool encodes;
    int32_t *tokens; /* [batch, positions] */
    int32_t *window; /* the same, where the decoder has fewer positions */
    int64_t *known;  /* [batch] of each sequence */
    int64_t *begun;  /* [batch] of them those that were given */
    bool *over;      /* [batch] it has all that is wanted, or has stopped */
    float *logits;   /* [batch, vocab] */
    double *logprob; /* [batch, positions] of what was chosen, in --json; NULL else */
    struct chooser chooser;
    bool streams; /* text goes out as it is made */
    struct whole_text whole;
};

/* Appends a token's text to *text: what is whole of it. */
static void add_text(const struct tokenizer *t, struct whole_text *whole, int32_t id,
                     bool first, struct text *text) {
    const char byte = (char)id;
    int64_t n = 1;
    const char *bytes = t ? tokenizer_bytes(t, id, first, &n) : &byte;
    char out[WHOLE_BYTES];
    for (int64_t i = 0; bytes && i < n; i++) {
        const int written = whole_put(whole, (unsigned char)bytes[i], out);
        for (int k = 0; k < written; k++)
            arr_push(text, out[k]);
    }
}

/* What a decoder writes is a text of its own, what others write goes on behind the prompt. */
static bool begins_text(const struct writing *w, int64_t sequence, int64_t at) {
    return w->encodes && at == w->begun[sequence];
}

/* Of a sequence, what was written. */
static struct text all_text(const struct writing *w, int64_t sequence) {
    struct text text = {0};
    struct whole_text whole = {.n = 0};
    char out[WHOLE_BYTES];
    const int32_t *ids = w->tokens + sequence * w->positions;
    for (int64_t i = w->begun[sequence]; i < w->known[sequence]; i++)
        add_text(w->t, &whole, ids[i], begins_text(w, sequence, i), &text);
    for (int k = 0, n = whole_end(&whole, out); k < n; k++)
        arr_push(&text, out[k]);
    return text;
}

static void stream_token(struct writing *w, int32_t id, bool first) {
    struct text text = {0};
    add_text(w->t, &w->whole, id, first, &text);
    fwrite(text.p, 1, (size_t)text.n, stdout);
    fflush(stdout);
    arr_release(&text);
}

/* Chooses what stands at the next position of each sequence that is known no further. */
static void choose(struct writing *w, int64_t at) {
    for (int64_t b = 0; b < w->batch; b++) {
        if (w->over[b] || w->known[b] > at)
            continue;
        const double u = rng_uniform(w->o->seed.value, (uint64_t)b, (uint64_t)at);
        int64_t id = choose_token(&w->chooser, &w->o->choice, w->logits + b * w->vocab, u);
        if (id == w->o->stop) {
            w->over[b] = true;
            continue;
        }
        if (w->logprob)
            w->logprob[b * w->positions + w->known[b]] =
                choose_logprob(w->logits + b * w->vocab, w->vocab, id);
        w->tokens[b * w->positions + w->known[b]++] = (int32_t)id;
        w->over[b] = w->known[b] - w->begun[b] == w->o->tokens;
        if (w->streams)
            stream_token(w, (int32_t)id, begins_text(w, b, w->known[b] - 1));
    }
}

static bool all_over(const struct writing *w) {
    for (int64_t b = 0; b < w->batch; b++)
        if (!w->over[b])
            return false;
    return true;
}

static int64_t shortest(const struct writing *w) {
    int64_t n = w->known[0];
    for (int64_t b = 1; b < w->batch; b++)
        n = w->known[b] < n ? w->known[b] : n;
    return n;
}

/* From here on sequences are longer than one list of their pairs holds for: all of them is gone through again, as
 * transformers does (Phi3ForCausalLM.prepare_inputs_for_generation). */
static int turn(struct writing *w, struct err *err) {
    return sample_decoding_make(w->x, w->positions, err) < 0
               ? -1
               : decoder_begin(w->x->d, NULL, NULL, err);
}

/* Tokens as the decoder has them side by side, which may take fewer of each sequence. */
static const int32_t *window(struct writing *w) {
    const int64_t n = decoder_positions(w->x->d);
    if (n == w->positions)
        return w->tokens;
    for (int64_t b = 0; b < w->batch; b++)
        memcpy(w->window + b * n, w->tokens + b * w->positions,
               (size_t)n * sizeof *w->window);
    return w->window;
}

static int write_tokens(struct writing *w, struct err *err) {
    const double start = now_s();
    int64_t at = 0, chosen = 0;
    for (int64_t end = shortest(w); !all_over(w) && !interrupted(); at = end, end++) {
        if (end > decoder_positions(w->x->d)) {
            if (turn(w, err) < 0)
                return -1;
            at = 0;
        }
        if (decoder_run(w->x->d, window(w), at, end, w->logits, err) < 0)
            return -1;
        choose(w, end);
    }
    for (int64_t b = 0; b < w->batch; b++)
        chosen += w->known[b] - w->begun[b];
    note_verbose("weft-sample: %lld tokens in %.2f s, %.1f a second", (long long)chosen,
                 now_s() - start, (double)chosen / (now_s() - start));
    return 0;
}

/* ---- output ------------------------------------------------------------------------------- */

static void print_ids(const struct writing *w, int64_t b) {
    const int32_t *t = w->tokens + b * w->positions;
    for (int64_t i = w->begun[b]; i < w->known[b]; i++)
        printf("%s%d", i > w->begun[b] ? " " : "", t[i]);
    putchar('\n');
}

static void print_json(const struct writing *w, int64_t b) {
    const int32_t *t = w->tokens + b * w->positions + w->begun[b];
    const int64_t n = w->known[b] - w->begun[b];
    json_t *ids = json_array(), *logs = json_array();
    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(ids, json_integer(t[i]));
        json_array_append_new(logs,
                              json_real(w->logprob[b * w->positions + w->begun[b] + i]));
    }
    json_t *line = json_pack("{s:o, s:o}", "tokens", ids, "logprobs", logs);
    const char *prompt = w->p->all.p[b].text;
    if (prompt) {
        json_t *given = json_string(prompt);
        json_object_set_new(line, "prompt", given ? given : json_null());
        struct text text = all_text(w, b);
        json_object_set_new(line, "text",
                            json_stringn(text.n ? text.p : "", (size_t)text.n));
        arr_release(&text);
    }
    json_write_line(line, stdout);
    json_decref(line);
}

static void print_text(const struct writing *w, int64_t b) {
    struct text text = all_text(w, b);
    fputs(w->p->all.p[b].text, stdout);
    fwrite(text.p, 1, (size_t)text.n, stdout); /* it may hold zeros */
    putchar('\n');
    arr_release(&text);
}

static void print_all(struct writing *w) {
    if (w->streams) {
        char out[WHOLE_BYTES];
        fwrite(out, 1, (size_t)whole_end(&w->whole, out), stdout);
        putchar('\n');
    }
    for (int64_t b = 0; b < w->batch && !w->streams; b++) {
        if (w->o->json)
            print_json(w, b);
        else if (w->o->ids)
            print_ids(w, b);
        else
            print_text(w, b);
    }
}

/* ---- all of it ---------------------------------------------------------------------------- */

static int begin(struct writing *w, const struct model *m, struct err *err) {
    if (!w->encodes)
        return decoder_begin(w->x->d, NULL, NULL, err);
    const int64_t n = decoder_inputs(w->x->d);
    int32_t *input = mem_array((size_t)(w->batch * n), sizeof *input);
    int32_t *lengths = mem_array((size_t)w->batch, sizeof *lengths);
    for (int64_t b = 0; b < w->batch; b++) {
        const struct prompt *p = &w->p->all.p[b];
        for (int64_t i = 0; i < n; i++)
            input[b * n + i] = i < p->n ? p->ids[i] : (int32_t)m->data.pad;
        lengths[b] = (int32_t)p->n;
    }
    int rc = decoder_begin(w->x->d, input, lengths, err);
    free(input);
    free(lengths);
    return rc;
}

/* What is known at first: the prompts, or the decoder's first token. */
static void give(struct writing *w, const struct model *m) {
    for (int64_t b = 0; b < w->batch; b++) {
        const struct prompt *p = &w->p->all.p[b];
        int32_t *t = w->tokens + b * w->positions;
        w->known[b] = w->begun[b] = w->encodes ? 1 : p->n;
        if (w->encodes)
            *t = (int32_t)m->data.start;
        else
            memcpy(t, p->ids, (size_t)p->n * sizeof *t);
        w->over[b] = !w->o->tokens;
    }
}

int sample_decoding_make(struct sample_decoding *x, int64_t positions, struct err *err) {
    decoder_destroy(x->d);
    x->d = NULL;
    if (positions != source_positions(x->source))
        source_resize(x->source, positions);
    x->d = decoder_create(x->source->model, &x->how, err);
    if (!x->d || source_load(x->source, x->d, err) < 0)
        return -1;
    note_verbose("weft-sample: %s: %lld positions, %.1f MiB", x->source->model->name,
                 (long long)decoder_positions(x->d),
                 (double)decoder_bytes(x->d) / (1 << 20));
    return 0;
}

static int64_t shortest_prompt(const struct prompts *p) {
    int64_t n = p->longest;
    for (int64_t i = 0; i < p->all.n; i++)
        n = p->all.p[i].n < n ? p->all.p[i].n : n;
    return n;
}

int sample_write(struct sample_decoding *x, const struct prompts *p,
                 const struct sample_options *o, const struct tokenizer *t,
                 struct err *err) {
    const bool turns = x->turn && shortest_prompt(p) <= x->turn;
    if (sample_decoding_make(x, turns ? x->turn : x->positions, err) < 0)
        return -1;
    const int64_t batch = p->all.n, positions = x->positions;
    struct writing w = {.x = x,
                        .p = p,
                        .o = o,
                        .t = t,
                        .batch = batch,
                        .positions = positions,
                        .vocab = decoder_vocab(x->d),
                        .encodes = decoder_inputs(x->d) > 0,
                        .streams = batch == 1 && !o->ids && !o->json};
    w.tokens = mem_array((size_t)(batch * positions), sizeof *w.tokens);
    w.window = mem_array((size_t)(batch * positions), sizeof *w.window);
    w.known = mem_array((size_t)batch, sizeof *w.known);
    w.begun = mem_array((size_t)batch, sizeof *w.begun);
    w.over = mem_array((size_t)batch, sizeof *w.over);
    w.logits = mem_array((size_t)(batch * w.vocab), sizeof *w.logits);
    if (o->json)
        w.logprob = mem_array((size_t)(batch * positions), sizeof *w.logprob);
    w.chooser = chooser_create(w.vocab);
    give(&w, x->source->model);
    if (w.streams)
        printf("%s", p->all.p[0].text);
    int rc = begin(&w, x->source->model, err);
    if (rc == 0)
        rc = write_tokens(&w, err);
    if (rc == 0)
        print_all(&w);
    chooser_release(&w.chooser);
    free(w.logprob);
    free(w.logits);
    free(w.over);
    free(w.begun);
    free(w.known);
    free(w.window);
    free(w.tokens);
    return rc < 0 ? -1 : file_stdout_check(err);
}
