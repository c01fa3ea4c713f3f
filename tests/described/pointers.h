/* pointers.h - which arguments of a kernel are pointers, from its name as C++ mangles it. */
#ifndef WEFT_TESTS_POINTERS_H
#define WEFT_TESTS_POINTERS_H

#include <stdint.h>

/* Is argument i (from 0) of the function with this mangled name a pointer? 1, 0, or -1 where it has fewer
 * arguments, or the name says nothing about them. */
int pointer_argument(const char *mangled, int64_t i);

#endif
