/* import-damaged.h - files of others that are cut short or changed.
 *
 *     damaged("tests/import/llama.hlo");
 */
#ifndef WEFT_TEST_IMPORT_DAMAGED_H
#define WEFT_TEST_IMPORT_DAMAGED_H

#include "common/file.h"
#include "import/import.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* Whatever a file lacks at its end, or has otherwise, is refused or read; nothing else happens. */
static void damaged(const char *path) {
    struct err err = {0};
    size_t size;
    int bad = 0, tried = 0;
    char *bytes = file_read(path, 0, &size, &err), *copy = malloc(size + 1);
    for (size_t i = 1; bytes && i < size; i += 1 + size / 150, tried++) {
        struct err first = {0}, second = {0};
        json_t *notes = NULL,
               *doc = import_exported_bytes(bytes, (int64_t)i, "cut", &notes, &first);
        bad += doc || first.status != EXIT_INPUT || !first.msg[0];
        json_decref(doc);
        json_decref(notes);
        memcpy(copy, bytes, size);
        copy[i] = (char)(copy[i] ^ (1 << i % 8));
        notes = NULL;
        doc = import_exported_bytes(copy, (int64_t)size, "changed", &notes, &second);
        bad += !doc && (second.status != EXIT_INPUT || !second.msg[0]);
        json_decref(doc);
        json_decref(notes);
    }
    ok(!bad && tried > 100, "%d damaged forms of %s", tried, path);
    free(bytes);
    free(copy);
}

#endif
