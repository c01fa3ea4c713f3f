/* tap.h - the smallest Test Anything Protocol producer for the unit tests in C.
 *
 *     int main(void) {
 *         ok(1 + 1 == 2, "one and one is %d", 2);
 *         return done_testing();
 *     }
 */
#ifndef WEFT_TAP_H
#define WEFT_TAP_H

#include <stdarg.h>
#include <stdio.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 2, 3), unused)) static int ok(int good, const char *fmt,
                                                            ...) {
    va_list ap;
    printf("%sok %d - ", good ? "" : "not ", ++tap_count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    tap_failed += !good;
    return good;
}

__attribute__((unused)) static int done_testing(void) {
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}

/* Under AddressSanitizer, which makes everything several times as slow. */
#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
enum { SANITIZED = __has_feature(address_sanitizer) };
#else
enum { SANITIZED = 0 };
#endif

#endif
