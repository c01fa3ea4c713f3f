/* Errors of GPUs, told by a driver that is not there: functions in place of nvml's. */
#include "keep/gpuwatch.h"
#include "tap.h"

#include <string.h>

static struct {
    int gpus, inits, sets, no_ecc;
    struct nvml_event queue[40];
    int n, at;
} driver;
static int gpu[4];

static int init(void) {
    return driver.inits++ > 0;
}
static int shut_down(void) {
    return driver.inits--, 0;
}
static int count(unsigned *n) {
    return *n = (unsigned)driver.gpus, 0;
}
static int handle(unsigned i, void **device) {
    return *device = &gpu[i], 0;
}
static int index_of(void *device, unsigned *i) {
    return *i = (unsigned)((int *)device - gpu), 0;
}
static int set_create(void **set) {
    return *set = &driver, driver.sets++, 0;
}
static int set_free(void *set) {
    return driver.sets -= set == &driver, 0;
}
static int enroll(void *device, unsigned long long types, void *set) {
    return !(set == &driver && device && (types == 8 || (types == 10 && !driver.no_ecc)));
}
static int wait_for(void *set, struct nvml_event *e, unsigned milliseconds) {
    if (set != &driver || milliseconds || driver.at == driver.n)
        return 10; /* a time-out */
    *e = driver.queue[driver.at++];
    return 0;
}

static const struct nvml fake = {init,       shut_down, count,  handle,  index_of,
                                 set_create, set_free,  enroll, wait_for};

int main(void) {
    char text[200], small[12];
    ok(!gpu_watch_create(&fake) && driver.inits == 0 && driver.sets == 0,
       "no GPU: nothing is watched, and nothing stays open");
    driver.gpus = 4;
    driver.no_ecc = 1;
    struct gpu_watch *w = gpu_watch_create(&fake);
    ok(w != NULL, "GPUs without ECC are watched for the rest");
    ok(gpu_watch_poll(w, text, sizeof text) == 0 && !*text, "nothing happened");
    driver.queue[0] = (struct nvml_event){.device = &gpu[3], .type = 8, .data = 79};
    driver.queue[1] = (struct nvml_event){.device = &gpu[1], .type = 2};
    driver.n = 2;
    ok(gpu_watch_poll(w, text, sizeof text) == 2 &&
           !strcmp(text, "GPU 3: Xid 79, GPU 1: uncorrectable error of memory"),
       "says \"%s\"", text);
    ok(gpu_watch_poll(w, text, sizeof text) == 0, "each once");
    for (int i = 0; i < 40; i++)
        driver.queue[i] = driver.queue[0];
    driver.n = 40;
    driver.at = 0;
    ok(gpu_watch_poll(w, small, sizeof small) == 16 && !strcmp(small, "GPU 3: Xid "),
       "a flood is cut: \"%s\"", small);
    gpu_watch_destroy(w);
    ok(driver.inits == 0 && driver.sets == 0, "and all is closed");
    ok(gpu_watch_poll(NULL, text, sizeof text) == 0, "none where there is no driver");
    return done_testing();
}
