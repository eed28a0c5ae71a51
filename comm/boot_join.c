/* comm/boot_join.c: how a rank finds its place in the tree.
 *
 *     rank r                            rank 0                            parent of r
 *     connect, prove the secret  ---->  (any number of strangers may knock meanwhile)
 *     "I listen at A"            ---->  notes A; once r's parent has said where it listens:
 *                                <----  "your parent is p at B"
 *     closes (unless p is 0)
 *     connect, prove the secret  ------------------------------------->  r is my child: keeps the connection
 *
 * The gate is a listening socket and its guests, whose handshakes go on side by side in one poll loop: a guest that
 * says nothing, or garbage, costs one place until its own deadline and disturbs nobody. When all places for guests
 * without a proof are taken and somebody knocks, the one that has had its place longest, and long enough for an honest
 * rank, must go; an honest rank that was too slow even so comes again. So strangers can delay a rank, but not for long:
 * the queue before it shrinks by STRANGERS_MAX each PATIENCE_SECONDS. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/boot_refuse.h"
#include "comm/boot_tree.h"

enum {
    STRANGERS_MAX = 256, /* guests without a proof at one time; more wait in the kernel's backlog */
    RETRY_MS = 20,       /* before a rank whose handshake was cut off tries again */
    RECEIVE_LIMIT = BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC
};
#define HANDSHAKE_SECONDS 10.0 /* for a whole handshake: a rank on a crowded machine needs a while */
#define PATIENCE_SECONDS  0.5  /* of it, even if others want the place */

typedef enum {
    GUEST_HELLO,   /* its hello is awaited */
    GUEST_PROOF,   /* then its proof */
    GUEST_ADDRESS, /* then where it listens (rank 0 only) */
    GUEST_WAITING, /* its parent is not known yet */
    GUEST_LEAVING, /* has all it needs, or was refused: closes */
    GUEST_GONE
} guest_state_t;

typedef struct {
    boot_conn_t conn;
    guest_state_t state;
    base_time_t since, deadline;
    boot_hello_t hello;
    unsigned char hello_text[BOOT_HELLO_BYTES];
    unsigned char challenge[BOOT_CHALLENGE_BYTES];
} guest_t;

typedef struct {
    comm_boot_t *boot;
    int fd;
    int inherited;
    guest_t *guests;
    int guests_n, guests_cap;
    boot_refusals_t refused;
    int full;            /* out of descriptors: takes nobody until a guest has gone, or none will */
    boot_addr_t *places; /* rank 0: [size], where each rank listens; family 0: has not joined */
    int missing;         /* rank 0: ranks that have not joined */
} gate_t;

/* Counts what went over a connection that is about to be closed. */
static void count_messages(comm_boot_t *boot, const boot_conn_t *conn)
{
    boot->past_messages += conn->count_in + conn->count_out;
}

static void guest_drop(gate_t *gate, guest_t *guest)
{
    if ((guest->state == GUEST_WAITING) && gate->places != NULL) {
        gate->places[guest->hello.rank].sa.sa_family = 0; /* it may come again */
        gate->missing++;
        log_warning("bootstrap: rank %d at %s went away while it joined", guest->hello.rank,
                    guest->conn.where);
    }
    count_messages(gate->boot, &guest->conn);
    boot_conn_close(&guest->conn);
    guest->state = GUEST_GONE;
}

static void guest_refuse(gate_t *gate, guest_t *guest, boot_refused_t kind, const char *why)
{
    boot_refuse(&gate->refused, kind, "bootstrap", guest->conn.where, why);
    guest_drop(gate, guest);
}

/* An authenticated rank that cannot be let in hears why. */
static void guest_reject(gate_t *gate, guest_t *guest, const char *text)
{
    log_warning("bootstrap: rank %d at %s is not let in: %s", guest->hello.rank, guest->conn.where, text);
    if (boot_conn_send(&guest->conn, BOOT_REJECT, text, strlen(text)) != GYRE_OK) {
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    guest->state = GUEST_LEAVING;
    guest->deadline = base_deadline(1.0);
}

/* Tells a guest its parent. A parent on rank 0's own host may know itself by a loopback address only (its host's name
 * means 127.0.1.1 there): a guest from elsewhere is told the address at which it reached this host. */
static void guest_tell(gate_t *gate, guest_t *guest, int parent)
{
    unsigned char frame[4 + BOOT_ADDR_BYTES] = {0};
    boot_put32(frame, (uint32_t)parent);
    if (parent > 0) {
        boot_addr_t addr = gate->places[parent];
        boot_addr_t here;
        if (boot_addr_is_loopback(&addr) && boot_addr_of(guest->conn.fd, 0, &here) &&
            !boot_addr_is_loopback(&here)) {
            boot_addr_set_port(&here, boot_addr_port(&addr));
            addr = here;
        }
        boot_addr_pack(&addr, frame + 4);
    }
    if (boot_conn_send(&guest->conn, BOOT_PARENT, frame, sizeof(frame)) != GYRE_OK) {
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    if (parent == 0) {
        boot_edge_adopt(boot_edge_of(gate->boot, guest->hello.rank), &guest->conn);
        guest->state = GUEST_GONE;
    } else {
        guest->state = GUEST_LEAVING;
        guest->deadline = base_deadline(HANDSHAKE_SECONDS);
    }
}

/* Rank 0: a rank says where it listens. */
static void guest_register(gate_t *gate, guest_t *guest, const boot_message_t *m)
{
    boot_addr_t addr;
    int rank = guest->hello.rank;
    if (m->type != BOOT_JOIN || m->bytes != BOOT_ADDR_BYTES || !boot_addr_unpack(m->data, &addr)) {
        guest_refuse(gate, guest, BOOT_REFUSED_GARBLED, "its address is malformed");
        return;
    }
    gate->places[rank] = addr;
    gate->missing--;
    log_debug("bootstrap: rank %d joined from %s", rank, guest->conn.where);
    int parent = boot_tree_parent(rank);
    guest->state = GUEST_WAITING;
    guest->deadline = BASE_TIME_NEVER;
    if (parent == 0 || gate->places[parent].sa.sa_family != 0)
        guest_tell(gate, guest, parent);
    for (int i = 0; i < gate->guests_n; i++) {
        guest_t *other = &gate->guests[i];
        if (other->state == GUEST_WAITING && boot_tree_parent(other->hello.rank) == rank)
            guest_tell(gate, other, rank);
    }
}

/* The guest has proved the secret: is there a place for it? */
static void guest_admit(gate_t *gate, guest_t *guest)
{
    comm_boot_t *boot = gate->boot;
    const boot_hello_t *h = &guest->hello;
    char text[BOOT_TEXT];
    boot_edge_t *edge = boot_edge_of(boot, h->rank);
    if (h->size != boot->size) {
        snprintf(text, sizeof(text), "it says that the job has %d ranks, but rank %d says %d", h->size,
                 boot->rank, boot->size);
        guest_reject(gate, guest, text);
    } else if (h->wanted != boot->rank || h->rank <= 0 || h->rank >= boot->size ||
               h->role > BOOT_ROLE_CHILD || (h->role == BOOT_ROLE_JOIN) != (boot->rank == 0) ||
               (h->role == BOOT_ROLE_CHILD && (edge == NULL || h->rank < boot->rank))) {
        snprintf(text, sizeof(text), "rank %d has no place at rank %d of %d", h->rank, boot->rank,
                 boot->size);
        guest_reject(gate, guest, text);
    } else if (h->role == BOOT_ROLE_JOIN ? gate->places[h->rank].sa.sa_family != 0 : edge->open) {
        snprintf(text, sizeof(text),
                 "rank %d joined twice: each rank number may be given to one process only", h->rank);
        guest_reject(gate, guest, text);
    } else if (h->role == BOOT_ROLE_CHILD) {
        boot_edge_adopt(edge, &guest->conn);
        guest->state = GUEST_GONE;
    } else {
        guest->state = GUEST_ADDRESS;
    }
}

/* The guest speaks something else. Another version of us is answered to with our own, so that it knows, too. */
static void guest_foreign(gate_t *gate, guest_t *guest, int version)
{
    char why[96];
    if (version == 0) {
        guest_refuse(gate, guest, BOOT_REFUSED_STRANGE, "it does not speak Gyre's bootstrap");
        return;
    }
    if (boot_buf_add(&guest->conn.out, boot_challenge_magic, BOOT_MAGIC_BYTES))
        boot_conn_flush(&guest->conn);
    snprintf(why, sizeof(why), "it speaks version %d of the bootstrap, this rank version %d", version,
             BOOT_VERSION);
    guest_refuse(gate, guest, BOOT_REFUSED_VERSION, why);
}

/* The first bytes of a guest: it is challenged once its hello is complete, or sent away. 0: more bytes are needed. */
static int guest_greet(gate_t *gate, guest_t *guest)
{
    boot_conn_t *conn = &guest->conn;
    size_t have = boot_buf_len(&conn->in);
    if (have < BOOT_MAGIC_BYTES)
        return 0;
    int version = boot_hello_version(conn->in.data + conn->in.from);
    if (version != BOOT_VERSION) {
        guest_foreign(gate, guest, version);
        return 1;
    }
    if (have < BOOT_HELLO_BYTES)
        return 0;
    memcpy(guest->hello_text, conn->in.data + conn->in.from, BOOT_HELLO_BYTES);
    conn->in.from += BOOT_HELLO_BYTES;
    boot_challenge_make(gate->boot->auth_key, guest->hello_text, guest->challenge);
    if (!boot_hello_parse(guest->hello_text, &guest->hello)) {
        guest_refuse(gate, guest, BOOT_REFUSED_STRANGE, "its hello is malformed");
    } else if (!boot_buf_add(&conn->out, guest->challenge, BOOT_CHALLENGE_BYTES)) {
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
    } else {
        guest->state = GUEST_PROOF;
        boot_conn_flush(conn);
    }
    return 1;
}

/* Advances a guest by one message; 0: more bytes are needed. */
static int guest_step(gate_t *gate, guest_t *guest)
{
    boot_conn_t *conn = &guest->conn;
    boot_message_t m;
    const char *why;
    size_t have = boot_buf_len(&conn->in);
    switch (guest->state) {
    case GUEST_HELLO:
        return guest_greet(gate, guest);
    case GUEST_PROOF:
        if (have < BOOT_PROOF_BYTES)
            return 0;
        conn->in.from += BOOT_PROOF_BYTES;
        gate->boot->past_messages += BOOT_HANDSHAKE_MESSAGES;
        if (boot_proof_check(gate->boot->auth_key, guest->hello_text, guest->challenge,
                             conn->in.data + conn->in.from - BOOT_PROOF_BYTES, conn))
            guest_admit(gate, guest);
        else
            guest_refuse(gate, guest, BOOT_REFUSED_SECRET, "it does not know the job's secret");
        return 1;
    case GUEST_ADDRESS:
    case GUEST_WAITING:
    case GUEST_LEAVING: {
        int got = boot_conn_next(conn, &m, &why);
        if (got < 0)
            guest_refuse(gate, guest, BOOT_REFUSED_GARBLED, why);
        else if (got == 1 && guest->state == GUEST_ADDRESS)
            guest_register(gate, guest, &m);
        else if (got == 1 && guest->state == GUEST_WAITING)
            guest_refuse(gate, guest, BOOT_REFUSED_GARBLED, "it sent more than it was asked for");
        return got == 1; /* what a leaving guest still says matters no more */
    }
    case GUEST_GONE:
        break;
    }
    return 0;
}

static void guest_handle(gate_t *gate, guest_t *guest, short revents)
{
    size_t limit = guest->state == GUEST_HELLO   ? BOOT_HELLO_BYTES
                   : guest->state == GUEST_PROOF ? BOOT_PROOF_BYTES
                                                 : RECEIVE_LIMIT;
    if (revents & POLLOUT)
        boot_conn_flush(&guest->conn);
    if (!(revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)))
        return;
    boot_read_t got = boot_conn_read(&guest->conn, limit);
    while (guest->state != GUEST_GONE && guest_step(gate, guest))
        ;
    if (guest->state == GUEST_GONE || got == BOOT_READ_SOME || got == BOOT_READ_AGAIN)
        return;
    if (guest->state == GUEST_LEAVING)
        guest_drop(gate, guest);
    else if (guest->state == GUEST_PROOF)
        guest_refuse(gate, guest, BOOT_REFUSED_SECRET,
                     "it closed during the handshake: its secret or job id may differ");
    else
        guest_refuse(gate, guest, BOOT_REFUSED_CLOSED, "it closed during the handshake");
}

static int is_stranger(const guest_t *guest)
{
    return guest->state == GUEST_HELLO || guest->state == GUEST_PROOF;
}

static int strangers(const gate_t *gate)
{
    int n = 0;
    for (int i = 0; i < gate->guests_n; i++)
        n += is_stranger(&gate->guests[i]);
    return n;
}

/* When the place of a stranger may be given to another: at once (0) while some are free. */
static base_time_t gate_room_at(const gate_t *gate)
{
    if (!gate->full && strangers(gate) < STRANGERS_MAX)
        return 0;
    for (int i = 0; i < gate->guests_n; i++) /* in the order in which they came */
        if (is_stranger(&gate->guests[i]))
            return gate->guests[i].since + (base_time_t)(PATIENCE_SECONDS * 1e9);
    return BASE_TIME_NEVER;
}

/* Makes room by sending away the stranger that came first, if its time is over. 0: it is not. */
static int gate_make_room(gate_t *gate)
{
    if (gate_room_at(gate) > base_now())
        return 0;
    for (int i = 0; i < gate->guests_n; i++)
        if (is_stranger(&gate->guests[i])) {
            guest_refuse(gate, &gate->guests[i], BOOT_REFUSED_SLOW,
                         "it was slow to prove who it is, and others wait");
            gate->full = 0;
            return 1;
        }
    return 0;
}

/* Guests that may go soon. */
static int passing(const gate_t *gate)
{
    int n = strangers(gate);
    for (int i = 0; i < gate->guests_n; i++)
        n += gate->guests[i].state == GUEST_LEAVING;
    return n;
}

/* Takes whoever knocks. */
static gyre_status_t gate_accept(gate_t *gate)
{
    while (gate_room_at(gate) <= base_now()) {
        if (gate->guests_n == gate->guests_cap) {
            int cap = gate->guests_cap < 8 ? 16 : gate->guests_cap * 2;
            guest_t *more = realloc(gate->guests, (size_t)cap * sizeof(*more));
            if (more == NULL)
                return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
            gate->guests = more;
            gate->guests_cap = cap;
        }
        int fd = accept4(gate->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            if (strangers(gate) >= STRANGERS_MAX)
                (void)gate_make_room(gate); /* the condition above says that it can */
            guest_t *guest = &gate->guests[gate->guests_n++];
            memset(guest, 0, sizeof(*guest));
            boot_socket_tune(fd);
            boot_conn_open(&guest->conn, fd);
            guest->state = GUEST_HELLO;
            guest->since = base_now();
            guest->deadline = base_deadline(HANDSHAKE_SECONDS);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return GYRE_OK;
        } else if (errno == EMFILE || errno == ENFILE) {
            gate->full = 1;
            if (gate_make_room(gate))
                continue;
            if (passing(gate) > 0)
                return GYRE_OK; /* some of their places become free soon */
            return gyre_fail_errno(
                GYRE_ERR_NO_MEMORY, errno,
                "rank %d ran out of descriptors while %d ranks joined: raise the limit (ulimit -n)",
                gate->boot->rank, gate->guests_n);
        } else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO && errno != EPERM &&
                   errno != ENETDOWN && errno != EHOSTUNREACH && errno != ENETUNREACH) {
            return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "accept");
        }
    }
    return GYRE_OK;
}

/* Forgets guests that are gone and closes those whose time is over; returns the nearest deadline. */
static base_time_t gate_tidy(gate_t *gate, base_time_t deadline)
{
    base_time_t now = base_now();
    int kept = 0;
    for (int i = 0; i < gate->guests_n; i++) {
        guest_t *guest = &gate->guests[i];
        if (guest->state == GUEST_LEAVING && guest->deadline <= now)
            guest_drop(gate, guest);
        else if (guest->state != GUEST_GONE && guest->deadline <= now)
            guest_refuse(gate, guest, BOOT_REFUSED_SLOW, "it took too long to prove who it is");
        if (guest->state == GUEST_GONE)
            continue;
        if (guest->deadline < deadline)
            deadline = guest->deadline;
        if (kept != i)
            gate->guests[kept] = *guest;
        kept++;
    }
    int fewer = kept < gate->guests_n;
    gate->guests_n = kept;
    if (fewer || passing(gate) == 0)
        gate->full = 0;
    return deadline;
}

/* One turn of the poll loop over the socket, the guests and the edges that exist already. */
static gyre_status_t gate_turn(gate_t *gate, base_time_t deadline)
{
    comm_boot_t *boot = gate->boot;
    boot_edge_t *edges[BOOT_EDGES_MAX];
    base_time_t until = gate_tidy(gate, deadline);
    base_time_t room_at = gate_room_at(gate);
    int open = room_at <= base_now();
    int guests_n = gate->guests_n;
    if (!open && room_at < until)
        until = room_at;
    struct pollfd *polls = calloc((size_t)guests_n + 1 + BOOT_EDGES_MAX, sizeof(*polls));
    if (polls == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    for (int i = 0; i < guests_n; i++) {
        polls[i].fd = gate->guests[i].conn.fd;
        polls[i].events = (short)(boot_conn_unsent(&gate->guests[i].conn) ? POLLIN | POLLOUT : POLLIN);
    }
    pthread_mutex_lock(&boot->lock);
    int edges_n = boot_polls(boot, polls + guests_n + 1, edges);
    pthread_mutex_unlock(&boot->lock);
    polls[guests_n].fd = open ? gate->fd : -1;
    polls[guests_n].events = POLLIN;
    int n = poll(polls, (nfds_t)(guests_n + 1 + edges_n), base_poll_ms(until));
    gyre_status_t st = n < 0 && errno != EINTR ? gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "poll") : GYRE_OK;
    pthread_mutex_lock(&boot->lock);
    for (int i = 0; i < edges_n && n > 0; i++)
        boot_handle(boot, edges[i], polls[guests_n + 1 + i].revents);
    for (int i = 0; i < guests_n && n > 0; i++)
        if (polls[i].revents != 0 && gate->guests[i].state != GUEST_GONE)
            guest_handle(gate, &gate->guests[i], polls[i].revents);
    pthread_mutex_unlock(&boot->lock);
    if (st == GYRE_OK && n > 0 && polls[guests_n].revents != 0)
        st = gate_accept(gate);
    free(polls);
    return st;
}

/* The ranks that are not here, such as "2, 5-7". */
static void list_missing(const gate_t *gate, char *text, size_t bytes)
{
    const comm_boot_t *boot = gate->boot;
    size_t used = 0;
    text[0] = '\0';
    for (int r = 1; r < boot->size; r++) {
        int first = r;
        while (r < boot->size) {
            const boot_edge_t *edge = boot_edge_of(gate->boot, r);
            if (gate->places != NULL ? gate->places[r].sa.sa_family != 0
                                     : r < boot->rank || edge == NULL || edge->open)
                break;
            r++;
        }
        if (r == first)
            continue;
        int n = r - first > 1 ? snprintf(text + used, bytes - used, "%s%d-%d", used ? ", " : "", first, r - 1)
                              : snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", first);
        if (n < 0 || (size_t)n >= bytes - used) {
            snprintf(text + (bytes > 8 ? bytes - 8 : 0), 8, ", ...");
            return;
        }
        used += (size_t)n;
    }
}

static int gate_done(const gate_t *gate)
{
    const comm_boot_t *boot = gate->boot;
    for (int i = 0; i < boot->edges_n; i++)
        if (!boot->edges[i].open)
            return 0;
    if (gate->missing > 0)
        return 0;
    for (int i = 0; i < gate->guests_n; i++)
        if (gate->guests[i].state == GUEST_LEAVING && boot_conn_unsent(&gate->guests[i].conn))
            return 0;
    return 1;
}

/* Lets ranks in until everybody who belongs here has come. */
static gyre_status_t gate_keep(gate_t *gate, base_time_t deadline)
{
    comm_boot_t *boot = gate->boot;
    char who[160];
    while (!gate_done(gate)) {
        gyre_status_t st = gate_turn(gate, deadline);
        if (st != GYRE_OK)
            return st;
        const boot_abort_t *abort = boot_abort_of(boot, BOOT_ABORT_JOB);
        if (abort != NULL)
            return gyre_fail(abort->status, "%s", abort->text);
        const boot_death_t *death = boot_first_death(boot, NULL, 0);
        if (death != NULL)
            return gyre_fail(GYRE_ERR_PEER_DEAD, "rank %d died while the job was joining: %s", death->rank,
                             death->left ? "it left after an error" : death->how);
        for (int i = 0; i < boot->edges_n; i++)
            if (boot->edges[i].left)
                return gyre_fail(GYRE_ERR_BOOTSTRAP, "rank %d left while the job was joining",
                                 boot->edges[i].rank);
        if (gate_done(gate) || base_poll_ms(deadline) != 0)
            continue;
        list_missing(gate, who, sizeof(who));
        if (gate->places != NULL)
            return gyre_fail(
                GYRE_ERR_TIMEOUT,
                "rank 0 waited in vain for rank(s) %s to join (%d of %d are here): were they started, and "
                "with the same GYRE_ROOT?",
                who, boot->size - gate->missing, boot->size);
        return gyre_fail(GYRE_ERR_TIMEOUT, "rank %d waited in vain for its child rank(s) %s to connect",
                         boot->rank, who);
    }
    return GYRE_OK;
}

/* st: how it ended; ranks that still wait here are told. */
static void gate_close(gate_t *gate, gyre_status_t st)
{
    for (int i = 0; i < gate->guests_n; i++) {
        if (st != GYRE_OK && gate->guests[i].state == GUEST_WAITING)
            guest_reject(gate, &gate->guests[i], gyre_last_error());
        count_messages(gate->boot, &gate->guests[i].conn);
        boot_conn_close(&gate->guests[i].conn);
    }
    boot_refusals_sum(&gate->refused, "bootstrap");
    free(gate->guests);
    free(gate->places);
    if (gate->fd >= 0 && !gate->inherited)
        close(gate->fd);
}

static gyre_status_t join_as_root(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline)
{
    gate_t gate = {.boot = boot, .fd = -1, .missing = boot->size - 1};
    gate.places = calloc((size_t)boot->size, sizeof(*gate.places));
    gyre_status_t st =
        gate.places != NULL ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    if (st == GYRE_OK)
        st = boot_listen_root(who->root, who->root_fd, deadline, &gate.fd, &gate.inherited);
    if (st == GYRE_OK)
        st = gate_keep(&gate, deadline);
    gate_close(&gate, st);
    return st;
}

/* Joins at rank 0: *root is the connection, *gate_fd our listening socket (-1 if we have no children), *parent and
 * *addr what rank 0 said. */
static gyre_status_t ask_root(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline,
                              boot_conn_t *root, int *gate_fd, int *parent, boot_addr_t *addr)
{
    unsigned char packed[BOOT_ADDR_BYTES];
    boot_addr_t mine;
    boot_message_t m = {0};
    boot_hello_t hello = {BOOT_ROLE_JOIN, boot->rank, boot->size, 0, 0};
    gyre_status_t st = boot_reach_root(who->root, boot->auth_key, &hello, deadline, root);
    if (st != GYRE_OK)
        return st;
    boot->past_messages += BOOT_HANDSHAKE_MESSAGES;
    if (!boot_addr_of(root->fd, 0, &mine))
        return gyre_fail_errno(GYRE_ERR_BOOTSTRAP, errno, "the connection to rank 0 at %s failed",
                               root->where);
    boot->own_addr = mine;
    if (!boot_addr_of(root->fd, 1, &boot->root_addr))
        return gyre_fail_errno(GYRE_ERR_BOOTSTRAP, errno, "the connection to rank 0 at %s failed",
                               root->where);
    st = boot_listen_child(who->root, &mine, gate_fd);
    if (st != GYRE_OK)
        return st;
    boot_addr_pack(&mine, packed);
    st = boot_conn_send(root, BOOT_JOIN, packed, sizeof(packed));
    if (st == GYRE_OK)
        st = boot_conn_receive(root, &m, deadline);
    if (st == GYRE_ERR_TIMEOUT)
        return gyre_fail(
            st, "rank %d: rank 0 at %s did not name our parent, rank %d, in time: has it been started?",
            boot->rank, who->root, boot_tree_parent(boot->rank));
    if (st == GYRE_ERR_TRANSPORT)
        return gyre_fail(GYRE_ERR_BOOTSTRAP,
                         "rank %d: rank 0 at %s closed the connection while the job was joining", boot->rank,
                         who->root);
    if (st != GYRE_OK)
        return st;
    if (m.type == BOOT_REJECT)
        return gyre_fail(GYRE_ERR_BOOTSTRAP, "rank 0 at %s refuses rank %d: %.*s", who->root, boot->rank,
                         (int)base_min_size(m.bytes, BOOT_TEXT), (const char *)m.data);
    if (m.type != BOOT_PARENT || m.bytes != 4 + BOOT_ADDR_BYTES ||
        (int)boot_get32(m.data) != boot_tree_parent(boot->rank) ||
        (boot_get32(m.data) > 0 && !boot_addr_unpack(m.data + 4, addr)))
        return gyre_fail(GYRE_ERR_FORMAT, "rank 0 at %s sent a malformed answer", who->root);
    *parent = (int)boot_get32(m.data);
    return GYRE_OK;
}

/* Connects to a parent other than rank 0. Again if the handshake was cut off: a gate that strangers crowd does that. */
static gyre_status_t reach_parent(comm_boot_t *boot, int parent, const boot_addr_t *addr,
                                  base_time_t deadline, boot_conn_t *conn)
{
    boot_hello_t hello = {BOOT_ROLE_CHILD, boot->rank, boot->size, parent, 0};
    char where[BOOT_ADDR_TEXT];
    gyre_status_t st;
    boot_addr_text(addr, where);
    for (;;) {
        int err = 0;
        int fd = boot_dial(addr, deadline, &err);
        if (fd < 0)
            return gyre_fail_errno(
                err == ETIMEDOUT ? GYRE_ERR_TIMEOUT : GYRE_ERR_BOOTSTRAP, err,
                "rank %d cannot connect to its parent, rank %d at %s (is a firewall between them? "
                "GYRE_PORT_RANGE and GYRE_INTERFACE choose where ranks listen)",
                boot->rank, parent, where);
        boot_conn_open(conn, fd);
        st = boot_hand_shake(conn, boot->auth_key, &hello, deadline);
        if (st != GYRE_ERR_TRANSPORT || base_poll_ms(deadline) == 0)
            break;
        boot_conn_close(conn);
        poll(NULL, 0, RETRY_MS);
    }
    if (st == GYRE_ERR_TIMEOUT || st == GYRE_ERR_TRANSPORT)
        return gyre_fail(st == GYRE_ERR_TIMEOUT ? st : GYRE_ERR_BOOTSTRAP,
                         "rank %d: its parent, rank %d at %s, %s the handshake", boot->rank, parent, where,
                         st == GYRE_ERR_TIMEOUT ? "did not finish" : "closed the connection during");
    return st;
}

static gyre_status_t join_as_other(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline)
{
    gate_t gate = {.boot = boot, .fd = -1};
    boot_conn_t conn = {.fd = -1};
    boot_addr_t addr;
    int parent = -1;
    gyre_status_t st = ask_root(boot, who, deadline, &conn, &gate.fd, &parent, &addr);
    if (st == GYRE_OK && parent > 0) {
        count_messages(boot, &conn);
        boot_conn_close(&conn);
        st = reach_parent(boot, parent, &addr, deadline, &conn);
        boot->past_messages += st == GYRE_OK ? BOOT_HANDSHAKE_MESSAGES : 0;
    }
    if (st == GYRE_OK) {
        boot_edge_adopt(&boot->edges[0], &conn);
        pthread_mutex_lock(&boot->lock);
        boot_handle(boot, &boot->edges[0], POLLIN); /* what came together with the answer */
        pthread_mutex_unlock(&boot->lock);
        st = gate_keep(&gate, deadline);
    }
    boot_conn_close(&conn);
    gate_close(&gate, st);
    return st;
}

gyre_status_t boot_join_tree(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline)
{
    return boot->rank == 0 ? join_as_root(boot, who, deadline) : join_as_other(boot, who, deadline);
}
