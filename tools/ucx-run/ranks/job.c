/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/job.c: one attempt at a job: the ranks, their binding, their meeting point. */
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <arpa/inet.h>

#include "base/hash.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"
#include "tools/ucx-run/run.h"

/* With more ranks than cores the ranks share the cores evenly, and each stays on its own: left alone,
 * schedulers may put all of them on one, where every message costs a switch more. */
static topo_bind_t shared_if_crowded(const topo_t *topo, topo_bind_t how, int ranks)
{
    topo_summary_t sum;
    topo_summary(topo, &sum);
    return how == TOPO_BIND_CORE && ranks > sum.cores ? TOPO_BIND_L3 : how;
}

int run_job_plan_part(run_job_t *job, const run_options_t *options, int ranks, const int *number, int world)
{
    memset(job, 0, sizeof *job);
    job->options = options;
    job->ranks = ranks;
    job->world = world;
    job->root_fd = job->recorder.fd = -1;
    job->rank = calloc((size_t)ranks, sizeof *job->rank);
    int *cores = calloc((size_t)ranks, sizeof *cores);
    int rc = 0;
    if (!job->rank || !cores) {
        run_say("ucx-run: out of memory for %d ranks", ranks);
        rc = RUN_RC_SYSTEM;
        goto out;
    }
    topo_bind_t how = options->bind_given ? options->bind : TOPO_BIND_CORE;
    for (int r = 0; r < ranks; r++)
        cores[r] = -1;
    if (how != TOPO_BIND_NONE &&
        (topo_load_cores(&job->topo) != GYRE_OK ||
         topo_bind_plan(job->topo, shared_if_crowded(job->topo, how, ranks), ranks, cores) != GYRE_OK)) {
        if (options->bind_given) {
            run_say("ucx-run: cannot plan the binding: %s", gyre_last_error());
            rc = RUN_RC_SYSTEM;
            goto out;
        }
        for (int r = 0; r < ranks; r++)
            cores[r] = -1;
    }
    for (int r = 0; r < ranks; r++) {
        job->rank[r].number = number ? number[r] : r;
        job->rank[r].host = run_hostname();
        job->rank[r].core = cores[r];
    }
out:
    free(cores);
    if (rc)
        run_job_unplan(job);
    return rc;
}

int run_job_plan(run_job_t *job, const run_options_t *options)
{
    return run_job_plan_part(job, options, options->ranks, NULL, options->ranks);
}

void run_job_unplan(run_job_t *job)
{
    if (job->topo)
        topo_free(job->topo);
    for (int r = 0; job->rank && r < job->ranks; r++)
        free(job->rank[r].doing);
    free(job->rank);
    job->topo = NULL;
    job->rank = NULL;
}

/* A TCP socket that listens at address:port (0: any). Returns it, or -1. */
static int listen_at(in_addr_t where, int port, int *bound)
{
    const int on = 1; /* connections of an attempt before do not keep the port */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = where;
    socklen_t n = sizeof address;
    if ((port && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) != 0) {
        int err = errno;
        close(fd);
        errno = err;
        return -1;
    }
    *bound = ntohs(address.sin_port);
    return fd;
}

/* The first port that the kernel may give to a connection by itself; 0 if unknown. */
static int first_given_port(void)
{
    int low = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &low) != 1)
        low = 0;
    fclose(f);
    return low;
}

int run_free_port(const char *address)
{
    enum { LOWEST = 10000, TRIES = 100 };
    struct in_addr where;
    int port = 0, fd = -1, beyond = first_given_port();
    if (inet_pton(AF_INET, address, &where) != 1)
        where.s_addr = htonl(INADDR_ANY);
    for (int i = 0; beyond > LOWEST && fd < 0 && i < TRIES; i++)
        fd = listen_at(where.s_addr, LOWEST + (int)(base_random64() % (uint64_t)(beyond - LOWEST)), &port);
    if (fd < 0)
        fd = listen_at(where.s_addr, 0, &port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* The rendezvous: rank 0 inherits it already listening, so no other process can take the port in between. */
static int open_root(run_job_t *job)
{
    int low = 0, high = 0, port = 0;
    const char *range = base_setting_string(SET_PORT_RANGE);
    if (boot_port_range(&low, &high) != GYRE_OK)
        return RUN_RC_USAGE;
    for (int p = low; p <= high && job->root_fd < 0; p++)
        job->root_fd = listen_at(htonl(INADDR_LOOPBACK), p, &port);
    if (job->root_fd < 0) {
        fprintf(stderr, "ucx-run: cannot listen on 127.0.0.1%s%s for the ranks to meet: %s%s\n",
                *range ? ", ports " : "", range, strerror(errno),
                *range ? "; all of GYRE_PORT_RANGE is taken or forbidden: widen it or unset it" : "");
        return RUN_RC_SYSTEM;
    }
    snprintf(job->root, sizeof job->root, "127.0.0.1:%d", port);
    job->master_port = run_free_port("127.0.0.1");
    if (!job->master_port)
        job->master_port = port;
    return 0;
}

int run_job_open_recorder(run_job_t *job, const char *part)
{
    if (comm_recorder_create(base_setting_string(SET_RECORD), job->id, part, job->world, job->ranks,
                             &job->recorder) != GYRE_OK) {
        run_say("ucx-run: %s", gyre_last_error());
        return RUN_RC_SYSTEM;
    }
    job->slots = job->recorder.slots;
    return 0;
}

void run_job_identify(run_job_t *job)
{
    unsigned char bytes[32], id[6];
    randombytes_buf(bytes, sizeof bytes);
    randombytes_buf(id, sizeof id);
    sodium_bin2hex(job->secret, sizeof job->secret, bytes, sizeof bytes);
    sodium_bin2hex(job->id, sizeof job->id, id, sizeof id);
    sodium_memzero(bytes, sizeof bytes);
}

int run_job_open(run_job_t *job)
{
    run_job_identify(job);
    int rc = open_root(job);
    if (!rc)
        rc = run_job_open_recorder(job, "");
    if (rc)
        run_job_close(job);
    return rc;
}

void run_job_close(run_job_t *job)
{
    if (!job->remote)
        comm_recorder_destroy(&job->recorder, !job->failed);
    if (job->root_fd >= 0)
        close(job->root_fd);
    job->slots = NULL;
    job->root_fd = -1;
    sodium_memzero(job->secret, sizeof job->secret);
}
