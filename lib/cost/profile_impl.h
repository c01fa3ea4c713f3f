/* profile_impl.h - inside the profile database: what its files share. */
#ifndef WEFT_PROFILE_IMPL_H
#define WEFT_PROFILE_IMPL_H

#include "cost/profile.h"

#include <sqlite3.h>

enum profile_table {
    PROFILE_OP,
    PROFILE_COMM,
    PROFILE_OVERLAP,
    PROFILE_ALGORITHM, /* from version 3 on */
    PROFILE_TABLES
};

struct profile {
    sqlite3 *db;
    char *path;
    char *machine; /* CPU model of this host */
    int version;   /* of the file; 0 = it has no tables yet */
    /* Prepared once; NULL where the file has no such table. */
    sqlite3_stmt *has[PROFILE_TABLES], *put[PROFILE_TABLES];
};

/* Reports the last failure of SQLite on this database, with the right exit status: a broken
 * file is bad input, everything else (locked, full, read-only) the system's. Returns -1. */
int profile_sql_error(struct profile *p, const char *what, struct err *err);

/* Hints at the command that fills this file. */
void profile_hint_measure(const char *path, struct err *err);

/* Prepares a statement; NULL with a message on failure. */
sqlite3_stmt *profile_prepare(struct profile *p, const char *sql, struct err *err);

/* In profile_rows.c: the statements for every table that the file has. Returns 0 or -1;
 * they are to be finalized in any case. */
int profile_prepare_rows(struct profile *p, struct err *err);
void profile_finalize_rows(struct profile *p);

#endif
