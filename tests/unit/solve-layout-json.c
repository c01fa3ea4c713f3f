/* Layout problems as documents: the contest's worked example, Alpa's form, and what is said
 * about documents that are wrong. */
#include "solve/layout/layout.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static const char example[] =
    "{'problem': {'name': 'example', 'nodes': {"
    "'intervals': [[30,70],[40,70],[50,120],[110,140],[110,150]],"
    "'costs': [[15],[55,65],[25,45,35],[85,75],[95]],"
    "'usages': [[10],[25,25],[15,20,15],[10,10],[15]]},"
    "'edges': {'nodes': [[0,1],[0,2],[1,3],[2,4],[3,4]],"
    "'costs': [[30,40],[50,10,40],[90,10,20,80],[60,20,30],[70,60]]},"
    "'usage_limit': 50}}";

static const char alpa[] =
    "{'num_nodes': 3, 'memory_budget': 10.5, 's_len': [2,2,2], 's_follow': [-1,0,-1],"
    "'edges': [[0,2]], 'edge_cost': [[0.0,1.5,1.5,0.25]], 'alias': [[1,2]],"
    "'alias_cost': [[0.0,0.0,0.0,1.0]], 'live': [[0],[1,0],[1,2]],"
    "'compute_cost': [[0.0,0.0],[0.0,0.0],[0.5,0.0]],"
    "'comm_cost': [[0.0,0.125],[0.0,0.0],[0.0,0.0]],"
    "'memory_cost': [[4.0,1.0],[4.0,1.0],[8.0,2.0]]}";

/* Solves the text with ' for " and `from` (if not NULL) replaced by `to`. */
static json_t *solve(const char *text, const char *from, const char *to, struct err *err) {
    struct solve_limits limits = {0};
    struct json_stream s;
    char buf[4096], *at;
    snprintf(buf, sizeof buf, "%s", text);
    if (from && (at = strstr(buf, from))) {
        char rest[4096];
        snprintf(rest, sizeof rest, "%s", at + strlen(from));
        snprintf(at, sizeof buf - (size_t)(at - buf), "%s%s", to, rest);
    }
    for (char *c = buf; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_stream_text(&s, buf, strlen(buf), "document");
    json_t *answer = solve_document(&solve_layout, &s, &limits, err);
    json_stream_close(&s);
    return answer;
}

static void good(const char *what, const char *text, const char *from, const char *to,
                 double value, const char *choice) {
    struct err err = {0};
    json_t *a = solve(text, from, to, &err);
    char *got = a ? json_dumps(json_object_get(a, "choice"), JSON_COMPACT) : NULL;
    ok(a && json_number_value(json_object_get(a, "value")) == value &&
           json_number_value(json_object_get(a, "bound")) == value &&
           json_is_true(json_object_get(a, "optimal")) && got && !strcmp(got, choice),
       "%s: %g, %s%s", what, value, got ? got : "no answer: ", a ? "" : err.msg);
    free(got);
    json_decref(a);
}

static void bad(int status, const char *text, const char *from, const char *to,
                const char *message) {
    struct err err = {0};
    json_t *a = solve(text, from, to, &err);
    ok(!a && !strncmp(err.msg, "document:", 9) && err.status == status &&
           strstr(err.msg, message),
       "%s%s%s", message, err.msg[0] && strstr(err.msg, message) ? "" : " - but got: ",
       err.msg[0] && strstr(err.msg, message) ? "" : err.msg);
    json_decref(a);
}

static void wrong_documents(void) {
    const char *e = example;
    bad(EXIT_INPUT, "[1]", NULL, NULL, "expected an object, got an array");
    bad(EXIT_INPUT, e, "'nodes': {", "'knots': {", "nodes: missing");
    bad(EXIT_INPUT, e, "[90,10,20,80]", "[90,10,20]",
        "edges.costs[2]: expected 2 x 2 entries, got 3");
    bad(EXIT_INPUT, e, "[2,4]", "[2,5]", "edges.nodes[3]: 5 is not in 0..4");
    bad(EXIT_INPUT, e, "[2,4]", "[2]", "edges.nodes[3]: expected two whole numbers");
    bad(EXIT_INPUT, e, "[25,45,35]", "[25,-45,35]",
        "nodes.costs[2][1]: expected a finite number >= 0, got -45");
    bad(EXIT_INPUT, e, "[25,45,35]", "[25,'x',35]",
        "nodes.costs[2][1]: expected a number, got a string");
    bad(EXIT_INPUT, e, "[15,20,15]", "[15,20]",
        "nodes.usages[2]: expected 3 entries, got 2");
    bad(EXIT_INPUT, e, "[[30,70],", "[", "nodes.intervals: expected 5 entries, got 4");
    bad(EXIT_INPUT, e, "'usage_limit': 50", "'usage_limit': -1", "usage_limit: expected");
    bad(EXIT_INPUT, e, "'usage_limit': 50", "'usage_limits': 50",
        "usage_limit: expected a number, got nothing");
    bad(EXIT_INPUT, e, "[15]", "[9000000000000000000]", "above 2e18");
    bad(EXIT_INPUT, e, "[50,10,40]", "[50,450000000000000000,40]",
        "edges.costs[1]: the sum of the largest costs up to here is 4.5");
    bad(EXIT_INPUT, e, "[25,25]", "[25,200000000000000000]",
        "nodes.usages[1]: the sum of the largest usages up to here is 2");
    bad(EXIT_INPUT, alpa, "'s_len': [2,2,2]", "'s_len': [2,2]",
        "s_len: expected 3 entries");
    bad(EXIT_INPUT, alpa, "'live': [[0],", "'live': [[7],", "live[0]: 7 is not in 0..2");
    bad(EXIT_INPUT, alpa, "[-1,0,-1]", "[-1,9,-1]", "s_follow[1]: 9 is not in -1..2");
}

static void no_answers(void) {
    const char *e = example;
    bad(EXIT_NO, e, "'usage_limit': 50", "'usage_limit': 49",
        "usage_limit: no allowed choice keeps to 49: at time 50 at least 50 is used");
    bad(EXIT_NO, e, "[90,10,20,80]",
        "[1000000000000000000,1000000000000000000,1000000000000000000,1000000000000000000]",
        "(forbidden costs)");
    bad(EXIT_NO,
        "{'nodes':{'intervals':[[0,1]],'costs':[[]],'usages':[[]]},"
        "'edges':{'nodes':[],'costs':[]},'usage_limit':5}",
        NULL, NULL, "node 0: there is no strategy to choose");
}

int main(void) {
    good("example", example, NULL, NULL, 445, "[0,0,2,1,0]");
    good("example without a limit", example, "'usage_limit': 50", "'usage_limit': null",
         415, "[0,0,1,1,0]");
    good("example with fractions", example, "[15]", "[15.0625]", 445.0625, "[0,0,2,1,0]");
    good("forbidden", example, "[90,10,20,80]", "[90,1000000000000000000,20,80]", 495,
         "[0,1,2,0,0]");
    good("nothing",
         "{'nodes':{'intervals':[],'costs':[],'usages':[]},"
         "'edges':{'nodes':[],'costs':[]},'usage_limit':0}",
         NULL, NULL, 0, "[]");
    good("Alpa", alpa, NULL, NULL, 1.5, "[0,0,1]");
    good("Alpa without a budget", alpa, "10.5", "-1", 0.5, "[0,0,0]");
    wrong_documents();
    no_answers();
    return done_testing();
}
