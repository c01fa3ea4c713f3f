/* Archives of torch.export: what a zip says, and what is refused of a damaged one. */
#include "model.h"

#include "import/archive.h"
#include "import/import.h"
#include "message.h"

#include <stdio.h>

static char *bytes;
static long size;

static int read_all(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    bytes = malloc((size_t)size + 1);
    size_t n = fread(bytes, 1, (size_t)size, f);
    fclose(f);
    return n == (size_t)size ? 0 : -1;
}

/* Is the archive refused, with a message that says so? */
static bool is_refused(const void *data, long n, struct err *err) {
    json_t *notes;
    *err = (struct err){0};
    json_t *doc = import_exported_bytes(data, n, "damaged", &notes, err);
    json_decref(doc);
    json_decref(doc ? notes : NULL);
    return !doc && err->status == EXIT_INPUT && err->msg[0];
}

static void cut_off(void) {
    struct err err;
    int refused = 0, tried = 0;
    for (long n = 0; n < size; n += 1 + size / 97, tried++)
        refused += is_refused(bytes, n, &err);
    ok(refused == tried, "%d of %d lengths are refused", refused, tried);
}

/* Of the bytes that decide: each of the directory, and some of the program. */
static void changed(void) {
    struct archive a;
    struct err err = {0};
    int entries = archive_parse(&a, bytes, size, &err) == 0 ? (int)a.entries.n : 0;
    const struct archive_entry *e = archive_match(&a, "models/", ".json");
    long from = e ? (long)(e->bytes - (const uint8_t *)bytes) : 0;
    int64_t n = e ? e->size : 0;
    ok(entries > 3 && e && archive_check(e, &err) == 0, "%d entries", entries);
    ok(!archive_find(&a, "models/none.json"), "of which none has another name");
    archive_close(&a);
    int refused = 0, tried = 0;
    for (int64_t i = 0; i < n; i += 1 + n / 61, tried++) {
        bytes[from + i] ^= 1;
        refused += is_refused(bytes, size, &err);
        bytes[from + i] ^= 1;
    }
    ok(refused == tried, "a changed byte of the program is seen: %s", err.msg);
    for (long i = size - 22; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (char)(1 << bit);
            json_t *notes, *doc = import_exported_bytes(bytes, size, "x", &notes, &err);
            json_decref(doc ? notes : NULL);
            json_decref(doc);
            bytes[i] ^= (char)(1 << bit);
        }
    ok(1, "what a changed end says is within the file");
}

static void others(void) {
    struct err err;
    ok(is_refused("PK\3\4", 4, &err) && message_holds(err.msg, "zip archive...end"),
       "refused: %s", err.msg);
    static const char empty[] = "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    ok(is_refused(empty, 22, &err) && message_holds(err.msg, "models/NAME.json"),
       "refused: %s", err.msg);
    static const char many[] = "PK\5\6\0\0\0\0\377\377\377\377\0\0\0\0\0\0\0\0\0";
    ok(is_refused(many, 22, &err), "refused: %s", err.msg);
}

int main(void) {
    if (!ok(read_all("tests/import/unet.pt2") == 0, "an archive is read"))
        return done_testing();
    cut_off();
    changed();
    others();
    free(bytes);
    return done_testing();
}
