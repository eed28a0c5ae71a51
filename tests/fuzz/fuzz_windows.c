/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_windows.c: packets at the socket that hands out memory windows. The first byte chooses:
 *   0  strangers at the socket: {u8 bytes, packet} ...
 *   1  what answers a fetch, in the same form
 *   2  both sides are honest, and the input changes their packets on the way: {which, how, place} ... */
#include <sodium.h>
#include <sys/socket.h>

#include "comm/boot/wire.h"
#include "comm/watch/fd_pass.h"
#include "tests/fuzz/fuzz.h"

enum { WINDOW = 3 };
enum { CHANGE_BYTE = 1, CHANGE_SHORT = 2, CHANGE_NO_FD = 4, CHANGE_LOSE = 8, ADD_FD = 16 };
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
    const int window = memfd_create("window", MFD_CLOEXEC);
    FUZZ_CHECK(window >= 0 && watch_fds_offer(&fds, WINDOW, window) == GYRE_OK);
    return 0;
}

/* Gives a client whose connection is `fd` all that lies on it. */
static void serve(watch_client_t *client, int fd)
{
    struct pollfd polls[WATCH_FD_POLLS];
    base_time_t until = BASE_TIME_NEVER;
    int k = watch_fds_polls(&fds, polls, &until);
    FUZZ_CHECK(k == 2 && polls[1].fd == fd && client->fd == fd);
    polls[1].revents = POLLIN;
    watch_fds_handle(&fds, polls, k);
}

static watch_client_t *connected(int fd)
{
    watch_client_t *client = &fds.clients[5];
    memset(client, 0, sizeof(*client));
    client->fd = fd;
    client->deadline = BASE_TIME_NEVER;
    return client;
}

static void server(fuzz_input_t *in, int mine, int theirs)
{
    unsigned char answer[256];
    watch_client_t *client = connected(mine);
    while (in->left > 0 && client->fd >= 0) {
        size_t n = fuzz_byte(in);
        const uint8_t *packet = fuzz_bytes(in, &n);
        (void)!send(theirs, packet, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        serve(client, mine);
        while (recv(theirs, answer, sizeof(answer), MSG_DONTWAIT) > 0)
            ;
    }
    shutdown(theirs, SHUT_WR); /* and leaves */
    if (client->fd >= 0)
        serve(client, mine);
    FUZZ_CHECK(client->fd < 0);
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

/* Carries a packet from one connection to the other, as the input says. 1: it was changed. */
static int carry(fuzz_input_t *in, int from, int to)
{
    unsigned char packet[256];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return 0;
    int passed = -1, changed = 0;
    if (message.msg_controllen > 0)
        memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    const uint8_t how = fuzz_byte(in), place = fuzz_byte(in);
    if (how & CHANGE_BYTE) {
        packet[place % n] ^= (unsigned char)(1 + place / 64);
        changed = 1;
    }
    part.iov_len = (size_t)n - ((how & CHANGE_SHORT) != 0);
    if ((how & CHANGE_NO_FD) && passed >= 0)
        message.msg_controllen = 0;
    const int added = (how & ADD_FD) && passed < 0; /* one that nobody asked for is closed */
    if (added) {
        message.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        *c = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(c), &from, sizeof(int));
    }
    changed |= (how & (CHANGE_SHORT | CHANGE_LOSE)) || ((how & CHANGE_NO_FD) && passed >= 0);
    if (!(how & CHANGE_LOSE))
        (void)!sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (passed >= 0)
        close(passed);
    return changed;
}

/* What was changed on the way is noticed, and what was not arrives. */
static void both(fuzz_input_t *in, int mine, int theirs)
{
    enum { OFFERED = 1, OWN = 2, ELSEWHERE = 4 };
    const uint8_t which = fuzz_byte(in);
    const unsigned char address[32] = {!(which & OWN), [16] = (which & ELSEWHERE) != 0};
    const uint64_t window = which & OFFERED ? WINDOW : WINDOW + 1;
    int fd[2], got = -1, changed = 0;
    if (which & (OWN | ELSEWHERE)) {
        comm_watch_fetch_t none = {0};
        const int mine_alone = !(which & ELSEWHERE) && window == WINDOW;
        FUZZ_CHECK((watch_fds_fetch(&fds, address, window, &none, &got, 1) == GYRE_OK) == mine_alone);
        FUZZ_CHECK((got >= 0) == mine_alone);
        close(mine);
        if (got >= 0)
            close(got);
        return;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
    comm_watch_fetch_t fetch = {.step = 1, .fd = fd[0], .lost = 1 << 20, .since = base_now()};
    watch_client_t *client = connected(mine);
    boot_put64(fetch.question + 32, window);
    FUZZ_CHECK(send(fd[0], fetch.question, sizeof(fetch.question), 0) == sizeof(fetch.question));
    gyre_status_t status = GYRE_IN_PROGRESS;
    for (int i = 0; i < 3 && status == GYRE_IN_PROGRESS; i++) {
        changed |= carry(in, fd[1], theirs);
        if (client->fd >= 0)
            serve(client, mine);
        changed |= carry(in, theirs, fd[1]);
        status = watch_fds_fetch(&fds, address, window, &fetch, &got, 1);
    }
    FUZZ_CHECK((status == GYRE_OK) == (!changed && window == WINDOW) && (status == GYRE_OK) == (got >= 0));
    FUZZ_CHECK(changed || status == GYRE_OK || status == GYRE_ERR_NOT_FOUND);
    if (got >= 0)
        close(got);
    comm_watch_fetch_drop(&fetch);
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    close(fd[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    int fd[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
    void (*const modes[])(fuzz_input_t *, int, int) = {server, client, both};
    modes[fuzz_byte(&in) % 3](&in, fd[0], fd[1]);
    close(fd[1]);
    return 0;
}
