/* config_experts.h - inside config.c: how a config.json says that routers choose.
 *
 * DeepSeek-V2 names the way ("greedy", "group_limited_greedy"); the family's table has whether experts are
 * chosen within groups, as one of true and false.
 *
 *     config_experts_flatten(config, table); // before the config is compared with the table
 *     config_experts_nest(config);           // after the table is filled in
 */
#ifndef WEFT_CONFIG_EXPERTS_H
#define WEFT_CONFIG_EXPERTS_H

#include <jansson.h>

/* Puts true or false in the place of a name that is known where the table wants one. */
void config_experts_flatten(json_t *config, const json_t *table);
/* The other way round. */
void config_experts_nest(json_t *config);

#endif
