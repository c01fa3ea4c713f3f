/* A checkpoint written under one partition reads back under any other. Tensors are filled
 * with their own global index, so that every misplaced element shows. */
#include "checkpoint/checkpoint.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tap.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 6 };

static char top[64] = "/tmp/weft-ck-XXXXXX";
static struct rng rng = {.seed = 20};
static const struct bulk_way way = {.threads = 2};

static char *path_of(const char *name) {
    static char path[64][160];
    static int turn;
    char *p = path[turn++ % 64];
    snprintf(p, sizeof path[0], "%s/%s", top, name);
    return p;
}

static int64_t count_of(const struct checkpoint_box *b) {
    int64_t n = 1;
    for (int d = 0; d < b->dims; d++)
        n *= b->size[d];
    return n;
}

/* The value of local element i of a box: its global index, plus salt. */
static float value_at(const struct checkpoint_box *b, int64_t i, int salt) {
    int64_t at[CHECKPOINT_DIMS], global = 0;
    for (int d = b->dims - 1; d >= 0; d--) {
        at[d] = b->first[d] + i % b->size[d];
        i /= b->size[d];
    }
    for (int d = 0; d < b->dims; d++)
        global = global * b->shape[d] + at[d];
    return (float)(global + 10000 * salt);
}

struct pieces {
    ARR(struct checkpoint_piece) of[RANKS_MAX];
};

static void give(struct pieces *ps, int rank, enum checkpoint_kind kind, const char *name,
                 const struct checkpoint_box *box, int salt) {
    int64_t n = count_of(box);
    float *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++)
        data[i] = value_at(box, i, salt);
    arr_push(&ps->of[rank], (struct checkpoint_piece){
                                .kind = kind, .name = name, .box = *box, .data = data});
}

/* Cuts a box at random and gives the parts to random ranks. */
static void scatter(struct pieces *ps, int ranks, enum checkpoint_kind kind,
                    const char *name, struct checkpoint_box box, int cuts, int salt) {
    int d = box.dims ? (int)rng_below(&rng, box.dims) : 0;
    if (!cuts || !box.dims || box.size[d] < 2) {
        give(ps, (int)rng_below(&rng, ranks), kind, name, &box, salt);
        return;
    }
    int64_t left = 1 + rng_below(&rng, box.size[d] - 1);
    struct checkpoint_box a = box, b = box;
    a.size[d] = left;
    b.first[d] += left;
    b.size[d] -= left;
    scatter(ps, ranks, kind, name, a, cuts - 1, salt);
    scatter(ps, ranks, kind, name, b, cuts - 1, salt);
}

static void release(struct pieces *ps) {
    for (int r = 0; r < RANKS_MAX; r++) {
        for (int64_t i = 0; i < ps->of[r].n; i++)
            free((float *)ps->of[r].p[i].data);
        arr_release(&ps->of[r]);
    }
}

static struct checkpoint_box whole(int dims, const int64_t *shape) {
    struct checkpoint_box b = {.dims = dims};
    for (int d = 0; d < dims; d++)
        b.shape[d] = b.size[d] = shape[d];
    return b;
}

static int save(const char *dir, int64_t step, struct pieces *ps, int ranks, int64_t keep,
                struct err *err) {
    struct checkpoint_info info = {.step = step,
                                   .sample = 8 * step,
                                   .seed = 5,
                                   .model = "gpt:nano",
                                   .model_hash = 0xfedcba9876543210u,
                                   .facts = "{\"the size of seq\":\"64\","
                                            "\"the size of vocab\":\"8\"}",
                                   .batch = 8};
    char *reports[RANKS_MAX] = {0};
    int bad = checkpoint_begin(dir, step, err);
    for (int r = 0; !bad && r < ranks; r++) {
        struct checkpoint_share share = {r, ps->of[r].p, ps->of[r].n, {.threads = 1 + r}};
        struct checkpoint_report report;
        bad = checkpoint_write(dir, step, &share, &report, err);
        reports[r] = report.text;
    }
    bad = bad || checkpoint_commit(dir, &info, reports, ranks, false, keep, err);
    for (int r = 0; r < ranks; r++)
        free(reports[r]);
    return bad ? -1 : 0;
}

/* Compares a random box of a tensor. */
static int check_random_box(struct checkpoint *ck, enum checkpoint_kind kind,
                            const char *name, struct checkpoint_box box, int salt) {
    for (int d = 0; d < box.dims; d++) {
        box.first[d] = rng_below(&rng, box.shape[d]);
        box.size[d] = 1 + rng_below(&rng, box.shape[d] - box.first[d]);
    }
    int64_t n = count_of(&box);
    float *out = malloc((size_t)n * sizeof *out);
    struct err err = {0};
    int bad = checkpoint_read(ck, kind, name, &box, out, &err) < 0;
    for (int64_t i = 0; !bad && i < n; i++)
        bad = out[i] != value_at(&box, i, salt);
    if (err.status)
        printf("# %s\n", err.msg);
    free(out);
    return bad;
}

static void test_partitions(void) {
    int bad = 0;
    for (int round = 0; round < 30; round++) {
        char *dir = path_of("parts");
        struct pieces ps = {0};
        struct checkpoint_box box[5];
        static const char *const names[] = {"a", "layer.0.w", "layer.1.w", "x-y_z", "b"};
        int ranks = 1 + (int)rng_below(&rng, RANKS_MAX);
        for (int t = 0; t < 5; t++) {
            int64_t shape[CHECKPOINT_DIMS];
            int dims = (int)rng_below(&rng, 6);
            for (int d = 0; d < dims; d++)
                shape[d] = 1 + rng_below(&rng, 6);
            box[t] = whole(dims, shape);
            for (int k = 0; k < CHECKPOINT_KIND_COUNT; k++)
                scatter(&ps, ranks, (enum checkpoint_kind)k, names[t], box[t],
                        (int)rng_below(&rng, 5), 4 * t + k);
        }
        struct err err = {0};
        struct checkpoint *ck = NULL;
        bad += save(dir, round, &ps, ranks, 2, &err) < 0 ||
               checkpoint_open(&ck, dir, &err) < 0 ||
               checkpoint_verify(ck, 0, 1, &way, &err) < 0;
        if (err.status)
            printf("# %s\n", err.msg);
        release(&ps);
        if (!ck)
            continue;
        bad += checkpoint_info(ck)->step != round;
        for (int i = 0; i < 300; i++) {
            int t = (int)rng_below(&rng, 5),
                k = (int)rng_below(&rng, CHECKPOINT_KIND_COUNT);
            bad +=
                check_random_box(ck, (enum checkpoint_kind)k, names[t], box[t], 4 * t + k);
        }
        checkpoint_close(ck);
    }
    ok(!bad, "random boxes of random partitions by 1 to 6 ranks");
}

/* One tensor [4, 6] on two ranks by columns, and a scalar. */
static void small_pieces(struct pieces *ps) {
    struct checkpoint_box b = whole(2, (int64_t[]){4, 6}), s = whole(0, NULL);
    *ps = (struct pieces){0};
    b.size[1] = 2;
    give(ps, 0, CHECKPOINT_PARAM, "w", &b, 0);
    b.first[1] = 2;
    b.size[1] = 4;
    give(ps, 1, CHECKPOINT_PARAM, "w", &b, 0);
    give(ps, 1, CHECKPOINT_ADAM_M, "s", &s, 3);
}

static void test_info(void) {
    struct pieces ps;
    struct err err = {0};
    struct checkpoint *ck;
    struct checkpoint_box box;
    small_pieces(&ps);
    char *dir = path_of("made/on/the/way"), *latest;
    ok(checkpoint_latest(dir, &latest, &err) == 0 && !latest, "no directory: none");
    ok(checkpoint_open(&ck, dir, &err) < 0 && err.status == EXIT_INPUT, "%s", err.msg);
    ok(save(dir, 100, &ps, 3, 0, &err) == 0, "save, a rank without pieces %s", err.msg);
    ok(checkpoint_open(&ck, dir, &err) == 0, "open %s", err.msg);
    const struct checkpoint_info *info = checkpoint_info(ck);
    ok(info->step == 100 && info->sample == 800 && info->seed == 5 &&
           !strcmp(info->model, "gpt:nano") && info->model_hash == 0xfedcba9876543210u,
       "step, data position, seed, model");
    ok(!checkpoint_check_model(ck, "gpt:nano", 0xfedcba9876543210u, NULL, &err) &&
           checkpoint_check_model(ck, "gpt:nano", 1, NULL, &err) < 0,
       "%s", err.msg);
    const char *other = "{\"the size of seq\":\"64\",\"the size of vocab\":\"9\"}";
    ok(info->batch == 8 && checkpoint_check_model(ck, "gpt:nano", 1, other, &err) < 0 &&
           strstr(err.msg, "the size of vocab is 9, and 8 in"),
       "%s", err.msg);
    ok(checkpoint_check_model(ck, "mlp", 1, NULL, &err) < 0 && err.status == EXIT_INPUT,
       "%s", err.msg);
    float out[64];
    box = whole(2, (int64_t[]){4, 6});
    ok(checkpoint_read(ck, CHECKPOINT_PARAM, "absent", &box, out, &err) < 0, "%s", err.msg);
    ok(checkpoint_read(ck, CHECKPOINT_ADAM_V, "w", &box, out, &err) < 0, "%s", err.msg);
    box = whole(2, (int64_t[]){4, 7});
    ok(checkpoint_read(ck, CHECKPOINT_PARAM, "w", &box, out, &err) < 0, "%s", err.msg);
    box = whole(2, (int64_t[]){4, 6});
    box.first[0] = 1;
    ok(checkpoint_read(ck, CHECKPOINT_PARAM, "w", &box, out, &err) < 0, "%s", err.msg);
    box = whole(1, (int64_t[]){4});
    ok(checkpoint_read(ck, CHECKPOINT_PARAM, "w", &box, out, &err) < 0, "%s", err.msg);
    checkpoint_close(ck);
    ok(checkpoint_open(&ck, path_of("made/on/the/way/step-00000100"), &err) == 0,
       "open one step");
    checkpoint_close(ck);
    release(&ps);
}

/* Commits that must not happen. */
static void test_cover(void) {
    struct pieces ps;
    struct err err = {0};
    char *dir = path_of("cover"), *latest;
    small_pieces(&ps);
    struct checkpoint_piece kept = ps.of[0].p[0];
    ps.of[0].p[0].box.size[1] = 3;
    ps.of[0].p[0].data = realloc((float *)kept.data, 12 * sizeof(float));
    ok(save(dir, 1, &ps, 2, 0, &err) < 0 && strstr(err.msg, "param/w"), "%s", err.msg);
    ps.of[0].p[0].box.size[1] = 1;
    ok(save(dir, 2, &ps, 2, 0, &err) < 0 && strstr(err.msg, "20 of 24"), "%s", err.msg);
    ps.of[0].p[0].box.size[1] = 2;
    ps.of[0].p[0].box.shape[0] = 5;
    ok(save(dir, 3, &ps, 2, 0, &err) < 0 && strstr(err.msg, "shapes"), "%s", err.msg);
    ps.of[0].p[0].box.first[1] = 5;
    ok(save(dir, 4, &ps, 2, 0, &err) < 0 && strstr(err.msg, "dim 1"), "%s", err.msg);
    ps.of[0].p[0].box = kept.box;
    ps.of[0].p[0].name = "a/b";
    ok(save(dir, 5, &ps, 2, 0, &err) < 0 && strstr(err.msg, "a/b"), "%s", err.msg);
    ok(checkpoint_latest(dir, &latest, &err) == 0, "none of these exists");
    ps.of[0].p[0].name = "w";
    struct checkpoint_report report;
    struct checkpoint_share share = {0, ps.of[0].p, 1, {0}};
    ok(checkpoint_write(dir, 77, &share, &report, &err) < 0 && err.status == EXIT_SYSTEM,
       "without begin: %s", err.msg);
    ok(save(dir, 6, &ps, 2, 0, &err) == 0 && checkpoint_latest(dir, &latest, &err) == 1 &&
           strstr(latest, "/step-00000006"),
       "then a good one");
    free(latest);
    release(&ps);
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static void test_keep(void) {
    struct pieces ps;
    struct err err = {0};
    small_pieces(&ps);
    char *dir = path_of("keep"), *latest;
    int bad = 0;
    for (int64_t step = 10; step <= 50; step += 10)
        bad |= save(dir, step, &ps, 2, 3, &err);
    ok(!bad && !exists(path_of("keep/step-00000020")) &&
           exists(path_of("keep/step-00000030")) && exists(path_of("keep/step-00000050")) &&
           !exists(path_of("keep/.tmp-step-00000020")),
       "keeps the last three");
    ok(save(dir, 40, &ps, 2, 1, &err) == 0 && exists(path_of("keep/step-00000050")) &&
           !exists(path_of("keep/step-00000030")) &&
           !exists(path_of("keep/.old-step-00000040")),
       "a step is replaced; later ones are not touched");
    /* A writer died between the two renames of a replacement. */
    rename(path_of("keep/step-00000050"), path_of("keep/.old-step-00000050"));
    mkdir(path_of("keep/.tmp-step-00000050"), 0777);
    mkdir(path_of("keep/step-00000099"), 0777);
    mkdir(path_of("keep/step-x"), 0777);
    mkdir(path_of("keep/.tmp-step-other"), 0777);
    ok(checkpoint_latest(dir, &latest, &err) == 1 && strstr(latest, "/.old-step-00000050"),
       "a checkpoint on its way out is found");
    free(latest);
    struct checkpoint *ck;
    ok(checkpoint_open(&ck, dir, &err) == 0 && checkpoint_info(ck)->step == 50,
       "and opened");
    checkpoint_close(ck);
    ok(save(dir, 60, &ps, 2, 0, &err) == 0 && exists(path_of("keep/step-00000050")) &&
           !exists(path_of("keep/.tmp-step-00000050")) &&
           !exists(path_of("keep/.old-step-00000050")),
       "the next writer puts it back and clears the rest");
    ok(exists(path_of("keep/.tmp-step-other")), "foreign names are left alone");
    release(&ps);
}

static void edit(const char *path, long at, const char *text) {
    FILE *f = fopen(path, "r+b");
    if (!f || fseek(f, at, SEEK_SET) || fputs(text, f) < 0 || fclose(f))
        exit(4);
}

/* Rewrites index.json with one text replaced (of the same length or not). */
static void edit_index(const char *dir, const char *from, const char *to) {
    static char text[20000];
    char path[200];
    snprintf(path, sizeof path, "%s/index.json", dir);
    FILE *f = fopen(path, "rb");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    char *found = strstr(text, from);
    f = fopen(path, "wb");
    if (!found || !f)
        exit(4);
    fprintf(f, "%.*s%s%s", (int)(found - text), text, to, found + strlen(from));
    fclose(f);
}

static void damaged(const char *from, const char *to, const char *want) {
    struct pieces ps;
    struct err err = {0};
    struct checkpoint *ck = NULL;
    char *dir = path_of("damage");
    small_pieces(&ps);
    if (save(dir, 7, &ps, 2, 0, &err) < 0)
        printf("# %s\n", err.msg);
    release(&ps);
    edit_index(path_of("damage/step-00000007"), from, to);
    int rc = checkpoint_open(&ck, dir, &err);
    ok(rc < 0 && err.status == EXIT_INPUT && strstr(err.msg, "index.json") &&
           strstr(err.msg, want),
       "damaged: %s", err.msg);
    checkpoint_close(ck);
}

static void test_damage(void) {
    struct pieces ps;
    struct err err = {0};
    struct checkpoint *ck = NULL;
    small_pieces(&ps);
    char *dir = path_of("d"), *file = path_of("d/step-00000001/rank-0001.safetensors");
    save(dir, 1, &ps, 2, 0, &err);
    struct stat st;
    stat(file, &st);
    edit(file, st.st_size - 3, "!");
    ok(checkpoint_open(&ck, dir, &err) == 0 &&
           checkpoint_verify(ck, 0, 2, &way, &err) == 0 &&
           checkpoint_verify(ck, 1, 2, &way, &err) < 0 && err.status == EXIT_INPUT,
       "%s", err.msg);
    checkpoint_close(ck);
    ok(truncate(file, st.st_size - 1) == 0 && checkpoint_open(&ck, dir, &err) < 0 &&
           strstr(err.msg, "truncated") && strstr(err.msg, "rank-0001"),
       "%s", err.msg);
    ok(truncate(file, 0) == 0 && checkpoint_open(&ck, dir, &err) < 0, "%s", err.msg);
    ok(unlink(file) == 0 && checkpoint_open(&ck, dir, &err) < 0 && err.status == EXIT_INPUT,
       "%s", err.msg);
    release(&ps);
    damaged("weft-checkpoint/2", "weft-checkpoint/1", "format");
    damaged("\"sample\": 56", "\"sample\": 57", "checksum");
    damaged("\"seed\": \"5\"", "\"seed\": \"6\"", "checksum");
    damaged("\"seed\": \"5\"", "\"seed\": \"-5\"", "seed: expected the digits");
    damaged("\"lr\": 0.0", "\"lr\": -1.0", "settings.lr");
    damaged("\"step\"", "\"stop\"", "unknown key");
    damaged("{", "", "2:");
    damaged("rank-0001.", "../rank-1.", "plain file name");
    damaged("param/w", "param/w/x", "KIND/NAME");
    damaged("param/w", "params/w", "KIND/NAME");
    damaged("\"xxh64\": \"", "\"xxh64\": \"x", "16 hexadecimal");
    damaged("\"shape\": [4, 6]", "\"shape\": [4, 7]", "24 of 28");
    damaged("\"shape\": [4, 6]", "\"shape\": [4, 5]", "not inside 5");
    damaged("\"shape\": [4, 6]", "\"shape\": [4, -6]", "not inside -6");
    damaged("\"shape\": [4, 6]", "\"shape\": [4]", "expected 1 numbers");
    damaged("\"offset\": ", "\"offset\": 99", "are not inside the");
    damaged("\"file\": ", "\"file\": 9", "file 9");
    damaged("\"first\": [0, 2]", "\"first\": [0, 1]", "overlap");
}

/* A full disk (here: a limit on the size of files) leaves the last checkpoint. */
static void test_full_disk(void) {
    struct err err = {0};
    struct pieces ps;
    char *dir = path_of("full"), *latest;
    small_pieces(&ps);
    ok(save(dir, 1, &ps, 2, 0, &err) == 0, "save %s", err.msg);
    int bad = 0;
    for (rlim_t limit = 0; limit < 1400; limit += 100) {
        pid_t child = fork();
        if (child == 0) {
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit});
            signal(SIGXFSZ, SIG_IGN);
            int rc = save(dir, 2, &ps, 2, 0, &err);
            _exit(rc < 0 && err.status == EXIT_SYSTEM ? 0 : rc == 0 ? 2 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 99;
        bad |= code != 0 && code != 2;
        bad |= checkpoint_latest(dir, &latest, &err) != 1 ||
               !strstr(latest, code ? "step-00000002" : "step-00000001");
        free(latest);
        if (code)
            break;
    }
    ok(!bad, "writing fails: the checkpoint before stays, the error is one of the system");
    release(&ps);
}

int main(void) {
    if (!mkdtemp(top))
        return 4;
    test_partitions();
    test_info();
    test_cover();
    test_keep();
    test_damage();
    test_full_disk();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", top);
    return system(command) ? 1 : done_testing();
}
