/* Image sources: IDX files, names, splits, slices, and what wrong files get. */
#include "data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 50, ROWS = 4, COLS = 3, PIXELS = ROWS * COLS, CLASSES = 10 };

static struct data_spec base = {.kind = DATA_IMAGES,
                                .pixels = PIXELS,
                                .classes = CLASSES,
                                .validation = 0.2,
                                .seed = 3};

static unsigned char images[16 + N * PIXELS] = {0, 0, 8, 3,    0, 0, 0, N,
                                                0, 0, 0, ROWS, 0, 0, 0, COLS};
static unsigned char labels[8 + N] = {0, 0, 8, 1, 0, 0, 0, N};

/* Wrong bytes of those that travel instead of values. */
static int packed_apart(const struct data *d, int64_t sample, int64_t first, int64_t n,
                        const float *values) {
    unsigned char bytes[64];
    int bad = data_form(d, DATA_TRAIN) != DTYPE_u8 ||
              data_packed(d, DATA_TRAIN, sample, first, n, bytes, NULL) < 0;
    for (int64_t i = 0; i < n && !bad; i++)
        bad += (float)bytes[i] / 255 != values[i];
    return bad;
}

/* Image i is filled with bytes (5 i + p), its label is i % 10. */
static void test_samples(const char *source) {
    struct data *d = open_with(base, source);
    ok(d && data_size(d, DATA_TRAIN) == 40 && data_size(d, DATA_VALID) == 10 &&
           !strcmp(data_info(d)->format, "IDX images"),
       "IDX images: 40 and 10");
    int bad = 0;
    char seen[N] = {0};
    for (int64_t s = 0; s < 40; s++) {
        float v[PIXELS], part[5];
        int32_t label = -1, again = -1;
        data_image(d, DATA_TRAIN, s, 0, PIXELS, v, &label, NULL);
        int i = (int)lrintf(v[0] * 255) / 5;
        bad += i < 0 || i >= 40 || seen[i] || label != i % 10;
        seen[i] = 1;
        for (int p = 0; p < PIXELS; p++)
            bad += v[p] != (float)(5 * i + p) / 255;
        data_image(d, DATA_TRAIN, s, 4, 5, part, NULL, NULL);
        bad += memcmp(part, v + 4, sizeof part) != 0;
        bad += packed_apart(d, s, 0, PIXELS, v) + packed_apart(d, s, 4, 5, part);
        data_image(d, DATA_TRAIN, s, 0, 0, NULL, &again, NULL);
        bad += again != label;
    }
    for (int64_t s = 0; s < 20; s++) {
        float v[1];
        int32_t label;
        data_image(d, DATA_VALID, s, 0, 1, v, &label, NULL);
        bad += v[0] != (float)(5 * (40 + s % 10) % 256) / 255 || label != s % 10;
    }
    ok(!bad, "an epoch shows every image once, with its label");
    data_close(d);
}

/* Where the training images begin, labels as they fall: image i is filled with i, and label 7 is on every fourth. */
static int32_t uneven_label(int i) {
    return i % 4 == 3 ? 7 : i % 3;
}

/* Any 12 samples in a row, wherever a batch begins, have each label as often as the data but for two. */
static void test_balanced(void) {
    unsigned char pixels[sizeof images], kinds[sizeof labels];
    memcpy(pixels, images, sizeof pixels);
    memcpy(kinds, labels, sizeof kinds);
    for (int i = 0; i < N; i++) {
        memset(pixels + 16 + (ptrdiff_t)i * PIXELS, i, PIXELS);
        kinds[8 + i] = (unsigned char)uneven_label(i);
    }
    char list[300];
    snprintf(list, sizeof list, "%s,%s", write_file("uneven", pixels, sizeof pixels),
             write_file("kinds", kinds, sizeof kinds));
    enum { TRAIN = 40, EPOCHS = 3, BATCH = 12 };
    struct data_spec spec = base;
    struct data *random = open_with(spec, list);
    spec.balanced = true;
    struct data *d = open_with(spec, list), *same = open_with(spec, list);
    int32_t label[EPOCHS * TRAIN];
    int total[CLASSES] = {0}, wrong = 0, apart = 0, moved = 0;
    for (int i = 0; i < TRAIN; i++)
        total[uneven_label(i)]++;
    for (int64_t s = 0; s < EPOCHS * TRAIN; s++) {
        float v[1];
        data_image(d, DATA_TRAIN, s, 0, 1, v, &label[s], NULL);
        const int64_t number = data_number(d, DATA_TRAIN, s);
        wrong += lrintf(v[0] * 255) != number || label[s] != uneven_label((int)number);
        apart += number != data_number(same, DATA_TRAIN, s);
        moved += s >= TRAIN && number != data_number(d, DATA_TRAIN, s - TRAIN);
    }
    int often = 0, uneven = 0;
    for (int e = 0; e < EPOCHS; e++) {
        int seen[TRAIN] = {0};
        for (int64_t s = 0; s < TRAIN; s++)
            often += seen[data_number(d, DATA_TRAIN, e * TRAIN + s)]++;
    }
    for (int64_t s = 0; s + BATCH <= EPOCHS * TRAIN; s++) {
        int count[CLASSES] = {0};
        for (int i = 0; i < BATCH; i++)
            count[label[s + i]]++;
        for (int c = 0; c < CLASSES; c++)
            uneven += fabs(count[c] - (double)BATCH * total[c] / TRAIN) >= 2;
    }
    ok(!wrong && !apart && moved > TRAIN,
       "balanced: images with their labels, in an order of the seed");
    ok(!often, "each once in an epoch");
    ok(!uneven, "any %d samples in a row have the labels of the data", BATCH);
    ok(data_info(d)->hash[DATA_TRAIN] != data_info(random)->hash[DATA_TRAIN] &&
           data_info(d)->hash[DATA_VALID] == data_info(random)->hash[DATA_VALID],
       "another order of training is another training");
    data_close(d);
    data_close(same);
    data_close(random);
}

static void test_synthetic(void) {
    struct data *d = open_with(base, "synthetic");
    float mean[CLASSES][PIXELS] = {{0}}, v[PIXELS], part[2];
    int count[CLASSES] = {0}, bad = 0, right = 0;
    int32_t label;
    for (int64_t s = 0; s < 2000; s++) {
        data_image(d, DATA_TRAIN, s, 0, PIXELS, v, &label, NULL);
        bad += label < 0 || label >= CLASSES;
        count[label]++;
        for (int p = 0; p < PIXELS; p++) {
            bad += !(v[p] >= 0 && v[p] <= 1);
            mean[label][p] += v[p];
        }
        data_image(d, DATA_TRAIN, s, 7, 2, part, NULL, NULL);
        bad += memcmp(part, v + 7, sizeof part) != 0;
        data_packed(d, DATA_TRAIN, s, 7, 2, part, NULL);
        bad += memcmp(part, v + 7, sizeof part) != 0;
    }
    /* The nearest class mean of training tells the class of validation. */
    for (int64_t s = 0; s < 500; s++) {
        double best = 1e9;
        int guess = -1;
        data_image(d, DATA_VALID, s, 0, PIXELS, v, &label, NULL);
        for (int c = 0; c < CLASSES; c++) {
            double far = 0;
            for (int p = 0; p < PIXELS; p++)
                far += pow(v[p] - mean[c][p] / (float)count[c], 2);
            guess = far < best ? c : guess;
            best = far < best ? far : best;
        }
        right += guess == label;
    }
    ok(!bad, "synthetic images: values and labels in range, slices agree");
    ok(right > 250, "synthetic images can be told apart: %d of 500", right);
    data_close(d);
}

static void test_names(void) {
    test_samples(write_file("train-images-idx3-ubyte", images, sizeof images));
    char list[300];
    snprintf(list, sizeof list, "%s,%s", write_file("a", images, sizeof images),
             write_file("b", labels, sizeof labels));
    test_samples(list);
    struct data_spec spec = base;
    write_file("t10k-labels.idx1-ubyte", labels, sizeof labels);
    spec.valid_source = write_file("t10k-images.idx3-ubyte", images, sizeof images);
    struct data *d = open_with(spec, path_of("train-images-idx3-ubyte"));
    ok(d && data_size(d, DATA_TRAIN) == N && data_size(d, DATA_VALID) == N,
       "training and validation in files of their own");
    data_close(d);
    refused(base, path_of("a"), "labels", "does not follow from this name");
    snprintf(list, sizeof list, "%s,%s", path_of("a"), path_of("absent"));
    refused(base, list, "absent", "No such file");
}

/* Files of 3 and 2 images: value v of image i is (i + 3 v) % 251, channels last. */
static void test_cifar(void) {
    enum { VALUES = 3072, RECORD = VALUES + 1 };
    static unsigned char records[5 * RECORD];
    static float v[VALUES], part[50];
    for (int i = 0; i < 5; i++) {
        records[i * RECORD] = (unsigned char)(2 * i);
        for (int k = 0; k < VALUES; k++)
            records[i * RECORD + 1 + k % 3 * 1024 + k / 3] =
                (unsigned char)((i + 3 * k) % 251);
    }
    struct data_spec spec = base;
    spec.pixels = VALUES, spec.rank = 3, spec.validation = 0;
    spec.dims[0] = spec.dims[1] = 32, spec.dims[2] = 3;
    char list[300];
    snprintf(list, sizeof list, "%s,%s", write_file("1.bin", records, 3 * RECORD),
             write_file("2.bin", records + 3 * RECORD, 2 * RECORD));
    struct data *d = open_with(spec, list);
    int bad = 0, seen[5] = {0};
    for (int64_t s = 0; s < 5; s++) {
        int32_t label;
        data_image(d, DATA_TRAIN, s, 0, VALUES, v, &label, NULL);
        int i = label / 2;
        bad += seen[i]++;
        for (int k = 0; k < VALUES; k++)
            bad += v[k] != (float)((i + 3 * k) % 251) / 255;
        data_image(d, DATA_TRAIN, s, 1001, 50, part, NULL, NULL);
        bad += memcmp(part, v + 1001, sizeof part) != 0;
        bad += packed_apart(d, s, 1001, 50, part);
    }
    ok(!bad && !strcmp(data_info(d)->format, "CIFAR-10 images"),
       "CIFAR-10: two files, channels last");
    write_file("2.bin", "\xff", 1);
    struct err err = {0};
    for (int64_t s = 0; s < 5 && !err.status; s++)
        data_image(d, DATA_TRAIN, s, 0, 0, NULL, seen, &err);
    ok(err.status == EXIT_SYSTEM && strstr(err.msg, "2.bin: "), "%s", err.msg);
    data_close(d);
    refused(spec, list, "2.bin: 1 bytes", "multiple of 3073");
    spec.classes = 4;
    refused(spec, path_of("1.bin"), "byte 6146: label 4 of image 2", "4 classes");
    spec.classes = 10, spec.dims[0] = 3, spec.dims[2] = 32;
    refused(spec, path_of("1.bin"), "images of 32x32x3 values", "reads 3x32x32");
    spec.pixels = 784;
    refused(spec, path_of("1.bin"), "3072 values", "784");
}

/* Where the model's images have dims, those of the file are the same, but for those of size 1. */
static void test_dims(void) {
    struct data_spec spec = base;
    const char *good = path_of("train-images-idx3-ubyte");
    static const struct {
        int rank, fits;
        int64_t dims[4];
    } cases[] = {{2, 1, {ROWS, COLS}},      {3, 1, {ROWS, COLS, 1}},
                 {3, 1, {1, ROWS, COLS}},   {1, 1, {PIXELS}},
                 {2, 0, {COLS, ROWS}},      {3, 0, {2, 2, COLS}},
                 {4, 1, {ROWS, 1, COLS, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spec.rank = cases[i].rank;
        memcpy(spec.dims, cases[i].dims, sizeof cases[i].dims);
        if (!cases[i].fits) {
            refused(spec, good, "images of 4x3 values, the model reads ", "");
            continue;
        }
        struct data *d = open_with(spec, good);
        ok(d != NULL, "images of 4x3 for a model of %d dims", spec.rank);
        data_close(d);
    }
}

static void test_refused(void) {
    struct data_spec spec = base;
    const char *good = path_of("train-images-idx3-ubyte");
    char list[300];
    spec.pixels = 13;
    refused(spec, good, "12 values", "13");
    spec = base, spec.classes = 9;
    refused(spec, good, "byte 17: label 9 of image 9", "9 classes");
    snprintf(list, sizeof list, "%s,%s", path_of("a"), path_of("a"));
    refused(base, list, "byte 3: 3 dims", "labels");
    snprintf(list, sizeof list, "%s,%s", path_of("b"), path_of("b"));
    refused(base, list, "byte 3: 1 dims", "images");
    write_file("c", images, sizeof images - 1);
    snprintf(list, sizeof list, "%s,%s", path_of("c"), path_of("b"));
    refused(base, list, "truncated", "600");
    write_file("c", images, 11);
    refused(base, list, "11 bytes", "16");
    write_file("c", images, 3);
    refused(base, list, "too short", "3 bytes");
    write_file("c", "", 0);
    refused(base, list, "is empty", "c");
    write_file("c", "text, not an image", 18);
    refused(base, list, "byte 0", "0x00000803");
    unsigned char copy[sizeof images];
    memcpy(copy, images, sizeof images);
    copy[2] = 13;
    write_file("c", copy, sizeof copy);
    refused(base, list, "byte 2", "type 13");
    memcpy(copy, images, sizeof images);
    memset(copy + 4, 0xff, 12);
    write_file("c", copy, sizeof copy);
    refused(base, list, "overflow", "byte 8");
    memset(copy + 4, 0, 4);
    write_file("c", copy, sizeof copy);
    refused(base, list, "size 0", "byte 4");
    unsigned char few[8 + N - 1];
    memcpy(few, labels, sizeof few);
    few[7] = N - 1;
    write_file("d", few, sizeof few);
    snprintf(list, sizeof list, "%s,%s", path_of("a"), path_of("d"));
    refused(base, list, "49 labels", "50 images");
}

int main(void) {
    if (!mkdtemp(dir))
        return 4;
    for (int i = 0; i < N; i++) {
        labels[8 + i] = (unsigned char)(i % 10);
        for (int p = 0; p < PIXELS; p++)
            images[16 + i * PIXELS + p] = (unsigned char)(5 * i + p);
    }
    write_file("train-labels-idx1-ubyte", labels, sizeof labels);
    test_names();
    test_balanced();
    test_synthetic();
    test_refused();
    test_dims();
    test_cifar();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) ? 1 : done_testing();
}
