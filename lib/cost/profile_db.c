/* The profile database: opening and checking.
 *
 * A file is ours by its application_id and user_version, which any tool can see without
 * knowing the tables. Every row is a transaction of its own under a rollback journal, so
 * that after kill -9 the file is whole and lacks at most the row under way. Rows are never
 * changed, unless they were estimated: the whole key is the primary key, and a second row
 * with the same key is left out.
 *
 * This file knows nothing of programs: the profiler of collectives links it without them.
 */
#include "cost/profile_impl.h"

#include "common/file.h"
#include "common/mem.h"
#include "common/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x77656674 /* "weft" */, VERSION = 3, BUSY_MS = 10000 };

/* Version 2 had algorithms of products only, in a table of their own; version 1 had none.
 * Such files are read as they are, and brought up to date when somebody writes to them. */
#define FORMAT "weft-profile/3"

/* Columns of a measurement, in the form in which sqlite3's .schema shows them. */
#define RESULT                                                                             \
    "  median_us REAL NOT NULL CHECK (typeof(median_us) = 'real' AND median_us >= 0),\n"   \
    "  spread REAL NOT NULL CHECK (typeof(spread) = 'real' AND spread >= 0),\n"            \
    "  repeats INTEGER NOT NULL CHECK (repeats >= 0),\n"                                   \
    "  source TEXT NOT NULL, machine TEXT NOT NULL, measured_at TEXT NOT NULL,\n"

/* What versions 1 and 2 lack. */
#define ALGORITHM_TABLE                                                                    \
    "CREATE TABLE algorithm (\n"                                                           \
    "  device TEXT NOT NULL, problem TEXT NOT NULL, library INTEGER NOT NULL,\n"           \
    "  shape TEXT NOT NULL, dtype TEXT NOT NULL, dtype_y TEXT NOT NULL,\n"                 \
    "  algorithm TEXT NOT NULL,\n"                                                         \
    "  workspace INTEGER NOT NULL CHECK (workspace >= 0),\n"                               \
    "  least_us REAL NOT NULL CHECK (typeof(least_us) = 'real' AND least_us >= 0),\n"      \
    "  machine TEXT NOT NULL, measured_at TEXT NOT NULL,\n"                                \
    "  PRIMARY KEY (device, problem, library, shape, dtype, dtype_y)) WITHOUT ROWID;"

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
    "  PRIMARY KEY (device, collective, link)) WITHOUT ROWID;" ALGORITHM_TABLE;

/* What brings a file of each version up to date. */
static const char *const updates[VERSION] = {
    [0] = schema,
    [1] = ALGORITHM_TABLE "UPDATE meta SET value = '" FORMAT "' WHERE key = 'format';",
    [2] = ALGORITHM_TABLE
    "INSERT INTO algorithm SELECT device, 'product', library, shape, dtype, dtype_y, "
    "algorithm, workspace, least_us, machine, measured_at FROM product;"
    "DROP TABLE product;"
    "UPDATE meta SET value = '" FORMAT "' WHERE key = 'format';",
};

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
    if (kind >= 0 && execute(p, updates[p->version], "cannot write", err) == 0 &&
        execute(p, numbers, "cannot write", err) == 0 &&
        execute(p, "COMMIT", "cannot write", err) == 0) {
        p->version = VERSION;
        return 0;
    }
    sqlite3_exec(p->db, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

void profile_hint_measure(const char *path, struct err *err) {
    char *word = text_shell_word(path);
    err_hint(err, "weft-profile-op -m MODEL -p %s measures one", word);
    free(word);
}

static int cannot_open(const char *path, bool create, struct err *err) {
    if (create)
        return err_system(err, "%s: cannot write: %s", path, strerror(errno));
    err_input(err, "%s: %s", path, strerror(errno));
    if (errno == ENOENT)
        profile_hint_measure(path, err);
    return -1;
}

/* A file that exists must be a profile; one that does not is made where that is wanted. */
static int open_file(struct profile *p, bool create, struct err *err) {
    /* Read-only users open for writing too: a journal that kill -9 left behind must be
     * rolled back before anything can be read. SQLite falls back by itself where that is
     * forbidden. */
    if (access(p->path, F_OK) != 0) {
        if (!create)
            return cannot_open(p->path, false, err);
        if (file_out_check(p->path, err) < 0) /* SQLite would not say why */
            return -1;
    }
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

/* The host's CPU model, by which rows name the machine. */
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
    if (open_file(p, create, err) < 0 || profile_prepare_rows(p, err) < 0) {
        profile_close(p);
        return NULL;
    }
    p->machine = machine_name();
    return p;
}

void profile_close(struct profile *p) {
    if (!p)
        return;
    profile_finalize_rows(p);
    sqlite3_close(p->db);
    free(p->machine);
    free(p->path);
    free(p);
}

/* ---- many rows at once, and names ----------------------------------------- */

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
