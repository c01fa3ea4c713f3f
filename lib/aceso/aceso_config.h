/* aceso_config.h - Aceso's configuration files, which its runtime reads (dump_config_to_json in
 * aceso_utils.py of the artifact).
 *
 *     json_t *doc = aceso_config_json(m, config);
 *     json_decref(doc);
 */
#ifndef WEFT_ACESO_CONFIG_H
#define WEFT_ACESO_CONFIG_H

#include "aceso/aceso_cost.h"
#include "common/json.h"

/* A new reference. */
json_t *aceso_config_json(const struct aceso_model *m, const struct aceso_config *c);

/* What a configuration says of each op, one list for each stage, and what follows from them. */
void aceso_put_lists(json_t *doc, const struct aceso_config *c);

#endif
