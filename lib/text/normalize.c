#include "text/normalize.h"

#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

void normalizer_release(struct normalizer *z) {
    arr_release(&z->steps);
    nfc_destroy(z->nfc);
    charsmap_release(&z->map);
    free(z->rooms[0].p);
    free(z->rooms[1].p);
    *z = (struct normalizer){0};
}

bool normalizer_takes_blanks(const struct normalizer *z) {
    for (int64_t i = 0; i < z->steps.n; i++) {
        const struct normal_step *s = &z->steps.p[i];
        if (s->kind == NORMAL_REPLACE && s->from.n == 1 && *s->from.bytes == ' ' &&
            !memchr(s->to.bytes, ' ', (size_t)s->to.n))
            return true;
    }
    return false;
}

/* ---- reading ------------------------------------------------------------------------------- */

static struct span keep(struct arena *arena, const char *text) {
    return (struct span){arena_strdup(arena, text), (int64_t)strlen(text)};
}

static int read_replace(struct normal_step *step, struct arena *arena, const json_t *doc,
                        struct err *err) {
    json_t *pattern;
    const char *text, *content;
    if (json_keys(doc, "type pattern content", err) < 0 ||
        json_str(doc, "content", &content, err) < 0 ||
        json_object_member(doc, "pattern", &pattern, err) < 0)
        return -1;
    step->to = keep(arena, content);
    if (json_object_get(pattern, "Regex")) {
        if (json_str(pattern, "Regex", &text, err) < 0)
            return err_at(err, "pattern");
        step->kind = NORMAL_BLANKS;
        return strcmp(text, " {2,}") != 0
                   ? err_input(err, "pattern.Regex: \"%.40s\", expected \" {2,}\"", text)
                   : 0;
    }
    if (json_keys(pattern, "String", err) < 0 ||
        json_str(pattern, "String", &text, err) < 0)
        return err_at(err, "pattern");
    if (!*text)
        return err_input(err, "pattern.String: expected text");
    step->kind = NORMAL_REPLACE;
    step->from = keep(arena, text);
    return 0;
}

static int read_charsmap(struct normalizer *z, const json_t *doc, struct err *err) {
    const char *base64;
    if (json_keys(doc, "type precompiled_charsmap", err) < 0 ||
        json_str(doc, "precompiled_charsmap", &base64, err) < 0)
        return -1;
    if (z->map.n)
        return err_input(err, "type: a second \"Precompiled\", expected at most one");
    return charsmap_read(&z->map, base64, strlen(base64), err) < 0
               ? err_prefix(err, "precompiled_charsmap")
               : 0;
}

static int read_step(struct normalizer *z, struct arena *arena, const json_t *doc,
                     const char *type, struct err *err) {
    struct normal_step step = {.kind = NORMAL_NFC};
    const char *text;
    int rc = 0;
    if (!strcmp(type, "NFC")) {
        rc = json_keys(doc, "type", err);
        z->nfc = z->nfc ? z->nfc : nfc_create();
    } else if (!strcmp(type, "Precompiled")) {
        step.kind = NORMAL_CHARSMAP;
        rc = read_charsmap(z, doc, err);
    } else if (!strcmp(type, "Prepend")) {
        step.kind = NORMAL_PREPEND;
        rc = json_keys(doc, "type prepend", err) < 0 ||
                     json_str(doc, "prepend", &text, err) < 0
                 ? -1
                 : 0;
        step.to = rc == 0 ? keep(arena, text) : step.to;
    } else if (!strcmp(type, "Replace")) {
        rc = read_replace(&step, arena, doc, err);
    } else if (!strcmp(type, "Strip")) {
        step.kind = NORMAL_STRIP;
        rc = json_keys(doc, "type strip_left strip_right", err) < 0 ||
                     json_opt_bool(doc, "strip_left", &step.left, err) < 0 ||
                     json_opt_bool(doc, "strip_right", &step.right, err) < 0
                 ? -1
                 : 0;
    } else {
        rc = err_input(err,
                       "type: \"%.40s\", expected NFC, Precompiled, Prepend, Replace, "
                       "Strip or Sequence",
                       type);
    }
    if (rc == 0)
        arr_push(&z->steps, step);
    return rc;
}

int normalizer_read(struct normalizer *z, struct arena *arena, const json_t *doc,
                    struct err *err) {
    const char *type;
    json_t *list;
    if (!doc || json_is_null(doc))
        return 0;
    if (json_str(doc, "type", &type, err) < 0)
        return -1;
    if (strcmp(type, "Sequence") != 0)
        return read_step(z, arena, doc, type, err);
    if (json_keys(doc, "type normalizers", err) < 0 ||
        json_array_member(doc, "normalizers", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (json_str(one, "type", &type, err) < 0 ||
            read_step(z, arena, one, type, err) < 0)
            return err_at(err, "normalizers[%d]", (int)i);
    }
    return 0;
}

/* ---- running ------------------------------------------------------------------------------- */

static void replace(struct span s, struct span from, struct span to, struct nfc_text *out) {
    const char *end = s.bytes + s.n;
    for (const char *at = s.bytes; at < end;) {
        const bool here = end - at >= from.n && !memcmp(at, from.bytes, (size_t)from.n);
        nfc_text_put(out, here ? to.bytes : at, here ? to.n : 1);
        at += here ? from.n : 1;
    }
}

static void replace_blanks(struct span s, struct span to, struct nfc_text *out) {
    const char *end = s.bytes + s.n;
    for (const char *at = s.bytes, *next; at < end; at = next) {
        for (next = at; next < end && *next == ' '; next++)
            ;
        const bool many = next - at > 1;
        next += next == at;
        nfc_text_put(out, many ? to.bytes : at, many ? to.n : 1);
    }
}

static struct span strip(const unsigned char *kinds, struct span s, bool left, bool right) {
    const char *begin = s.bytes, *end = begin + s.n;
    if (left)
        begin = unicode_space_behind(kinds, begin, end);
    if (right)
        end = unicode_space_before(kinds, begin, end);
    return (struct span){begin, end - begin};
}

struct span normalizer_run(struct normalizer *z, const unsigned char *kinds,
                           struct span s) {
    int used = 0;
    z->head = 1;
    for (int64_t i = 0; i < z->steps.n; i++) {
        const struct normal_step *step = &z->steps.p[i];
        struct nfc_text *out = &z->rooms[used];
        if (s.n == 0)
            break; /* and nothing comes of it */
        if (step->kind == NORMAL_STRIP) {
            s = strip(kinds, s, step->left, step->right);
            continue;
        }
        if (step->kind == NORMAL_NFC && !nfc_may_change(s.bytes, s.n))
            continue;
        out->n = 0;
        switch (step->kind) {
        case NORMAL_NFC: nfc_compose(z->nfc, s.bytes, s.n, out); break;
        case NORMAL_CHARSMAP: z->head = charsmap_apply(&z->map, s.bytes, s.n, out); break;
        case NORMAL_PREPEND:
            nfc_text_put(out, step->to.bytes, step->to.n);
            nfc_text_put(out, s.bytes, s.n);
            break;
        case NORMAL_REPLACE: replace(s, step->from, step->to, out); break;
        case NORMAL_BLANKS: replace_blanks(s, step->to, out); break;
        case NORMAL_STRIP: break;
        }
        s = (struct span){out->p, out->n};
        used = !used;
    }
    return s;
}
