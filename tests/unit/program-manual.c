/* The manual's tables of kinds, instructions, passes and schedules are those of the code (manual.h):
 *
 *   program-manual [update] */
#include "manual.h"
#include "model/model.h"
#include "plan/schedules.h"
#include "program/passes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void append(char *text, size_t size, const char *what) {
    snprintf(text + strlen(text), size - strlen(text), "%s", what);
}

/* ---- instructions --------------------------------------------------------------------------- */

/* The formulas as they stand in instr.def. */
struct formula {
    const char *name, *elems, *below;
    bool over, add;
};
struct entry {
    const char *numbers[INSTR_MAX_SHAPE], *flops;
    struct formula in[INSTR_MAX_IN], out[INSTR_MAX_OUT];
    int n_numbers, n_in, n_out;
};

static void read_entries(struct entry *entries) {
    struct entry *e = NULL;
    enum {
        OVER = OPERAND_OVER,
        ADD = OPERAND_ADD,
        OLD = OPERAND_OLD,
        F32 = OPERAND_F32,
        WHOLE = OPERAND_SLOTS,
        HOST = OPERAND_HOST,
        FRESH = OPERAND_FRESH
    };
#define OPCODE(id, key, about) e = &entries[I_##id];
#define N(number)              e->numbers[e->n_numbers++] = #number;
#define IN(label, count, bits)                                                             \
    e->in[e->n_in++] =                                                                     \
        (struct formula){.name = #label, .elems = #count, .over = ((bits)&OVER) != 0};
#define IDS(label, count, bound)                                                           \
    e->in[e->n_in++] = (struct formula){.name = #label, .elems = #count, .below = #bound};
#define OUT(label, count, bits)                                                            \
    e->out[e->n_out++] =                                                                   \
        (struct formula){.name = #label, .elems = #count, .add = ((bits)&ADD) != 0};
#define FLOPS(count) e->flops = #count;
#include "program/instr.def"
}

/* "x[m*k], w[k*n]": those that are added to, or the others; "" if there are none. */
static const char *list_operands(const struct formula *list, int n, bool add, char *text,
                                 size_t size) {
    text[0] = '\0';
    for (int k = 0; k < n; k++) {
        if (list[k].add != add)
            continue;
        append(text, size, text[0] ? ", " : "");
        append(text, size, list[k].name);
        append(text, size, "[");
        for (const char *c = list[k].elems; *c; c++)
            append(text, size, *c == ' ' ? "" : (char[]){*c, '\0'});
        append(text, size, list[k].below ? "] of whole numbers below " : "]");
        append(text, size, list[k].below ? list[k].below : "");
    }
    return text;
}

/* Does what the instruction does begin with a word, not with "y ="? */
static bool begins_with_word(const char *about) {
    const char *next = strchr(about, ' ');
    return next && next[1] != '=' && next[1] != '+';
}

static const char *list_names(const char *const *names, int n, const char *between,
                              char *text, size_t size) {
    text[0] = '\0';
    for (int k = 0; k < n; k++) {
        append(text, size, k ? between : "");
        append(text, size, names[k]);
    }
    return text;
}

static void write_instruction(FILE *f, const struct instr_info *info,
                              const struct entry *e) {
    static const char *const keys[] = {[KEY_FREE] = "not timed",
                                       [KEY_SHAPE] = "timed by shape",
                                       [KEY_CURVE] = "timed by size",
                                       [KEY_PARTS] = "timed by its parts",
                                       [KEY_COMM] = "timed as a collective",
                                       [KEY_P2P] = "timed as a message"};
    const char *over[INSTR_MAX_IN];
    char text[512];
    int n_over = 0;
    for (int k = 0; k < e->n_in; k++)
        if (e->in[k].over)
            over[n_over++] = e->in[k].name;
    fprintf(f, ".It Sy %s\n", info->name);
    sentence(f, "%c%s.",
             begins_with_word(info->about) ? toupper(info->about[0]) : info->about[0],
             info->about + 1);
    sentence(f, "Numbers: %s; %s.",
             list_names(e->numbers, e->n_numbers, ", ", text, sizeof text),
             keys[info->key]);
    if (list_operands(e->in, e->n_in, false, text, sizeof text)[0])
        sentence(f, "Reads %s.", text);
    if (list_operands(e->out, e->n_out, false, text, sizeof text)[0])
        sentence(f, "Writes %s.", text);
    if (list_operands(e->out, e->n_out, true, text, sizeof text)[0])
        sentence(f, "Adds to %s.", text);
    if (n_over)
        sentence(f, "%s may take the place of %s.", e->out[0].name,
                 list_names(over, n_over, " or ", text, sizeof text));
    if (e->flops && strcmp(e->flops, "0"))
        sentence(f, "Operations: %s.", e->flops);
}

static void write_instructions(FILE *f) {
    static struct entry entries[OPCODE_COUNT];
    read_entries(entries);
    fputs(".Bl -tag -width Ds\n", f);
    for (int c = 0; c < OPCODE_COUNT; c++)
        write_instruction(f, instr_info((enum opcode)c), &entries[c]);
    fputs(".El\n", f);
}

/* ---- kinds ---------------------------------------------------------------------------------- */

/* Words behind a name in a column of their own, in lines of the manual's width. */
static void hanging(FILE *f, const char *name, const char *text) {
    enum { INDENT = 15 };
    int at = fprintf(f, "%-*s", INDENT - 1, name);
    for (int n; *text; text += n + (text[n] == ' ')) {
        n = (int)strcspn(text, " ");
        if (at + 1 + n > COLUMNS && at > INDENT)
            at = fprintf(f, "\n%*s", INDENT - 1, "") - 1;
        at += fprintf(f, " %.*s", n, text);
    }
    fputc('\n', f);
}

/* What each kind is made of, as the text of its descriptor. */
static void write_kinds(FILE *f) {
    static const struct {
        const char *name, *in, *param, *out, *roles, *attrs;
    } kinds[] = {
#define X(id, name, in, param, out, roles, attrs, flags)                                   \
    {name, in, param, out, roles, attrs},
        KINDS(X)
#undef X
    };
    fputs(".Bd -literal -offset indent\n", f);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *roles = kinds[i].roles, *attrs = kinds[i].attrs;
        char text[256];
        snprintf(text, sizeof text, "%s%s%s -> %s", kinds[i].in,
                 kinds[i].param[0] ? ", " : "", kinds[i].param, kinds[i].out);
        hanging(f, kinds[i].name, text);
        snprintf(text, sizeof text, "%s%s%s", roles, roles[0] && attrs[0] ? ", " : "",
                 attrs);
        if (text[0])
            hanging(f, "", text);
    }
    fputs(".Ed\n", f);
}

/* ---- passes --------------------------------------------------------------------------------- */

static void write_passes(FILE *f) {
    fputs(".Bl -tag -width \"persistent\"\n", f);
    for (int i = 0; i < PASS_COUNT; i++) {
        const char *about = pass_about((enum pass)i);
        fprintf(f, ".It Cm %s\n", pass_name((enum pass)i));
        sentence(f, "%c%s.", toupper(*about), about + 1);
    }
    fputs(".El\n", f);
}

/* ---- schedules ------------------------------------------------------------------------------ */

static void write_schedules(FILE *f) {
    size_t widest = 0;
    for (size_t s = 1; s < SCHEDULE_COUNT; s++)
        if (strlen(schedule_name((enum schedule)s)) >
            strlen(schedule_name((enum schedule)widest)))
            widest = s;
    fprintf(f, ".Bl -tag -width \"%s\"\n", schedule_name((enum schedule)widest));
    for (int s = 0; s < SCHEDULE_COUNT; s++) {
        fprintf(f, ".It Sy %s\n", schedule_name((enum schedule)s));
        sentences(f, schedule_traits((enum schedule)s)->about);
    }
    fputs(".El\n", f);
}

int main(int argc, char **argv) {
    bool update = argc == 2 && !strcmp(argv[1], "update");
    check_page("man/weft-model.5", write_kinds, update);
    check_page("man/weft-program.5", write_instructions, update);
    check_page("man/weft-run.1", write_passes, update);
    check_page("man/weft-plan.5", write_schedules, update);
    return done_testing();
}
