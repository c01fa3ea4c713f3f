/* config_layers.h - which layers have windows, and which positions, in a config.json.
 *
 * Newer configs list a type for each layer ("layer_types"); older ones and weft's tables have one number:
 * "sliding_window_pattern", every so many layers one has no window (Gemma), or "max_window_layers",
 * the first so many have none (Qwen2). So do lists of the layers that have positions ("no_rope_layers",
 * SmolLM3) become "no_rope_layer_interval".
 *
 *     config_layers_flatten(config, table); // before the config is compared with the table
 *     config_layers_nest(config);           // after the table is filled in
 */
#ifndef WEFT_CONFIG_LAYERS_H
#define WEFT_CONFIG_LAYERS_H

#include <jansson.h>

/* Puts the number that the family's table has in the place of the list, which stays, to be refused, where
 * no such number says it. Where no layer has a window, nothing is left that says of what size. */
void config_layers_flatten(json_t *config, const json_t *table);
/* Adds the list that a filled table means, which transformers puts before any number. */
void config_layers_nest(json_t *config);

#endif
