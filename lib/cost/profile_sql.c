/* Statements of the profile database and their failures. */
#include "cost/profile_impl.h"

int profile_sql_error(struct profile *p, const char *what, struct err *err) {
    int code = sqlite3_errcode(p->db) & 0xff;
    const char *text = sqlite3_errmsg(p->db);
    if (sqlite3_extended_errcode(p->db) == SQLITE_READONLY_ROLLBACK)
        return err_system(err,
                          "%s: a measurement that was killed must be taken back before "
                          "it can be read, and the file or its folder is read-only",
                          p->path);
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
