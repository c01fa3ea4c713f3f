#define _XOPEN_SOURCE 700 /* SA_ONSTACK */
#include "common/progress.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static enum progress_level the_level = PROGRESS_NORMAL;
static volatile sig_atomic_t the_interrupt;

void progress_set_level(enum progress_level level) {
    the_level = level;
}

double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void progress_start(struct progress *p, const char *what, int64_t total) {
    double now = now_s();
    *p = (struct progress){
        .what = what, .total = total, .start_s = now, .last_print_s = now};
    p->tty = isatty(STDERR_FILENO);
}

static void format_time(double s, char *buf, size_t n) {
    if (s < 60)
        snprintf(buf, n, "%.0fs", s);
    else if (s < 3600)
        snprintf(buf, n, "%dm%02ds", (int)s / 60, (int)s % 60);
    else
        snprintf(buf, n, "%dh%02dm", (int)(s / 3600), (int)(s / 60) % 60);
}

/* A terminal has its line redrawn ten times a second; a log gets a line every five seconds. */
static bool is_time(struct progress *p, double now) {
    if (now - p->last_print_s < (p->tty ? 0.1 : 5.0))
        return false;
    p->last_print_s = now;
    p->drawn = true;
    return true;
}

void progress_step(struct progress *p, int64_t done, const char *detail) {
    double now = now_s();
    if (the_level == PROGRESS_QUIET || !is_time(p, now))
        return;
    char left[32] = "";
    if (p->total && done > 0)
        format_time((now - p->start_s) * (double)(p->total - done) / (double)done, left,
                    sizeof left);
    if (p->tty)
        fputs("\r\033[K", stderr);
    if (p->total)
        fprintf(stderr, "%s %lld/%lld, %s left", p->what, (long long)done,
                (long long)p->total, left[0] ? left : "?");
    else
        fprintf(stderr, "%s %lld", p->what, (long long)done);
    fprintf(stderr, "%s%s%s", detail ? "  " : "", detail ? detail : "", p->tty ? "" : "\n");
    fflush(stderr);
}

void progress_show(struct progress *p, const char *line) {
    if (the_level < (p->tty ? PROGRESS_NORMAL : PROGRESS_VERBOSE) || !is_time(p, now_s()))
        return;
    fprintf(stderr, "%s%s%s", p->tty ? "\r\033[K" : "", line, p->tty ? "" : "\n");
    fflush(stderr);
}

void progress_end(struct progress *p) {
    if (p->tty && p->drawn)
        fputs("\r\033[K", stderr);
}

static void vnote(const char *fmt, va_list ap) {
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

void note(const char *fmt, ...) {
    if (the_level == PROGRESS_QUIET)
        return;
    va_list ap;
    va_start(ap, fmt);
    vnote(fmt, ap);
    va_end(ap);
}

void note_verbose(const char *fmt, ...) {
    if (the_level != PROGRESS_VERBOSE)
        return;
    va_list ap;
    va_start(ap, fmt);
    vnote(fmt, ap);
    va_end(ap);
}

static void on_signal(int sig) {
    (void)sig;
    the_interrupt = 1;
}

/* oneDNN's matrix products let the stack pointer point into a work space on the heap, so a
 * handler on the stack of the moment would overwrite what lies below it. */
static void give_stack(void) {
    static _Alignas(64) char stack[1 << 16];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&own, NULL);
}

void interrupt_catch_requests(void) {
    give_stack();
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGUSR1, &sa, NULL);
}

void interrupt_catch(void) {
    interrupt_catch_requests();
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_ONSTACK};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &sa, NULL);
}

bool interrupted(void) {
    return the_interrupt;
}
