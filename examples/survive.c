/* SPDX-License-Identifier: Apache-2.0 */
/* examples/survive.c: a loop of all_reduces that goes on when ranks die.
 *
 *     make examples
 *     build/examples/survive 4 2000      # four ranks, 2,000 steps; kill -9 one of them meanwhile, or several
 *
 * Every rank adds 1/size of the sum of its part to a total in each step. When an operation fails because a
 * rank died, those that are left shrink the communicator. They may have been one step apart when it happened:
 * some have the result of the last step, some have not. So each keeps the total of the step before, and they
 * go on from the earliest step that any of them is at. A real program would keep its last checkpoint, or the
 * last state, in the same way.
 *
 * The ranks are started here by fork, since most launchers end a job that has lost a rank. With 0 ranks
 * somebody else starts them, such as
 *
 *     ucx-run -n 4 --no-kill-on-bad-exit build/examples/survive 0 2000 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gyre/gyre.h>

/* Gyre has logged why. */
static void die(const char *what)
{
    fprintf(stderr, "survive: failed in %s\n", what);
    exit(1);
}

/* Replaces *comm by a communicator of those that are left. Leaves *step at the earliest step of any of
 * them. */
static void shrink(gyre_comm_t **comm, long *step)
{
    gyre_status_t status;
    long mine = *step;
    do {
        gyre_comm_t *old = *comm;
        if (gyre_comm_shrink(old, comm) !=
            GYRE_OK) /* the others went on without this rank, or too few are left */
            die("gyre_comm_shrink");
        gyre_comm_destroy(old);
        status = gyre_all_reduce(&mine, step, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), *comm);
    } while (status != GYRE_OK); /* one more has died */
    if (gyre_comm_rank(*comm) == 0)
        printf("%d ranks go on from step %ld\n", gyre_comm_size(*comm), *step);
    fflush(stdout);
}

static int work(gyre_comm_t *comm, long steps)
{
    double total[2] = {0, 0}; /* after an even and after an odd number of steps */
    long step = 0;
    while (step < steps) {
        double part = 1.0 / (double)(step + 1), sum;
        gyre_status_t status = gyre_all_reduce(&part, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm);
        if (status == GYRE_OK) {
            total[(step + 1) % 2] = total[step % 2] + sum / gyre_comm_size(comm);
            step++;
            nanosleep(&(struct timespec){0, 1000000}, NULL); /* time to compute, or to be killed */
        } else if (gyre_status_scope(status) == GYRE_SCOPE_COMMUNICATOR) {
            shrink(&comm, &step);
        } else {
            die("gyre_all_reduce");
        }
    }
    if (gyre_comm_rank(comm) == 0)
        printf("total %.6f after %ld steps, %d ranks\n", total[step % 2], step, gyre_comm_size(comm));
    return gyre_finalize(comm) == GYRE_OK ? 0 : 1;
}

/* A free port on this host, for the ranks to meet at. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &bytes) != 0) {
        perror("socket");
        exit(1);
    }
    close(fd);
    return ntohs(at.sin_port);
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 4, failed = 0;
    long steps = argc > 2 ? atol(argv[2]) : 1000;
    char root[32];
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_comm_t *comm;
    if (ranks > 0) { /* 0: somebody else has started this rank */
        snprintf(root, sizeof root, "127.0.0.1:%d", free_port());
        config.root = root;
        config.nranks = ranks;
        for (config.rank = 0; config.rank < ranks; config.rank++) {
            pid_t pid = fork();
            if (pid == 0)
                break;
            printf("rank %d is process %d\n", config.rank, (int)pid);
            fflush(stdout);
        }
        if (config.rank == ranks) {
            int status;
            while (wait(&status) > 0)
                failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
            return failed ? 1 : 0;
        }
    }
    if (gyre_init(&config, &comm) != GYRE_OK)
        die("gyre_init");
    return work(comm, steps);
}
