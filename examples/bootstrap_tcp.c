/* SPDX-License-Identifier: Apache-2.0 */
/* examples/bootstrap_tcp.c: a job whose processes find each other through a store at a TCP port of this host.
 *
 *     for r in 0 1 2; do build/examples/bootstrap_tcp $r 3 5000 & done; wait
 *
 * Shows gyre_get_unique_id and gyre_comm_create_id. The store is as small as can be: rank 0 gives the id to
 * each of the others that asks. It does not ask them who they are: who gets the id can join the job. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <gyre/gyre.h>

static struct sockaddr_in at_port(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Rank 0: for as long as it takes until `askers` ranks have the id. */
static int serve(int port, const gyre_unique_id_t *id, int askers)
{
    const struct sockaddr_in addr = at_port(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
             bind(fd, (const struct sockaddr *)&addr, sizeof addr) == 0 && listen(fd, 128) == 0;
    for (int i = 0; ok && i < askers; i++) {
        int asker = accept(fd, NULL, NULL);
        ok = asker >= 0 && send(asker, id, sizeof *id, MSG_NOSIGNAL) == (ssize_t)sizeof *id;
        close(asker);
    }
    close(fd);
    return ok;
}

/* The others: 30 s, as rank 0 may come later. */
static int ask(int port, gyre_unique_id_t *id)
{
    const struct sockaddr_in addr = at_port(port);
    for (int tries = 0; tries < 3000; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return 0;
        int ok = connect(fd, (const struct sockaddr *)&addr, sizeof addr) == 0 &&
                 recv(fd, id, sizeof *id, MSG_WAITALL) == (ssize_t)sizeof *id;
        close(fd);
        if (ok)
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bootstrap_tcp rank ranks port\n");
        return 2;
    }
    const int rank = atoi(argv[1]), ranks = atoi(argv[2]), port = atoi(argv[3]);
    gyre_unique_id_t id;
    gyre_comm_t *comm;
    if (rank == 0 && gyre_get_unique_id(&id) != GYRE_OK)
        return 1; /* Gyre has logged why */
    if (rank == 0 ? !serve(port, &id, ranks - 1) : !ask(port, &id)) {
        perror("bootstrap_tcp: the store");
        return 1;
    }
    if (gyre_comm_create_id(&id, rank, ranks, NULL, &comm) != GYRE_OK)
        return 1;
    double mine = rank + 1, sum = 0;
    gyre_status_t status = gyre_all_reduce(&mine, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm);
    if (status == GYRE_OK)
        printf("rank %d of %d: the sum is %g\n", rank, ranks, sum);
    return gyre_finalize(comm) != GYRE_OK || status != GYRE_OK;
}
