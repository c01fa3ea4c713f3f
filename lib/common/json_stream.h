/* json_stream.h - JSON in the order in which it stands, for documents too large for a tree.
 *
 * The caller walks: it enters an array or an object, asks for items or keys until there are no
 * more, and takes each value as a number, as a tree (small parts), or not at all. Only a window
 * of the text is held. What is walked through is checked as strictly as json_read (json.h) does.
 *
 *     struct json_stream s;
 *     struct json_number x;
 *     double sum = 0;
 *     int more = json_stream_open(&s, "numbers.json", &err);
 *     if (more == 0)
 *         more = json_stream_enter(&s, '[', &err);
 *     while (more >= 0 && (more = json_stream_item(&s, &err)) > 0) {
 *         more = json_stream_number(&s, &x, &err);
 *         sum += x.real;
 *     }
 *     json_stream_close(&s);
 */
#ifndef WEFT_JSON_STREAM_H
#define WEFT_JSON_STREAM_H

#include "common/json.h"

#include <stddef.h>

struct json_stream {
    const char *name;  /* of the document, for messages; borrowed */
    double deadline_s; /* now_s() at which to stop reading; 0 = never. The caller sets it */
    bool failed;       /* an error was reported that has name, line and column in it */
    int fd;            /* -1: all of the text is in buf */
    char *buf;         /* (cap) a window of the text; buf[end] = 0 */
    size_t at, end, cap;
    size_t mark;    /* what stands from here on is kept; SIZE_MAX: none */
    bool fresh;     /* nothing was taken yet from the container just entered */
    bool eof;       /* no more text comes */
    int64_t lines;  /* line feeds before the window ... */
    int64_t column; /* ... and bytes since the last one */
};

struct json_number {
    bool whole;          /* written without fraction and exponent */
    int64_t whole_value; /* if whole */
    double real;         /* always */
};

/* Opens a file ("-" = stdin), or a text, which is copied. Close it even when opening failed. */
int json_stream_open(struct json_stream *s, const char *path, struct err *err);
void json_stream_text(struct json_stream *s, const char *text, size_t size,
                      const char *name);
void json_stream_close(struct json_stream *s);

/* The type of the next value (JSON_INTEGER for every number); -1 with an error if there is none.
 * Takes nothing. json_stream_type_name: as in "expected an object, got a string". */
int json_stream_type(struct json_stream *s, struct err *err);
const char *json_stream_type_name(int type);

/* Enters an array ('[') or an object ('{'). Then: 1 = another item or key comes, whose value is
 * to be taken before the next call, 0 = that was all and the container is left, -1 = error. Keys
 * are cut at size - 1 bytes. */
int json_stream_enter(struct json_stream *s, char open, struct err *err);
int json_stream_item(struct json_stream *s, struct err *err);
int json_stream_key(struct json_stream *s, char *key, size_t size, struct err *err);

/* The next value: a number; anything, as a tree (NULL: error; the caller owns it); nothing of it.
 */
int json_stream_number(struct json_stream *s, struct json_number *x, struct err *err);
json_t *json_stream_tree(struct json_stream *s, struct err *err);
int json_stream_skip(struct json_stream *s, struct err *err);

/* Nothing but white space may follow. */
int json_stream_end(struct json_stream *s, struct err *err);

#endif
