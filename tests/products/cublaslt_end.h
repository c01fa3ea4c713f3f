/* cublaslt_end.h - at the end of the program: how many products did with an epilogue what weft can do by itself, and a
 * failure where the library was asked for what it does not allow. Included once in a program. */
#ifndef WEFT_TESTS_CUBLASLT_END_H
#define WEFT_TESTS_CUBLASLT_END_H

#include "products/cublaslt.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((destructor)) static void end(void) {
    fprintf(stderr, "# epilogues %d\n", fake_cublaslt.epilogues);
    if (!fake_cublaslt.wrong)
        return;
    fprintf(stderr, "wrong: %s\n", fake_cublaslt.wrong);
    _Exit(EXIT_FAILURE);
}

#endif
