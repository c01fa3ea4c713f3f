/* program.h - what the tests of the compiler share: plans as short text, compiled.
 *
 *     struct compiled c = compile("{'format': 'weft-plan/1', 'model': 'mlp', ...}");
 *     for (int i = 0; i < c.g->stages[0].n_instrs; i++) ...
 *     compiled_release(&c);
 */
#ifndef WEFT_TEST_PROGRAM_H
#define WEFT_TEST_PROGRAM_H

#include "model.h"
#include "program/program.h"

struct compiled {
    struct plan *plan;
    struct program *g;
};

/* A plan that cannot be read ends the test: nothing could be said of its program. */
UNUSED static struct compiled compile(const char *text) {
    struct err err = {0};
    json_t *doc = json_of(text, &err);
    struct compiled c = {.plan = doc ? plan_from_json(doc, &err) : NULL};
    json_decref(doc);
    c.g = c.plan ? program_compile(c.plan, &err) : NULL;
    if (!c.g || program_validate(c.g, &err) < 0) {
        ok(0, "a plan that compiles: %s", err.msg);
        exit(done_testing());
    }
    return c;
}

UNUSED static void compiled_release(struct compiled *c) {
    program_destroy(c->g);
    plan_destroy(c->plan);
}

/* The instructions of a segment, for a loop: FOR_SEGMENT(sp, SEG_FORWARD, i) i->code ... */
#define FOR_SEGMENT(sp, segment, i)                                                        \
    for (const struct instr *i = (sp)->instrs + program_segment(sp, segment).first;        \
         i < (sp)->instrs + program_segment(sp, segment).end; i++)

#endif
