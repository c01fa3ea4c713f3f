/* Where the time of a step goes, as JSON and as bars of text. */
#include "predict.h"

#include "common/json.h"
#include "common/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

json_t *predict_waterfall_json(const struct predict *p) {
    json_t *terms = json_array();
    for (int t = 0; t < WATERFALL_COUNT; t++)
        json_array_append_new(terms, json_pack("{s:s,s:f}", "term",
                                               waterfall_name((enum waterfall_term)t), "us",
                                               (double)p->waterfall.ns[t] / 1e3));
    return json_pack("{s:i,s:o}", "stage", p->waterfall.stage, "terms", terms);
}

/* Each bar begins where the one before it ends; one to the left is time that is gained. */
void predict_waterfall_text(const struct predict *p, FILE *f) {
    enum { WIDTH = 40, SHOWN_NS = 50 };
    double all = fmax(1e3 * p->sim.time_us, 1), at = 0;
    fprintf(f, "\nthe step of stage %d, from the peak down\n", p->waterfall.stage);
    for (int t = 0; t < WATERFALL_COUNT; t++) {
        double ns = (double)p->waterfall.ns[t], end = at + ns;
        int from = (int)lround(WIDTH * fmin(at, end) / all),
            to = (int)lround(WIDTH * fmax(at, end) / all);
        if (llabs(p->waterfall.ns[t]) >= SHOWN_NS)
            fprintf(f, "%-12s %10s %6.1f %%  |%*s%.*s%*s|  %s\n",
                    waterfall_name((enum waterfall_term)t), text_time(fabs(ns) / 1e3).s,
                    100 * ns / all, from, "", to - from,
                    ns < 0 ? "----------------------------------------"
                           : "########################################",
                    WIDTH - to > 0 ? WIDTH - to : 0, "",
                    waterfall_about((enum waterfall_term)t));
        at = end;
    }
}
