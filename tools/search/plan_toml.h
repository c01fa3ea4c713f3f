/* plan_toml.h - what configurations of trainers need of TOML: tables, numbers, strings, truths, arrays.
 *
 *     json_t *flat = plan_toml_read("[training]\nseq_len = 8192\n", &err);
 *     // {"training.seq_len": "8192"}
 */
#ifndef WEFT_PLAN_TOML_H
#define WEFT_PLAN_TOML_H

#include "common/json.h"

/* Each value under the names of its tables and its own, joined by dots: a scalar as its text, an array
 * as an array of such. Dates, inline tables, arrays of tables and strings of several lines are refused,
 * like whatever else is not TOML, by line. New reference; NULL on failure. */
json_t *plan_toml_read(const char *text, struct err *err);

/* The same of a JSON document, an object. */
json_t *plan_json_flat(const json_t *doc);

#endif
