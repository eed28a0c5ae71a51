/* comm/boot/admit.c: see admit.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "comm/boot/admit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "comm/boot/tree.h"
#include "comm/net/held.h"

#define HANDSHAKE_SECONDS 10.0 /* for a whole handshake: a rank on a crowded machine needs a while */
#define ROOM_NS           ((base_time_t)500000000) /* of it, even if others want the place */

void boot_count_messages(comm_boot_t *boot, const boot_conn_t *conn)
{
    boot->past_messages += conn->count_in + conn->count_out;
}

static void end(boot_stranger_t *stranger)
{
    boot_conn_close(&stranger->conn);
    stranger->state = STRANGER_GONE;
}

static void refuse(boot_admit_t *admit, boot_stranger_t *stranger, boot_refused_t kind, const char *why)
{
    boot_refuse(&admit->refused, kind, "bootstrap", stranger->conn.where, why);
    end(stranger);
    admit->rest = 0; /* there is a descriptor */
}

void boot_admit_open(boot_admit_t *admit, comm_boot_t *boot, const boot_admit_rules_t *rules, void *user,
                     int fd)
{
    *admit = (boot_admit_t){.boot = boot, .rules = rules, .user = user, .fd = fd};
}

void boot_admit_close(boot_admit_t *admit)
{
    for (int i = 0; i < admit->strangers_n; i++)
        end(&admit->strangers[i]);
    free(admit->strangers);
    admit->strangers = NULL;
    admit->strangers_n = 0;
    admit->strangers_cap = 0;
    boot_refusals_sum(&admit->refused, "bootstrap");
}

/* ---- the handshake ------------------------------------------------------------------------------------- */

/* It speaks something else. Another version of us is answered to with our own, so that it knows, too. */
static void refuse_version(boot_admit_t *admit, boot_stranger_t *stranger, int version)
{
    char why[96];
    if (version == 0) {
        refuse(admit, stranger, BOOT_REFUSED_STRANGE, "it does not speak Gyre's bootstrap");
        return;
    }
    if (boot_buf_add(&stranger->conn.out, boot_challenge_magic, BOOT_MAGIC_BYTES))
        boot_conn_flush(&stranger->conn);
    snprintf(why, sizeof(why), "it speaks version %d of the bootstrap, this rank version %d", version,
             BOOT_VERSION);
    refuse(admit, stranger, BOOT_REFUSED_VERSION, why);
}

/* Its first bytes: it is challenged once its hello is complete, or sent away. 0: more bytes are needed. */
static int greet(boot_admit_t *admit, boot_stranger_t *stranger)
{
    boot_conn_t *conn = &stranger->conn;
    size_t have = boot_buf_len(&conn->in);
    if (have < BOOT_MAGIC_BYTES)
        return 0;
    int version = boot_hello_version(conn->in.data + conn->in.from);
    if (version != BOOT_VERSION) {
        refuse_version(admit, stranger, version);
        return 1;
    }
    if (have < BOOT_HELLO_BYTES)
        return 0;
    memcpy(stranger->hello_text, conn->in.data + conn->in.from, BOOT_HELLO_BYTES);
    conn->in.from += BOOT_HELLO_BYTES;
    boot_challenge_make(admit->boot->auth_key, stranger->hello_text, stranger->challenge);
    if (!boot_hello_parse(stranger->hello_text, &stranger->hello)) {
        refuse(admit, stranger, BOOT_REFUSED_STRANGE, "its hello is malformed");
    } else if (!boot_buf_add(&conn->out, stranger->challenge, BOOT_CHALLENGE_BYTES)) {
        refuse(admit, stranger, BOOT_REFUSED_MEMORY, "no memory");
    } else {
        stranger->state = STRANGER_PROOF;
        boot_conn_flush(conn);
    }
    return 1;
}

static boot_admit_fn rule_for(const boot_admit_rules_t *rules, int role)
{
    for (int i = 0; i < BOOT_ADMIT_ROLES && rules->may[i].admit != NULL; i++)
        if ((int)rules->may[i].role == role)
            return rules->may[i].admit;
    return rules->others;
}

/* Takes its proof: it is let in, or sent away. 0: more bytes are needed. */
static int check(boot_admit_t *admit, boot_stranger_t *stranger)
{
    boot_conn_t *conn = &stranger->conn;
    if (boot_buf_len(&conn->in) < BOOT_PROOF_BYTES)
        return 0;
    conn->in.from += BOOT_PROOF_BYTES;
    admit->boot->past_messages += BOOT_HANDSHAKE_MESSAGES;
    if (!boot_proof_check(admit->boot->auth_key, stranger->hello_text, stranger->challenge,
                          conn->in.data + conn->in.from - BOOT_PROOF_BYTES, conn)) {
        refuse(admit, stranger, BOOT_REFUSED_SECRET, "it does not know the job's secret");
        return 1;
    }
    rule_for(admit->rules, stranger->hello.role)(admit->user, stranger);
    end(stranger);
    return 1;
}

static int step(boot_admit_t *admit, boot_stranger_t *stranger)
{
    return stranger->state == STRANGER_HELLO ? greet(admit, stranger) : check(admit, stranger);
}

static void handle(boot_admit_t *admit, boot_stranger_t *stranger, short revents)
{
    size_t limit = stranger->state == STRANGER_HELLO ? BOOT_HELLO_BYTES : BOOT_PROOF_BYTES;
    if (revents & POLLOUT)
        boot_conn_flush(&stranger->conn);
    if (!(revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)))
        return;
    boot_read_t got = boot_conn_read(&stranger->conn, limit);
    const int no_memory = got == BOOT_READ_ERROR && errno == ENOMEM;
    while (stranger->state != STRANGER_GONE && step(admit, stranger))
        ;
    if (stranger->state == STRANGER_GONE || got == BOOT_READ_SOME || got == BOOT_READ_AGAIN)
        return;
    if (no_memory)
        refuse(admit, stranger, BOOT_REFUSED_MEMORY, "no memory");
    else if (stranger->state == STRANGER_PROOF)
        refuse(admit, stranger, BOOT_REFUSED_SECRET,
               "it closed during the handshake: its secret or job id may differ");
    else
        refuse(admit, stranger, BOOT_REFUSED_CLOSED, "it closed during the handshake");
}

/* ---- places -------------------------------------------------------------------------------------------- */

/* The one that came first and is still here; NULL: none. */
static boot_stranger_t *oldest(const boot_admit_t *admit)
{
    for (int i = 0; i < admit->strangers_n; i++)
        if (admit->strangers[i].state != STRANGER_GONE)
            return &admit->strangers[i];
    return NULL;
}

static int strangers(const boot_admit_t *admit)
{
    int n = 0;
    for (int i = 0; i < admit->strangers_n; i++)
        n += admit->strangers[i].state != STRANGER_GONE;
    return n;
}

/* When the next one can be accepted: 0: at once. */
static base_time_t room_at(const boot_admit_t *admit)
{
    if (admit->rest != 0 || strangers(admit) < admit->rules->most)
        return admit->rest;
    return oldest(admit)->since + ROOM_NS;
}

/* The stranger that came first goes, if it has had its time. */
static int make_room(boot_admit_t *admit)
{
    boot_stranger_t *first = oldest(admit);
    if (first == NULL || base_now() - first->since < ROOM_NS)
        return 0;
    refuse(admit, first, BOOT_REFUSED_SLOW, "it was slow to prove who it is, and others wait");
    return 1;
}

/* Nobody is accepted for a while, else poll(2) would not let us sleep. */
static int rest(boot_admit_t *admit, int err)
{
    const boot_stranger_t *first = oldest(admit);
    base_time_t now = base_now();
    admit->rest = first != NULL && first->since + ROOM_NS > now ? first->since + ROOM_NS : now + ROOM_NS;
    return err;
}

/* 0: memory. */
static int add(boot_admit_t *admit, int fd)
{
    if (!base_grow(&admit->strangers, &admit->strangers_cap, (size_t)admit->strangers_n, 1,
                   sizeof(*admit->strangers)))
        return 0;
    boot_stranger_t *stranger = &admit->strangers[admit->strangers_n++];
    memset(stranger, 0, sizeof(*stranger));
    boot_socket_tune(fd);
    boot_conn_open(&stranger->conn, fd);
    stranger->state = STRANGER_HELLO;
    stranger->since = base_now();
    stranger->deadline = base_deadline(HANDSHAKE_SECONDS);
    return 1;
}

/* Takes all who knock, as far as there is room. */
static int accept_all(boot_admit_t *admit)
{
    while (room_at(admit) <= base_now()) {
        int fd = boot_accept(admit->fd);
        if (fd >= 0) {
            if (strangers(admit) >= admit->rules->most)
                (void)make_room(admit); /* the condition above says that it can */
            if (add(admit, fd))
                continue;
            boot_let_go(fd);
            return rest(admit, ENOMEM);
        }
        switch (errno) {
        case EAGAIN:
            return 0;
        case EMFILE:
        case ENFILE:
            if (!make_room(admit))
                return rest(admit, errno);
            break;
        case EINTR: /* and what ended one that waited */
        case ECONNABORTED:
        case EPROTO:
        case EPERM:
        case ENETDOWN:
        case EHOSTUNREACH:
        case ENETUNREACH:
            break;
        default:
            return rest(admit, errno);
        }
    }
    return 0;
}

/* ---- the loop that polls ------------------------------------------------------------------------------- */

int boot_admit_count(const boot_admit_t *admit)
{
    return 1 + admit->strangers_n;
}

int boot_admit_polls(const boot_admit_t *admit, struct pollfd *polls, int room)
{
    int n = 0;
    if (room > 0 && admit->fd >= 0 && room_at(admit) <= base_now())
        polls[n++] = (struct pollfd){.fd = admit->fd, .events = POLLIN};
    for (int i = 0; i < admit->strangers_n && n < room; i++) {
        const boot_stranger_t *stranger = &admit->strangers[i];
        if (stranger->state == STRANGER_GONE)
            continue;
        polls[n] = (struct pollfd){.fd = stranger->conn.fd, .events = POLLIN};
        if (boot_conn_unsent(&stranger->conn))
            polls[n].events |= POLLOUT;
        n++;
    }
    return n;
}

int boot_admit_handle(boot_admit_t *admit, const struct pollfd *poll)
{
    if (poll->revents == 0)
        return 0;
    if (poll->fd == admit->fd)
        return accept_all(admit);
    for (int i = 0; i < admit->strangers_n; i++) {
        boot_stranger_t *stranger = &admit->strangers[i];
        if (stranger->state != STRANGER_GONE && stranger->conn.fd == poll->fd) {
            handle(admit, stranger, poll->revents);
            break;
        }
    }
    return 0;
}

base_time_t boot_admit_tick(boot_admit_t *admit, base_time_t now)
{
    base_time_t next = BASE_TIME_NEVER;
    int kept = 0;
    for (int i = 0; i < admit->strangers_n; i++) {
        boot_stranger_t *stranger = &admit->strangers[i];
        if (stranger->state != STRANGER_GONE && stranger->deadline <= now)
            refuse(admit, stranger, BOOT_REFUSED_SLOW, "it took too long to prove who it is");
        if (stranger->state == STRANGER_GONE)
            continue;
        if (stranger->deadline < next)
            next = stranger->deadline;
        if (kept != i)
            admit->strangers[kept] = *stranger;
        kept++;
    }
    admit->strangers_n = kept;
    if (admit->rest <= now)
        admit->rest = 0;
    base_time_t room = room_at(admit);
    return room > now && room < next ? room : next;
}
