/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/wire.h: authenticated connections of the bootstrap.
 *
 * Handshake, in fixed sizes so that a stranger controls no length (C connects, S accepted; K from the job
 * secret):
 *     C -> S  hello      magic, role, rank, size, wanted rank, nonce      64 bytes
 *     S -> C  challenge  magic, nonce, MAC_K("S", hello, nonce)            72 bytes
 *     C -> S  proof      MAC_K("C", hello, nonce)                         32 bytes
 * Each side has then proved the secret over the other's fresh nonce, and both know one session key for each
 * direction. MAC is keyed BLAKE2b (libsodium's crypto_generichash).
 *
 * Frames after it: a 16-byte header (u32 length, u8 type, u8 more, u16 zero, u64 counter; little-endian), the
 * payload, a 16-byte MAC over both under the direction's key. Counters start at 0: nothing can be replayed,
 * dropped or reordered. Messages larger than a frame go as several frames with `more` set but in the last.
 *
 * Not thread-safe: the owner locks. Nothing here blocks except boot_hand_shake. */
#ifndef COMM_BOOT_WIRE_H
#define COMM_BOOT_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "base/clock.h"
#include "comm/net/address.h"

enum {
    BOOT_HELLO_BYTES = 64,
    BOOT_CHALLENGE_BYTES = 72,
    BOOT_PROOF_BYTES = 32,
    BOOT_FRAME_HEAD = 16,
    BOOT_FRAME_MAC = 16,
    BOOT_FRAME_PAYLOAD = 64 * 1024,      /* at most; a longer length is garbage */
    BOOT_MESSAGE_MAX = 256 * 1024 * 1024 /* bytes of all frames of one message */
};

typedef enum {
    BOOT_JOIN = 1,      /* rank -> 0: packed listen address; or BOOT_ABORT: it cannot listen */
    BOOT_PARENT = 2,    /* 0 -> rank: i32 parent, packed address */
    BOOT_REJECT = 3,    /* text */
    BOOT_UP = 4,        /* collective, towards rank 0 */
    BOOT_DOWN = 5,      /* collective, away from rank 0 */
    BOOT_GOODBYE = 8,   /* leaves on purpose */
    BOOT_DEAD = 9,      /* u32 rank, u32 1: it is only silent, text */
    BOOT_ABORT = 10,    /* u64 id, u32 status, text */
    BOOT_LEFT = 11,     /* u32 rank: it leaves after an error; from that rank itself: its goodbye */
    BOOT_BEAT = 12,     /* the sender lives; u8 1: a debugger traces it */
    BOOT_EXPELLED = 13, /* text: the job goes on without the receiver */
    BOOT_RALLY = 14,    /* the sender calls for a new membership */
    BOOT_VIEW = 15,     /* a new membership; see shrink.c */
    BOOT_ASK = 16,      /* u32 id, u32 origin, u32 rank, u32 about: what is that rank doing? See query.c */
    BOOT_TELL = 17,     /* u32 id, u32 origin, what it is doing; see query.c */
    BOOT_WELCOME = 18,  /* to a newcomer; see grow.c */
    BOOT_SPEAKS = 19,   /* nothing: a rank is about to log who keeps it waiting; see comm_boot_may_speak */
    BOOT_LETTER = 20    /* from one rank to another; see circle.c */
} boot_type_t;

typedef struct {
    unsigned char *data; /* owned */
    size_t from, to, cap;
} boot_buf_t; /* all zero is empty; bytes [from, to) are in it */

/* Makes room for `more` bytes after `to`. 0 if memory is exhausted. */
int boot_buf_reserve(boot_buf_t *buf, size_t more);
int boot_buf_add(boot_buf_t *buf, const void *data, size_t bytes);
void boot_buf_free(boot_buf_t *buf);
static inline size_t boot_buf_len(const boot_buf_t *buf)
{
    return buf->to - buf->from;
}

/* A long wait: when to log that it lasts. After GYRE_PATIENCE, then after 3, 9 ... times as long. */
typedef struct {
    base_time_t began, at; /* NEVER: it is switched off */
} boot_patience_t;
boot_patience_t boot_patience_begin(void);
/* 1, once each time: it is time. */
int boot_patience_over(boot_patience_t *patience);
/* Seconds since it began, as text. */
const char *boot_patience_text(const boot_patience_t *patience, char text[24]);

typedef struct {
    int fd;                     /* -1: none */
    char where[BOOT_ADDR_TEXT]; /* peer's address for messages */
    unsigned char key_in[32], key_out[32];
    uint64_t count_in, count_out;
    boot_buf_t in, out;
    boot_buf_t message;        /* the message being put together */
    size_t message_used;       /* 1: it was given out and goes at the next call */
    int write_failed;          /* errno of the first failed write: nothing is sent any more */
    boot_patience_t *patience; /* borrowed, for boot_hand_shake; NULL: it logs nothing */
} boot_conn_t;

typedef struct {
    boot_type_t type;
    const unsigned char *data; /* borrowed: until the next boot_conn_next */
    size_t bytes;
} boot_message_t;

void boot_conn_open(boot_conn_t *conn, int fd);          /* takes fd, of boot_dial or boot_accept */
void boot_conn_close(boot_conn_t *conn);                 /* closes, frees, wipes the keys */
void boot_conn_move(boot_conn_t *to, boot_conn_t *from); /* from: as closed */

/* Queues a message and sends what goes without blocking. NO_MEMORY. A failed write is kept in write_failed:
 * reading the connection shows what became of the peer. */
gyre_status_t boot_conn_send(boot_conn_t *conn, boot_type_t type, const void *data, size_t bytes);
void boot_conn_flush(boot_conn_t *conn);
int boot_conn_unsent(const boot_conn_t *conn); /* 1: wants POLLOUT */

typedef enum { BOOT_READ_SOME, BOOT_READ_AGAIN, BOOT_READ_EOF, BOOT_READ_ERROR } boot_read_t;
/* Reads once without blocking into conn->in, which holds at most `limit` bytes. ERROR: errno. */
boot_read_t boot_conn_read(boot_conn_t *conn, size_t limit);
/* 1: *message. 0: more bytes are needed. -1: garbled or forged, -2: no memory; *why is a static text. */
int boot_conn_next(boot_conn_t *conn, boot_message_t *message, const char **why);

typedef enum {
    BOOT_ROLE_JOIN = 1,   /* a rank that joins, to rank 0 */
    BOOT_ROLE_CHILD = 2,  /* then to its parent */
    BOOT_ROLE_RALLY = 3,  /* in a running job: to talk about a new membership */
    BOOT_ROLE_MEMBER = 4, /* to the parent in the tree of a new membership */
    BOOT_ROLE_NEW = 5,    /* a process that wants to become a rank; rank -1, wanted -1 */
    BOOT_ROLE_ASK = 6     /* a rank that cannot reach its parent, to rank 0: who is missing? */
} boot_role_t;
typedef struct {
    int role, rank, size, wanted;
    uint32_t epoch; /* that the sender is in */
} boot_hello_t;

/* Both magics are six letters, the version's digit and a newline. */
enum { BOOT_VERSION = 2, BOOT_MAGIC_BYTES = 8 };
extern const unsigned char boot_challenge_magic[BOOT_MAGIC_BYTES];

/* Server's side. The version of a hello that begins with these bytes; 0: it is no hello. */
int boot_hello_version(const unsigned char magic[BOOT_MAGIC_BYTES]);
/* hello: the 64 bytes received. 0: not a hello of this version. */
int boot_hello_parse(const unsigned char hello[BOOT_HELLO_BYTES], boot_hello_t *out);
void boot_challenge_make(const unsigned char key[32], const unsigned char hello[BOOT_HELLO_BYTES],
                         unsigned char challenge[BOOT_CHALLENGE_BYTES]);
/* 1 if the proof is right; the session keys of `conn` are then set. */
int boot_proof_check(const unsigned char key[32], const unsigned char hello[BOOT_HELLO_BYTES],
                     const unsigned char challenge[BOOT_CHALLENGE_BYTES],
                     const unsigned char proof[BOOT_PROOF_BYTES], boot_conn_t *conn);

/* For texts: who says hello, "rank 3" or "this newcomer", and to whom, "rank 0" or "the job". */
enum { BOOT_WHO = 24 };
const char *boot_hello_from(const boot_hello_t *hello, char text[BOOT_WHO]);
const char *boot_hello_to(const boot_hello_t *hello, char text[BOOT_WHO]);

/* Client's side, in steps. answer: 0: the other side does not know the secret or is not a Gyre of this
 * version. Else `proof` is to be sent, and the session keys of `conn` are set. */
void boot_hello_make(const boot_hello_t *hello, unsigned char out[BOOT_HELLO_BYTES]);
int boot_challenge_answer(const unsigned char key[32], const unsigned char hello[BOOT_HELLO_BYTES],
                          const unsigned char challenge[BOOT_CHALLENGE_BYTES], boot_conn_t *conn,
                          unsigned char proof[BOOT_PROOF_BYTES]);
/* Client's side, blocking until `deadline`. All quiet: AUTH: the other side does not know the secret.
 * BOOTSTRAP: it is not a Gyre process. TRANSPORT: closed or failed before it answered; trying again may help.
 * TIMEOUT. */
gyre_status_t boot_hand_shake(boot_conn_t *conn, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline);
/* Logs what a handshake met that is not tried again: AUTH, BOOTSTRAP or TIMEOUT. Returns st. */
gyre_status_t boot_hand_shake_failed(gyre_status_t st);
/* connect.c: connects to rank 0 at `root` and shakes hands; tries again until `deadline` while that may help.
 * BOOTSTRAP, AUTH, TIMEOUT, INVALID. On success *conn is to be closed by the caller. */
gyre_status_t boot_reach_root(const char *root, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline, boot_conn_t *conn);
/* Waits for and reads one message. TRANSPORT (quiet): closed. TIMEOUT (quiet). FORMAT. */
gyre_status_t boot_conn_receive(boot_conn_t *conn, boot_message_t *message, base_time_t deadline);

/* Little-endian fields. */
static inline void boot_put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}
static inline void boot_put64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}
static inline uint32_t boot_get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t boot_get64(const unsigned char *p)
{
    return (uint64_t)boot_get32(p) | (uint64_t)boot_get32(p + 4) << 32;
}

#endif
