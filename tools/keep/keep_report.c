/* weft-keep --report: what the journal says of a run, and what could have been. */
#include "common/file.h"
#include "keep.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Young and Daly: the interval of checkpoints that costs least, and what it costs with
 * the restarts. */
static void print_optimum(const struct account *a) {
    if (!a->failures || !(a->save_s > 0) || !(a->steps_s > 0))
        return;
    double mtbf = a->wall_s / (double)a->failures, best = sqrt(2 * a->save_s * mtbf);
    double waste = a->save_s / best + best / (2 * mtbf) + a->recover_s / mtbf;
    printf("a failure every %.1f s; a checkpoint takes %.4f s: one every %.2f s is best "
           "(Young, Daly)\n",
           mtbf, a->save_s, best);
    printf("with that, goodput would be %.1f %%\n", 100 * fmax(0, 1 - waste));
}

static int print(struct journal *j, struct err *err) {
    struct account a;
    if (journal_account(j, &a, err) < 0)
        return -1;
    printf("attempts %lld, failures %lld, ended as\n", (long long)a.attempts,
           (long long)a.failures);
    if (journal_print_causes(j, stdout, err) < 0)
        return -1;
    printf("steps done %lld, steps lost %lld\n", (long long)a.steps, (long long)a.lost);
    if (journal_print_sizes(j, stdout, err) < 0)
        return -1;
    if (a.wall_s > 0)
        printf("goodput %.1f %%: %.1f s in steps that count, of %.1f s\n",
               100 * (a.steps_s - a.lost_s) / a.wall_s, a.steps_s - a.lost_s, a.wall_s);
    if (a.recover_s > 0)
        printf("from a death to the next finished step %.2f s (mean)\n", a.recover_s);
    print_optimum(&a);
    return file_stdout_check(err);
}

int keep_report(const struct keep_options *o, struct err *err) {
    char path[4200];
    snprintf(path, sizeof path, "%s/keep.db", o->folder);
    if (access(path, R_OK) < 0)
        return err_input(err, "%s: no journal of weft-keep", path);
    struct journal *j = journal_open(path, err);
    int rc = j ? print(j, err) : -1;
    journal_close(j);
    return rc;
}
