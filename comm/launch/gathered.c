/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/gathered.c: identities for jobs that a program makes itself: by an all-gather of its own, or by
 * a unique id, which it passes on. Neither takes anything from a launcher or from GYRE_ variables but where
 * to listen. Rank 0 makes the secret and listens.
 *
 * The all-gather runs twice: who is there and on which host; then rank 0's card (card.h). All rows are
 * checked: what the program's function does is not ours.
 *
 * A unique id is "GYREID1", a NUL, 32 bytes of secret, 8 of the job's name, and the addresses of rank 0 as
 * text. */
#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/identity.h"
#include "base/settings/settings.h"
#include "base/thread/aside.h"
#include "comm/launch/card.h"
#include "comm/launch/internal.h"
#include "comm/net/address.h"

enum { CARD_BYTES = 384, GUARD = 64, ERROR_BYTES = 180 };
static const char magic[8] = "GYROW1\n";

typedef struct {
    char magic[8];
    uint32_t round, rank, size, status;
    uint64_t name; /* hash of the job's name */
    uint64_t host; /* hint: the same for ranks that reach each other by loopback */
    uint64_t job;  /* round 2, rank 0's: random */
    char card[CARD_BYTES];
    uint64_t check;
} row_t;

static uint64_t check_of(const row_t *row)
{
    return base_hash64(row, offsetof(row_t, check), 7);
}

/* What does not fit of the row that came for rank `r`, or NULL. */
static const char *wrong(const row_t *row, const row_t *mine, int r)
{
    if (memcmp(row->magic, magic, sizeof(magic)) != 0)
        return "what stands there does not come from this call of a rank";
    if (row->check != check_of(row))
        return "its bytes were changed";
    if (row->round != mine->round)
        return "it is of another call of the function";
    if (row->rank != (uint32_t)r)
        return "it is another rank's";
    if (row->size != mine->size)
        return "it has another number of ranks";
    if (row->name != mine->name)
        return "it has another name";
    return NULL;
}

/* A call of the program's function that may never return: it has memory of its own. */
typedef struct {
    comm_gather_t by;
    row_t mine;
    gyre_status_t status;
    row_t all[];
} errand_t;

static void run_errand(void *user)
{
    errand_t *e = user;
    e->status = e->by.gather(&e->mine, e->all, sizeof(e->mine), e->by.user);
}

/* Calls the program's function. all: room for `bytes`, which it may write to. */
static gyre_status_t call_gather(const comm_gather_t *by, const row_t *mine, row_t *all, size_t bytes,
                                 gyre_status_t *returned)
{
    if (by->deadline == 0) {
        *returned = by->gather(mine, all, sizeof(*mine), by->user);
        return GYRE_OK;
    }
    errand_t *e = malloc(sizeof(*e) + bytes);
    int err = ENOMEM;
    if (e != NULL) {
        e->by = *by;
        e->mine = *mine;
        memcpy(e->all, all, bytes);
        err = base_aside(run_errand, free, e, by->deadline);
    }
    if (err == ETIMEDOUT) /* the thread frees it */
        return gyre_fail(GYRE_ERR_TIMEOUT, "%s: rank %u: the all_gather function has not returned in time",
                         by->call, mine->rank);
    if (err == 0) {
        memcpy(all, e->all, bytes);
        *returned = e->status;
    }
    free(e);
    return err == 0 ? GYRE_OK
                    : gyre_fail_errno(err == ENOMEM ? GYRE_ERR_NO_MEMORY : GYRE_ERR_SYSTEM, err,
                                      "%s: no thread to call the all_gather function", by->call);
}

/* One call of the program's function, and what it gave. */
static gyre_status_t exchange(const comm_gather_t *by, row_t *mine, row_t *all)
{
    const size_t n = mine->size;
    unsigned char guard[GUARD];
    mine->check = check_of(mine);
    memset(all, 0, n * sizeof(*all));
    memset(guard, 0xa5, sizeof(guard));
    memcpy(all + n, guard, sizeof(guard));
    gyre_status_t returned = GYRE_OK;
    gyre_status_t st = call_gather(by, mine, all, n * sizeof(*all) + GUARD, &returned);
    if (st != GYRE_OK)
        return st;
    if (returned != GYRE_OK)
        return gyre_fail(GYRE_ERR_BOOTSTRAP, "%s: rank %u: the all_gather function returned %d (%s)",
                         by->call, mine->rank, (int)returned, gyre_status_string(returned));
    if (memcmp(all + n, guard, sizeof(guard)) != 0)
        return gyre_fail(
            GYRE_ERR_MISMATCH,
            "%s: rank %u: the all_gather function wrote more than %zu bytes for each of %zu ranks", by->call,
            mine->rank, sizeof(*mine), n);
    for (size_t r = 0; r < n; r++) {
        const char *why = wrong(&all[r], mine, (int)r);
        if (why != NULL && all[r].magic[0] != '\0' && all[r].size != mine->size &&
            all[r].check == check_of(&all[r]))
            return gyre_fail(GYRE_ERR_MISMATCH, "%s: rank %u has %u ranks, and rank %zu has %u", by->call,
                             mine->rank, mine->size, r, all[r].size);
        if (why != NULL)
            return gyre_fail(GYRE_ERR_MISMATCH,
                             "%s: rank %u: the all_gather function gave a wrong row %zu: %s", by->call,
                             mine->rank, r, why);
    }
    for (size_t r = 0; r < n; r++)
        if (all[r].status != GYRE_OK)
            return gyre_fail(GYRE_ERR_BOOTSTRAP, "%s: rank %zu could not go on: %s", by->call, r,
                             gyre_status_string((gyre_status_t)all[r].status));
    return GYRE_OK;
}

static gyre_status_t check_place(const comm_gather_t *by, int rank, int size)
{
    if (size < 1 || size > COMM_RANKS_MAX)
        return gyre_fail(GYRE_ERR_INVALID, "%s: nranks is %d, not in 1..%d", by->call, size, COMM_RANKS_MAX);
    if (rank < 0 || rank >= size)
        return gyre_fail(GYRE_ERR_INVALID, "%s: rank is %d, not in 0..%d", by->call, rank, size - 1);
    if (sodium_init() < 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "libsodium cannot start: no source of random numbers?");
    return GYRE_OK;
}

static void put_job(comm_identity_t *out, const char *name, uint64_t job)
{
    snprintf(out->job, sizeof(out->job), "%.40s%s%016llx", name, *name != '\0' ? "-" : "",
             (unsigned long long)job);
}

static void put_secret_and_root(comm_identity_t *out, const unsigned char secret[32], const char *root,
                                int fd)
{
    memcpy(out->secret, secret, sizeof(out->secret));
    out->have_secret = 1;
    snprintf(out->root, sizeof(out->root), "%s", root);
    out->root_fd = fd;
}

static void card_of_rank_0(int local, meet_card_t *card, int *fd)
{
    memset(card, 0, sizeof(*card));
    if (boot_listen_here(local, card->root, fd) != GYRE_OK)
        snprintf(card->error, ERROR_BYTES, "%s", gyre_last_error());
    card->have_secret = 1;
    randombytes_buf(card->secret, sizeof(card->secret));
}

gyre_status_t comm_identity_gather(const comm_gather_t *by, const char *name, int rank, int size,
                                   comm_identity_t *out)
{
    char text[MEET_CARD_MAX] = "";
    meet_card_t card = {0};
    int fd = -1, local = 1;
    gyre_status_t st = check_place(by, rank, size);
    if (st != GYRE_OK)
        return st;
    *out = (comm_identity_t){.rank = rank, .size = size, .root_fd = -1, .pmi_fd = -1, .source = "all_gather"};
    if (size == 1) {
        put_job(out, name, randombytes_random());
        identity_alone(out, NULL);
        return GYRE_OK;
    }
    row_t mine = {
        .round = 1, .rank = (uint32_t)rank, .size = (uint32_t)size, .host = base_machine(BASE_MACHINE_NET)};
    memcpy(mine.magic, magic, sizeof(magic));
    mine.name = base_hash64(name, strlen(name), 8);
    row_t *all = malloc((size_t)size * sizeof(*all) + GUARD);
    if (all == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory for %d ranks", by->call, size);
    st = exchange(by, &mine, all);
    for (int r = 0; st == GYRE_OK && r < size; r++)
        local &= all[r].host == mine.host;
    mine.round = 2;
    if (st == GYRE_ERR_MISMATCH) { /* the others may be content, and would wait for this rank */
        char why[600];
        snprintf(why, sizeof(why), "%s", gyre_last_error());
        mine.status = (uint32_t)st;
        (void)exchange(by, &mine, all);
        gyre_fail_quiet(st, "%s", why);
    } else if (st == GYRE_OK) {
        if (rank == 0) {
            card_of_rank_0(local, &card, &fd);
            meet_card_make(&card, text);
            memcpy(mine.card, text, strlen(text) + 1);
            randombytes_buf(&mine.job, sizeof(mine.job));
        }
        st = exchange(by, &mine, all);
    }
    all->card[CARD_BYTES - 1] = '\0';
    if (st == GYRE_OK && !meet_card_parse(all->card, strlen(all->card), &card))
        st = gyre_fail(GYRE_ERR_BOOTSTRAP, "%s: rank 0 sent what this version of Gyre does not understand",
                       by->call);
    if (st == GYRE_OK && card.error[0] != '\0')
        st = gyre_fail(GYRE_ERR_BOOTSTRAP, "%s: rank 0 says: %s", by->call, card.error);
    if (st == GYRE_OK) {
        put_job(out, name, all->job);
        put_secret_and_root(out, card.secret, card.root, fd);
    } else if (fd >= 0) {
        close(fd);
    }
    sodium_memzero(all, (size_t)size * sizeof(*all));
    sodium_memzero(&mine, sizeof(mine));
    sodium_memzero(&card, sizeof(card));
    sodium_memzero(text, sizeof(text));
    free(all);
    return st;
}

/* ---- unique ids ---------------------------------------------------------------------------------------- */

typedef struct {
    char magic[8];
    unsigned char secret[32];
    uint64_t job;
    char root[80];
} unique_t;
_Static_assert(sizeof(unique_t) == COMM_ID_BYTES, "the size of gyre_unique_id_t");
static const char id_magic[8] = "GYREID1";

/* What this process has made, and what it has used. The oldest of those that were used make room; if all wait
 * for their rank 0, the oldest of these. */
enum { IDS = 64 };
static struct {
    pthread_mutex_t lock;
    struct {
        uint64_t job; /* 0: free */
        int rank;     /* by which this process used the id; -1: it has made it, and rank 0 has not come */
        int fd;       /* where rank 0 listens, or -1 */
    } known[IDS];
    unsigned next;
} ids = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The caller holds the lock. */
static void remember(uint64_t job, int rank, int fd)
{
    unsigned at = ids.next % IDS;
    for (unsigned i = 0; i < IDS; i++)
        if (ids.known[(at + i) % IDS].job == 0 || ids.known[(at + i) % IDS].rank >= 0) {
            at = (at + i) % IDS;
            break;
        }
    ids.next = at + 1;
    if (ids.known[at].job != 0 && ids.known[at].fd >= 0)
        close(ids.known[at].fd);
    ids.known[at].job = job;
    ids.known[at].rank = rank;
    ids.known[at].fd = fd;
}

gyre_status_t comm_unique_id(unsigned char id[COMM_ID_BYTES])
{
    char roots[256], one[256];
    int fd = -1;
    unique_t made = {.job = 0};
    if (sodium_init() < 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "libsodium cannot start: no source of random numbers?");
    gyre_status_t st = boot_listen_here(0, roots, &fd);
    if (st == GYRE_ERR_BOOTSTRAP && *base_setting_string(SET_INTERFACE) == '\0')
        st = boot_listen_here(1, roots, &fd); /* no network at all: ranks of this host */
    if (st != GYRE_OK)
        return st;
    memcpy(made.magic, id_magic, sizeof(made.magic));
    randombytes_buf(made.secret, sizeof(made.secret));
    while (made.job == 0)
        randombytes_buf(&made.job, sizeof(made.job));
    for (const char *rest = roots; rest != NULL;) { /* as many as there is room for, the likeliest first */
        rest = boot_root_item(rest, one);
        const size_t used = strlen(made.root), bytes = strlen(one);
        if (used + bytes + 2 > sizeof(made.root))
            continue;
        if (used > 0)
            made.root[used] = ',';
        memcpy(made.root + used + (used > 0), one, bytes); /* zeros follow */
    }
    if (made.root[0] == '\0') {
        close(fd);
        return gyre_fail(GYRE_ERR_BOOTSTRAP, "gyre_get_unique_id: the address %s is too long", roots);
    }
    pthread_mutex_lock(&ids.lock);
    remember(made.job, -1, fd);
    pthread_mutex_unlock(&ids.lock);
    memcpy(id, &made, sizeof(made));
    sodium_memzero(&made, sizeof(made));
    return GYRE_OK;
}

/* Takes the id for a rank of this process. *fd: of rank 0, the socket that was opened with the id. */
static gyre_status_t use_id(const comm_gather_t *by, uint64_t job, int rank, int *fd)
{
    gyre_status_t st = GYRE_OK;
    int made = -1, used = 0;
    pthread_mutex_lock(&ids.lock);
    for (int i = 0; i < IDS; i++) {
        if (ids.known[i].job != job)
            continue;
        made = ids.known[i].rank < 0 ? i : made;
        used |= ids.known[i].rank == rank;
    }
    if (used) {
        st = gyre_fail(GYRE_ERR_INVALID,
                       "%s: rank %d has used the id before: each communicator needs its own", by->call, rank);
    } else if (rank == 0 && made < 0) {
        st = gyre_fail(GYRE_ERR_INVALID, "%s: rank 0 must be the process that called gyre_get_unique_id",
                       by->call);
    } else if (rank == 0) {
        *fd = ids.known[made].fd;
        ids.known[made].fd = -1;
        ids.known[made].rank = 0;
    } else {
        remember(job, rank, -1);
    }
    pthread_mutex_unlock(&ids.lock);
    return st;
}

gyre_status_t comm_identity_by_id(const comm_gather_t *by, const unsigned char id[COMM_ID_BYTES],
                                  const char *name, int rank, int size, comm_identity_t *out)
{
    char host[256], one[256];
    int fd = -1, port;
    unique_t given;
    gyre_status_t st = check_place(by, rank, size);
    memcpy(&given, id, sizeof(given));
    given.root[sizeof(given.root) - 1] = '\0';
    (void)boot_root_item(given.root, one);
    if (st == GYRE_OK && (memcmp(given.magic, id_magic, sizeof(id_magic)) != 0 || given.job == 0 ||
                          !boot_root_split(one, host, &port)))
        st = gyre_fail(GYRE_ERR_INVALID, "%s: these are not the bytes of gyre_get_unique_id", by->call);
    if (st == GYRE_OK)
        st = use_id(by, given.job, rank, &fd);
    if (st == GYRE_OK) {
        *out =
            (comm_identity_t){.rank = rank, .size = size, .root_fd = -1, .pmi_fd = -1, .source = "unique id"};
        put_job(out, name, given.job);
        if (size > 1)
            put_secret_and_root(out, given.secret, given.root, fd);
        else
            identity_alone(out, NULL);
        if (size == 1 && fd >= 0)
            close(fd);
    }
    sodium_memzero(&given, sizeof(given));
    return st;
}
