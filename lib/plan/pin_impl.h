/* pin_impl.h - what the files of pins share. */
#ifndef WEFT_PIN_IMPL_H
#define WEFT_PIN_IMPL_H

#include "plan/pin.h"

/* Do they contradict each other? */
int pins_agree(const struct pins *p, struct err *err);
/* A pin that says nothing yet; the pointer is good until the next. */
struct pin *pins_push(struct pins *p, const char *where, bool *covers);
/* Room for values op by op, 0 at first. */
int8_t *pin_each(struct pins *p, struct pin *pin, enum pin_field field);
/* "NAME: what", or what alone where name is NULL; lasts as the pins do. */
const char *pins_place(struct pins *p, const char *name, const char *what);
/* "pin", and all of a partial plan but "pin". */
int pins_read_object(struct pins *p, const json_t *v, const char *name, struct err *err);
int pins_read_partial(struct pins *p, const json_t *doc, const char *name, struct err *err);
/* Index of the mesh among those of the pins. */
int pins_add_mesh(struct pins *p, const struct mesh *mesh);
/* What is said of the plan as a whole; missing keys leave the values alone. */
int pin_read_plan(struct pin *pin, const json_t *v, struct err *err);
int pin_read_bool(const json_t *v, const char *key, int64_t *out, struct err *err);

#endif
