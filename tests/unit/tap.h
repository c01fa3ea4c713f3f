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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

/* Is case i of a table run today? One in `parts` is, others every day; WEFT_LONG=1 runs all.
 * SEED=YYYYMMDD repeats a day. */
__attribute__((unused)) static bool is_of_today(int64_t i, int64_t parts) {
    const char *seed = getenv("SEED");
    time_t now = time(NULL);
    struct tm t;
    localtime_r(&now, &t);
    int64_t day =
        seed ? atoll(seed) : (t.tm_year + 1900) * 10000 + (t.tm_mon + 1) * 100 + t.tm_mday;
    static bool said;
    if (!said)
        printf("# SEED=%lld\n", (long long)day);
    said = true;
    return getenv("WEFT_LONG") || (i + day) % parts == 0;
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
