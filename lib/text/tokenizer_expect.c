/* What of a tokenizer.json must be as it is. */
#include "text/tokenizer_impl.h"

#include <string.h>

int tokenizer_expect_null(const json_t *obj, const char *key, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return 0;
    return err_input(err, "%s: expected null, got %s", key, json_type_name(v));
}

int tokenizer_expect_false(const json_t *obj, const char *key, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_false(v) || json_is_null(v))
        return 0;
    return err_input(err, "%s: expected false", key);
}

int tokenizer_expect_type(const json_t *obj, const char *want, struct err *err) {
    const char *type;
    if (json_str(obj, "type", &type, err) < 0)
        return -1;
    if (strcmp(type, want) != 0)
        return err_input(err, "type: \"%.40s\", expected \"%s\"", type, want);
    return 0;
}
