/* layouts.h - the layouts that an op may have in a stage.
 *
 *     struct layout_list l = {0};
 *     layouts_all(sp, &stage, micro_batch, op, &l);
 *     for (int64_t i = 0; i < l.n; i++) ... l.p[i] ...
 *     arr_release(&l);
 */
#ifndef WEFT_LAYOUTS_H
#define WEFT_LAYOUTS_H

#include "search/space/space.h"

struct layout_list {
    struct layout *p;
    int64_t n, cap;
};

/* Appends all layouts of an op of the deduplicated model that are legal and that pins
 * allow. Returns how many were tried. */
int64_t layouts_all(const struct space *sp, const struct search_stage *st,
                    int64_t micro_batch, int op, struct layout_list *out);

/* out[0] is a layout of the op; appends others until there are `most`: first those of
 * uniform presets, beginning with the number of model axes that is nearest to that of
 * `preset`, then out[0] with one axis changed. Returns how many there are. */
int layouts_neighbours(const struct space *sp, const struct search_stage *st,
                       int64_t micro_batch, int op, struct preset preset,
                       struct layout *out, int most);

#endif
