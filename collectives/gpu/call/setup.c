/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/setup.c: what a communicator needs on a device, made together by its ranks at their
 * first call on device memory. Every rank gets a card of each other rank. If all share a host and can map
 * each other's arenas (base/device/peer.h), they work in device memory directly, else through the host. All
 * ranks come to the same decision, since it is made from the cards of all. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/device/peer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "collectives/gpu/plans/schedule.h"

gyre_status_t coll_cuda_failed(cudaError_t rc, const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    (void)cudaGetLastError(); /* clears the runtime's error, which is not the application's */
    return gyre_fail(rc == cudaErrorMemoryAllocation ? GYRE_ERR_NO_MEMORY : GYRE_ERR_SYSTEM, "%s: %s", what,
                     cudaGetErrorString(rc));
}

gyre_status_t coll_cuda_enter(const coll_cuda_t *c, int *before)
{
    return base_device_enter((base_device_t){BASE_CUDA, c->device}, before);
}

void coll_cuda_exit(const coll_cuda_t *c, int before)
{
    base_device_leave((base_device_t){BASE_CUDA, c->device}, before);
}

/* ---- the cards ----------------------------------------------------------------------------------------- */

enum { WAIT_AUTO = 0, WAIT_KERNEL, WAIT_STREAM };                /* as the words of GYRE_CUDA_WAIT */
typedef enum { WANT_AUTO = 0, WANT_DIRECT, WANT_STAGED } want_t; /* as the words of GYRE_CUDA_PATH */

typedef struct {
    base_device_handle_t handle; /* of the arena, */
    int32_t shareable;           /* if it is valid; else why not: */
    char obstacle[160];
    coll_cuda_place_t place;
    uint64_t region, process; /* process: base_device_process */
    int32_t blocks, want;
    int32_t wait; /* GYRE_CUDA_WAIT */
    int32_t algo; /* GYRE_CUDA_ALGO */
    uint64_t one_shot, engines, ll;
    int32_t can_wait;         /* its streams can */
    int32_t processors, held; /* of the device; blocks that one of them holds at once */
} card_t;

/* What came of mapping the others' arenas. */
typedef struct {
    int32_t mapped;
    int32_t uneven; /* links, as this rank sees them */
    char trouble[320];
} answer_t;

gyre_status_t coll_cuda_make_parts(coll_cuda_t *c)
{
    cudaError_t rc = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaStreamCreateWithFlags on device %d", c->device);
    rc = cudaEventCreateWithFlags(&c->newest, cudaEventDisableTiming);
    for (int i = 0; i < COLL_CUDA_CAPTURES && rc == cudaSuccess; i++)
        rc = cudaEventCreateWithFlags(&c->captures[i].newest, cudaEventDisableTiming);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaEventCreateWithFlags on device %d", c->device);
    rc = cudaHostAlloc((void **)&c->board, sizeof *c->board, cudaHostAllocPortable | cudaHostAllocMapped);
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "cudaHostAlloc(%zu)", sizeof *c->board);
    memset(c->board, 0, sizeof *c->board);
    rc = coll_cuda_load();
    if (rc == cudaSuccess)
        rc = coll_cuda_load_schedule();
    if (rc != cudaSuccess)
        return coll_cuda_failed(rc, "loading the kernels of collectives on device %d", c->device);
    return GYRE_OK;
}

/* What it takes to let streams wait. A driver that has no such call is an error only where it was asked
 * for. */
static gyre_status_t find_wait(coll_cuda_t *c, int wanted)
{
    void *wait = NULL;
    gyre_status_t st = wanted == WAIT_KERNEL ? GYRE_OK : base_device_driver("cuStreamWaitValue32", &wait);
    if (st == GYRE_OK && wait)
        memcpy(&c->wait, &wait, sizeof c->wait);
    return wanted == WAIT_STREAM ? st : GYRE_OK;
}

/* Whether streams of this device wait, by one that waits for a word that is there: a driver may have the call
 * and refuse it, as under MPS on some. Then kernels wait, unless streams were asked for. */
static gyre_status_t try_wait(coll_cuda_t *c, int wanted)
{
    enum { EQUAL = 1 }; /* CU_STREAM_WAIT_VALUE_EQ */
    uint32_t *word = &c->board->abort;
    if (!c->wait)
        return GYRE_OK;
    const int rc = c->wait(c->stream, (unsigned long long)(uintptr_t)word, *word, EQUAL);
    if (rc == 0) {
        cudaError_t done = cudaStreamSynchronize(c->stream);
        return done == cudaSuccess ? GYRE_OK
                                   : coll_cuda_failed(done, "a stream that waits for a word that is there");
    }
    if (wanted == WAIT_STREAM)
        return gyre_fail(GYRE_ERR_UNSUPPORTED,
                         "GYRE_CUDA_WAIT=stream: the driver does not let streams of CUDA device %d wait "
                         "(cuStreamWaitValue32: error %d); leave it to auto",
                         c->device, rc);
    log_info("cuStreamWaitValue32 on CUDA device %d: error %d: kernels wait instead of streams", c->device,
             rc);
    c->wait = NULL;
    return GYRE_OK;
}

/* What releases kernels and streams that wait for peers. Streams share queues on the device: those of highest
 * priority with each other only. */
gyre_status_t coll_cuda_make_rescue(coll_cuda_t *c)
{
    enum { WORDS = 2 * COLL_CUDA_RANKS + 1 };
    int least, greatest;
    cudaError_t rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithPriority(&c->rescue, cudaStreamNonBlocking, greatest);
    if (rc == cudaSuccess)
        rc = cudaHostAlloc((void **)&c->pages, WORDS * sizeof *c->pages, cudaHostAllocPortable);
    if (rc == cudaSuccess)
        c->pages[WORDS - 1] = 1;
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "a stream and pinned memory on device %d", c->device);
}

/* Copy engines have half of what blocks have. */
static size_t engine_half(size_t region, int blocks)
{
    return region * (size_t)blocks / 4 & ~(size_t)511;
}

static gyre_status_t fill_card(coll_cuda_t *c, card_t *card)
{
    const int rank = c->comm->rank, n = c->comm->n;
    memset(card, 0, sizeof *card);
    card->process = base_device_process();
    card->place.device = c->device;
    if (cudaDeviceGetPCIBusId(card->place.bus, sizeof card->place.bus, c->device) != cudaSuccess)
        snprintf(card->place.bus, sizeof card->place.bus, "?");
    card->want = (int32_t)base_setting_int(SET_CUDA_PATH);
    card->wait = (int32_t)base_setting_int(SET_CUDA_WAIT);
    card->blocks = (int32_t)base_setting_int(SET_CUDA_BLOCKS);
    const size_t blocks = (size_t)c->blocks;
    card->algo = (int32_t)base_setting_int(SET_CUDA_ALGO);
    card->one_shot = (uint64_t)base_setting_int(SET_CUDA_ONE_SHOT);
    card->engines = (uint64_t)base_setting_int(SET_CUDA_ENGINES);
    size_t ll = 0;
    gyre_status_t st = coll_cuda_ll_setting(&ll);
    card->ll = ll;
    const size_t region = ((size_t)base_setting_int(SET_CUDA_STAGING) / blocks) & ~(size_t)511;
    if (st == GYRE_OK && region < 2 * COLL_CUDA_ALIGN * (size_t)n)
        st = gyre_fail(GYRE_ERR_INVALID,
                       "GYRE_CUDA_STAGING=%s is too little for %d ranks and %zu blocks: %zu bytes are needed",
                       base_setting_string(SET_CUDA_STAGING), n, blocks,
                       base_round_up(2 * COLL_CUDA_ALIGN * (size_t)n, 512) * blocks);
    card->region = region;
    c->mail_at = coll_cuda_arena_bytes(region, c->blocks, engine_half(region, c->blocks));
    if (st == GYRE_OK)
        st = find_wait(c, card->wait);
    if (st == GYRE_OK)
        st = coll_cuda_make_parts(c);
    if (st == GYRE_OK)
        st = try_wait(c, card->wait);
    card->can_wait = c->wait != NULL;
    if (st == GYRE_OK)
        st = coll_cuda_ask_processors(c->device, &card->processors, &card->held);
    if (st == GYRE_OK && card->want != WANT_STAGED && n <= COLL_CUDA_RANKS && c->comm->hosts == 1)
        st = coll_cuda_take_memory(c, c->mail_at + coll_cuda_mail_bytes(region * blocks, n), &c->arena[rank]);
    if (st == GYRE_OK && c->arena[rank] && n > 1)
        st = coll_cuda_mail_clear(c->arena[rank] + c->mail_at, c->stream);
    if (st == GYRE_OK && c->arena[rank]) {
        card->shareable = base_device_export(c->arena[rank], &card->handle) == GYRE_OK || n == 1;
        if (!card->shareable)
            snprintf(card->obstacle, sizeof card->obstacle, "%s", gyre_last_error());
    }
    return st;
}

static gyre_status_t check_cards(const coll_cuda_t *c, const card_t *cards)
{
    const card_t *mine = &cards[c->comm->rank];
    for (int r = 0; r < c->comm->n; r++)
        if (cards[r].region != mine->region || cards[r].blocks != mine->blocks ||
            cards[r].want != mine->want || cards[r].wait != mine->wait || cards[r].algo != mine->algo ||
            cards[r].one_shot != mine->one_shot || cards[r].engines != mine->engines ||
            cards[r].ll != mine->ll)
            return gyre_fail(GYRE_ERR_INVALID,
                             "GYRE_CUDA_PATH, GYRE_CUDA_WAIT, GYRE_CUDA_STAGING, GYRE_CUDA_BLOCKS, "
                             "GYRE_CUDA_ALGO, GYRE_CUDA_LL, GYRE_CUDA_ONE_SHOT and GYRE_CUDA_ENGINES must be "
                             "the same on all ranks, but rank %d has others than rank %d",
                             r, c->comm->rank);
    return GYRE_OK;
}

/* The reason that keeps the ranks from each other's memory before any rank tries; "" if there is no such
 * reason. */
static void find_obstacle(const coll_cuda_t *c, const card_t *cards, char *why, size_t bytes)
{
    const gyre_comm_t *comm = c->comm;
    why[0] = '\0';
    if (cards[0].want == WANT_STAGED)
        snprintf(why, bytes, "GYRE_CUDA_PATH=staged");
    else if (comm->hosts > 1)
        snprintf(why, bytes, "the ranks are on %d hosts", comm->hosts);
    else if (comm->n > COLL_CUDA_RANKS)
        snprintf(why, bytes, "more than %d ranks", (int)COLL_CUDA_RANKS);
    for (int r = 0; r < comm->n && why[0] == '\0'; r++)
        if (!cards[r].shareable)
            snprintf(why, bytes, "the memory of rank %d cannot be shared: %s", r, cards[r].obstacle);
}

static void map_peers(coll_cuda_t *c, const card_t *cards, answer_t *answer)
{
    const base_device_t here = {BASE_CUDA, c->device};
    answer->mapped = 1;
    for (int r = 0; r < c->comm->n && answer->mapped; r++) {
        void *base = NULL;
        if (r == c->comm->rank)
            continue;
        answer->mapped = base_device_import(here, &cards[r].handle, &base) == GYRE_OK;
        if (answer->mapped)
            c->arena[r] = base;
        else
            snprintf(answer->trouble, sizeof answer->trouble,
                     "rank %d (%s) cannot map memory of rank %d (%s): %s", c->comm->rank,
                     cards[c->comm->rank].place.bus, r, cards[r].place.bus, gyre_last_error());
    }
}

static void unmap_peers(coll_cuda_t *c)
{
    for (int r = 0; r < c->comm->n && r < COLL_CUDA_RANKS; r++)
        if (r != c->comm->rank && c->arena[r]) {
            (void)base_device_unimport(c->arena[r]); /* fails where the exporter has gone */
            c->arena[r] = NULL;
        }
}

/* Collective: the first rank's error, if any has one, on all of them. It takes no memory, so that a rank that
 * has none left can say so: every step that one rank may fail at by itself is followed by this, as the
 * others would wait in the next. */
gyre_status_t coll_cuda_agree(const coll_cuda_t *c, gyre_status_t mine)
{
    const gyre_comm_t *comm = c->comm;
    int64_t here = mine == GYRE_OK ? 0 : (int64_t)(comm->n - comm->rank) << 16 | (int64_t)mine, first = 0;
    char text[320] = "";
    if (mine != GYRE_OK)
        snprintf(text, sizeof text, "%s", gyre_last_error());
    gyre_status_t st = gyre_all_reduce(&here, &first, 1, GYRE_INT64, GYRE_OP(GYRE_MAX), c->comm);
    if (st != GYRE_OK || first == 0)
        return st;
    const int rank = comm->n - (int)(first >> 16);
    const gyre_status_t error = (gyre_status_t)(first & 0xffff);
    st = gyre_broadcast(text, text, sizeof text, GYRE_UINT8, rank, c->comm);
    if (st != GYRE_OK)
        return st;
    return rank == comm->rank ? gyre_fail_quiet(error, "%s", text)
                              : gyre_fail(error, "rank %d: %s", rank, text);
}

static int sees_uneven_links(const coll_cuda_t *c, const card_t *cards)
{
    int devices[COLL_CUDA_RANKS];
    for (int r = 0; r < c->comm->n; r++)
        if (cudaDeviceGetByPCIBusId(&devices[r], cards[r].place.bus) != cudaSuccess) {
            (void)cudaGetLastError(); /* hidden from this process (CUDA_VISIBLE_DEVICES) */
            devices[r] = -1;
        }
    return coll_cuda_uneven_links(c->device, devices, c->comm->n);
}

/* The same on all ranks. Under MPS kernels of several processes are resident at once; else they take turns,
 * and one block of each will do if there is no room for more. */
static int blocks_at_once(const coll_cuda_t *c, const card_t *cards)
{
    const int n = c->comm->n;
    int least = c->blocks;
    for (int r = 0; r < n; r++) {
        int beside = 1; /* the rank itself */
        for (int other = 0; other < n; other++)
            beside += other != r && strcmp(cards[r].place.bus, cards[other].place.bus) == 0;
        const int room = coll_cuda_room(cards[r].processors, cards[r].held, beside);
        least = room < least ? room : least;
    }
    return least > 1 ? least : 1;
}

/* Collective. All ranks decide alike. */
static gyre_status_t choose_path(coll_cuda_t *c, const card_t *cards, answer_t *answers)
{
    const int n = c->comm->n;
    answer_t mine = {0};
    find_obstacle(c, cards, c->why, sizeof c->why);
    if (c->why[0] == '\0') {
        map_peers(c, cards, &mine);
        mine.uneven = sees_uneven_links(c, cards);
        gyre_status_t st = gyre_all_gather(&mine, answers, sizeof mine, GYRE_UINT8, c->comm);
        if (st != GYRE_OK)
            return st;
        for (int r = 0; r < n && c->why[0] == '\0'; r++)
            if (!answers[r].mapped)
                snprintf(c->why, sizeof c->why, "%s", answers[r].trouble);
        for (int r = 0; r < n; r++)
            c->uneven_links |= answers[r].uneven;
    }
    if (c->why[0] != '\0') {
        c->path = COLL_CUDA_STAGED;
        if (cards[0].want == WANT_DIRECT)
            return gyre_fail(GYRE_ERR_UNSUPPORTED, "GYRE_CUDA_PATH=direct is not possible: %s", c->why);
        return GYRE_OK;
    }
    c->path = COLL_CUDA_PEERS;
    int shared = 0, same = 1,
        able = cards[0].can_wait; /* some ranks share a device, all do, all streams can wait */
    for (int r = 1; r < n; r++) {
        able = able && cards[r].can_wait;
        same = same && strcmp(cards[r].place.bus, cards[0].place.bus) == 0;
        for (int other = 0; other < r; other++)
            shared = shared || strcmp(cards[r].place.bus, cards[other].place.bus) == 0;
    }
    c->stream_waits = n > 1 && able && (cards[0].wait == WAIT_STREAM || shared);
    snprintf(c->why, sizeof c->why, "%s; %s wait",
             n == 1 ? "one rank"
             : same ? "all ranks share one device"
                    : "peers map each other's memory",
             c->stream_waits ? "streams" : "kernels");
    return GYRE_OK;
}

/* Makes what each rank makes by itself. No rank may lack any of it: the others would wait for that rank in
 * the first operation. */
static gyre_status_t make_here(coll_cuda_t *c)
{
    const int staged = c->path == COLL_CUDA_STAGED;
    gyre_status_t st = !staged && c->comm->n > 1 ? coll_cuda_make_rescue(c) : GYRE_OK;
    if (st == GYRE_OK && staged)
        st = coll_cuda_proxy_start(c);
    if (st == GYRE_OK && !staged && c->comm->n > 1)
        st = coll_cuda_mail_start(c);
    return st == GYRE_OK ? coll_cuda_guard_add(c) : st;
}

/* The same on all ranks. */
static int several_in_a_process(const card_t *cards, int n)
{
    for (int r = 0; r < n; r++)
        for (int other = 0; other < r; other++)
            if (cards[r].process == cards[other].process && cards[r].process != 0)
                return 1;
    return 0;
}

/* Collective: that all processes which have several of the ranks let their streams run at once. */
static gyre_status_t check_processes(const coll_cuda_t *c, const card_t *cards)
{
    const card_t *mine = &cards[c->comm->rank];
    int here = 0, beside = 0;
    for (int r = 0; r < c->comm->n; r++) {
        const int ours = cards[r].process == mine->process;
        here += ours;
        beside += ours && cards[r].place.device == mine->place.device;
    }
    return coll_cuda_agree(
        c, here > 1 ? coll_cuda_check_environment("several ranks of a process", c->device, beside) : GYRE_OK);
}

/* The cards that the ranks have exchanged: of each, [n] in one piece of memory. */
typedef struct {
    card_t *cards;
    answer_t *answers;
} told_t;

static gyre_status_t meet_peers(coll_cuda_t *c, told_t *told)
{
    gyre_comm_t *comm = c->comm;
    card_t mine;
    memset(&mine, 0, sizeof mine);
    gyre_status_t st = coll_cuda_agree_on_blocks(c);
    if (st != GYRE_OK)
        return st;
    told->cards = calloc((size_t)comm->n, sizeof *told->cards);
    told->answers = calloc((size_t)comm->n, sizeof *told->answers);
    c->places = calloc((size_t)comm->n, sizeof *c->places);
    st = told->cards && told->answers && c->places
             ? fill_card(c, &mine)
             : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the cards of %d ranks", comm->n);
    st = coll_cuda_agree(c, st);
    if (st != GYRE_OK || !told->cards || !told->answers || !c->places) /* without those it is not OK */
        return st;
    st = gyre_all_gather(&mine, told->cards, sizeof mine, GYRE_UINT8, comm);
    if (st == GYRE_OK)
        st = check_cards(c, told->cards);
    if (st != GYRE_OK)
        return st;
    for (int r = 0; r < comm->n; r++)
        c->places[r] = told->cards[r].place;
    c->region = (size_t)mine.region;
    c->resident = blocks_at_once(c, told->cards);
    coll_cuda_ll_limit(c);
    c->several = several_in_a_process(told->cards, comm->n);
    c->engine_half = engine_half(c->region, c->blocks);
    if (c->several)
        st = check_processes(c, told->cards);
    return st == GYRE_OK ? choose_path(c, told->cards, told->answers) : st;
}

static gyre_status_t prepare_here(coll_cuda_t *c)
{
    gyre_comm_t *comm = c->comm;
    told_t told = {0};
    gyre_status_t st = meet_peers(c, &told);
    free(told.cards);
    free(told.answers);
    if (st == GYRE_OK)
        st = gyre_comm_split(comm, 0, comm->rank, &c->shadow);
    if (st == GYRE_OK)
        c->shadow->is_part = 1;
    if (st == GYRE_OK)
        st = coll_cuda_agree(c, make_here(c));
    if (st == GYRE_OK && c->path == COLL_CUDA_STAGED)
        st = coll_cuda_lent_start(c, coll_cuda_proxy_slots(c));
    if (st == GYRE_OK)
        log_info("communicator of %d ranks on CUDA device %d: %s (%s)%s%s; large messages %s", comm->n,
                 c->device,
                 c->path == COLL_CUDA_PEERS ? "direct"
                 : c->wire                  ? "short collectives staged through the host"
                                            : "staged through the host",
                 c->why, c->path == COLL_CUDA_PEERS ? "" : "; collectives ",
                 c->path == COLL_CUDA_PEERS ? "" : c->collectives,
                 comm->n > 1 ? c->messages : "of one rank: none");
    return st;
}

static void dismantle(coll_cuda_t *c)
{
    const int rank = c->comm->rank, n = c->comm->n;
    /* all ranks know that one could not be ready, so no operation began; only a communicator that has not
     * failed allows that */
    const int began = c->comm->cuda == c || atomic_load(&c->comm->error) != GYRE_OK;
    coll_cuda_guard_remove(c);
    coll_cuda_proxy_stop(c);
    coll_cuda_hosts_stop(c); /* the guard and the proxy may abort them */
    if (c->stuck) {          /* freeing what the device knows would wait for that stream, too */
        if (c->comm->team)
            coll_cuda_keep_arenas(c->comm->team);
        if (c->shadow)
            coll_comm_free(c->shadow);
        coll_cuda_guard_note_stuck(c);
        return;
    }
    coll_cuda_plans_free(c);
    if (!c->comm->team) /* which owns the arenas of all of its ranks */
        unmap_peers(c);
    if (rank < COLL_CUDA_RANKS && c->arena[rank] && !c->comm->team)
        coll_cuda_give_arena(c->arena[rank], rank, n, c->path == COLL_CUDA_PEERS && began);
    coll_cuda_drop_events(c);
    free(c->places);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
    if (c->rescue)
        (void)cudaStreamDestroy(c->rescue);
    if (c->pages)
        (void)cudaFreeHost(c->pages);
    if (c->board)
        (void)cudaFreeHost(c->board);
    coll_cuda_mail_free(c);
    if (c->shadow)
        coll_comm_free(c->shadow);
    coll_cuda_proxy_free(c); /* what it sent over UCX may be read until then */
    coll_cuda_lent_stop(c);
    free(c);
}

gyre_status_t coll_cuda_prepare(gyre_comm_t *comm, int device)
{
    int before;
    coll_cuda_t none = {.comm = comm, .device = device}, *c;
    if (coll_group_open())
        return gyre_fail(GYRE_ERR_INVALID,
                         "a communicator's first call on device memory cannot be part of a group: "
                         "call gyre_comm_prepare_cuda before");
    gyre_status_t st = base_device_primary((base_device_t){BASE_CUDA, device});
    if (st == GYRE_OK)
        st = coll_cuda_enter(&none, &before);
    if (st != GYRE_OK)
        return coll_cuda_agree(&none, st);
    c = calloc(1, sizeof *c);
    if (c) {
        *c = none;
        st = prepare_here(c);
    } else {
        st = coll_cuda_agree(
            &none, gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator's part on a device"));
    }
    if (st == GYRE_OK) {
        coll_drive(comm); /* gyre_comm_place looks, on any thread */
        coll_cuda_attach(comm, c);
        coll_stop_driving(comm);
    } else if (c) {
        dismantle(c);
    }
    coll_cuda_exit(&none, before);
    return st;
}

gyre_status_t gyre_comm_prepare_cuda(gyre_comm_t *comm)
{
    int device;
    gyre_status_t st = coll_check_comm("comm_prepare_cuda", comm);
    if (st != GYRE_OK)
        return st;
    if (base_device_count(BASE_CUDA) == 0)
        return gyre_fail(GYRE_ERR_UNSUPPORTED, "gyre_comm_prepare_cuda: no CUDA device: %s",
                         base_device_why_not(BASE_CUDA));
    if (comm->cuda)
        return GYRE_OK;
    cudaError_t rc = cudaGetDevice(&device);
    const coll_cuda_t none = {.comm = comm};
    return rc == cudaSuccess ? coll_cuda_prepare(comm, device)
                             : coll_cuda_agree(&none, coll_cuda_failed(rc, "cudaGetDevice"));
}

/* All of this rank's operations have ended; the peers may free what they lent it. */
static void say_goodbye(coll_cuda_t *c)
{
    coll_cuda_op_t op;
    memset(&op, 0, sizeof op);
    op.n = (uint16_t)c->comm->n;
    op.rank = (uint16_t)c->comm->rank;
    memcpy(op.arena, c->arena, sizeof op.arena);
    if (coll_cuda_launch_goodbye(&op, c->stream) != cudaSuccess ||
        cudaStreamSynchronize(c->stream) != cudaSuccess)
        (void)cudaGetLastError(); /* then their memory stays until they finish */
}

/* After a failure: none of the ranks has died or left, and its memory with it. */
static int all_live(const gyre_comm_t *comm)
{
    char how[64];
    return atomic_load(&comm->error) == GYRE_OK || !comm->world->watch ||
           comm_watch_dead(comm->world->watch, comm->world_ranks, comm->n, how, sizeof how) < 0;
}

void coll_cuda_end(gyre_comm_t *comm)
{
    coll_cuda_t *c = comm->cuda;
    int before;
    if (!c || c->ended)
        return;
    c->ended = 1;
    const gyre_status_t entered = coll_cuda_enter(c, &before);
    const int ended = coll_cuda_wait_for_streams(c);
    coll_cuda_hosts_end(c);
    if (ended && c->path == COLL_CUDA_PEERS && !comm->team && all_live(comm))
        say_goodbye(c);
    if (ended)
        coll_cuda_unmap_registered(c);
    if (ended && !comm->team)
        unmap_peers(c);
    if (entered == GYRE_OK)
        coll_cuda_exit(c, before);
}

void coll_cuda_free(gyre_comm_t *comm)
{
    coll_cuda_t *c = comm->cuda;
    int before;
    if (!c)
        return;
    coll_cuda_end(comm);
    const coll_cuda_t place = {.device = c->device};
    const gyre_status_t entered = coll_cuda_enter(&place, &before);
    dismantle(c);
    coll_cuda_attach(comm, NULL);
    if (entered == GYRE_OK)
        coll_cuda_exit(&place, before);
}

#endif
