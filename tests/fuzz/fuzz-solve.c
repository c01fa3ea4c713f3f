/* Fuzzes the problem readers of the solvers and, on problems that are well-formed, the solvers
 * with a hundredth of a second (libFuzzer). The first byte chooses the solver. An answer is a
 * document whose value is not below its bound; a refusal says why. */
#include "solve/solve.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static json_t *solve(int problem, const char *text, size_t size, struct err *err) {
    static const struct solve_kind *const kinds[] = {&solve_layout, &solve_partition,
                                                     &solve_stages, &solve_joint};
    struct solve_limits limits = {.time_budget_s = 0.01, .seed = 1, .threads = 1};
    struct json_stream s;
    json_stream_text(&s, text, size, "problem");
    json_t *answer = solve_document(kinds[problem], &s, &limits, err);
    json_stream_close(&s);
    return answer;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!size)
        return 0;
    struct err err = {0};
    json_t *answer = solve(bytes[0] % 4, (const char *)bytes + 1, size - 1, &err);
    if (!answer && ((err.status != EXIT_INPUT && err.status != EXIT_NO) || !err.msg[0]))
        abort();
    json_t *value = json_object_get(answer, "value"),
           *bound = json_object_get(answer, "bound");
    if (answer && json_is_number(value) && json_is_number(bound)) {
        double v = json_number_value(value), b = json_number_value(bound);
        if (b > v + 1e-6 * (v < 0 ? -v : v) + 1e-9)
            abort();
    }
    json_decref(answer);
    return 0;
}
