#include "keep/journal.h"

#include "common/mem.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct journal {
    sqlite3 *db;
    char *path;
};

static const char *const words[] = {
#define X(id, word, text) word,
    EVENTS(X)
#undef X
};

static const char schema[] =
    "PRAGMA busy_timeout = 2000;"
    "CREATE TABLE IF NOT EXISTS event (id INTEGER PRIMARY KEY, time REAL NOT NULL,"
    " attempt INTEGER NOT NULL DEFAULT 0, kind TEXT NOT NULL, step INTEGER, value REAL,"
    " text TEXT NOT NULL DEFAULT '');"
    "CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "INSERT OR IGNORE INTO run VALUES ('format', 'weft-journal/1');";

static int failed(struct journal *j, struct err *err) {
    return err_system(err, "%s: %s", j->path, sqlite3_errmsg(j->db));
}

struct journal *journal_open(const char *path, struct err *err) {
    struct journal *j = mem_alloc(sizeof *j);
    j->path = mem_strdup(path);
    char was[64] = "";
    int rc = 0;
    if (sqlite3_open(path, &j->db) != SQLITE_OK ||
        sqlite3_exec(j->db, schema, NULL, NULL, NULL) != SQLITE_OK)
        rc = failed(j, err);
    else if (journal_fact(j, "format", "weft-journal/1", was, sizeof was, err))
        rc = err_input(err, "%s: is no journal of weft-keep", path);
    if (rc == 0)
        return j;
    journal_close(j);
    return NULL;
}

void journal_close(struct journal *j) {
    if (!j)
        return;
    sqlite3_close(j->db);
    free(j->path);
    free(j);
}

static sqlite3_stmt *prepare(struct journal *j, const char *sql, struct err *err) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(j->db, sql, -1, &s, NULL) != SQLITE_OK)
        failed(j, err);
    return s;
}

int journal_add(struct journal *j, const struct event *e, struct err *err) {
    struct timespec t;
    sqlite3_stmt *s = prepare(j,
                              "INSERT INTO event(time, attempt, kind, step, value, text) "
                              "VALUES (?, ?, ?, ?, ?, ?)",
                              err);
    if (!s)
        return -1;
    clock_gettime(CLOCK_REALTIME, &t);
    sqlite3_bind_double(s, 1, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    sqlite3_bind_int64(s, 2, e->attempt);
    sqlite3_bind_text(s, 3, words[e->kind], -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 4, e->step);
    sqlite3_bind_double(s, 5, e->value);
    sqlite3_bind_text(s, 6, e->text ? e->text : "", -1, SQLITE_STATIC);
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : failed(j, err);
    sqlite3_finalize(s);
    return rc;
}

int journal_fact(struct journal *j, const char *name, const char *value, char *was,
                 size_t n, struct err *err) {
    sqlite3_stmt *s = prepare(j, "INSERT OR IGNORE INTO run VALUES (?, ?)", err);
    if (!s)
        return -1;
    sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, value, -1, SQLITE_STATIC);
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : failed(j, err);
    sqlite3_finalize(s);
    if (rc < 0 || !(s = prepare(j, "SELECT value FROM run WHERE name = ?", err)))
        return -1;
    sqlite3_bind_text(s, 1, name, -1, SQLITE_STATIC);
    rc = sqlite3_step(s) == SQLITE_ROW ? 0 : failed(j, err);
    if (rc == 0) {
        snprintf(was, n, "%s", (const char *)sqlite3_column_text(s, 0));
        rc = strcmp(was, value) != 0;
    }
    sqlite3_finalize(s);
    return rc;
}

/* The first row's columns, as numbers; 0 where there is none. */
static int query(struct journal *j, const char *sql, int64_t given, double *out, int n,
                 struct err *err) {
    sqlite3_stmt *s = prepare(j, sql, err);
    if (!s)
        return -1;
    sqlite3_bind_int64(s, 1, given);
    int rc = sqlite3_step(s);
    for (int i = 0; i < n; i++)
        out[i] = rc == SQLITE_ROW ? sqlite3_column_double(s, i) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        failed(j, err);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : -1;
}

int journal_last(struct journal *j, int64_t *attempt, bool *ended, struct err *err) {
    double v[2];
    if (query(j,
              "SELECT max(attempt), (SELECT count(*) FROM event e WHERE kind = 'end' AND "
              "e.attempt = (SELECT max(attempt) FROM event)) FROM event",
              0, v, 2, err) < 0)
        return -1;
    *attempt = (int64_t)v[0];
    *ended = v[1] > 0;
    return 0;
}

int journal_size(struct journal *j, int64_t *seen, int64_t *ranks, struct err *err) {
    double v[2];
    if (query(j,
              "SELECT id, value FROM event WHERE kind = 'size' AND id > ? "
              "ORDER BY id DESC LIMIT 1",
              *seen, v, 2, err) < 0)
        return -1;
    if (v[0] > 0)
        *seen = (int64_t)v[0];
    *ranks = (int64_t)v[1];
    return 0;
}

int journal_account(struct journal *j, struct account *a, struct err *err) {
    double v[9], disk[2], memory[2];
    static const char sums[] =
        "SELECT count(DISTINCT CASE kind WHEN 'start' THEN attempt END),"
        " sum(kind = 'end' AND text NOT LIKE 'done%' AND text NOT LIKE 'stopped%'"
        "     AND text NOT LIKE 'resized%'),"
        " sum(CASE kind WHEN 'lost' THEN value END), max(CASE kind WHEN 'end' THEN step END),"
        " max(time) - min(time), sum(CASE kind WHEN 'end' THEN value END),"
        " (SELECT avg(value) FROM event WHERE kind = 'first' AND attempt > 1),"
        " (SELECT sum(l.value * e.value / max(e.step - coalesce((SELECT b.step FROM event b"
        "   WHERE b.kind = 'lost' AND b.attempt = e.attempt), 0), 1)) FROM event l JOIN event e"
        "   ON e.kind = 'end' AND e.attempt = l.attempt - 1 WHERE l.kind = 'lost')"
        " FROM event";
    static const char saves[] =
        "SELECT sum(step), sum(step * value) / sum(step) FROM event WHERE kind = 'saves'";
    static const char copies[] =
        "SELECT sum(step), sum(step * value) / sum(step) FROM event WHERE kind = 'copies'";
    if (query(j, sums, 0, v, 8, err) < 0 || query(j, saves, 0, disk, 2, err) < 0 ||
        query(j, copies, 0, memory, 2, err) < 0)
        return -1;
    const double *often = memory[0] > disk[0] ? memory : disk;
    *a = (struct account){.attempts = (int64_t)v[0],
                          .failures = (int64_t)v[1],
                          .lost = (int64_t)v[2],
                          .steps = (int64_t)v[3],
                          .wall_s = v[4],
                          .steps_s = v[5],
                          .recover_s = v[6],
                          .lost_s = v[7],
                          .saves = (int64_t)often[0],
                          .save_s = often[1]};
    return 0;
}

int journal_print_causes(struct journal *j, FILE *f, struct err *err) {
    sqlite3_stmt *s =
        prepare(j,
                "SELECT substr(text, 1, instr(text, ':') - 1) AS cause, count(*), max(text)"
                " FROM event WHERE kind = 'end' GROUP BY cause ORDER BY 2 DESC, 1",
                err);
    if (!s)
        return -1;
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        fprintf(f, "  %4d %s\n", sqlite3_column_int(s, 1),
                (const char *)sqlite3_column_text(s, 2));
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? 0 : failed(j, err);
}

int journal_print_sizes(struct journal *j, FILE *f, struct err *err) {
    sqlite3_stmt *s =
        prepare(j,
                "SELECT s.value AS ranks, sum(e.step + 1 - f.step) AS steps, sum(e.value)"
                " FROM event s JOIN event f ON f.kind = 'first' AND f.attempt = s.attempt"
                " JOIN event e ON e.kind = 'end' AND e.attempt = s.attempt"
                " WHERE s.kind = 'start' GROUP BY ranks HAVING steps > 0 ORDER BY ranks",
                err);
    if (!s)
        return -1;
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        int64_t ranks = sqlite3_column_int64(s, 0), steps = sqlite3_column_int64(s, 1);
        double each = sqlite3_column_double(s, 2) / (double)steps;
        fprintf(
            f, "  %" PRId64 " ranks: %" PRId64 " steps of %.4g s, %.4g rank-seconds each\n",
            ranks, steps, each, (double)ranks * each);
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? 0 : failed(j, err);
}
