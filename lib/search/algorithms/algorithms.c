#include "search/algorithms/algorithms.h"

#include <string.h>

const struct algorithm algorithms[] = {
#define X(id, name, exact, random, about) {name, search_##id, exact, random, about},
    ALGORITHMS(X)
#undef X
};

const struct algorithm *algorithm_find(const char *name) {
    for (int i = 0; i < ALGORITHM_COUNT; i++)
        if (!strcmp(algorithms[i].name, name))
            return &algorithms[i];
    return NULL;
}
