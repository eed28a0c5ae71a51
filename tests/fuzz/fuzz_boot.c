/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_boot.c: what other processes send to a rank's bootstrap. The first byte modulo 10 chooses:
 *   0  frames of neighbours that know the key: {edge, type, u16 bytes, payload} ...; then collectives read
 *      what waits. An edge's bit 1 closes that neighbour's end instead
 *   1  a raw stream on an authenticated connection
 *   2  what answers our handshake
 *   3  hello and proof of somebody who knocks
 *   4  frames, as in 0, of a rank that is not a neighbour: {role, then {type, u16 bytes, payload} ...}
 *   5  what a rank says that it is doing
 *   6  a membership; from 16 on, of a rank that others rally with
 *   7  what a newcomer is welcomed with: {u16 bytes, welcome, membership}
 *   8  frames of a neighbour that knows the key and breaks the rules: {how, type, bytes, payload} ...
 *   9  two ranks that know the key shake hands, and the input changes what they send: {which, place, bits} */
#include <fcntl.h>
#include <sodium.h>
#include <sys/socket.h>

#include "collectives/run/communicator.h"
#include "comm/boot/members/circle.h"
#include "comm/boot/shrink.h"
#include "tests/fuzz/fuzz.h"

enum { RANK = 2, SIZE = 8 }; /* its parent is 0, its child 3 */
#define PAST ((base_time_t)1)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    FUZZ_CHECK(sodium_init() >= 0);
    return 0;
}

static void pair(int fd[2])
{
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
}

/* A rank with two neighbours; their ends of the connections are peers[2]. All keys are zero. */
static comm_boot_t *begin(boot_conn_t peers[2])
{
    comm_identity_t who = {.rank = RANK, .size = SIZE, .have_secret = 1, .root_fd = -1, .job = "fuzz"};
    comm_boot_t *boot = boot_new(&who);
    FUZZ_CHECK(boot != NULL && boot->edges_n == 2);
    for (int i = 0; i < 2; i++) {
        int fd[2];
        boot_conn_t mine;
        pair(fd);
        boot_conn_open(&mine, fd[0]);
        boot_conn_open(&peers[i], fd[1]);
        boot_edge_adopt(&boot->edges[i], &mine);
    }
    boot->asked[0].id = 7; /* a question under way */
    return boot;
}

static void finish(comm_boot_t *boot, boot_conn_t peers[2])
{
    for (int i = 0; i < 2; i++)
        boot_conn_close(&peers[i]);
    comm_boot_leave(boot, 1);
}

/* Lets the rank read all that lies on an edge. */
static void handle(comm_boot_t *boot, boot_edge_t *edge, size_t bytes)
{
    pthread_mutex_lock(&boot->lock);
    for (size_t i = 0; i < bytes / 4096 + 2 && edge->open; i++)
        boot_handle(boot, edge, POLLIN);
    pthread_mutex_unlock(&boot->lock);
}

static void collectives(comm_boot_t *boot)
{
    unsigned char all[SIZE * 8], data[64] = {0};
    size_t bytes = sizeof(data);
    memset(all, 0, sizeof(all));
    (void)comm_boot_all_gather(boot, data, 0, all, PAST);
    (void)comm_boot_share(boot, GYRE_OK, data, sizeof(data), &bytes, PAST);
    FUZZ_CHECK(bytes <= sizeof(data));
    (void)comm_boot_barrier(boot, PAST);
}

/* A circle of all ranks reads the letters that wait for it. */
static void circle(comm_boot_t *boot)
{
    static const int ranks[SIZE] = {0, 1, 2, 3, 4, 5, 6, 7};
    unsigned char all[SIZE * 8], data[8] = {0};
    comm_circle_t *made;
    for (int turn = 0; turn < 2; turn++) { /* the second finds the tag used up */
        if (comm_circle_open(boot, "fuzz", 1, 1, ranks, ranks, SIZE, RANK, PAST, &made) != GYRE_OK)
            continue;
        gyre_status_t st = comm_circle_gather(made, data, sizeof(data), all);
        (void)comm_circle_close(made, st);
    }
}

static void frames(fuzz_input_t *in)
{
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    while (in->left >= 4) {
        const uint8_t where = fuzz_byte(in);
        int e = where & 1;
        if (where & 2) {
            boot_conn_close(&peers[e]);
            handle(boot, &boot->edges[e], 0);
            continue;
        }
        boot_type_t type = (boot_type_t)fuzz_byte(in);
        size_t bytes = fuzz_byte(in);
        bytes |= (size_t)fuzz_byte(in) << 8;
        const uint8_t *payload = fuzz_bytes(in, &bytes);
        if (peers[e].fd < 0)
            continue;
        FUZZ_CHECK(boot_conn_send(&peers[e], type, payload, bytes) == GYRE_OK);
        handle(boot, &boot->edges[e], bytes);
    }
    collectives(boot);
    circle(boot);
    finish(boot, peers);
}

static void raw(fuzz_input_t *in)
{
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    (void)!write(peers[1].fd, in->at, in->left);
    handle(boot, &boot->edges[1], in->left);
    collectives(boot);
    finish(boot, peers);
}

static void answer(fuzz_input_t *in)
{
    static const unsigned char key[32];
    const boot_hello_t hello = {.role = BOOT_ROLE_JOIN, .rank = 1, .size = 4};
    boot_conn_t conn;
    boot_message_t message;
    int fd[2];
    pair(fd);
    boot_conn_open(&conn, fd[0]);
    (void)!write(fd[1], in->at, in->left);
    shutdown(fd[1], SHUT_WR);
    if (boot_hand_shake(&conn, key, &hello, PAST) == GYRE_OK)
        (void)boot_conn_receive(&conn, &message, PAST);
    boot_conn_close(&conn);
    close(fd[1]);
}

static void knock(fuzz_input_t *in)
{
    static const unsigned char key[32];
    unsigned char hello[BOOT_HELLO_BYTES] = {0}, challenge[BOOT_CHALLENGE_BYTES],
                  proof[BOOT_PROOF_BYTES] = {0};
    boot_hello_t parsed;
    boot_conn_t conn;
    memset(&conn, 0, sizeof(conn));
    size_t n = sizeof(hello);
    const uint8_t *text = fuzz_bytes(in, &n);
    memcpy(hello, text, n);
    n = sizeof(proof);
    text = fuzz_bytes(in, &n);
    memcpy(proof, text, n);
    int version = boot_hello_version(hello);
    if (boot_hello_parse(hello, &parsed))
        FUZZ_CHECK(version == BOOT_VERSION &&
                   (parsed.role >= BOOT_ROLE_JOIN && parsed.role <= BOOT_ROLE_ASK));
    boot_challenge_make(key, hello, challenge);
    FUZZ_CHECK(!boot_proof_check(key, hello, challenge, proof, &conn)); /* 2^-256 */
}

static void contact(fuzz_input_t *in)
{
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    pthread_mutex_lock(&boot->lock);
    boot_contact_t *v = boot_contact_of_edge(boot, &boot->edges[1]);
    FUZZ_CHECK(v != NULL);
    v->hello.role = fuzz_byte(in) & 1 ? BOOT_ROLE_RALLY : BOOT_ROLE_MEMBER;
    while (in->left >= 3 && v->state == CONTACT_OPEN) {
        boot_type_t type = (boot_type_t)fuzz_byte(in);
        size_t bytes = fuzz_byte(in);
        bytes |= (size_t)fuzz_byte(in) << 8;
        const uint8_t *payload = fuzz_bytes(in, &bytes);
        FUZZ_CHECK(boot_conn_send(&peers[1], type, payload, bytes) == GYRE_OK);
        for (size_t i = 0; i < bytes / 4096 + 2 && v->state == CONTACT_OPEN; i++)
            boot_listener_handle(boot, v, &(struct pollfd){.revents = POLLIN});
    }
    boot_listener_tick(boot, base_now()); /* may free the contact */
    pthread_mutex_unlock(&boot->lock);
    finish(boot, peers);
}

static void told(fuzz_input_t *in)
{
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    comm_boot_doing_t doing;
    char text[200];
    if (boot_tell_unpack(boot, in->at, in->left, &doing)) {
        FUZZ_CHECK(doing.waits_for >= -1 && doing.waits_for < SIZE);
        FUZZ_CHECK(memchr(doing.missing, 0, sizeof(doing.missing)) != NULL);
        FUZZ_CHECK(doing.calls.calls_n >= 0 && doing.calls.calls_n <= COMM_DOING_CALLS);
        for (int i = 0; i < doing.calls.calls_n; i++)
            coll_call_text(&doing.calls.calls[i], text, sizeof(text));
    }
    finish(boot, peers);
}

/* A membership that looks sane is taken up, or refused for what it says: then the rank is as it was. */
static void take_up(comm_boot_t *boot, const uint8_t *data, size_t bytes)
{
    pthread_mutex_lock(&boot->lock);
    if (boot_shrink_keep_sane(boot, data, bytes) > 0 && boot_shrink_take_up(boot) == GYRE_OK) {
        FUZZ_CHECK(boot->members_n >= 1 && boot->members_n <= boot->size);
        FUZZ_CHECK(boot_member(boot, boot->place) == boot->rank);
        for (int p = 1; p < boot->members_n; p++)
            FUZZ_CHECK(boot_member(boot, p) > boot_member(boot, p - 1));
        for (int i = 0; i < boot->edges_n; i++)
            FUZZ_CHECK(boot_place(boot, boot->edges[i].rank) == boot->edges[i].place);
    }
    boot_listener_tick(boot, base_now());
    pthread_mutex_unlock(&boot->lock);
}

static int rallied; /* the first byte's other half */

static void membership(fuzz_input_t *in)
{
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    pthread_mutex_lock(&boot->lock);
    for (int i = 0; i < 2 && rallied; i++) {
        boot_contact_t *v = boot_contact_of_edge(boot, &boot->edges[i]);
        FUZZ_CHECK(v != NULL);
        v->hello.role = BOOT_ROLE_RALLY;
        v->ours = i;
    }
    pthread_mutex_unlock(&boot->lock);
    take_up(boot, in->at, in->left);
    finish(boot, peers);
}

static void welcome(fuzz_input_t *in)
{
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    size_t bytes = fuzz_byte(in);
    bytes |= (size_t)fuzz_byte(in) << 8;
    const uint8_t *text = fuzz_bytes(in, &bytes);
    const boot_message_t m = {.type = BOOT_WELCOME, .data = text, .bytes = bytes};
    if (boot_grow_take_welcome(boot, &m) == GYRE_OK) {
        FUZZ_CHECK(boot->rank >= 0 && boot->rank < boot->size && boot->places_n == boot->size);
        for (int r = 0; r < boot->places_n; r++)
            FUZZ_CHECK(memchr(boot->places[r].host, 0, BOOT_HOST_BYTES) != NULL);
        take_up(boot, in->at, in->left);
    }
    finish(boot, peers);
}

static void sealed(fuzz_input_t *in)
{
    enum { HOW_MORE = 1, HOW_COUNT = 2, HOW_LONG = 4, HOW_MAC = 8, HOW_LARGE = 16 };
    static const unsigned char key[32];
    static unsigned char frame[BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC];
    boot_conn_t peers[2];
    comm_boot_t *boot = begin(peers);
    for (uint64_t count = 0; in->left >= 3 && boot->edges[1].open; count++) {
        const uint8_t how = fuzz_byte(in), type = fuzz_byte(in);
        size_t bytes = fuzz_byte(in);
        const uint8_t *payload = fuzz_bytes(in, &bytes);
        memset(frame, 0, BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD);
        memcpy(frame + BOOT_FRAME_HEAD, payload, bytes);
        if (how & HOW_LARGE)
            bytes = BOOT_FRAME_PAYLOAD;
        boot_put32(frame, (uint32_t)(how & HOW_LONG ? BOOT_FRAME_PAYLOAD + 1 : bytes));
        frame[4] = type;
        frame[5] = how & HOW_MORE;
        boot_put64(frame + 8, count + ((how & HOW_COUNT) != 0));
        unsigned char *mac = frame + BOOT_FRAME_HEAD + bytes;
        crypto_generichash(mac, BOOT_FRAME_MAC, frame, BOOT_FRAME_HEAD + bytes, key, sizeof(key));
        mac[0] ^= how & HOW_MAC;
        (void)!write(peers[1].fd, frame, BOOT_FRAME_HEAD + bytes + BOOT_FRAME_MAC);
        handle(boot, &boot->edges[1], bytes);
        FUZZ_CHECK(!boot->edges[1].open || !(how & (HOW_COUNT | HOW_LONG | HOW_MAC)));
    }
    collectives(boot);
    finish(boot, peers);
}

static int change(fuzz_input_t *in, unsigned char *data, size_t bytes)
{
    const uint8_t place = fuzz_byte(in), bits = fuzz_byte(in);
    data[place % bytes] ^= bits;
    return bits != 0;
}

static void hands(fuzz_input_t *in)
{
    static const unsigned char key[32];
    const boot_hello_t hello = {.role = BOOT_ROLE_JOIN, .rank = 1, .size = 4};
    unsigned char text[BOOT_HELLO_BYTES], heard[BOOT_HELLO_BYTES];
    unsigned char challenge[BOOT_CHALLENGE_BYTES], proof[BOOT_PROOF_BYTES];
    const uint8_t which = fuzz_byte(in);
    boot_conn_t mine, theirs;
    boot_message_t message;
    int fd[2];
    pair(fd);
    boot_conn_open(&mine, fd[0]);
    boot_conn_open(&theirs, fd[1]);
    boot_hello_make(&hello, text);
    memcpy(heard, text, sizeof(text));
    int changed = which == 1 && change(in, heard, sizeof(heard));
    boot_challenge_make(key, heard, challenge);
    changed |= which == 2 && change(in, challenge, sizeof(challenge));
    FUZZ_CHECK(boot_challenge_answer(key, text, challenge, &mine, proof) == !changed);
    if (!changed) {
        changed = which == 3 && change(in, proof, sizeof(proof));
        FUZZ_CHECK(boot_proof_check(key, heard, challenge, proof, &theirs) == !changed);
    }
    if (!changed) {
        FUZZ_CHECK(boot_conn_send(&theirs, BOOT_WELCOME, in->at, in->left) == GYRE_OK);
        FUZZ_CHECK(boot_conn_receive(&mine, &message, PAST) == GYRE_OK && message.bytes == in->left);
        FUZZ_CHECK(in->left == 0 || memcmp(message.data, in->at, in->left) == 0);
    }
    boot_conn_close(&mine);
    boot_conn_close(&theirs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    void (*const modes[])(fuzz_input_t *) = {frames, raw,        answer,  knock,  contact,
                                             told,   membership, welcome, sealed, hands};
    const uint8_t first = fuzz_byte(&in);
    rallied = first / 10 & 1;
    modes[first % 10](&in);
    return 0;
}
