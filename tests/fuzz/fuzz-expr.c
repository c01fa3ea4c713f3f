/* Fuzzes the arithmetic of sizes ("2*layers") and the patterns and meshes of plans, which are
 * small languages of their own (libFuzzer). The first byte chooses. */
#include "model/expr.h"
#include "model/pattern.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int lookup(void *ctx, const char *name, int64_t *out, struct err *err) {
    (void)ctx;
    if (name[0] == 'x')
        return err_input(err, "size \"%.64s\" is not defined", name);
    *out = name[0] == 'm' ? INT64_MAX : (int64_t)strlen(name);
    return 0;
}

static void check_error(int rc, const struct err *err) {
    if (rc < 0 && (err->status != EXIT_INPUT || !err->msg[0]))
        abort();
}

static void check_mesh(const char *text) {
    struct err err = {0};
    struct mesh mesh, again;
    int rc = mesh_parse(text, 1 << 20, &mesh, &err);
    check_error(rc, &err);
    if (rc < 0)
        return;
    char buf[MESH_MAX_AXES * (MESH_MAX_NAME + 12)];
    mesh_format(&mesh, buf, sizeof buf);
    if (mesh_devices(&mesh) < 1 || mesh_devices(&mesh) > 1 << 20 ||
        mesh_parse(buf, 1 << 20, &again, NULL) < 0 || memcmp(&mesh, &again, sizeof mesh))
        abort();
}

/* What is remembered of the names before changes no answer. */
static void check_pattern(const char *text) {
    static const char *const names[] = {"wte",          "layer.1.fc1", "layer.1.fc2",
                                        "layer.12.fc1", "layer",       "layer.1",
                                        "layer.1.fc1",  "wte.12"};
    struct pattern remembers = {.text = text};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pattern fresh = {.text = text};
        if (pattern_covers(&remembers, names[i]) != pattern_covers(&fresh, names[i]))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!size || memchr(bytes, 0, size))
        return 0;
    char *text = malloc(size);
    memcpy(text, bytes + 1, size - 1);
    text[size - 1] = '\0';
    struct err err = {0};
    int64_t v;
    switch (bytes[0] % 3) {
    case 0: check_error(expr_eval(text, lookup, NULL, &v, &err), &err); break;
    case 1: check_mesh(text); break;
    default:
        if (pattern_valid(text))
            check_pattern(text);
    }
    free(text);
    return 0;
}
