/* Texts to a tokenizer of their own. */
#include "tokens.h"

#include "common/file.h"
#include "common/progress.h"
#include "text/train.h"

#include <stdlib.h>
#include <string.h>

static int feed(struct bpe_trainer *trainer, const char *path, struct err *err) {
    size_t size;
    char *text = file_read(path, 0, &size, err);
    if (!text)
        return -1;
    int rc = bpe_trainer_feed(trainer, text, (int64_t)size, err);
    free(text);
    return rc < 0 ? err_prefix(err, "%s", tokens_name(path)) : 0;
}

int tokens_train(const struct tokens_options *o, char *const *files, int n,
                 struct err *err) {
    const char *added[2];
    int count = 0, rc = 0;
    if (o->begin)
        added[count++] = o->begin;
    if (o->end && !(o->begin && !strcmp(o->begin, o->end)))
        added[count++] = o->end;
    const double start = now_s();
    struct bpe_trainer *trainer = bpe_trainer_create();
    for (int i = 0; rc == 0 && i < n; i++)
        rc = feed(trainer, files[i], err);
    if (rc == 0) {
        json_t *doc = bpe_trainer_finish(trainer, o->train, added, count);
        note_verbose(
            "weft-tokens: %d merges in %.3f s",
            (int)json_array_size(json_object_get(json_object_get(doc, "model"), "merges")),
            now_s() - start);
        rc = json_write_file(doc, o->output ? o->output : "-", err);
        json_decref(doc);
    }
    bpe_trainer_destroy(trainer);
    return rc;
}
