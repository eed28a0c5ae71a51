/* tools/ucx-run/job.c: one attempt at a job: who the ranks are and what they find in their environment. */
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <fcntl.h>

#include "base/settings.h"
#include "tools/ucx-run/run.h"

extern char **environ;

static int usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1; /* more than CPU_SETSIZE of them: certainly enough for the one use below */
    return CPU_COUNT(&set);
}

/* With more ranks than cores the ranks share the cores evenly, and each stays on its own: left alone, schedulers may put all of
 * them on one, where every message costs a switch more. */
static topo_bind_t shared_if_crowded(const topo_t *topo, topo_bind_t how, int ranks)
{
    topo_summary_t sum;
    topo_summary(topo, &sum);
    return how == TOPO_BIND_CORE && ranks > sum.cores ? TOPO_BIND_L3 : how;
}

int run_job_plan(run_job_t *job, const run_options_t *options)
{
    memset(job, 0, sizeof *job);
    job->options = options;
    job->root_fd = job->recorder.fd = -1;
    job->rank = calloc((size_t)options->ranks, sizeof *job->rank);
    int *cores = calloc((size_t)options->ranks, sizeof *cores);
    int rc = 0;
    if (!job->rank || !cores) {
        fprintf(stderr, "ucx-run: out of memory for %d ranks\n", options->ranks);
        rc = RUN_RC_SYSTEM;
        goto out;
    }
    topo_bind_t how = options->bind_given ? options->bind : TOPO_BIND_CORE;
    for (int r = 0; r < options->ranks; r++)
        cores[r] = -1;
    if (how != TOPO_BIND_NONE && (topo_load(NULL, &job->topo) != GYRE_OK ||
                                  topo_bind_plan(job->topo, shared_if_crowded(job->topo, how, options->ranks),
                                                 options->ranks, cores) != GYRE_OK)) {
        if (options->bind_given) {
            fprintf(stderr, "ucx-run: cannot plan the binding: %s\n", gyre_last_error());
            rc = RUN_RC_SYSTEM;
            goto out;
        }
        for (int r = 0; r < options->ranks; r++)
            cores[r] = -1;
    }
    for (int r = 0; r < options->ranks; r++)
        job->rank[r].core = cores[r];
out:
    free(cores);
    if (rc)
        run_job_unplan(job);
    return rc;
}

void run_job_unplan(run_job_t *job)
{
    if (job->topo)
        topo_free(job->topo);
    free(job->rank);
    job->topo = NULL;
    job->rank = NULL;
}

/* A TCP socket bound to 127.0.0.1:port (0: any). Returns it, or -1. */
static int bind_loopback(int port, int *bound)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    *bound = ntohs(address.sin_port);
    return fd;
}

/* The rendezvous: rank 0 inherits it already listening, so nobody can take the port in between. */
static int open_root(run_job_t *job)
{
    int low = 0, high = 0, port = 0;
    const char *range = base_setting_string(SET_PORT_RANGE);
    if (*range) {
        char rest;
        int fields = sscanf(range, "%d-%d%c", &low, &high, &rest);
        if (fields == 1)
            high = low;
        if (fields < 1 || fields > 2 || low < 1 || high > 65535 || low > high) {
            fprintf(stderr, "ucx-run: GYRE_PORT_RANGE '%s' is not low-high with 1 <= low <= high <= 65535\n",
                    range);
            return RUN_RC_USAGE;
        }
    }
    for (int p = low; p <= high && job->root_fd < 0; p++)
        job->root_fd = bind_loopback(p, &port);
    if (job->root_fd < 0 || listen(job->root_fd, SOMAXCONN) != 0) {
        fprintf(stderr, "ucx-run: cannot listen on 127.0.0.1%s%s for the ranks to meet: %s%s\n",
                *range ? ", ports " : "", range, strerror(errno),
                *range ? "; all of GYRE_PORT_RANGE is taken or forbidden: widen it or unset it" : "");
        return RUN_RC_SYSTEM;
    }
    snprintf(job->root, sizeof job->root, "127.0.0.1:%d", port);
    int other = bind_loopback(0, &job->master_port);
    if (other < 0)
        job->master_port = port;
    else
        close(other);
    return 0;
}

static int open_recorder(run_job_t *job)
{
    int n = job->options->ranks;
    if (comm_recorder_create(base_setting_string(SET_RECORD), job->id, "", n, n, &job->recorder) != GYRE_OK) {
        fprintf(stderr, "ucx-run: %s\n", gyre_last_error());
        return RUN_RC_SYSTEM;
    }
    job->slots = job->recorder.slots;
    return 0;
}

int run_job_open(run_job_t *job)
{
    unsigned char bytes[32], id[6];
    randombytes_buf(bytes, sizeof bytes);
    randombytes_buf(id, sizeof id);
    sodium_bin2hex(job->secret, sizeof job->secret, bytes, sizeof bytes);
    sodium_bin2hex(job->id, sizeof job->id, id, sizeof id);
    sodium_memzero(bytes, sizeof bytes);
    int rc = open_root(job);
    if (!rc)
        rc = open_recorder(job);
    if (rc)
        run_job_close(job);
    return rc;
}

void run_job_close(run_job_t *job)
{
    comm_recorder_destroy(&job->recorder, !job->failed);
    if (job->root_fd >= 0)
        close(job->root_fd);
    job->slots = NULL;
    job->root_fd = -1;
    sodium_memzero(job->secret, sizeof job->secret);
}

/* --- environment --- */

typedef struct {
    char **entry;
    size_t count, room;
    int failed;
} env_t;

static int same_name(const char *a, const char *b)
{
    size_t n = strcspn(b, "=");
    return strncmp(a, b, n) == 0 && a[n] == '=';
}

/* Sets "K=V", or removes K when `text` has no '='. */
static void env_put(env_t *env, const char *text)
{
    size_t at = 0;
    while (at < env->count && !same_name(env->entry[at], text))
        at++;
    if (!strchr(text, '=')) {
        if (at < env->count) {
            free(env->entry[at]);
            env->entry[at] = env->entry[--env->count];
            env->entry[env->count] = NULL;
        }
        return;
    }
    if (at + 2 > env->room) {
        size_t room = env->room ? 2 * env->room : 64;
        char **more = realloc(env->entry, room * sizeof *more);
        if (!more) {
            env->failed = 1;
            return;
        }
        env->entry = more;
        env->room = room;
    }
    char *copy = strdup(text);
    if (!copy) {
        env->failed = 1;
        return;
    }
    if (at < env->count)
        free(env->entry[at]);
    else
        env->entry[++env->count] = NULL;
    env->entry[at] = copy;
}

static void env_number(env_t *env, const char *name, int value)
{
    char text[64];
    snprintf(text, sizeof text, "%s=%d", name, value);
    env_put(env, text);
}

static void env_text(env_t *env, const char *name, const char *value)
{
    char text[160];
    snprintf(text, sizeof text, "%s=%s", name, value);
    env_put(env, text);
}

static int env_has(const env_t *env, const char *name)
{
    for (size_t i = 0; i < env->count; i++)
        if (same_name(env->entry[i], name))
            return 1;
    return 0;
}

static void env_job(env_t *env, const run_job_t *job, int rank, int mask)
{
    int n = job->options->ranks;
    env_number(env, "GYRE_RANK", rank);
    env_number(env, "GYRE_SIZE", n);
    env_text(env, "GYRE_ROOT", job->root);
    env_text(env, "GYRE_SECRET", mask ? "********" : job->secret);
    env_text(env, "GYRE_JOB", job->id);
    env_number(env, "GYRE_LOCAL_RANK", rank);
    env_number(env, "GYRE_LOCAL_SIZE", n);
    env_number(env, "GYRE_RECORDER_FD", job->recorder.fd);
    env_put(env, "GYRE_ROOT_FD");
    if (rank == 0)
        env_number(env, "GYRE_ROOT_FD", job->root_fd);
    env_number(env, "RANK", rank);
    env_number(env, "WORLD_SIZE", n);
    env_number(env, "LOCAL_RANK", rank);
    env_number(env, "LOCAL_WORLD_SIZE", n);
    env_text(env, "MASTER_ADDR", "127.0.0.1");
    env_number(env, "MASTER_PORT", job->master_port);
    /* As torchrun does: several ranks that each start a thread per core would only be in each other's way. */
    if (n > 1 && !env_has(env, "OMP_NUM_THREADS"))
        env_number(env, "OMP_NUM_THREADS", usable_cpus() / n > 1 ? usable_cpus() / n : 1);
}

char **run_job_environment(const run_job_t *job, int rank, int mask)
{
    env_t env = {NULL, 0, 0, 0};
    env_put(&env, "GYRE_RANK=0"); /* the list is never empty */
    for (char **at = environ; *at; at++)
        if (strchr(*at, '='))
            env_put(&env, *at);
    env_job(&env, job, rank, mask);
    for (int i = 0; i < job->options->nexports; i++)
        if (strchr(job->options->exports[i], '='))
            env_put(&env, job->options->exports[i]);
    if (env.failed) {
        run_job_environment_free(env.entry);
        return NULL;
    }
    return env.entry;
}

void run_job_environment_free(char **environment)
{
    for (char **at = environment; at && *at; at++)
        free(*at);
    free(environment);
}

/* --- dry run --- */

static void print_quoted(const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@%";
    if (*text && text[strspn(text, plain)] == 0) {
        fputs(text, stdout);
        return;
    }
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    putchar('\'');
}

/* What differs from our own environment is what the reader wants to see. */
static int is_inherited(const char *entry)
{
    for (char **at = environ; *at; at++)
        if (strcmp(*at, entry) == 0)
            return 1;
    return 0;
}

int run_job_dry(const run_job_t *job)
{
    static const char *const words[] = {"nothing", "core", "the L3 cache of core", "the NUMA node of core"};
    const run_options_t *o = job->options;
    topo_bind_t how = o->bind_given ? o->bind : TOPO_BIND_CORE;
    for (int r = 0; r < o->ranks; r++) {
        char **env = run_job_environment(job, r, 1);
        if (!env) {
            fprintf(stderr, "ucx-run: out of memory for the environment of rank %d\n", r);
            return RUN_RC_SYSTEM;
        }
        printf("# rank %d on %s, ", r, run_hostname());
        if (job->rank[r].core >= 0)
            printf("bound to %s %d\n", words[how], job->rank[r].core);
        else
            puts("not bound");
        if (o->wdir) {
            fputs("cd ", stdout);
            print_quoted(o->wdir);
            fputs(" && ", stdout);
        }
        fputs("env", stdout);
        for (char **at = env; *at; at++)
            if (!is_inherited(*at)) {
                putchar(' ');
                print_quoted(*at);
            }
        for (char **at = o->program; *at; at++) {
            putchar(' ');
            print_quoted(*at);
        }
        if (o->output_dir) {
            fputs(" >", stdout);
            print_quoted(o->output_dir);
            printf("/rank.%d/stdout 2>", r);
            print_quoted(o->output_dir);
            printf("/rank.%d/stderr", r);
        }
        putchar('\n');
        run_job_environment_free(env);
    }
    return 0;
}
