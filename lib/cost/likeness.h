/* likeness.h - times of a device from those of a like one, and which rows to measure to
 * know more.
 *
 * An instruction's time on one device is its time on the other, times the ratio that curves
 * (curve.h) give for the two datasheets, times an unknown factor. The logarithms of these
 * factors are taken for a Gaussian process: instructions of one form have a part in common,
 * those of one opcode and type another, the more alike the nearer their bytes and
 * operations are, and each has a part of its own. So a measured row tells about rows that
 * were not measured (kriging: Matheron 1963; Rasmussen and Williams 2006, chapter 2). How
 * unlike the devices are is what makes the measured rows likeliest.
 *
 * Rows are chosen one after the other, each the one that leaves the least variance of the
 * plans' times (greedy, as Krause, Singh and Guestrin 2008), whatever it will say.
 *
 *     struct likeness *l = likeness_create(h100_times, h100_model, &h200_chip);
 *     likeness_add(l, &key, uses);                       // for all that the plans need
 *     int64_t n = likeness_choose(l, 20, chosen);        // measure those
 *     likeness_tell(l, chosen[0], us);
 *     struct likely t = likeness_time(l, i);
 *     likeness_destroy(l);
 */
#ifndef WEFT_LIKENESS_H
#define WEFT_LIKENESS_H

#include "cost/device_model.h"
#include "cost/profile.h"

struct likeness;

/* times: of the like device; model: its curves; chip: the datasheet of the device in
 * question, or NULL where none is known. All are borrowed. */
struct likeness *likeness_create(const struct profile_times *times,
                                 const struct device_model *model, const struct chip *chip);
void likeness_destroy(struct likeness *l); /* NULL is fine */

/* Adds an instruction that a step needs `uses` times, 0 if it is merely of interest. If it
 * is there already, the uses add up. Returns its number, which counts up from 0; -1 where
 * neither rows nor curves say anything about it. */
int64_t likeness_add(struct likeness *l, const struct instr_key *key, double uses);
int64_t likeness_find(const struct likeness *l, const struct instr_key *key); /* or -1 */
int64_t likeness_count(const struct likeness *l);
const struct instr_key *likeness_key(const struct likeness *l, int64_t i);

/* Says that it cannot be measured, so it is never chosen. */
void likeness_bar(struct likeness *l, int64_t i);
/* Says what it takes on the device in question, as measured. */
void likeness_tell(struct likeness *l, int64_t i, double us);
bool likeness_told(const struct likeness *l, int64_t i);

/* Finds up to k more rows to measure, the most telling first; returns how many. */
int64_t likeness_choose(struct likeness *l, int64_t k, int64_t *chosen);

/* As of the last likeness_update(), which works in all that was told. spread: half the
 * inter-quartile range, as a fraction of us; 0 for a measured row. */
struct likely {
    double us, spread;
};
void likeness_update(struct likeness *l);
struct likely likeness_time(const struct likeness *l, int64_t i);

#endif
