/* json.h - reading and writing JSON (jansson underneath) with located messages.
 *
 * Getters report "key: expected ..."; callers add the place with err_at (err.h), so the
 * user reads `plan.json: stages[2].mesh: expected an object`.
 *
 *     json_t *root = json_read("plan.json", &err);
 *     int64_t b;
 *     if (json_keys(root, "format model stages", &err) < 0 ||
 *         json_int(root, "batch", 1, INT64_MAX, &b, &err) < 0)
 *         return err_prefix(&err, "plan.json");
 *     json_decref(root);
 */
#ifndef WEFT_JSON_H
#define WEFT_JSON_H

#include "common/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Reads a file ("-" = stdin) holding one JSON value; duplicate keys are refused. Errors are
 * "FILE:line:column: text". The caller owns the reference. */
json_t *json_read(const char *path, struct err *err);

/* The same from text; messages call it `name`. */
json_t *json_parse(const char *text, size_t size, const char *name, struct err *err);

/* The first of the values that stand one after the other in a text, which then begins behind it
 * (white space too); *line counts the lines before, from 0. NULL with an error, or without one
 * at the end. */
json_t *json_parse_next(const char **text, size_t *size, int *line, const char *name,
                        struct err *err);

/* Of a text that is no JSON: what editors of other systems may have made of it, as the end of a message
 * ("begins with a byte-order mark: ..."). NULL: nothing of the kind. */
const char *json_other_encoding(const char *text, size_t size);

/* Checks that obj is an object all of whose keys are in the blank-separated list. */
int json_keys(const json_t *obj, const char *allowed, struct err *err);

/* Checks obj.format == want, such as "weft-plan/1". */
int json_format(const json_t *obj, const char *want, struct err *err);

/* Required members; *out is left alone on failure. Strings and nodes are borrowed. A whole number
 * may be written with an exponent (80e9). */
int json_int(const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
             struct err *err);
int json_num(const json_t *obj, const char *key, double lo, double hi, double *out,
             struct err *err);
int json_str(const json_t *obj, const char *key, const char **out, struct err *err);
int json_object_member(const json_t *obj, const char *key, json_t **out, struct err *err);
int json_array_member(const json_t *obj, const char *key, json_t **out, struct err *err);

/* Optional members: absent leaves *out alone and returns 0. */
int json_opt_int(const json_t *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                 struct err *err);
int json_opt_num(const json_t *obj, const char *key, double lo, double hi, double *out,
                 struct err *err);
int json_opt_str(const json_t *obj, const char *key, const char **out, struct err *err);
int json_opt_bool(const json_t *obj, const char *key, bool *out, struct err *err);

/* One word for the type of v, as in "expected an object, got a string". */
const char *json_type_name(const json_t *v);

/* Writes v canonically: keys sorted, two-space indent, containers of scalars on one line
 * where they fit in 90 columns, numbers as the shortest text that reads back the same.
 * json_write_line puts all of v on one line (JSON Lines). Both end with a newline. */
void json_write(const json_t *v, FILE *f);
void json_write_line(const json_t *v, FILE *f);

/* Writes v to a file by rename ("-" = stdout). */
int json_write_file(const json_t *v, const char *path, struct err *err);

/* Shortest decimal text of x that reads back as x. Returns buf. */
char *json_format_real(double x, char buf[32]);

#endif
