/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/rendezvous.c: jobs whose launcher has a private channel, PMIx or PMI-1. Rank 0 listens, makes
 * the job's secret, and publishes both as one short text (comm/launch/card.h). The other ranks read the text.
 * All other traffic goes over the bootstrap's own tree.
 *
 * Gyre leaves the channel at once. Some launchers end the whole job when the first of their clients dies; the
 * survivors then belong to Gyre. The channel can be used once per process. Its result is kept, so gyre_init
 * after gyre_finalize meets at the same socket.
 *
 * An MPI library in the process needs the channel, too. The goodbye then waits until Gyre leaves:
 *     PMIx     always sent: PMIx counts the users of the connection
 *     PMI-1    sent if MPI has not been started by then; else MPI sends it */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"
#include "comm/launch/internal.h"
#include "comm/launch/card.h"
#include "comm/launch/pmi1.h"
#include "comm/launch/pmix.h"

#define PMIX_LIBRARY    "libpmix.so.2"
#define GOODBYE_SECONDS 5.0

/* The channel and its result belong to the process. Guarded by gyre_init's lock. */
static struct {
    int agreed, tries;
    int size, root_fd;
    char job[COMM_JOB_BYTES];
    meet_card_t card;
    const pmix_calls_t *stays; /* PMIx's goodbye is still to be sent, */
    int pmi_stays, pmi_fd;     /* and PMI-1's, unless MPI does */
} channel;

static const pmix_calls_t *pmix_calls(void)
{
    static const pmix_calls_t *calls;
    static int looked;
    char why[256];
    if (!looked) {
        calls = pmix_load(PMIX_LIBRARY, why, sizeof(why));
        if (calls == NULL)
            log_info("PMIx: %s", why);
    }
    looked = 1;
    return calls;
}

int identity_pmix_usable(void)
{
    return pmix_calls() != NULL;
}

gyre_status_t identity_from_pmix(comm_identity_t *out)
{
    int other = 0;
    gyre_status_t st = identity_number("PMIX_RANK", "PMIX_NAMESPACE", COMM_RANKS_MAX, &out->rank);
    if (st != GYRE_OK)
        return st;
    if (!identity_has("PMIX_NAMESPACE"))
        return gyre_fail(GYRE_ERR_INVALID, "PMIX_NAMESPACE is not set although PMIX_RANK is");
    if (!identity_pmix_usable())
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "PMIX_RANK and PMIX_NAMESPACE are set, but " PMIX_LIBRARY
                         " cannot be loaded: install it on all hosts (Debian: libpmix2)");
    if (identity_has("PMI_RANK"))
        st = identity_number("PMI_RANK", "PMIX_RANK", COMM_RANKS_MAX, &other);
    if (st == GYRE_OK && identity_has("PMI_RANK") && other != out->rank)
        return gyre_fail(GYRE_ERR_INVALID,
                         "PMIX_RANK=%d and PMI_RANK=%d contradict each other: one launcher was started by "
                         "another; take away the "
                         "outer one's, such as env -u PMIX_NAMESPACE -u PMIX_RANK",
                         out->rank, other);
    identity_job(out, base_env("PMIX_NAMESPACE"), 0);
    snprintf(out->source, sizeof(out->source), "PMIx");
    out->meet = COMM_MEET_PMIX;
    return GYRE_OK;
}

gyre_status_t identity_from_pmi1(comm_identity_t *out)
{
    gyre_status_t st = identity_number("PMI_RANK", identity_has("PMI_FD") ? "PMI_FD" : "PMI_SIZE",
                                       COMM_RANKS_MAX, &out->rank);
    if (st == GYRE_OK)
        st = identity_number("PMI_SIZE", "PMI_RANK", COMM_RANKS_MAX, &out->size);
    if (st == GYRE_OK)
        st = identity_check(out, "PMI_RANK", "PMI_SIZE");
    if (st != GYRE_OK)
        return st;
    if (out->size == 1) { /* no rank to agree with: the launcher need not be contacted */
        identity_alone(out, "PMI-1");
        return GYRE_OK;
    }
    snprintf(out->source, sizeof(out->source), "PMI-1");
    if (identity_has("PMI_FD")) {
        out->meet = COMM_MEET_PMI1;
        return identity_number("PMI_FD", "PMI_RANK", INT32_MAX, &out->pmi_fd);
    }
    if (out->root[0] == '\0')
        return gyre_fail(GYRE_ERR_INVALID, "PMI_RANK says who this is, but PMI_FD is not set: where is rank "
                                           "0 met? This launcher does not speak "
                                           "PMI-1's wire protocol: give GYRE_ROOT=host:port and GYRE_SECRET");
    identity_job(out, "pmi", 1);
    return identity_secret(out, "");
}

/* Writes the path of a loaded MPI library. Opens nothing: the loader holds a lock. */
static int look_for_mpi(struct dl_phdr_info *object, size_t bytes, void *path)
{
    (void)bytes;
    const char *name = strrchr(object->dlpi_name, '/');
    name = name != NULL ? name + 1 : object->dlpi_name;
    if (strncmp(name, "libmpi.so", 9) != 0 && strncmp(name, "libmpich.so", 11) != 0 &&
        strncmp(name, "libmpi_", 7) != 0)
        return 0;
    return snprintf(path, PATH_MAX, "%s", object->dlpi_name) < PATH_MAX;
}

/* Returns PMPI_Initialized of the MPI library in this process, or NULL without one. Also finds a library that
 * a script language has loaded for itself. */
static int (*find_mpi(void))(int *)
{
    int (*initialized)(int *) = NULL;
    char path[PATH_MAX];
    void *found = dlsym(RTLD_DEFAULT, "PMPI_Initialized");
    void *library = NULL;
    if (found == NULL && dl_iterate_phdr(look_for_mpi, path) != 0)
        library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) {
        found = dlsym(library, "PMPI_Initialized");
        dlclose(library); /* it was loaded before, and stays */
    }
    memcpy(&initialized, &found, sizeof(found));
    return initialized;
}

/* An MPI library was loaded, whether or not it has been started. */
static int mpi_is_here(void)
{
    return find_mpi() != NULL;
}

static int mpi_was_started(void)
{
    int (*initialized)(int *) = find_mpi(), yes = 0;
    return initialized != NULL && initialized(&yes) == 0 && yes;
}

/* ---- rank 0's part ---- */

typedef struct {
    int have_secret;
    char root[256]; /* given by the user, or "" */
    int fd;         /* out: the listening socket, or -1 */
    meet_card_t card;
} host_t;

/* Listens and makes the card. A failure goes onto the card, so the other ranks fail at once, too. */
static void make_card(host_t *host, int local)
{
    gyre_status_t st = GYRE_OK;
    memset(&host->card, 0, sizeof(host->card));
    host->fd = -1;
    if (host->root[0] != '\0')
        memcpy(host->card.root, host->root, sizeof(host->card.root));
    else
        st = boot_listen_here(local, host->card.root, &host->fd);
    if (st != GYRE_OK)
        snprintf(host->card.error, sizeof(host->card.error), "%s", gyre_last_error());
    host->card.have_secret = !host->have_secret;
    if (host->card.have_secret)
        randombytes_buf(host->card.secret, sizeof(host->card.secret));
}

static void publish_by_pmix(void *user, int size, int local, char *text)
{
    host_t *host = user;
    (void)size;
    make_card(host, local);
    meet_card_make(&host->card, text);
}

/* ---- the channels ---- */

/* The data of PMIx's thread, which may keep them forever. */
typedef struct {
    pmix_talk_t talk;
    host_t host;
    char key[32];
} pmix_work_t;

static gyre_status_t by_pmix(comm_identity_t *who, const host_t *mine, base_time_t deadline,
                             char text[MEET_CARD_MAX], host_t *out)
{
    pmix_work_t *work = calloc(1, sizeof(*work));
    if (work == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to talk to PMIx");
    work->host = *mine;
    snprintf(work->key, sizeof(work->key), "gyre.root.%d", channel.tries);
    work->talk = (pmix_talk_t){.calls = pmix_calls(),
                               .rank = who->rank,
                               .key = work->key,
                               .stay = mpi_is_here(),
                               .publish = publish_by_pmix,
                               .user = &work->host};
    gyre_status_t st = pmix_talk(&work->talk, deadline);
    if (st == GYRE_ERR_TIMEOUT)
        return st; /* the thread owns it now */
    if (st == GYRE_OK && work->talk.stay)
        channel.stays = work->talk.calls;
    who->size = work->talk.size;
    memcpy(text, work->talk.text, MEET_CARD_MAX);
    *out = work->host;
    sodium_memzero(work, sizeof(*work));
    free(work);
    return st;
}

static gyre_status_t by_pmi1(comm_identity_t *who, host_t *host, base_time_t deadline,
                             char text[MEET_CARD_MAX])
{
    pmi1_t pmi;
    char key[32], mapping[MEET_CARD_MAX];
    snprintf(key, sizeof(key), "gyre-root-%d", channel.tries);
    gyre_status_t st = pmi1_open(&pmi, who->pmi_fd, deadline);
    if (st != GYRE_OK)
        return st;
    identity_job(who, pmi.space, 0);
    if (who->rank == 0) {
        /* "(vector,(first node, nodes, ranks of each))": one block of one node is this host. */
        int local = pmi1_get(&pmi, "PMI_process_mapping", mapping, sizeof(mapping)) == GYRE_OK &&
                    strncmp(mapping, "(vector,(0,1,", 13) == 0 && strchr(mapping + 13, '(') == NULL;
        make_card(host, local);
        meet_card_make(&host->card, text);
        st = pmi1_put(&pmi, key, text);
    }
    if (st == GYRE_OK)
        st = pmi1_barrier(&pmi);
    if (st == GYRE_OK && who->rank > 0)
        st = pmi1_get(&pmi, key, text, MEET_CARD_MAX);
    if (st == GYRE_ERR_NOT_FOUND)
        st = gyre_fail(GYRE_ERR_BOOTSTRAP, "rank 0 published nothing through PMI (key %s)", key);
    channel.pmi_fd = who->pmi_fd;
    channel.pmi_stays = st == GYRE_OK && mpi_is_here();
    if (st == GYRE_OK && !channel.pmi_stays)
        st = pmi1_goodbye(&pmi);
    sodium_memzero(&pmi, sizeof(pmi));
    return st;
}

/* What was agreed, into the identity. */
static gyre_status_t take(comm_identity_t *who)
{
    const meet_card_t *card = &channel.card;
    who->size = channel.size;
    if (who->size == 1) {
        identity_alone(who, NULL);
        return GYRE_OK;
    }
    identity_job(who, channel.job, 0);
    memcpy(who->root, card->root, sizeof(who->root));
    if (card->have_secret)
        memcpy(who->secret, card->secret, sizeof(who->secret));
    else if (!who->have_secret)
        return gyre_fail(GYRE_ERR_AUTH,
                         "rank 0 was given a secret (GYRE_SECRET or config.secret) and rank %d was not: give "
                         "it to all ranks or "
                         "to none",
                         who->rank);
    who->have_secret = 1;
    who->root_fd = channel.root_fd;
    return GYRE_OK;
}

gyre_status_t comm_identity_meet(comm_identity_t *who, base_time_t deadline)
{
    char text[MEET_CARD_MAX] = "";
    host_t host = {.have_secret = who->have_secret, .fd = -1};
    if (who->meet == COMM_MEET_KNOWN)
        return GYRE_OK;
    if (channel.agreed)
        return take(who);
    channel.tries++;
    memcpy(host.root, who->root, sizeof(host.root));
    gyre_status_t st = who->meet == COMM_MEET_PMIX ? by_pmix(who, &host, deadline, text, &host)
                                                   : by_pmi1(who, &host, deadline, text);
    if (st == GYRE_OK && who->size > COMM_RANKS_MAX)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "the launcher says that the job has %d ranks; at most %d are possible", who->size,
                       COMM_RANKS_MAX);
    if (st == GYRE_OK && who->size > 1 && who->rank > 0 &&
        !meet_card_parse(text, strnlen(text, sizeof(text)), &host.card))
        st = gyre_fail(GYRE_ERR_BOOTSTRAP,
                       "rank 0 published what this version of Gyre does not understand: use the same build "
                       "on all ranks");
    if (st == GYRE_OK && host.card.error[0] != '\0')
        st = who->rank == 0 ? gyre_fail_quiet(GYRE_ERR_BOOTSTRAP, "%s", host.card.error)
                            : gyre_fail(GYRE_ERR_BOOTSTRAP, "rank 0 says: %s", host.card.error);
    if (st == GYRE_OK) {
        channel.size = who->size;
        channel.root_fd = host.fd;
        channel.card = host.card;
        memcpy(channel.job, who->job, sizeof(channel.job));
        st = take(who);
        channel.agreed = st == GYRE_OK;
        if (st == GYRE_OK)
            log_info("%s: rank %d of %d, root %s", who->source, who->rank, who->size, who->root);
    }
    if (st != GYRE_OK && host.fd >= 0)
        close(host.fd);
    sodium_memzero(text, sizeof(text));
    sodium_memzero(&host, sizeof(host));
    return st;
}

void comm_identity_leave(void)
{
    const pmix_calls_t *calls = channel.stays;
    pmi1_t pmi = {.fd = channel.pmi_fd, .deadline = base_deadline(GOODBYE_SECONDS)};
    channel.stays = NULL;
    if (calls != NULL)
        pmix_leave(calls, base_deadline(GOODBYE_SECONDS));
    if (channel.pmi_stays && !mpi_was_started())
        (void)pmi1_goodbye(&pmi); /* a failure is logged, and has no effect any more */
    channel.pmi_stays = 0;
}
