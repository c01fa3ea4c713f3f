/* profile_impl.h - inside the profile database: what profile_db.c and profile_times.c
 * share. */
#ifndef WEFT_PROFILE_IMPL_H
#define WEFT_PROFILE_IMPL_H

#include "cost/profile.h"

#include <sqlite3.h>

/* Statements that are used once per row are prepared once. */
enum profile_stmt {
    STMT_HAS_OP,
    STMT_HAS_COMM,
    STMT_PUT_OP,
    STMT_PUT_COMM,
    STMT_PUT_OVERLAP,
    STMT_PUT_PRODUCT, /* from version 2 on */
    STMT_COUNT
};

struct profile {
    sqlite3 *db;
    char *path;
    char *machine; /* CPU model of this host */
    int version;   /* of the file; 0 = it has no tables yet */
    sqlite3_stmt *stmt[STMT_COUNT];
};

/* Reports the last failure of SQLite on this database, with the right exit status: a broken
 * file is bad input, everything else (locked, full, read-only) the system's. Returns -1. */
int profile_sql_error(struct profile *p, const char *what, struct err *err);

/* Prepares a statement; NULL with a message on failure. */
sqlite3_stmt *profile_prepare(struct profile *p, const char *sql, struct err *err);

#endif
