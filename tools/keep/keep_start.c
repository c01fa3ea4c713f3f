/* The command of an attempt: mpirun, what the supervisor adds to weft-run, and the
 * plan. */
#define _GNU_SOURCE /* pipe2 */
#include "checkpoint/ckptdir.h"
#include "keep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BELIEF 0.1

struct words {
    char **p;
    int64_t n, cap;
};

static void add(struct words *w, const char *text) {
    arr_push(w, mem_strdup(text));
}

/* The first word of the command that gives this option of weft-run's; 0 = none does. Its last word
 * is the plan. */
static int find_option(const struct keep *k, const char *option) {
    const size_t n = strlen(option);
    for (int i = 1; i < k->n_command - 1; i++)
        if (!strncmp(k->command[i], option, n) &&
            (!k->command[i][n] || k->command[i][n] == '='))
            return i;
    return 0;
}

const char *keep_option(const struct keep *k, const char *option) {
    const int i = find_option(k, option);
    if (i && k->command[i][strlen(option)] == '=')
        return k->command[i] + strlen(option) + 1;
    return i && i + 1 < k->n_command - 1 ? k->command[i + 1] : NULL;
}

static void add_pair(struct words *w, const struct keep *k, const char *option,
                     const char *value) {
    if (find_option(k, option))
        return;
    add(w, option);
    add(w, value);
}

/* A rank that dies is noticed at once where mpirun gives the others no time; and what
 * it leaves in shared memory lies in our folder, which goes. */
static void add_launcher(struct words *w, const struct keep *k, int64_t ranks) {
    static const char *const fixed[] = {
        "--mca", "odls_base_sigkill_timeout", "0", "-x", BEAT_VARIABLE, NULL};
    char n[24], *hosts = keep_host_list(k);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(n, sizeof n, "%lld", (long long)ranks);
    add(w, "mpirun");
    add(w, "-n");
    add(w, n);
    for (int i = 0; fixed[i]; i++)
        add(w, fixed[i]);
    if (k->apart) {
        add(w, "-x");
        add(w, BEAT_HOSTS_VARIABLE);
    }
    if (hosts) {
        add(w, "-H");
        add(w, hosts);
    } else if (ranks > cores) {
        add(w, "--oversubscribe");
    }
    free(hosts);
}

static void add_settings(struct words *w, const struct keep *k) {
    struct account a = {0};
    char every[40];
    journal_account(k->journal, &a, NULL);
    /* One in an hour is what is believed beforehand, as much as a tenth of a failure would say: the first that comes
     * counts for more. */
    snprintf(every, sizeof every, "%.0f",
             (a.wall_s + BELIEF * 3600) / ((double)a.failures + BELIEF));
    if (!find_option(k, "--auto-resume"))
        add(w, "--auto-resume");
    if (k->memory && !find_option(k, "--memory")) {
        add_pair(w, k, "--memory", k->memory);
        add_pair(w, k, "--memory-every", "auto");
    } else {
        add_pair(w, k, "--save-every", "auto");
    }
    add_pair(w, k, "--failure-every", every);
}

static struct words words_of(const struct keep *k, const struct plan_file *plan) {
    struct words w = {0};
    add_launcher(&w, k, plan->ranks);
    for (int i = 0; i < k->n_command - 1; i++)
        add(&w, k->command[i]);
    add_settings(&w, k);
    add(&w, plan->path);
    arr_push(&w, NULL);
    return w;
}

/* What a rank needs to find its beat: where hosts have their own memory, also which is its own. */
static void set_beats(const struct keep *k) {
    if (!k->apart) {
        setenv(BEAT_VARIABLE, k->beats, 1);
        return;
    }
    char *list = mem_array((size_t)k->hosts.n + 1, 32), *p = list;
    char *beats = ckpt_join(k->shm, "host-%h/beats");
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (k->hosts.p[i].count)
            p += sprintf(p, "%s%lld:%d", p == list ? "" : ",", (long long)i,
                         k->hosts.p[i].count);
    setenv(BEAT_HOSTS_VARIABLE, list, 1);
    setenv(BEAT_VARIABLE, beats, 1);
    free(beats);
    free(list);
}

/* In the child: nothing of it outlives the supervisor. */
static void become(const struct keep *k, char **argv, const int out[2]) {
    char folder[4200];
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out[0], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    set_beats(k);
    snprintf(folder, sizeof folder, "%s/mpi", k->shm);
    setenv("OMPI_MCA_btl_vader_backing_directory", folder, 0);
    setenv("OMPI_MCA_orte_tmpdir_base", folder, 0);
    execvp(argv[0], argv);
    fprintf(stderr, "mpirun: %s\n", strerror(errno));
    _exit(127);
}

pid_t keep_start(struct keep *k, const struct plan_file *plan, int out[2],
                 struct err *err) {
    int a[2], b[2];
    if (pipe2(a, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(b, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_system(err, "pipe: %s", strerror(errno));
    /* Writers wait, we do not. */
    fcntl(a[1], F_SETFL, 0);
    fcntl(b[1], F_SETFL, 0);
    struct words w = words_of(k, plan);
    const pid_t pid = keep_fork();
    if (pid == 0)
        become(k, w.p, (const int[2]){a[1], b[1]});
    for (int64_t i = 0; i < w.n; i++)
        free(w.p[i]);
    arr_release(&w);
    close(a[1]);
    close(b[1]);
    out[0] = a[0];
    out[1] = b[0];
    return pid < 0 ? err_system(err, "fork: %s", strerror(errno)) : pid;
}
