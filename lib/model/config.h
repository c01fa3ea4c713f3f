/* config.h - Hugging Face's config.json as a model.
 *
 * The section "weights" of a shipped model says what its config.json holds: "hidden_size":
 * "=hidden". Here this table is read backwards. A family is found by its model_type; what its
 * table has a size or rate for is put into it, what stands for itself there must be so in the
 * config, and a key that neither the table nor transformers' habits explain is refused unless it
 * is null or false: what a config says is in the model, or is said to be missing.
 *
 *     json_t *config = json_read("config.json", &err);
 *     json_t *doc = config_is(config) ? config_to_model(config, &err) : NULL;
 *     struct model *m = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
 */
#ifndef WEFT_CONFIG_H
#define WEFT_CONFIG_H

#include "model/model.h"

/* Is the document such a config, rather than a model? */
bool config_is(const json_t *doc);

/* The weft-model(5) document of a config; new reference, NULL on failure. Messages begin with the
 * key. */
json_t *config_to_model(const json_t *config, struct err *err);

/* Is a config, such as one that lies beside weights, that of the model? Compared are the keys that the
 * model's own config has, but for those that only say how to train, and how long sequences may be.
 * A model without such a section is not compared. Returns 0 or -1. */
int config_check(struct model *m, const json_t *config, struct err *err);

#endif
