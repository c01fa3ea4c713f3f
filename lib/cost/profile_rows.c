/* Rows of the profile database. Each table is described once; what is sent to SQLite, bound
 * and read follows from that. Like profile_db.c, this file knows nothing of programs. */
#include "cost/profile_impl.h"

#include "common/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* How a column lies in a row's struct. */
enum column_type { INT, REAL, TEXT /* const char * */, CHARS /* char [size] */ };

struct column {
    const char *name;
    enum column_type type;
    size_t at, size;
};
#define AS(row, name, type, member)                                                        \
    { name, type, offsetof(struct row, member), sizeof(((struct row *)0)->member) }
#define COLUMN(row, type, name) AS(row, #name, type, name)
/* Columns of what was measured. */
#define RESULT(row)                                                                        \
    COLUMN(row, REAL, median_us), COLUMN(row, REAL, spread), COLUMN(row, INT, repeats),    \
        COLUMN(row, TEXT, source)

enum { COLUMNS = 12, SQL = 1024 };
#define IS_ESTIMATED "substr(source, 1, 5) = '" PROFILE_ESTIMATED "'"

/* Columns of the key come first. After all, each table has the machine and the time of
 * day. */
static const struct table {
    const char *name;
    int since; /* version of the format */
    int n_key, n;
    struct column columns[COLUMNS];
} tables[PROFILE_TABLES] = {
    [PROFILE_OP] = {.name = "op",
                    .since = 1,
                    .n_key = 4,
                    .n = 8,
                    .columns = {COLUMN(profile_op, TEXT, device),
                                COLUMN(profile_op, TEXT, instr),
                                COLUMN(profile_op, TEXT, shape),
                                COLUMN(profile_op, TEXT, dtype), RESULT(profile_op)}},
    [PROFILE_COMM] = {.name = "comm",
                      .since = 1,
                      .n_key = 7,
                      .n = 11,
                      .columns = {COLUMN(profile_comm, TEXT, device),
                                  COLUMN(profile_comm, TEXT, collective),
                                  COLUMN(profile_comm, INT, group_size),
                                  COLUMN(profile_comm, INT, stride),
                                  COLUMN(profile_comm, INT, groups),
                                  COLUMN(profile_comm, TEXT, link),
                                  COLUMN(profile_comm, INT, bytes), RESULT(profile_comm)}},
    [PROFILE_OVERLAP] = {.name = "overlap",
                         .since = 1,
                         .n_key = 3,
                         .n = 4,
                         .columns = {COLUMN(profile_overlap, TEXT, device),
                                     COLUMN(profile_overlap, TEXT, collective),
                                     COLUMN(profile_overlap, TEXT, link),
                                     COLUMN(profile_overlap, REAL, fraction)}},
    [PROFILE_ALGORITHM] = {.name = "algorithm",
                           .since = 3,
                           .n_key = 6,
                           .n = 9,
                           .columns = {COLUMN(library_algorithm, CHARS, device),
                                       COLUMN(library_algorithm, CHARS, problem),
                                       COLUMN(library_algorithm, INT, library),
                                       COLUMN(library_algorithm, CHARS, shape),
                                       COLUMN(library_algorithm, CHARS, dtype),
                                       COLUMN(library_algorithm, CHARS, dtype_y),
                                       COLUMN(library_algorithm, CHARS, algorithm),
                                       AS(library_algorithm, "workspace", INT,
                                          workspace_bytes),
                                       COLUMN(library_algorithm, REAL, least_us)}},
};

/* ---- statements ---------------------------------------------------------- */

/* SQL under construction. It always fits: tables are few and their names short. */
struct sql {
    char text[SQL];
    size_t n;
};

static void say(struct sql *s, const char *before, const char *what, int number) {
    const size_t left = sizeof s->text - s->n;
    const int n = number ? snprintf(s->text + s->n, left, "%s%s?%d", before, what, number)
                         : snprintf(s->text + s->n, left, "%s%s", before, what);
    s->n += (size_t)n < left ? (size_t)n : left - 1;
}

static bool has_source(const struct table *t) {
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->columns[i].name, "source"))
            return true;
    return false;
}

/* A row that has the key already is left alone, unless it was estimated. */
static void say_conflict(struct sql *s, const struct table *t) {
    if (!has_source(t)) {
        say(s, "ON CONFLICT DO NOTHING", "", 0);
        return;
    }
    for (int i = 0; i < t->n_key; i++)
        say(s, i ? ", " : "ON CONFLICT (", t->columns[i].name, 0);
    say(s, ") DO UPDATE SET (median_us, spread, repeats, source, machine, measured_at)", "",
        0);
    say(s, " = (excluded.median_us, excluded.spread, excluded.repeats, ", "", 0);
    say(s, "excluded.source, excluded.machine, excluded.measured_at)", "", 0);
    say(s, " WHERE " IS_ESTIMATED, "", 0);
}

static sqlite3_stmt *prepare_put(struct profile *p, const struct table *t,
                                 struct err *err) {
    struct sql s = {.n = 0};
    say(&s, "INSERT INTO ", t->name, 0);
    for (int i = 0; i < t->n; i++)
        say(&s, i ? ", " : " (", t->columns[i].name, 0);
    say(&s, ", machine, measured_at) VALUES (", "", 1);
    for (int i = 1; i <= t->n; i++)
        say(&s, ", ", "", i + 1);
    say(&s, ", strftime('%Y-%m-%dT%H:%M:%SZ', 'now')) ", "", 0);
    say_conflict(&s, t);
    return profile_prepare(p, s.text, err);
}

static sqlite3_stmt *prepare_has(struct profile *p, const struct table *t,
                                 struct err *err) {
    struct sql s = {.n = 0};
    say(&s, "SELECT 1 FROM ", t->name, 0);
    for (int i = 0; i < t->n_key; i++) {
        say(&s, i ? " AND " : " WHERE ", t->columns[i].name, 0);
        say(&s, " = ", "", i + 1);
    }
    if (has_source(t))
        say(&s, " AND NOT ", IS_ESTIMATED, 0);
    return profile_prepare(p, s.text, err);
}

int profile_prepare_rows(struct profile *p, struct err *err) {
    for (int i = 0; i < PROFILE_TABLES; i++)
        if (p->version >= tables[i].since &&
            (!(p->put[i] = prepare_put(p, &tables[i], err)) ||
             !(p->has[i] = prepare_has(p, &tables[i], err))))
            return -1;
    return 0;
}

void profile_finalize_rows(struct profile *p) {
    for (int i = 0; i < PROFILE_TABLES; i++) {
        sqlite3_finalize(p->put[i]);
        sqlite3_finalize(p->has[i]);
    }
}

/* ---- rows ---------------------------------------------------------------- */

static const char *text_of(const struct column *c, const void *row) {
    const char *at = (const char *)row + c->at;
    return c->type == TEXT ? *(const char *const *)(const void *)at : at;
}

static void bind(sqlite3_stmt *s, const struct column *columns, int n, const void *row) {
    for (int i = 0; i < n; i++) {
        const void *at = (const char *)row + columns[i].at;
        switch (columns[i].type) {
        case INT: sqlite3_bind_int64(s, i + 1, *(const int64_t *)at); break;
        case REAL: sqlite3_bind_double(s, i + 1, *(const double *)at); break;
        default: sqlite3_bind_text(s, i + 1, text_of(&columns[i], row), -1, SQLITE_STATIC);
        }
    }
}

/* Runs a statement and leaves it ready for the next row. */
static int step(sqlite3_stmt *s) {
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc;
}

static bool has(struct profile *p, enum profile_table table, const void *key) {
    bind(p->has[table], tables[table].columns, tables[table].n_key, key);
    return step(p->has[table]) == SQLITE_ROW;
}

/* Rows that were not measured name no machine. */
static const char *machine_of(const struct profile *p, const struct table *t,
                              const void *row) {
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->columns[i].name, "source") &&
            strcmp(text_of(&t->columns[i], row), "measured") != 0)
            return "";
    return p->machine;
}

static int put(struct profile *p, enum profile_table table, const void *row,
               struct err *err) {
    const struct table *t = &tables[table];
    char what[64];
    bind(p->put[table], t->columns, t->n, row);
    sqlite3_bind_text(p->put[table], t->n + 1, machine_of(p, t, row), -1, SQLITE_STATIC);
    if (step(p->put[table]) == SQLITE_DONE)
        return 0;
    snprintf(what, sizeof what, "writing a row of %s", t->name);
    return profile_sql_error(p, what, err);
}

bool profile_has_op(struct profile *p, const char *device, const char *instr,
                    const char *shape, const char *dtype) {
    const struct profile_op key = {
        .device = device, .instr = instr, .shape = shape, .dtype = dtype};
    return has(p, PROFILE_OP, &key);
}

bool profile_has_comm(struct profile *p, const struct profile_comm *key) {
    return has(p, PROFILE_COMM, key);
}

int profile_put_op(struct profile *p, const struct profile_op *row, struct err *err) {
    return put(p, PROFILE_OP, row, err);
}

int profile_put_comm(struct profile *p, const struct profile_comm *row, struct err *err) {
    return put(p, PROFILE_COMM, row, err);
}

int profile_put_overlap(struct profile *p, const struct profile_overlap *row,
                        struct err *err) {
    return put(p, PROFILE_OVERLAP, row, err);
}

int profile_put_algorithm(struct profile *p, const struct library_algorithm *row,
                          struct err *err) {
    return put(p, PROFILE_ALGORITHM, row, err);
}

/* ---- reading ------------------------------------------------------------- */

/* Texts go to the row's own arrays; what is longer is cut. */
static void read_row(sqlite3_stmt *s, const struct table *t, void *row) {
    for (int i = 0; i < t->n; i++) {
        void *at = (char *)row + t->columns[i].at;
        const unsigned char *text;
        switch (t->columns[i].type) {
        case INT: *(int64_t *)at = sqlite3_column_int64(s, i); break;
        case REAL: *(double *)at = sqlite3_column_double(s, i); break;
        default:
            text = sqlite3_column_text(s, i);
            snprintf(at, t->columns[i].size, "%s", text ? (const char *)text : "");
        }
    }
}

/* Version 2 has only products, in a table of their own. */
static sqlite3_stmt *prepare_algorithms(struct profile *p, struct err *err) {
    const struct table *t = &tables[PROFILE_ALGORITHM];
    const bool old = p->version < t->since;
    struct sql s = {.n = 0};
    for (int i = 0; i < t->n; i++) {
        const bool lacks = old && !strcmp(t->columns[i].name, "problem");
        say(&s, i ? ", " : "SELECT ", lacks ? "'product'" : t->columns[i].name, 0);
    }
    say(&s, " FROM ", old ? "product" : t->name, 0);
    return profile_prepare(p, s.text, err);
}

int profile_load_algorithms(struct profile *p, struct profile_algorithms *out,
                            struct err *err) {
    if (p->version < 2)
        return 0;
    sqlite3_stmt *s = prepare_algorithms(p, err);
    if (!s)
        return -1;
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        struct library_algorithm row = {.library = 0};
        read_row(s, &tables[PROFILE_ALGORITHM], &row);
        arr_push(out, row);
    }
    int failed = rc == SQLITE_DONE ? 0 : profile_sql_error(p, "reading", err);
    sqlite3_finalize(s);
    return failed;
}
