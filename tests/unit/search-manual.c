/* The manual's list of search algorithms is the code's (manual.h):
 *
 *   search-manual [update] */
#include "manual.h"
#include "search/algorithms/algorithms.h"

static void write_algorithms(FILE *f) {
    int widest = 0;
    for (int i = 1; i < ALGORITHM_COUNT; i++)
        if (strlen(algorithms[i].name) > strlen(algorithms[widest].name))
            widest = i;
    fprintf(f, ".Bl -tag -width \"%s\"\n", algorithms[widest].name);
    for (int i = 0; i < ALGORITHM_COUNT; i++) {
        const struct algorithm *a = &algorithms[i];
        bool is_default = !strcmp(a->name, ALGORITHM_DEFAULT);
        fprintf(f, ".It Cm %s%s\n", a->name, is_default ? " Pq the default" : "");
        sentences(f, a->about);
        sentence(f, "%s%s.", a->exact ? "Exact" : "Not exact",
                 a->random ? ", and steered by the seed" : "");
    }
    fputs(".El\n", f);
}

/* Names are told apart, and each says whether it is found. */
static void check_names(void) {
    bool good = algorithm_find(ALGORITHM_DEFAULT) && !algorithm_find("magic");
    for (int i = 0; i < ALGORITHM_COUNT; i++)
        good &= algorithm_find(algorithms[i].name) == &algorithms[i];
    ok(good, "%d algorithms, each found by its name: %s", ALGORITHM_COUNT, ALGORITHM_HELP);
}

int main(int argc, char **argv) {
    bool update = argc == 2 && !strcmp(argv[1], "update");
    check_names();
    check_page("man/weft-search.1", write_algorithms, update);
    return done_testing();
}
