/* The profile database: opening, checking, and writing rows.
 *
 * A file is ours by its application_id and user_version, which any tool can see without
 * knowing the tables. Every row is a transaction of its own under a rollback journal, so
 * that after kill -9 the file is whole and lacks at most the row under way. Rows are never
 * changed: the whole key is the primary key, and a second row with the same key is left
 * out.
 *
 * This file knows nothing of programs: the profiler of collectives links it without them.
 */
#include "cost/profile_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x77656674 /* "weft" */, VERSION = 2, BUSY_MS = 10000 };

/* Version 2 is 1 and a table more: files of version 1 are read as they are, and get the table when
 * somebody writes to them. */
#define FORMAT_1 "weft-profile/1"
#define FORMAT   "weft-profile/2"

/* Columns of a measurement, in the form in which sqlite3's .schema shows them. */
#define RESULT                                                                             \
    "  median_us REAL NOT NULL CHECK (typeof(median_us) = 'real' AND median_us >= 0),\n"   \
    "  spread REAL NOT NULL CHECK (typeof(spread) = 'real' AND spread >= 0),\n"            \
    "  repeats INTEGER NOT NULL CHECK (repeats >= 0),\n"                                   \
    "  source TEXT NOT NULL, machine TEXT NOT NULL, measured_at TEXT NOT NULL,\n"

/* What version 2 adds. */
#define PRODUCT_TABLE                                                                      \
    "CREATE TABLE product (\n"                                                             \
    "  device TEXT NOT NULL, library INTEGER NOT NULL, shape TEXT NOT NULL,\n"             \
    "  dtype TEXT NOT NULL, dtype_y TEXT NOT NULL, algorithm TEXT NOT NULL,\n"             \
    "  workspace INTEGER NOT NULL CHECK (workspace >= 0),\n"                               \
    "  least_us REAL NOT NULL CHECK (typeof(least_us) = 'real' AND least_us >= 0),\n"      \
    "  machine TEXT NOT NULL, measured_at TEXT NOT NULL,\n"                                \
    "  PRIMARY KEY (device, library, shape, dtype, dtype_y)) WITHOUT ROWID;"

static const char schema[] =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES ('format', '" FORMAT "');"
    "CREATE TABLE op (\n"
    "  device TEXT NOT NULL, instr TEXT NOT NULL,\n"
    "  shape TEXT NOT NULL, dtype TEXT NOT NULL,\n" RESULT
    "  PRIMARY KEY (device, instr, shape, dtype)) WITHOUT ROWID;"
    "CREATE TABLE comm (\n"
    "  device TEXT NOT NULL, collective TEXT NOT NULL, group_size INTEGER NOT NULL,\n"
    "  stride INTEGER NOT NULL, groups INTEGER NOT NULL,\n"
    "  link TEXT NOT NULL CHECK (link IN ('node', 'cross')),\n"
    "  bytes INTEGER NOT NULL,\n" RESULT
    "  PRIMARY KEY (device, collective, group_size, stride, groups, link, bytes)\n"
    ") WITHOUT ROWID;"
    "CREATE TABLE overlap (\n"
    "  device TEXT NOT NULL, collective TEXT NOT NULL,\n"
    "  link TEXT NOT NULL CHECK (link IN ('node', 'cross')),\n"
    "  fraction REAL NOT NULL CHECK (fraction BETWEEN 0 AND 1),\n"
    "  machine TEXT NOT NULL, measured_at TEXT NOT NULL,\n"
    "  PRIMARY KEY (device, collective, link)) WITHOUT ROWID;" PRODUCT_TABLE;

static const char from_version_1[] =
    PRODUCT_TABLE "UPDATE meta SET value = '" FORMAT "' WHERE value = '" FORMAT_1 "';";

#define NOW "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"

/* ON CONFLICT DO NOTHING forgives a key that is there, and nothing else. */
static const char *const statements[STMT_COUNT] = {
    [STMT_HAS_OP] =
        "SELECT 1 FROM op WHERE device=?1 AND instr=?2 AND shape=?3 AND dtype=?4",
    [STMT_HAS_COMM] =
        "SELECT 1 FROM comm WHERE device=?1 AND collective=?2 AND group_size=?3 "
        "AND stride=?4 AND groups=?5 AND link=?6 AND bytes=?7",
    [STMT_PUT_OP] =
        "INSERT INTO op (device, instr, shape, dtype, median_us, spread, repeats, "
        "source, machine, measured_at) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9," NOW ") "
        "ON CONFLICT DO NOTHING",
    [STMT_PUT_COMM] =
        "INSERT INTO comm (device, collective, group_size, stride, groups, link, "
        "bytes, median_us, spread, repeats, source, machine, measured_at) "
        "VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12," NOW ") "
        "ON CONFLICT DO NOTHING",
    [STMT_PUT_OVERLAP] =
        "INSERT INTO overlap (device, collective, link, fraction, machine, "
        "measured_at) VALUES (?1,?2,?3,?4,?5," NOW ") ON CONFLICT DO NOTHING",
    [STMT_PUT_PRODUCT] =
        "INSERT INTO product (device, library, shape, dtype, dtype_y, algorithm, "
        "workspace, least_us, machine, measured_at) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9," NOW
        ") ON CONFLICT DO NOTHING",
};

int profile_sql_error(struct profile *p, const char *what, struct err *err) {
    int code = sqlite3_errcode(p->db) & 0xff;
    const char *text = sqlite3_errmsg(p->db);
    switch (code) {
    case SQLITE_NOTADB: return err_input(err, "%s: not a weft profile (%s)", p->path, text);
    case SQLITE_CORRUPT: return err_input(err, "%s: %s: damaged (%s)", p->path, what, text);
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT: return err_input(err, "%s: %s: %s", p->path, what, text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_system(err, "%s: %s: another process has locked the database", p->path,
                          what);
    default: return err_system(err, "%s: %s: %s", p->path, what, text);
    }
}

sqlite3_stmt *profile_prepare(struct profile *p, const char *sql, struct err *err) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(p->db, sql, -1, &s, NULL) != SQLITE_OK) {
        profile_sql_error(p, "not a whole weft profile", err);
        return NULL;
    }
    return s;
}

static int execute(struct profile *p, const char *sql, const char *what, struct err *err) {
    return sqlite3_exec(p->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : profile_sql_error(p, what, err);
}

/* The single number that a query yields. */
static int query_int(struct profile *p, const char *sql, int64_t *out, struct err *err) {
    sqlite3_stmt *s = profile_prepare(p, sql, err);
    if (!s)
        return -1;
    int rc = sqlite3_step(s);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    else
        profile_sql_error(p, "reading", err);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? 0 : -1;
}

/* ---- opening ------------------------------------------------------------- */

/* 1 = ours, 0 = an empty file, -1 = refused. Sets p->version. */
static int identify(struct profile *p, struct err *err) {
    int64_t id, version, tables;
    if (query_int(p, "PRAGMA application_id", &id, err) < 0 ||
        query_int(p, "PRAGMA user_version", &version, err) < 0 ||
        query_int(p, "SELECT count(*) FROM sqlite_master", &tables, err) < 0)
        return -1;
    if (!id && !version && !tables)
        return 0;
    if (id != APPLICATION_ID)
        return err_input(err, "%s: not a weft profile (a SQLite database of another kind)",
                         p->path);
    if (version < 1 || version > VERSION)
        return err_input(err, "%s: is version %lld, this weft reads %d", p->path,
                         (long long)version, VERSION);
    p->version = (int)version;
    return 1;
}

/* Makes the tables, or those that an older version lacks, in one transaction. Of two processes that
 * come at once the second finds them made. */
static int make_tables(struct profile *p, struct err *err) {
    char numbers[128];
    snprintf(numbers, sizeof numbers, "PRAGMA application_id=%d; PRAGMA user_version=%d;",
             APPLICATION_ID, VERSION);
    if (execute(p, "BEGIN IMMEDIATE", "cannot write", err) < 0)
        return -1;
    int kind = identify(p, err);
    if (kind == 1 && p->version == VERSION)
        return execute(p, "ROLLBACK", "cannot write", err);
    if (kind >= 0 && execute(p, kind ? from_version_1 : schema, "cannot write", err) == 0 &&
        execute(p, numbers, "cannot write", err) == 0 &&
        execute(p, "COMMIT", "cannot write", err) == 0) {
        p->version = VERSION;
        return 0;
    }
    sqlite3_exec(p->db, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

/* A file of version 1, which is only read, has no table for the last of them. */
static int prepare_all(struct profile *p, struct err *err) {
    for (int i = 0; i < (p->version < 2 ? STMT_PUT_PRODUCT : STMT_COUNT); i++)
        if (!(p->stmt[i] = profile_prepare(p, statements[i], err)))
            return -1;
    return 0;
}

static int cannot_open(const char *path, bool create, struct err *err) {
    if (create)
        return err_system(err, "%s: cannot write: %s", path, strerror(errno));
    err_input(err, "%s: %s", path, strerror(errno));
    if (errno == ENOENT)
        err_hint(err, "weft-profile-op -m MODEL -p %s measures one", path);
    return -1;
}

/* A file that exists must be a profile; one that does not is made where that is wanted. */
static int open_file(struct profile *p, bool create, struct err *err) {
    /* Read-only users open for writing too: a journal that kill -9 left behind must be
     * rolled back before anything can be read. SQLite falls back by itself where that is
     * forbidden. */
    if (access(p->path, F_OK) != 0 && !create)
        return cannot_open(p->path, false, err);
    int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
    errno = 0;
    int rc = sqlite3_open_v2(p->path, &p->db, flags, NULL);
    if (rc != SQLITE_OK) {
        int system = sqlite3_system_errno(p->db);
        errno = system ? system : errno ? errno : EISDIR;
        return cannot_open(p->path, create, err);
    }
    sqlite3_busy_timeout(p->db, BUSY_MS);
    int kind = identify(p, err);
    if (kind < 0)
        return -1;
    if (!kind && !create)
        return err_input(err, "%s: not a weft profile (the file is empty)", p->path);
    if (create && sqlite3_db_readonly(p->db, "main") == 1)
        return err_system(err, "%s: cannot write: the file is read-only", p->path);
    if (create && p->version < VERSION && make_tables(p, err) < 0)
        return -1;
    return create ? 0 : execute(p, "PRAGMA query_only=1", "reading", err);
}

/* The host's CPU model, as rows name the machine. */
static char *machine_name(void) {
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        fclose(f);
        colon[1 + strcspn(colon + 1, "\n")] = '\0';
        return mem_strdup(colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f)
        fclose(f);
    struct utsname u;
    return mem_strdup(uname(&u) == 0 ? u.machine : "unknown");
}

struct profile *profile_open(const char *path, bool create, struct err *err) {
    struct profile *p = mem_alloc(sizeof *p);
    p->path = mem_strdup(path);
    if (open_file(p, create, err) < 0 || prepare_all(p, err) < 0) {
        profile_close(p);
        return NULL;
    }
    p->machine = machine_name();
    return p;
}

void profile_close(struct profile *p) {
    if (!p)
        return;
    for (int i = 0; i < STMT_COUNT; i++)
        sqlite3_finalize(p->stmt[i]);
    sqlite3_close(p->db);
    free(p->machine);
    free(p->path);
    free(p);
}

/* ---- rows ---------------------------------------------------------------- */

static void bind_text(sqlite3_stmt *s, int at, const char *text) {
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

/* Runs a statement and leaves it ready for the next row. */
static int run(struct profile *p, sqlite3_stmt *s, const char *what, struct err *err) {
    int rc = sqlite3_step(s);
    int failed =
        rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : profile_sql_error(p, what, err);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return failed;
}

static bool found(sqlite3_stmt *s) {
    bool row = sqlite3_step(s) == SQLITE_ROW;
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return row;
}

bool profile_has_op(struct profile *p, const char *device, const char *instr,
                    const char *shape, const char *dtype) {
    sqlite3_stmt *s = p->stmt[STMT_HAS_OP];
    bind_text(s, 1, device);
    bind_text(s, 2, instr);
    bind_text(s, 3, shape);
    bind_text(s, 4, dtype);
    return found(s);
}

static void bind_comm_key(sqlite3_stmt *s, const struct profile_comm *key) {
    bind_text(s, 1, key->device);
    bind_text(s, 2, key->collective);
    sqlite3_bind_int64(s, 3, key->group_size);
    sqlite3_bind_int64(s, 4, key->stride);
    sqlite3_bind_int64(s, 5, key->groups);
    bind_text(s, 6, key->link);
    sqlite3_bind_int64(s, 7, key->bytes);
}

bool profile_has_comm(struct profile *p, const struct profile_comm *key) {
    bind_comm_key(p->stmt[STMT_HAS_COMM], key);
    return found(p->stmt[STMT_HAS_COMM]);
}

/* Rows that nothing was run for do not carry a machine. */
static const char *machine_of(const struct profile *p, const char *source) {
    return strcmp(source, "measured") ? "" : p->machine;
}

/* Median, spread, repeats, source and machine, from column `at` on. */
static void bind_result(const struct profile *p, sqlite3_stmt *s, int at, double median_us,
                        double spread, int64_t repeats, const char *source) {
    sqlite3_bind_double(s, at, median_us);
    sqlite3_bind_double(s, at + 1, spread);
    sqlite3_bind_int64(s, at + 2, repeats);
    bind_text(s, at + 3, source);
    bind_text(s, at + 4, machine_of(p, source));
}

int profile_put_op(struct profile *p, const struct profile_op *row, struct err *err) {
    sqlite3_stmt *s = p->stmt[STMT_PUT_OP];
    bind_text(s, 1, row->device);
    bind_text(s, 2, row->instr);
    bind_text(s, 3, row->shape);
    bind_text(s, 4, row->dtype);
    bind_result(p, s, 5, row->median_us, row->spread, row->repeats, row->source);
    return run(p, s, "writing a row of op", err);
}

int profile_put_comm(struct profile *p, const struct profile_comm *row, struct err *err) {
    sqlite3_stmt *s = p->stmt[STMT_PUT_COMM];
    bind_comm_key(s, row);
    bind_result(p, s, 8, row->median_us, row->spread, row->repeats, row->source);
    return run(p, s, "writing a row of comm", err);
}

int profile_put_overlap(struct profile *p, const struct profile_overlap *row,
                        struct err *err) {
    sqlite3_stmt *s = p->stmt[STMT_PUT_OVERLAP];
    bind_text(s, 1, row->device);
    bind_text(s, 2, row->collective);
    bind_text(s, 3, row->link);
    sqlite3_bind_double(s, 4, row->fraction);
    bind_text(s, 5, p->machine);
    return run(p, s, "writing a row of overlap", err);
}

/* ---- products ------------------------------------------------------------ */

int profile_put_product(struct profile *p, const struct profile_product *row,
                        struct err *err) {
    sqlite3_stmt *s = p->stmt[STMT_PUT_PRODUCT];
    bind_text(s, 1, row->device);
    sqlite3_bind_int64(s, 2, row->library);
    bind_text(s, 3, row->shape);
    bind_text(s, 4, row->dtype);
    bind_text(s, 5, row->dtype_y);
    bind_text(s, 6, row->algorithm);
    sqlite3_bind_int64(s, 7, row->workspace_bytes);
    sqlite3_bind_double(s, 8, row->least_us);
    bind_text(s, 9, p->machine);
    return run(p, s, "writing a row of product", err);
}

static void copy_text(sqlite3_stmt *s, int column, char *to, size_t size) {
    const unsigned char *text = sqlite3_column_text(s, column);
    snprintf(to, size, "%s", text ? (const char *)text : "");
}

static struct profile_product product_of(sqlite3_stmt *s) {
    struct profile_product row = {.library = sqlite3_column_int64(s, 1),
                                  .workspace_bytes = sqlite3_column_int64(s, 6),
                                  .least_us = sqlite3_column_double(s, 7)};
    copy_text(s, 0, row.device, sizeof row.device);
    copy_text(s, 2, row.shape, sizeof row.shape);
    copy_text(s, 3, row.dtype, sizeof row.dtype);
    copy_text(s, 4, row.dtype_y, sizeof row.dtype_y);
    copy_text(s, 5, row.algorithm, sizeof row.algorithm);
    return row;
}

int profile_load_products(struct profile *p, struct profile_products *out,
                          struct err *err) {
    if (p->version < 2)
        return 0;
    sqlite3_stmt *s = profile_prepare(
        p,
        "SELECT device, library, shape, dtype, dtype_y, algorithm, workspace, least_us "
        "FROM product",
        err);
    if (!s)
        return -1;
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        arr_push(out, product_of(s));
    int failed = rc == SQLITE_DONE ? 0 : profile_sql_error(p, "reading", err);
    sqlite3_finalize(s);
    return failed;
}

int profile_begin(struct profile *p, struct err *err) {
    return execute(p, "BEGIN IMMEDIATE", "cannot write", err);
}

int profile_commit(struct profile *p, struct err *err) {
    return execute(p, "COMMIT", "cannot write", err);
}

char *profile_device_kind(int threads, int ranks, int cores, char *buf, int n) {
    int over = cores > 0 ? (threads * ranks + cores - 1) / cores : 1;
    if (over > 1)
        snprintf(buf, (size_t)n, "cpu-%dt-over%d", threads, over);
    else
        snprintf(buf, (size_t)n, "cpu-%dt", threads);
    return buf;
}
