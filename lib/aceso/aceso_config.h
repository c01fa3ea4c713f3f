/* aceso_config.h - writes configurations as the JSON that Aceso's runtime reads
 * (dump_config_to_json in aceso_utils.py of the artifact).
 *
 *     json_t *doc = aceso_config_json(m, config);
 *     json_decref(doc);
 */
#ifndef WEFT_ACESO_CONFIG_H
#define WEFT_ACESO_CONFIG_H

#include "aceso/aceso_cost.h"
#include "common/json.h"

/* Returns the whole configuration file as a new reference. */
json_t *aceso_config_json(const struct aceso_model *m, const struct aceso_config *c);

#endif
