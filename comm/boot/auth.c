/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/auth.c: the handshake of bootstrap connections: mutual challenge and response with the job's key,
 * and the client's blocking half of it. See wire.h for the messages. */
#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot/wire.h"

static const unsigned char hello_magic[BOOT_MAGIC_BYTES] = {'G', 'Y', 'R', 'E', 'B', 'T', '0' + BOOT_VERSION,
                                                            '\n'};
const unsigned char boot_challenge_magic[BOOT_MAGIC_BYTES] = {
    'G', 'Y', 'R', 'E', 'C', 'H', '0' + BOOT_VERSION, '\n'};

/* The version in a magic that is like `ours` but for its digit; 0: it is something else. */
static int magic_version(const unsigned char *magic, const unsigned char ours[BOOT_MAGIC_BYTES])
{
    if (memcmp(magic, ours, 6) != 0 || magic[7] != ours[7] || magic[6] < '1' || magic[6] > '9')
        return 0;
    return magic[6] - '0';
}

/* MAC_key(label, hello, server's nonce): proofs and session keys differ in the label only. */
static void derive(const unsigned char key[32], char label, const unsigned char hello[BOOT_HELLO_BYTES],
                   const unsigned char nonce[32], unsigned char out[32])
{
    unsigned char text[1 + BOOT_HELLO_BYTES + 32];
    text[0] = (unsigned char)label;
    memcpy(text + 1, hello, BOOT_HELLO_BYTES);
    memcpy(text + 1 + BOOT_HELLO_BYTES, nonce, 32);
    crypto_generichash(out, 32, text, sizeof(text), key, 32);
}

void boot_hello_make(const boot_hello_t *hello, unsigned char out[BOOT_HELLO_BYTES])
{
    memset(out, 0, BOOT_HELLO_BYTES);
    memcpy(out, hello_magic, BOOT_MAGIC_BYTES);
    boot_put32(out + 8, (uint32_t)hello->role);
    boot_put32(out + 12, (uint32_t)hello->rank);
    boot_put32(out + 16, (uint32_t)hello->size);
    boot_put32(out + 20, (uint32_t)hello->wanted);
    boot_put32(out + 24, hello->epoch);
    randombytes_buf(out + 32, 32);
}

int boot_hello_version(const unsigned char magic[BOOT_MAGIC_BYTES])
{
    return magic_version(magic, hello_magic);
}

int boot_hello_parse(const unsigned char hello[BOOT_HELLO_BYTES], boot_hello_t *out)
{
    if (boot_hello_version(hello) != BOOT_VERSION)
        return 0;
    out->role = (int)boot_get32(hello + 8);
    out->rank = (int)boot_get32(hello + 12);
    out->size = (int)boot_get32(hello + 16);
    out->wanted = (int)boot_get32(hello + 20);
    out->epoch = boot_get32(hello + 24);
    return out->role >= BOOT_ROLE_JOIN && out->role <= BOOT_ROLE_ASK;
}

void boot_challenge_make(const unsigned char key[32], const unsigned char hello[BOOT_HELLO_BYTES],
                         unsigned char challenge[BOOT_CHALLENGE_BYTES])
{
    memcpy(challenge, boot_challenge_magic, BOOT_MAGIC_BYTES);
    randombytes_buf(challenge + 8, 32);
    derive(key, 'S', hello, challenge + 8, challenge + 40);
}

int boot_proof_check(const unsigned char key[32], const unsigned char hello[BOOT_HELLO_BYTES],
                     const unsigned char challenge[BOOT_CHALLENGE_BYTES],
                     const unsigned char proof[BOOT_PROOF_BYTES], boot_conn_t *conn)
{
    unsigned char expected[32];
    derive(key, 'C', hello, challenge + 8, expected);
    if (sodium_memcmp(expected, proof, 32) != 0)
        return 0;
    derive(key, '1', hello, challenge + 8, conn->key_in);
    derive(key, '2', hello, challenge + 8, conn->key_out);
    return 1;
}

int boot_challenge_answer(const unsigned char key[32], const unsigned char hello[BOOT_HELLO_BYTES],
                          const unsigned char challenge[BOOT_CHALLENGE_BYTES], boot_conn_t *conn,
                          unsigned char proof[BOOT_PROOF_BYTES])
{
    unsigned char mac[32];
    if (magic_version(challenge, boot_challenge_magic) != BOOT_VERSION)
        return 0;
    derive(key, 'S', hello, challenge + 8, mac);
    if (sodium_memcmp(mac, challenge + 40, 32) != 0)
        return 0;
    derive(key, '1', hello, challenge + 8, conn->key_out);
    derive(key, '2', hello, challenge + 8, conn->key_in);
    derive(key, 'C', hello, challenge + 8, proof);
    return 1;
}

static const char *name(int rank, const char *none, char text[BOOT_WHO])
{
    snprintf(text, BOOT_WHO, "rank %d", rank);
    return rank >= 0 ? text : none;
}

const char *boot_hello_from(const boot_hello_t *hello, char text[BOOT_WHO])
{
    return name(hello->rank, "this newcomer", text);
}

const char *boot_hello_to(const boot_hello_t *hello, char text[BOOT_WHO])
{
    return name(hello->wanted, "the job", text);
}

/* Waits for `events` on the connection; TIMEOUT (quiet). */
static gyre_status_t wait_for(const boot_conn_t *conn, short events, base_time_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = conn->fd, .events = events, .revents = 0};
        boot_patience_t *patience = conn->patience;
        int sooner = patience != NULL && patience->at < deadline;
        int n = poll(&p, 1, base_poll_ms(sooner ? patience->at : deadline));
        char waited[24];
        if (n > 0)
            return GYRE_OK;
        if (n == 0 && sooner && boot_patience_over(patience))
            log_warning(
                "waiting for %s for %s, which took the connection and does not answer: is it stopped?",
                boot_patience_text(patience, waited), conn->where);
        if (n == 0 && sooner)
            continue;
        if (n == 0)
            return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "%s did not answer", conn->where);
        if (errno != EINTR)
            return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "poll");
    }
}

static gyre_status_t send_plain(boot_conn_t *conn, const void *data, size_t bytes, base_time_t deadline)
{
    if (!boot_buf_add(&conn->out, data, bytes))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the handshake with %s", conn->where);
    for (;;) {
        boot_conn_flush(conn);
        if (conn->write_failed)
            return gyre_fail_quiet(GYRE_ERR_TRANSPORT, "%s: %s", conn->where, strerror(conn->write_failed));
        if (!boot_conn_unsent(conn))
            return GYRE_OK;
        gyre_status_t st = wait_for(conn, POLLOUT, deadline);
        if (st != GYRE_OK)
            return st;
    }
}

/* Reads until at least `bytes` are in conn->in (which then may hold up to `limit`). */
static gyre_status_t read_more(boot_conn_t *conn, size_t limit, base_time_t deadline)
{
    for (;;) {
        boot_read_t got = boot_conn_read(conn, limit);
        if (got == BOOT_READ_SOME)
            return GYRE_OK;
        if (got == BOOT_READ_EOF)
            return gyre_fail_quiet(GYRE_ERR_TRANSPORT, "%s closed the connection", conn->where);
        if (got == BOOT_READ_ERROR)
            return gyre_fail_quiet(GYRE_ERR_TRANSPORT, "%s: %s", conn->where, strerror(errno));
        const int unsent = boot_conn_unsent(conn); /* the answer may be to what did not go at once */
        gyre_status_t st = wait_for(conn, (short)(POLLIN | (unsent ? POLLOUT : 0)), deadline);
        if (st != GYRE_OK)
            return st;
        if (unsent)
            boot_conn_flush(conn);
    }
}

static gyre_status_t check_version(const boot_conn_t *conn, const boot_hello_t *hello)
{
    int version = magic_version(conn->in.data + conn->in.from, boot_challenge_magic);
    char to[BOOT_WHO];
    if (version == BOOT_VERSION)
        return GYRE_OK;
    if (version > 0)
        return gyre_fail_quiet(
            GYRE_ERR_BOOTSTRAP,
            "%s at %s speaks version %d of the bootstrap, this rank version %d: start all ranks with "
            "the same build of Gyre",
            boot_hello_to(hello, to), conn->where, version, BOOT_VERSION);
    return gyre_fail_quiet(GYRE_ERR_BOOTSTRAP, "what listens at %s is not a Gyre rank", conn->where);
}

gyre_status_t boot_hand_shake(boot_conn_t *conn, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline)
{
    unsigned char text[BOOT_HELLO_BYTES], mac[32];
    char to[BOOT_WHO];
    boot_hello_make(hello, text);
    gyre_status_t st = send_plain(conn, text, sizeof(text), deadline);
    while (st == GYRE_OK && boot_buf_len(&conn->in) < BOOT_CHALLENGE_BYTES) {
        st = read_more(conn, BOOT_CHALLENGE_BYTES, deadline);
        /* Another version sends no more than its magic, something else perhaps less than a challenge. */
        if (st == GYRE_OK && boot_buf_len(&conn->in) >= BOOT_MAGIC_BYTES)
            st = check_version(conn, hello);
    }
    if (st != GYRE_OK)
        return st;

    const unsigned char *challenge = conn->in.data + conn->in.from;
    if (!boot_challenge_answer(key, text, challenge, conn, mac))
        return gyre_fail_quiet(
            GYRE_ERR_AUTH,
            "%s at %s does not prove knowledge of this rank's job secret: GYRE_SECRET or GYRE_JOB "
            "differ between the ranks, or another job listens there",
            boot_hello_to(hello, to), conn->where);
    boot_buf_free(&conn->in);
    return send_plain(conn, mac, sizeof(mac), deadline);
}

gyre_status_t boot_hand_shake_failed(gyre_status_t st)
{
    char text[1024];
    if (st != GYRE_ERR_AUTH && st != GYRE_ERR_BOOTSTRAP && st != GYRE_ERR_TIMEOUT)
        return st; /* OK, or logged where it was met */
    snprintf(text, sizeof(text), "%s", gyre_last_error());
    return gyre_fail(st, "%s", text);
}

gyre_status_t boot_conn_receive(boot_conn_t *conn, boot_message_t *message, base_time_t deadline)
{
    const char *why;
    for (;;) {
        int got = boot_conn_next(conn, message, &why);
        if (got == 1)
            return GYRE_OK;
        if (got == -2)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the handshake with %s", conn->where);
        if (got < 0)
            return gyre_fail(GYRE_ERR_FORMAT, "%s sent garbage: %s", conn->where, why);
        gyre_status_t st = read_more(conn, BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC, deadline);
        if (st != GYRE_OK)
            return st;
    }
}
