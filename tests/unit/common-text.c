/* Durations and sizes as people read them: the units, and where they change. */
#include "common/text.h"

#include "tap.h"

#include <stdlib.h>
#include <string.h>

static void is_text(struct text t, const char *want) {
    ok(strcmp(t.s, want) == 0, "%s", want);
}

static void is_word(const char *word, const char *want) {
    char *got = text_shell_word(word);
    ok(strcmp(got, want) == 0, "a shell reads %s", got);
    free(got);
}

int main(void) {
    is_text(text_time(0), "0.0 us");
    is_text(text_time(843.21), "843.2 us");
    is_text(text_time(62361.17), "62.36 ms");
    is_text(text_time(9303108.7), "9303.11 ms");
    is_text(text_time(93000674.3), "93.001 s");
    is_text(text_bytes(1024), "1024 bytes");
    is_text(text_bytes(524288), "0.5 MiB");
    is_text(text_bytes(1023.0 * (1 << 20)), "1023.0 MiB");
    is_text(text_bytes(12.0 * (1 << 30)), "12.00 GiB");
    is_text(text_time_beside(15670, 3343.2), "15670.0 us");
    is_word("a/b-1_2.db", "a/b-1_2.db");
    is_word("my profile.db", "'my profile.db'");
    is_word("it's", "'it'\\''s'");
    is_word("$HOME", "'$HOME'");
    is_word("", "''");
    done_testing();
    return 0;
}
