/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/group.c: a group's completion queues, one per rail: polling them, sleeping on them; the
 * group's life. */
#include "comm/verbs/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"

enum { BATCH = 32, CQ_LEAST = 512, LOOK_TURNS = 8, OFTEN = 16 };

/* ---- finding a queue pair's link ---------------------------------------------------------------------- */

static size_t place_hash(uint32_t qpn, int rail, size_t room)
{
    return ((size_t)qpn * 0x9e3779b1u + (size_t)rail * 0x85ebca6bu) & (room - 1);
}

static void place_put(verbs_place_t *places, size_t room, verbs_place_t place)
{
    size_t at = place_hash(place.qpn, place.rail, room);

    while (places[at].qpn)
        at = (at + 1) & (room - 1);
    places[at] = place;
}

gyre_status_t verbs_place_add(comm_verbs_group_t *vg, verbs_link_t *link, int stripe)
{
    const verbs_qp_t *qp = &link->qps[stripe];

    if ((vg->place_count + 1) * 2 > vg->place_room) {
        size_t room = vg->place_room ? vg->place_room * 2 : 32;
        verbs_place_t *places = calloc(room, sizeof *places);
        if (!places)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a table of %zu queue pairs", room);
        for (size_t i = 0; i < vg->place_room; i++) {
            if (vg->places[i].qpn)
                place_put(places, room, vg->places[i]);
        }
        free(vg->places);
        vg->places = places;
        vg->place_room = room;
    }
    place_put(vg->places, vg->place_room,
              (verbs_place_t){link, qp->qp->qp_num, (uint16_t)qp->rail, (uint16_t)stripe});
    vg->place_count++;
    return GYRE_OK;
}

static verbs_place_t *place_find(comm_verbs_group_t *vg, uint32_t qpn, int rail)
{
    size_t at = place_hash(qpn, rail, vg->place_room);

    if (vg->place_room == 0)
        return NULL;
    for (; vg->places[at].qpn; at = (at + 1) & (vg->place_room - 1)) {
        if (vg->places[at].qpn == qpn && vg->places[at].rail == rail)
            return &vg->places[at];
    }
    return NULL;
}

void verbs_place_remove(comm_verbs_group_t *vg, const verbs_link_t *link)
{
    for (size_t i = 0; i < vg->place_room; i++) {
        if (vg->places[i].link == link)
            vg->places[i].link = NULL;
    }
}

/* ---- errors of the whole group ------------------------------------------------------------------------- */

void verbs_group_fail(comm_verbs_group_t *vg, const char *format, ...)
{
    va_list args;

    if (vg->why[0])
        return;
    va_start(args, format);
    vsnprintf(vg->why, sizeof vg->why, format, args);
    va_end(args);
    for (size_t i = 0; i < (size_t)vg->group->n * COMM_LANES; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        if (link)
            verbs_link_fail(link, "%s", vg->why);
    }
}

/* The adapters' events. Read before sleeping only: a rank that is on time does not need them. */
static void look_at_events(comm_verbs_group_t *vg)
{
    int event;

    for (int r = 0; r < vg->rails; r++) {
        verbs_rail_events(vg->rail[r]);
        if (atomic_load_explicit(&vg->rail[r]->fatal, memory_order_relaxed))
            verbs_group_fail(vg, "the adapter %s reported a fatal error of its own", vg->rail[r]->name);
    }
    event = atomic_exchange_explicit(&vg->event, 0, memory_order_acquire);
    if (event == 0)
        return;
    if (event - 1 == IBV_EVENT_CQ_ERR || event - 1 == IBV_EVENT_SRQ_ERR)
        verbs_group_fail(vg, "an adapter reported: %s", ibv_event_type_str((enum ibv_event_type)(event - 1)));
    for (size_t i = 0; i < (size_t)vg->group->n * COMM_LANES; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        event = link ? atomic_exchange_explicit(&link->event, 0, memory_order_acquire) : 0;
        if (event != 0)
            verbs_link_fail(link, "an adapter reported: %s",
                            ibv_event_type_str((enum ibv_event_type)(event - 1)));
    }
}

/* ---- polling ------------------------------------------------------------------------------------------- */

static void dispatch(comm_verbs_group_t *vg, int rail, const struct ibv_wc *wc)
{
    verbs_place_t *place;

    if (vg->ud && rail == 0 && wc->qp_num == vg->ud->qp_num) {
        verbs_hello_completion(vg, wc);
        return;
    }
    place = place_find(vg, wc->qp_num, rail);
    if (place && place->link) /* else it is of a link that is closed */
        verbs_completion(vg, *place, wc);
}

/* Sends the control messages that had no room in a send queue when they were due. */
static void tell(comm_verbs_group_t *vg)
{
    comm_group_t *group = vg->group;

    for (size_t i = 0; vg->control_due > 0 && i < (size_t)group->n * COMM_LANES; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        if (link && link->control_due && !link->failed)
            verbs_post_control(link);
    }
}

/* Takes the completions of one rail, looking up to `looks` times until there are some. */
static int take(comm_verbs_group_t *vg, int r, int looks)
{
    struct ibv_wc wc[BATCH];
    int got, all = 0;

    while ((got = ibv_poll_cq(vg->cq[r], BATCH, wc)) == 0 && --looks > 0) {
    }
    while (got > 0) {
        for (int i = 0; i < got; i++)
            dispatch(vg, r, &wc[i]);
        all += got;
        got = got == BATCH ? ibv_poll_cq(vg->cq[r], BATCH, wc) : 0;
    }
    if (got < 0)
        verbs_group_fail(vg, "the completion queue of %s cannot be read (status %d); its port is %s",
                         vg->rail[r]->name, got, verbs_rail_state(vg->rail[r]));
    return all;
}

static int poll_rails(comm_verbs_group_t *vg, int looks)
{
    int all = 0;

    vg->polled = 1;
    for (int r = 0; r < vg->rails; r++)
        all += take(vg, r, looks);
    if (vg->srq_owed >= VERBS_REPOST) {
        uint32_t owed = vg->srq_owed;
        vg->srq_owed = 0;
        int err = verbs_post_shared_receives(vg, owed);
        if (err != 0)
            verbs_group_fail(vg, "the shared receive queue of %s takes no receives: %s", vg->rail[0]->name,
                             strerror(err));
    }
    if (vg->ud_down)
        verbs_hello_mend(vg);
    if (vg->control_due > 0)
        tell(vg);
    if (vg->connecting > 0)
        verbs_hello_progress(vg);
    return all;
}

int verbs_poll(comm_verbs_group_t *vg)
{
    return poll_rails(vg, 1);
}

int verbs_poll_often(comm_verbs_group_t *vg)
{
    poll_rails(vg, OFTEN / vg->rails);
    return OFTEN / 4;
}

/* Sends and receives that wait poll by themselves. This call polls for the rest, so not every time: hellos of
 * peers, and messages that a schedule does not expect yet. */
void verbs_progress(comm_group_t *group)
{
    comm_verbs_group_t *vg = verbs_of(group);

    if (!vg->polled || vg->connecting > 0 || vg->control_due > 0 || ++vg->turns % LOOK_TURNS == 0)
        verbs_poll(vg);
}

/* Plain writes wake no sleeper. Every message from here on reports that this rank does not watch, until it
 * has taken enough messages without a sleep again. */
static void stop_watching(comm_verbs_group_t *vg)
{
    vg->naps++;
    for (size_t i = 0; vg->watched > 0 && i < (size_t)vg->group->n * COMM_LANES; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        if (link && link->told_watching)
            verbs_post_control(link);
    }
}

/* Asks for an event at the next completion; the caller looks once more before it sleeps (comm/wait.h). Events
 * of before are taken first: they would end the sleep at once. */
void verbs_arm(comm_group_t *group)
{
    comm_verbs_group_t *vg = verbs_of(group);
    struct ibv_cq *cq;
    void *context;

    stop_watching(vg);
    for (int r = 0; r < vg->rails; r++) {
        while (ibv_get_cq_event(vg->channel[r], &cq, &context) == 0)
            ibv_ack_cq_events(cq, 1);
        if (ibv_req_notify_cq(vg->cq[r], 0) != 0)
            log_debug("verbs: no event can be asked of %s", vg->rail[r]->name);
    }
    vg->polled = 0;
}

_Static_assert((int)VERBS_RAILS <= (int)COMM_SLEEP_POLLS, "a place for each rail");

int verbs_sleep_on(comm_group_t *group, struct pollfd *polls)
{
    comm_verbs_group_t *vg = verbs_of(group);

    /* Since then some peer learned that this rank watches, and its plain write would not wake this rank. */
    if (vg->watched > 0) {
        verbs_arm(group);
        return 0;
    }
    /* Completions before events were asked for cause no event: the queues must have been polled since. */
    if (!vg->polled && verbs_poll(vg) > 0)
        return 0;
    look_at_events(vg);
    for (int r = 0; r < vg->rails; r++)
        polls[r] = (struct pollfd){.fd = vg->channel[r]->fd, .events = POLLIN};
    vg->polled = 0; /* the next look polls at once */
    return vg->rails;
}

/* ---- completion queues --------------------------------------------------------------------------------- */

static gyre_status_t cq_open(comm_verbs_group_t *vg, int r)
{
    const verbs_rail_t *rail = vg->rail[r];
    int entries = rail->cqe_most < CQ_LEAST ? rail->cqe_most : CQ_LEAST, flags;

    vg->channel[r] = ibv_create_comp_channel(rail->context);
    if (!vg->channel[r])
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "%s gives no completion channel", rail->name);
    flags = fcntl(vg->channel[r]->fd, F_GETFL);
    fcntl(vg->channel[r]->fd, F_SETFL, flags | O_NONBLOCK);
    fcntl(vg->channel[r]->fd, F_SETFD, FD_CLOEXEC);
    vg->cq[r] = ibv_create_cq(rail->context, entries, vg, vg->channel[r], 0);
    if (!vg->cq[r])
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "%s gives no completion queue of %d entries",
                               rail->name, entries);
    return GYRE_OK;
}

gyre_status_t verbs_cq_reserve(comm_verbs_group_t *vg, int r, int entries)
{
    int used = vg->cq_used[r] + entries, wanted = vg->cq[r]->cqe;

    while (wanted < used)
        wanted *= 2;
    if (wanted > vg->rail[r]->cqe_most && used <= vg->rail[r]->cqe_most)
        wanted = vg->rail[r]->cqe_most;
    if (wanted > vg->cq[r]->cqe) {
        int err = wanted > vg->rail[r]->cqe_most ? EINVAL : ibv_resize_cq(vg->cq[r], wanted);
        if (err != 0)
            return gyre_fail_errno(GYRE_ERR_NO_MEMORY, err,
                                   "%s cannot keep %d completions for one more peer (at most %d); use "
                                   "communicators of fewer ranks, or "
                                   "GYRE_TRANSPORT=ucx",
                                   vg->rail[r]->name, used, vg->rail[r]->cqe_most);
    }
    vg->cq_used[r] = used;
    return GYRE_OK;
}

static gyre_status_t srq_open(comm_verbs_group_t *vg)
{
    const verbs_rail_t *rail = vg->rail[0];
    uint32_t count = rail->srq_most < VERBS_SRQ ? (uint32_t)rail->srq_most : VERBS_SRQ;
    struct ibv_srq_init_attr attr = {.srq_context = vg, .attr = {.max_wr = count, .max_sge = 1}};
    int err;

    if (vg->group->n - 1 <= VERBS_SRQ_PEERS || count == 0)
        return GYRE_OK;
    vg->srq = ibv_create_srq(rail->pd, &attr);
    if (!vg->srq) {
        log_info("verbs: %s gives no shared receive queue (%s): every link has its own", rail->name,
                 strerror(errno));
        return GYRE_OK;
    }
    err = verbs_post_shared_receives(vg, count);
    if (err != 0)
        return gyre_fail_errno(GYRE_ERR_TRANSPORT, err, "the shared receive queue of %s takes no receives",
                               rail->name);
    return verbs_cq_reserve(vg, 0, (int)count);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void group_free(comm_verbs_group_t *vg)
{
    verbs_hello_close(vg);
    if (vg->srq)
        ibv_destroy_srq(vg->srq);
    for (int r = 0; r < vg->rails; r++) {
        if (vg->cq[r])
            ibv_destroy_cq(vg->cq[r]);
        if (vg->channel[r])
            ibv_destroy_comp_channel(vg->channel[r]);
    }
    if (vg->all)
        verbs_rails_close();
    free(vg->places);
    free(vg->cards);
    free(vg);
}

void verbs_leave(comm_group_t *group)
{
    group_free(verbs_of(group));
    group->network_state = NULL;
}

_Static_assert(VERBS_STRIPES == 8 && VERBS_LEAST_UNITS * VERBS_UNIT == 4 << 10 &&
                   VERBS_MOST_UNITS * VERBS_UNIT == 256 << 10,
               "the ranges of GYRE_VERBS_QPS and GYRE_VERBS_RING");

/* The rails that this rank uses: those that a try found, else, to be tried, all of the process. */
static gyre_status_t choose_rails(comm_verbs_group_t *vg, int quiet, verbs_intro_t *mine)
{
    static const char joins_not[] = "RDMA was tried before and does not join the ranks of this job";
    uint8_t rail[VERBS_RAILS];
    int rails = 0, known = verbs_try_known(vg->group->world, &mine->tried, &rails, rail);

    if (known && rails == 0)
        return quiet ? gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, joins_not)
                     : gyre_fail(GYRE_ERR_UNSUPPORTED, joins_not);
    for (int k = 0; k < rails; k++)
        known = known && rail[k] < vg->all_rails; /* else a port has gone since */
    if (!known)
        mine->tried = 0;
    vg->rails = known ? rails : vg->all_rails;
    for (int k = 0; k < vg->rails; k++)
        vg->rail[k] = &vg->all[known ? rail[k] : k];
    mine->rails = vg->all_rails;
    for (int k = 0; k < vg->all_rails; k++) {
        snprintf(mine->rail[k].name, sizeof mine->rail[k].name, "%.15s", vg->all[k].name);
        mine->rail[k].address = vg->all[k].address;
    }
    return GYRE_OK;
}

/* *try: NULL if this rank knows the result of a try already. */
static gyre_status_t begin(comm_group_t *group, int quiet, verbs_intro_t *mine, verbs_try_t **try)
{
    comm_verbs_group_t *vg = calloc(1, sizeof *vg);
    gyre_status_t status;

    if (!vg || !(vg->cards = calloc((size_t)group->n, sizeof *vg->cards))) {
        free(vg);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", group->n);
    }
    vg->group = group;
    group->network_state = vg;
    vg->ring_units = (uint32_t)base_setting_int(SET_VERBS_RING) / VERBS_UNIT;
    vg->patience = verbs_patience(group->world->timeout_s);
    status = verbs_rails_open(quiet, &vg->all, &vg->all_rails);
    if (status != GYRE_OK)
        vg->all = NULL;
    if (status == GYRE_OK)
        status = choose_rails(vg, quiet, mine);
    vg->stripes_wanted = (int)base_setting_int(SET_VERBS_QPS);
    for (int r = 0; r < vg->rails && status == GYRE_OK; r++)
        status = cq_open(vg, r);
    if (status == GYRE_OK)
        status = srq_open(vg);
    if (status == GYRE_OK)
        status = verbs_hello_open(vg, &mine->card);
    if (status == GYRE_OK && mine->tried == 0)
        status = verbs_try_open(vg->all, vg->all_rails, group->n, try, mine);
    return status;
}

/* Judges the records of all ranks: the same result everywhere. */
static gyre_status_t judge(comm_group_t *group, int quiet)
{
    const verbs_card_t *cards = verbs_of(group)->cards;

    for (int r = 0; r < group->n; r++) {
        gyre_status_t status = (gyre_status_t)cards[r].status;
        if (status != GYRE_OK && r == group->rank) /* the others got the reason */
            return quiet ? GYRE_ERR_UNSUPPORTED : status;
        if (status != GYRE_OK) {
            char text[160];
            snprintf(text, sizeof text,
                     "rank %d (world rank %d) cannot use verbs: %s; its own message says why", r,
                     group->world_ranks[r], gyre_status_string(status));
            return quiet ? gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s", text) : gyre_fail(status, "%s", text);
        }
    }
    for (int r = 1; r < group->n; r++) {
        if (cards[r].address.roce != cards[0].address.roce) {
            static const char *const names[] = {"InfiniBand", "RoCE"};
            char text[200];
            snprintf(
                text, sizeof text,
                "rank 0 has %s and rank %d (world rank %d) %s; GYRE_VERBS_DEVICES chooses other adapters",
                names[cards[0].address.roce != 0], r, group->world_ranks[r],
                names[cards[r].address.roce != 0]);
            return quiet ? gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s", text)
                         : gyre_fail(GYRE_ERR_UNSUPPORTED, "%s", text);
        }
    }
    return GYRE_OK;
}

/* Of the ranks of one host, one says so; aloud if the program's user has named ports. */
static void say_why_not(const comm_group_t *group)
{
    for (int r = 0; r < group->rank; r++) {
        if (group->host_of[r] == group->host_of[group->rank])
            return;
    }
    if (*base_setting_string(SET_VERBS_DEVICES))
        log_warning("%s: UCX is used between hosts", gyre_last_error());
    else
        log_info("%s", gyre_last_error());
}

/* Makes the group's objects and sends the others this rank's record, with what it knows so far. */
static gyre_status_t introduce(comm_group_t *group, int quiet, verbs_intro_t *intros, verbs_try_t **try,
                               comm_all_gather_fn all_gather, void *user)
{
    verbs_intro_t mine = {0};
    gyre_status_t status;

    mine.card.status = (int32_t)begin(group, quiet, &mine, try);
    if (quiet && mine.card.status != GYRE_OK)
        say_why_not(group);
    status = all_gather(user, &mine, sizeof mine, intros);
    if (status != GYRE_OK)
        return status;
    if (!group->network_state)
        return (gyre_status_t)mine.card.status;
    for (int r = 0; r < group->n; r++)
        verbs_of(group)->cards[r] = intros[r].card;
    return judge(group, quiet);
}

typedef enum { TRIED_BY_NONE, TRIED_BY_SOME, TRIED_BY_ALL } tried_t;

/* By all: they were together when it was tried. */
static tried_t tried(const verbs_intro_t *intros, int n)
{
    for (int r = 1; r < n; r++) {
        if (intros[r].tried != intros[0].tried)
            return TRIED_BY_SOME;
    }
    return intros[0].tried != 0 ? TRIED_BY_ALL : TRIED_BY_NONE;
}

/* Nearly always one round: ranks of a split communicator know the result of an earlier try, and ranks of the
 * job's communicator find all rails as they should be. Otherwise a second round, over the rails that were
 * agreed on. If some ranks have tried and newcomers have not, all begin anew. */
gyre_status_t verbs_prepare(comm_group_t *group, int quiet, comm_all_gather_fn all_gather, void *user,
                            base_time_t deadline)
{
    verbs_intro_t *intros = calloc((size_t)group->n, sizeof *intros);
    gyre_status_t status = GYRE_OK;
    verbs_rail_t *rails;
    int held = 0, again = 1, count;

    if (!intros)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", group->n);
    while (status == GYRE_OK && again) {
        verbs_try_t *try = NULL;
        again = 0;
        if (group->network_state) { /* of the round before; the rails stay open meanwhile */
            held += verbs_rails_open(1, &rails, &count) == GYRE_OK;
            verbs_leave(group);
        }
        status = introduce(group, quiet, intros, &try, all_gather, user);
        if (status == GYRE_OK && tried(intros, group->n) == TRIED_BY_SOME) {
            verbs_try_forget(group->world);
            again = 1;
        } else if (status == GYRE_OK && tried(intros, group->n) == TRIED_BY_NONE) {
            status = verbs_try_agree(try, group, quiet, intros, all_gather, user, deadline, &again);
        }
        verbs_try_close(try);
    }
    while (held-- > 0)
        verbs_rails_close();
    free(intros);
    if (status == GYRE_ERR_UNSUPPORTED && quiet && group->network_state) {
        log_info("verbs are not used between hosts: %s", gyre_last_error());
        verbs_leave(group);
    }
    if (status == GYRE_OK)
        group->private_bytes += sizeof(comm_verbs_group_t) + (size_t)group->n * sizeof(verbs_card_t);
    return status;
}

/* Asked of every process that starts, so it does not wake libibverbs, which looks for drivers first. Looked
 * up once: an adapter that appears later is not for this job. */
void verbs_introduce(uint32_t word[COMM_SAID_WORDS])
{
    enum { UNKNOWN, NONE, SOME };
    static _Atomic int adapters;
    if (atomic_load_explicit(&adapters, memory_order_relaxed) != UNKNOWN) {
        word[0] = atomic_load_explicit(&adapters, memory_order_relaxed) == SOME;
        return;
    }
    DIR *dir = opendir("/sys/class/infiniband");
    const struct dirent *entry = NULL;

    while (dir && (entry = readdir(dir)) && entry->d_name[0] == '.') {
    }
    if (dir)
        closedir(dir);
    word[0] = entry != NULL;
    atomic_store_explicit(&adapters, entry ? SOME : NONE, memory_order_relaxed);
}
