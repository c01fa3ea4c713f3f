/* relax_cuts.c - forward and backward passes along the cuts, as for a hidden Markov
 * chain: front[k][i] is the weight of all placements of the cuts up to k with cut k at
 * i, back[k][i] that of all placements of the cuts after it. A row is known up to a
 * factor, so each is scaled to a sum of 1. The gradient needs, for every cut and place,
 * the mean gain of the other cuts, which the same passes carry along. */
#include "solve/relax/relax_cuts.h"

#include "common/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static const double LEAST = -40; /* scaled logits further below the largest count as this */

void relax_cuts_init(struct relax_cuts *c, int cuts, int units) {
    size_t cells = (size_t)cuts * (size_t)units + 1;
    *c = (struct relax_cuts){.n = cuts, .width = units};
    c->weight = mem_array(6 * cells, sizeof *c->weight);
    c->front = c->weight + cells;
    c->back = c->front + cells;
    c->mass = c->back + cells;
    c->ahead = c->mass + cells;
    c->behind = c->ahead + cells;
}

void relax_cuts_release(struct relax_cuts *c) {
    free(c->weight);
    *c = (struct relax_cuts){0};
}

/* Return the first and the last place of cut k, as every part has a unit. */
static int first_of(int k) {
    return k + 1;
}
static int last_of(const struct relax_cuts *c, int k) {
    return c->width - (c->n - k);
}

static void scale(double *row, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += row[i];
    for (int i = 0; i < n && sum > 0; i++)
        row[i] /= sum;
}

static void weigh(struct relax_cuts *c, int k, const double *logits, double temperature) {
    double most = -INFINITY, *w = c->weight + k * c->width;
    const double *row = logits + k * c->width;
    for (int i = first_of(k); i <= last_of(c, k); i++)
        most = fmax(most, row[i]);
    for (int i = first_of(k); i <= last_of(c, k); i++)
        w[i] = exp(fmax((row[i] - most) / temperature, LEAST));
}

void relax_cuts_find(struct relax_cuts *c, const double *logits, double temperature) {
    int n = c->n, width = c->width;
    for (int k = 0; k < n; k++) {
        double *front = c->front + k * width, sum = k ? 0 : 1;
        weigh(c, k, logits, temperature);
        for (int i = 0; i < width; i++) {
            front[i] = c->weight[k * width + i] * sum;
            sum += k ? front[i - width] : 0;
        }
        scale(front, width);
    }
    for (int k = n - 1; k >= 0; k--) {
        double *back = c->back + k * width, sum = k == n - 1;
        for (int i = width - 1; i >= 0; i--) {
            back[i] = sum;
            sum += k < n - 1 ? c->weight[(k + 1) * width + i] * back[i + width] : 0;
        }
        scale(back, width);
        for (int i = 0; i < width; i++)
            c->mass[k * width + i] = c->front[k * width + i] * back[i];
        scale(c->mass + k * width, width);
    }
}

/* Computes the mean gain of the cuts up to k, with cut k at i. */
static void gain_ahead(struct relax_cuts *c, int k, const double *gain) {
    int width = c->width;
    const double *front = c->front + (k - 1) * width;
    double *ahead = c->ahead + k * width, sum = 0, all = 0;
    for (int i = 0; i < width; i++) {
        ahead[i] = gain[k * width + i] + (all > 0 ? sum / all : 0);
        if (k) {
            sum += front[i] * ahead[i - width];
            all += front[i];
        }
    }
}

/* Computes the mean gain of the cuts after k. */
static void gain_behind(struct relax_cuts *c, int k, const double *gain) {
    int width = c->width;
    double *behind = c->behind + k * width, sum = 0, all = 0;
    for (int i = width - 1; i >= 0; i--) {
        behind[i] = all > 0 ? sum / all : 0;
        if (k < c->n - 1) {
            int next = (k + 1) * width + i;
            double w = c->weight[next] * c->back[next];
            sum += w * (gain[next] + c->behind[next]);
            all += w;
        }
    }
}

void relax_cuts_gradient(struct relax_cuts *c, double temperature, double *row) {
    int width = c->width;
    for (int k = 0; k < c->n; k++)
        gain_ahead(c, k, row);
    for (int k = c->n - 1; k >= 0; k--)
        gain_behind(c, k, row);
    for (int k = 0; k < c->n; k++) {
        const double *mass = c->mass + k * width;
        double *all = c->ahead + k * width, mean = 0;
        for (int i = 0; i < width; i++) {
            all[i] += c->behind[k * width + i];
            mean += mass[i] * all[i];
        }
        for (int i = 0; i < width; i++)
            row[k * width + i] = mass[i] * (all[i] - mean) / temperature;
    }
}

void relax_cuts_best(struct relax_cuts *c, const double *logits, int *cut) {
    int width = c->width;
    double *best = c->ahead, *from = c->behind;
    for (int k = 0; k < c->n; k++) {
        double most = k ? -INFINITY : 0;
        int at = 0;
        for (int i = 0; i < width; i++) {
            bool inside = i >= first_of(k) && i <= last_of(c, k);
            best[k * width + i] = inside ? logits[k * width + i] + most : -INFINITY;
            from[k * width + i] = at;
            if (k && best[(k - 1) * width + i] > most) {
                most = best[(k - 1) * width + i];
                at = i;
            }
        }
    }
    for (int k = c->n - 1, at = 0; k >= 0; k--) {
        const double *row = best + k * width;
        if (k == c->n - 1)
            for (int i = 0; i < width; i++)
                at = row[i] > row[at] ? i : at;
        cut[k] = at;
        at = (int)from[k * width + at];
    }
}
