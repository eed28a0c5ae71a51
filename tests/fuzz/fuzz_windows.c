/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_windows.c: packets of strangers at the socket that hands out memory windows, and of a peer
 * that answers a fetch: {u8 bytes, packet} ... The first byte chooses the side. */
#include <sodium.h>
#include <sys/socket.h>

#include "comm/watch/fd_pass.h"
#include "tests/fuzz/fuzz.h"

static watch_fds_t fds;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    FUZZ_CHECK(sodium_init() >= 0);
    memset(&fds, 0, sizeof(fds));
    fds.fd = -1;
    for (int i = 0; i < WATCH_CLIENTS_MAX; i++)
        fds.clients[i].fd = -1;
    FUZZ_CHECK(pthread_mutex_init(&fds.lock, NULL) == 0);
    return 0;
}

static void server(fuzz_input_t *in, int mine, int theirs)
{
    struct pollfd polls[WATCH_FD_POLLS];
    base_time_t until = BASE_TIME_NEVER;
    unsigned char answer[256];
    watch_client_t *client = &fds.clients[5];
    memset(client, 0, sizeof(*client));
    client->fd = mine;
    client->deadline = BASE_TIME_NEVER;
    while (in->left > 0 && client->fd >= 0) {
        size_t n = fuzz_byte(in);
        const uint8_t *packet = fuzz_bytes(in, &n);
        (void)!send(theirs, packet, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        int k = watch_fds_polls(&fds, polls, &until);
        FUZZ_CHECK(k == 2 && polls[1].fd == mine);
        polls[1].revents = POLLIN;
        watch_fds_handle(&fds, polls, k);
        while (recv(theirs, answer, sizeof(answer), MSG_DONTWAIT) > 0)
            ;
    }
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
}

static void client(fuzz_input_t *in, int mine, int theirs)
{
    unsigned char address[32] = {1}; /* another process of this host: the second half is as ours */
    comm_watch_fetch_t fetch = {.step = 1, .fd = mine};
    int got = -1;
    while (in->left > 0) {
        size_t n = fuzz_byte(in);
        const uint8_t *packet = fuzz_bytes(in, &n);
        (void)!send(theirs, packet, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(theirs, SHUT_WR);
    FUZZ_CHECK(watch_fds_fetch(&fds, address, 3, &fetch, &got, 1) != GYRE_OK && got == -1);
    comm_watch_fetch_drop(&fetch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    int fd[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
    if (fuzz_byte(&in) & 1)
        client(&in, fd[0], fd[1]);
    else
        server(&in, fd[0], fd[1]);
    close(fd[1]);
    return 0;
}
