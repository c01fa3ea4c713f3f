/* config_rope.h - inside config.c: how a config.json says that rotary positions are scaled.
 *
 * transformers has an object for it, "rope_scaling" or "rope_parameters", whose members depend on its
 * type. The table of a family has six numbers (device/rotary.h says what they do), which have a value
 * for every config:
 *
 *     "rope_scaling": {"rope_type": "linear", "factor": 2}
 *     "rope_scaling.factor": 2, "rope_scaling.original": 0, "rope_scaling.low": 1, ...
 *
 * Where the table has "rope_scaling.temper", that is the share by which YaRN's scores grow with the factor
 * (attention's temper). Where the table has "rope_scaling.short" and "rope_scaling.long", these are lists: LongRoPE's, or empty.
 */
#ifndef WEFT_CONFIG_ROPE_H
#define WEFT_CONFIG_ROPE_H

#include "common/json.h"

/* "rope_parameters" and "rope_scaling" of a config become the six numbers where the table has them
 * and the type is known; what it does not know stays as "rope_scaling". */
void config_rope_flatten(json_t *config, const json_t *table);
/* The other way round: the six numbers of a filled table become "rope_scaling", null where nothing is
 * scaled. */
void config_rope_nest(json_t *config);

#endif
