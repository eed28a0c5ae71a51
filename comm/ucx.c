/* comm/ucx.c: UCX for ranks that share no memory: one context and worker per process, connections shared by groups.
 *
 * Messages are UCP active messages: a header of our own (who, which lane, which number, tag, present call) and the
 * payload, eager or by rendezvous (ucx_link.c says which). Arrivals wait in inboxes per group, rank and lane, in order of
 * their numbers, since UCX does not promise an order between the two kinds.
 *
 * The worker is made when the first group needs it and ends with the last. Every group tells all its ranks its worker's
 * address when it is made: O(n) memory, for now. */
#include "comm/ucx.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings.h"

enum { ARRIVALS_BLOCK = 64, CLOSE_MS = 1000, LOOK_MS = 500 };
#define MS           ((base_time_t)1000000)
#define ADDRESS_SEED 3 /* of the hashes of workers' addresses */

typedef struct arrivals_block {
    struct arrivals_block *next;
    ucx_arrival_t entries[ARRIVALS_BLOCK];
} arrivals_block_t;

static struct {
    pthread_mutex_t lock;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int event_fd;
    uint32_t piece; /* see comm_ucx_piece */
    uint64_t kinds; /* of memory that it knows: bits by ucs_memory_type_t */
    int users;      /* groups */
    comm_ucx_group_t *groups;
    ucx_peer_t *peers;
    ucx_arrival_t
        *free_arrivals; /* grows in blocks and is kept: nothing is allocated per message once warm */
    arrivals_block_t *blocks;
    int lost;              /* an arrival could not be kept for want of memory */
    base_time_t looked_at; /* its sockets, last */
    ucx_silences_t silences;
} ucx = {.lock = PTHREAD_MUTEX_INITIALIZER, .event_fd = -1};

void ucx_lock(void)
{
    pthread_mutex_lock(&ucx.lock);
}

void ucx_unlock(void)
{
    pthread_mutex_unlock(&ucx.lock);
}

void ucx_breathe(void)
{
    static const struct timespec moment = {0, 20000}; /* a mutex alone would hardly ever change hands */

    ucx_unlock();
    nanosleep(&moment, NULL);
    ucx_lock();
}

int ucx_needed_elsewhere(const comm_ucx_group_t *ug, int rank)
{
    const int world_rank = ug->group->world_ranks[rank];

    for (const comm_ucx_group_t *other = ucx.groups; other; other = other->next) {
        for (int r = 0; other != ug && other->leave_by == 0 && r < other->group->n; r++) {
            if (other->group->world_ranks[r] == world_rank && !comm_group_failed(other->group))
                return 1;
        }
    }
    return 0;
}

ucp_worker_h ucx_worker(void)
{
    return ucx.worker;
}

int ucx_lost(void)
{
    return ucx.lost;
}

void ucx_poll(void)
{
    while (ucp_worker_progress(ucx.worker) != 0) {
    }
}

/* ---- arrivals ------------------------------------------------------------------------------------------ */

static ucx_arrival_t *arrival_new(void)
{
    ucx_arrival_t *arrival = ucx.free_arrivals;

    if (!arrival) {
        arrivals_block_t *block = calloc(1, sizeof *block);
        if (!block)
            return NULL;
        block->next = ucx.blocks;
        ucx.blocks = block;
        for (int i = 0; i < ARRIVALS_BLOCK; i++) {
            block->entries[i].next = ucx.free_arrivals;
            ucx.free_arrivals = &block->entries[i];
        }
        arrival = ucx.free_arrivals;
    }
    ucx.free_arrivals = arrival->next;
    return arrival;
}

void ucx_arrival_free(ucx_arrival_t *arrival)
{
    arrival->next = ucx.free_arrivals;
    ucx.free_arrivals = arrival;
}

ucx_inbox_t *ucx_inbox(comm_ucx_group_t *ug, int source, int lane)
{
    ucx_inbox_t **place = &ug->inboxes[(size_t)source * COMM_LANES + (size_t)lane];

    if (!*place) {
        *place = calloc(1, sizeof **place);
        ug->group->private_bytes += sizeof **place;
    }
    return *place;
}

/* Almost always at the end; rendezvous and eager messages may overtake each other. */
static void inbox_insert(ucx_inbox_t *inbox, ucx_arrival_t *arrival)
{
    ucx_arrival_t **link = &inbox->head;

    if (inbox->tail && inbox->tail->header.number < arrival->header.number)
        link = &inbox->tail->next;
    while (*link && (*link)->header.number < arrival->header.number)
        link = &(*link)->next;
    arrival->next = *link;
    *link = arrival;
    if (!arrival->next)
        inbox->tail = arrival;
}

/* Drops an inbox's messages; all: those whose payload has come, too. UCX tells the sender of a rendezvous that it is over. */
static void inbox_drop(ucx_inbox_t *inbox, int all)
{
    ucx_arrival_t **link = &inbox->head;

    inbox->tail = NULL;
    while (*link) {
        ucx_arrival_t *arrival = *link;
        if (!all && !arrival->rndv) {
            inbox->tail = arrival;
            link = &arrival->next;
            continue;
        }
        *link = arrival->next;
        if (arrival->data)
            ucp_am_data_release(ucx.worker, arrival->data);
        ucx_arrival_free(arrival);
    }
}

void ucx_give_back(comm_ucx_group_t *ug, int source)
{
    const size_t first = source < 0 ? 0 : (size_t)source * COMM_LANES;
    const size_t end = source < 0 ? (size_t)ug->group->n * COMM_LANES : first + COMM_LANES;

    for (size_t i = first; ug->inboxes && i < end; i++) {
        if (ug->inboxes[i])
            inbox_drop(ug->inboxes[i], source < 0);
    }
}

static comm_ucx_group_t *find_group(const ucx_header_t *header)
{
    for (comm_ucx_group_t *ug = ucx.groups; ug; ug = ug->next) {
        if (ug->group->id == header->group && ug->group->rank == header->dest)
            return ug;
    }
    return NULL;
}

/* UCX's callback for every message, under the lock (inside ucp_worker_progress). UCS_INPROGRESS keeps `data`. */
static ucs_status_t on_message(void *arg, const void *head, size_t head_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    ucx_arrival_t *arrival;
    ucx_header_t header;
    comm_ucx_group_t *ug;
    ucx_inbox_t *inbox;
    int rndv;

    (void)arg;
    if (head_bytes != sizeof header) {
        log_warning("ucx: dropped a message whose header has %zu bytes", head_bytes);
        return UCS_OK;
    }
    memcpy(&header, head, sizeof header);
    ug = find_group(&header);
    if (!ug || ug->leave_by != 0) {
        log_debug("ucx: dropped a message for a communicator that is gone");
        return UCS_OK; /* which tells the sender of a rendezvous that it is over */
    }
    if (header.source < 0 || header.source >= ug->group->n || header.lane >= COMM_LANES ||
        header.bytes != bytes) {
        log_warning("ucx: dropped a message with a header that cannot be");
        return UCS_OK;
    }
    if (header.number == UCX_WITHDRAWN) {
        ug->withdrawn[header.source] = 1;
        ucx_give_back(ug, header.source);
        return UCS_OK;
    }
    rndv = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (rndv && ug->withdrawn[header.source])
        return UCS_OK;
    inbox = ucx_inbox(ug, header.source, (int)header.lane);
    if (inbox && header.taken > inbox->acked)
        inbox->acked = header.taken;
    if (header.number == UCX_NO_NUMBER)
        return UCS_OK; /* no inbox: the next message says it again */
    arrival = inbox ? arrival_new() : NULL;
    if (!arrival) {
        ucx.lost = 1;
        return UCS_ERR_NO_MEMORY;
    }
    arrival->header = header;
    arrival->data = bytes > 0 ? data : NULL;
    arrival->rndv = rndv;
    inbox_insert(inbox, arrival);
    return arrival->data ? UCS_INPROGRESS : UCS_OK;
}

/* ---- the worker ---------------------------------------------------------------------------------------- */

static ucs_status_t make_context(uint32_t piece)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .name = "gyre"};
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return status;
    ucx_configure(config, piece);
    status = ucp_init(&params, config, &ucx.context);
    ucp_config_release(config);
    return status;
}

/* What memory it can send from and receive into. A UCX knows CUDA's if it was built with CUDA and its modules for it have found a
 * driver. */
static uint64_t ask_kinds(ucp_context_h context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    return ucp_context_query(context, &attr) == UCS_OK ? attr.memory_types : 0;
}

static ucs_status_t make_worker(void)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = UCX_AM_ID,
                                      .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
                                      .cb = on_message};
    ucs_status_t status = ucp_worker_create(ucx.context, &params, &ucx.worker);

    if (status != UCS_OK)
        return status;
    status = ucp_worker_set_am_recv_handler(ucx.worker, &handler);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(ucx.worker, &ucx.event_fd);
    if (status == UCS_OK)
        status = ucp_worker_get_address(ucx.worker, &ucx.address, &ucx.address_bytes);
    return status;
}

static void stop_worker(void)
{
    if (ucx.address)
        ucp_worker_release_address(ucx.worker, ucx.address);
    if (ucx.worker)
        ucp_worker_destroy(ucx.worker);
    if (ucx.context)
        ucp_cleanup(ucx.context);
    while (ucx.blocks) {
        arrivals_block_t *block = ucx.blocks;
        ucx.blocks = block->next;
        free(block);
    }
    ucx.free_arrivals = NULL;
    ucx.address = NULL;
    ucx.worker = NULL;
    ucx.context = NULL;
    ucx.event_fd = -1;
    ucx.piece = 0;
}

static gyre_status_t start_worker(uint32_t piece)
{
    ucs_status_t status;

    if (ucx.worker && ucx.piece != piece) /* another thread was faster */
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "this process has just started UCX for another communicator, in pieces of %u bytes, while this "
            "one agreed on %u: make communicators that stripe TCP over several links first, or set "
            "UCX_NET_DEVICES alike",
            ucx.piece, piece);
    if (ucx.worker)
        return GYRE_OK;
    ucx_sockets_t listening;
    ucx_sockets_before(&listening);
    /* An interface that goes away while UCX opens what it has listed spoils the whole start; the next look does not see it. */
    for (int tries = 0;; tries++) {
        status = make_context(piece);
        if (status == UCS_OK)
            status = make_worker();
        if (status != UCS_ERR_NO_DEVICE || tries == 3)
            break;
        stop_worker();
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    ucx_sockets_after(&listening);
    if (status == UCS_OK) {
        ucx.piece = piece;
        ucx.kinds = ask_kinds(ucx.context);
        return GYRE_OK;
    }
    stop_worker();
    return gyre_fail(
        status == UCS_ERR_NO_MEMORY ? GYRE_ERR_NO_MEMORY : GYRE_ERR_SYSTEM,
        "UCX could not be started: %s; look at UCX_TLS and UCX_NET_DEVICES, at ulimit -l (memory that RDMA "
        "may lock) and at ulimit -n, and run with UCX_LOG_LEVEL=info",
        ucs_status_string(status));
}

/* ---- connections --------------------------------------------------------------------------------------- */

void ucx_peer_fail(ucx_peer_t *peer, ucs_status_t status)
{
    if (peer->failed != UCS_OK)
        return;
    peer->failed = status;
    peer->failed_at = base_now();
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ucx_peer_fail(arg, status);
    log_debug("ucx: a connection failed: %s", ucs_status_string(status));
}

/* Does the connection go over TCP? UCX 1.13 has no other way to tell than what it prints. */
static int goes_over_tcp(ucp_ep_h ep)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    int tcp;

    if (!stream)
        return 0;
    ucp_ep_print_info(ep, stream);
    fclose(stream);
    tcp = text && strstr(text, ":tcp/") != NULL;
    free(text);
    return tcp;
}

static const ucp_address_t *address_of(const comm_ucx_group_t *ug, int rank, uint64_t *hash)
{
    const unsigned char *record = ug->addresses + (size_t)rank * ug->record_bytes;
    uint32_t length;

    memcpy(&length, record, sizeof length);
    *hash = base_hash64(record + sizeof length, length, ADDRESS_SEED);
    return (const ucp_address_t *)(const void *)(record + sizeof length);
}

static gyre_status_t peer_new(comm_ucx_group_t *ug, int rank, ucx_peer_t **out)
{
    ucx_peer_t *peer = calloc(1, sizeof *peer);
    ucs_status_t status;

    if (!peer)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a connection to rank %d", rank);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address_of(ug, rank, &peer->address_hash),
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_error, .arg = peer}};
    status = ucp_ep_create(ucx.worker, &params, &peer->ep);
    if (status != UCS_OK) {
        free(peer);
        return gyre_fail(
            GYRE_ERR_TRANSPORT,
            "UCX cannot connect to rank %d (world rank %d): %s; look at UCX_TLS and UCX_NET_DEVICES on both "
            "hosts",
            rank, ug->group->world_ranks[rank], ucs_status_string(status));
    }
    peer->tcp = goes_over_tcp(peer->ep);
    peer->next = ucx.peers;
    ucx.peers = peer;
    *out = peer;
    return GYRE_OK;
}

/* Did it fail before this group was made, so that it is none of its? */
static int failed_before(const comm_ucx_group_t *ug, const ucx_peer_t *peer)
{
    return peer->failed != UCS_OK && peer->failed_at <= ug->made_at;
}

/* The connection that the group has with the process of that address; NULL: none yet. */
static ucx_peer_t *find_peer(const comm_ucx_group_t *ug, uint64_t hash)
{
    ucx_peer_t *found = NULL;

    /* The oldest: the newest are listed first. */
    for (ucx_peer_t *peer = ucx.peers; peer; peer = peer->next) {
        if (peer->address_hash == hash && !failed_before(ug, peer))
            found = peer;
    }
    return found;
}

gyre_status_t ucx_peer_get(comm_ucx_group_t *ug, int rank, ucx_peer_t **out)
{
    ucx_peer_t *found;
    uint64_t hash;

    (void)address_of(ug, rank, &hash);
    found = find_peer(ug, hash);
    if (!found)
        return peer_new(ug, rank, out);
    *out = found;
    return GYRE_OK;
}

/* Waits for a request of ours, a short time. breathe: other threads may have the lock meanwhile. */
static void finish(ucs_status_ptr_t request, base_time_t until, int breathe)
{
    if (!UCS_PTR_IS_PTR(request))
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && base_now() < until) {
        if (ucp_worker_progress(ucx.worker) == 0 && breathe)
            ucx_breathe();
    }
    ucp_request_free(request);
}

static void close_ep(ucx_peer_t *peer, unsigned flags, base_time_t until, int breathe)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucp_ep_h ep = peer->ep;

    peer->ep = NULL; /* first: no other thread may use it or close it again */
    if (ep)
        finish(ucp_ep_close_nbx(ep, &param), until, breathe);
}

void ucx_peer_cut(ucx_peer_t *peer)
{
    ucx_peer_fail(peer, UCS_ERR_CANCELED);
    close_ep(peer, UCP_EP_CLOSE_FLAG_FORCE, base_now() + CLOSE_MS * MS, 1);
}

/* When the last group is gone: it does not breathe, so that none begins meanwhile. force: a peer may never answer. */
static void close_peers(int force)
{
    base_time_t until = base_now() + CLOSE_MS * MS;

    while (ucx.peers) {
        ucx_peer_t *peer = ucx.peers;
        ucx.peers = peer->next;
        close_ep(peer, force || peer->failed != UCS_OK || base_now() >= until ? UCP_EP_CLOSE_FLAG_FORCE : 0,
                 until, 0);
        free(peer);
    }
}

/* ---- groups -------------------------------------------------------------------------------------------- */

static void leave_locked(comm_ucx_group_t *ug)
{
    comm_ucx_group_t **link = &ucx.groups;
    int failed = comm_group_failed(ug->group);

    while (*link && *link != ug)
        link = &(*link)->next;
    if (*link)
        *link = ug->next;
    ucx_give_back(ug, -1);
    for (size_t i = 0; ug->inboxes && i < (size_t)ug->group->n * COMM_LANES; i++)
        free(ug->inboxes[i]);
    free(ug->inboxes);
    free(ug->withdrawn);
    free(ug->addresses);
    free(ug->failed);
    free(ug);
    if (--ucx.users == 0) {
        close_peers(failed);
        ucx_links_reap();
        stop_worker();
        ucx_links_drop();
    }
}

/* Sends whatever UCX still holds back, so that no peer waits for it while this rank does something else. */
static void flush(void)
{
    ucp_request_param_t param = {0};
    base_time_t until = base_now() + CLOSE_MS * MS;

    for (ucx_peer_t *peer = ucx.peers; peer; peer = peer->next) {
        if (peer->failed == UCS_OK && peer->ep)
            finish(ucp_ep_flush_nbx(peer->ep, &param), until,
                   1); /* peers stay listed while a group is there */
    }
}

void comm_ucx_leave(comm_group_t *group)
{
    ucx_lock();
    if (!comm_group_failed(group))
        flush();
    leave_locked(group->ucx);
    group->ucx = NULL;
    ucx_unlock();
}

uint32_t comm_ucx_piece(void)
{
    uint32_t piece;

    ucx_lock();
    piece = ucx.piece;
    ucx_unlock();
    return piece;
}

/* Shorter pieces are needed to stripe the chunks of a collective, and cost more where one link carries all. Those whose UCX
 * runs already cannot change theirs, so who joins them follows. */
static gyre_status_t agree_on_piece(const comm_group_t *group, uint32_t *piece)
{
    enum { WHOLE = 64 << 10 /* UCX's own */, STRIPED = 16 << 10 };
    int fixed = -1;

    *piece = WHOLE;
    for (int r = 0; r < group->n; r++) {
        if (group->cards[r].links > 1)
            *piece = STRIPED;
        if (group->cards[r].piece == 0)
            continue;
        if (fixed >= 0 && group->cards[r].piece != group->cards[fixed].piece)
            return gyre_fail(
                GYRE_ERR_UNSUPPORTED,
                "ranks %d and %d have started UCX apart, for other numbers of links per host, and cannot "
                "be joined: start them as one job, or with the same UCX_NET_DEVICES",
                fixed, r);
        fixed = r;
    }
    if (fixed >= 0)
        *piece = group->cards[fixed].piece;
    return GYRE_OK;
}

/* Lists the connections that have failed. This is the moment that divides them: what fails later is the new group's, too, and
 * ends it, whether or not the other end notices. */
static gyre_status_t list_failed(comm_ucx_group_t *ug)
{
    uint32_t count = 0;

    ucx_poll();
    for (const ucx_peer_t *peer = ucx.peers; peer; peer = peer->next)
        count += peer->failed != UCS_OK;
    ug->made_at = base_now();
    ug->failed = calloc((size_t)count + 1, sizeof *ug->failed);
    if (!ug->failed)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of %u connections", count);
    for (const ucx_peer_t *peer = ucx.peers; peer; peer = peer->next) {
        if (peer->failed != UCS_OK)
            ug->failed[ug->nfailed++] = peer->address_hash;
    }
    return GYRE_OK;
}

/* Makes this rank's part; *bytes: the length of its address; *failed: how many connections have failed. */
static gyre_status_t begin(comm_group_t *group, uint32_t *bytes, uint32_t *failed)
{
    comm_ucx_group_t *ug;
    uint32_t piece;
    gyre_status_t status = agree_on_piece(group, &piece);

    if (status != GYRE_OK)
        return status;
    ug = calloc(1, sizeof *ug);
    if (!ug)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", group->n);
    ug->group = group;
    ug->inboxes = calloc((size_t)group->n * COMM_LANES, sizeof *ug->inboxes);
    ug->withdrawn = calloc((size_t)group->n, sizeof *ug->withdrawn);
    ucx_lock();
    ucx.users++;
    status = ug->inboxes && ug->withdrawn ? start_worker(piece)
                                          : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for inboxes");
    if (status == GYRE_OK)
        status = list_failed(ug);
    if (status == GYRE_OK) {
        /* Known before any peer can have this rank's address: no message finds its group missing. */
        ug->next = ucx.groups;
        ucx.groups = ug;
        group->ucx = ug;
        *bytes = (uint32_t)ucx.address_bytes;
        *failed = ug->nfailed;
    } else {
        leave_locked(ug);
    }
    ucx_unlock();
    return status;
}

/* A connection with `rank` has failed at the other end, unheard of here, where UCX may only have received over it: then it has made
 * its end by itself, tells nobody that it is dead, and would give it to the first who asks for a connection. */
static gyre_status_t peer_forget(comm_ucx_group_t *ug, int rank)
{
    ucx_peer_t *peer;
    uint64_t hash;
    gyre_status_t status = GYRE_OK;
    int made;

    (void)address_of(ug, rank, &hash);
    peer = find_peer(ug, hash);
    made = !peer;
    if (made)
        status = peer_new(ug, rank, &peer);
    if (status != GYRE_OK)
        return status;
    ucx_peer_fail(peer, UCS_ERR_CONNECTION_RESET);
    peer->failed_at =
        ug->made_at; /* as at the other end: it is not this group's, and still that of the earlier ones */
    if (made)
        ucx_peer_cut(peer);
    return GYRE_OK;
}

static uint32_t count_failed_before(const comm_ucx_group_t *ug, uint64_t hash)
{
    uint32_t count = 0;

    for (const ucx_peer_t *peer = ucx.peers; peer; peer = peer->next)
        count += peer->address_hash == hash && failed_before(ug, peer);
    return count;
}

/* Every rank has told the addresses of those with whom its connections have failed. After that no end of one is used any more. */
static gyre_status_t agree_on_failed(comm_ucx_group_t *ug, size_t failed_at, uint32_t most_failed)
{
    const uint64_t mine = base_hash64(ucx.address, ucx.address_bytes, ADDRESS_SEED);
    gyre_status_t status = GYRE_OK;

    for (int r = 0; r < ug->group->n && status == GYRE_OK; r++) {
        uint64_t hash, told;
        uint32_t theirs = 0;

        (void)address_of(ug, r, &hash);
        for (uint32_t i = 0; i < most_failed; i++) {
            memcpy(&told, ug->addresses + (size_t)r * ug->record_bytes + failed_at + i * sizeof told,
                   sizeof told);
            theirs += told == mine;
        }
        for (uint32_t ours = count_failed_before(ug, hash); ours < theirs && status == GYRE_OK; ours++)
            status = peer_forget(ug, r);
    }
    return status;
}

/* A record: 4 bytes of length, the worker's address, and from failed_at on the hashed addresses of those with whom connections
 * have failed, 0 where there are fewer than most_failed. */
static void write_record(const comm_ucx_group_t *ug, unsigned char *record, size_t failed_at)
{
    const uint32_t length = (uint32_t)ucx.address_bytes;

    memcpy(record, &length, sizeof length);
    memcpy(record + sizeof length, ucx.address, length);
    memcpy(record + failed_at, ug->failed, ug->nfailed * sizeof *ug->failed);
}

gyre_status_t comm_ucx_prepare(comm_group_t *group, comm_exchange_fn exchange, void *user)
{
    struct {
        int32_t status;
        uint32_t bytes, failed;
    } mine = {0}, *all = calloc((size_t)group->n, sizeof *all);
    comm_ucx_group_t *ug;
    size_t most = 0;
    uint32_t most_failed = 0;
    unsigned char *record;
    gyre_status_t status;

    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for addresses of %d ranks", group->n);
    mine.status = (int32_t)begin(group, &mine.bytes, &mine.failed);
    status = exchange(user, &mine, sizeof mine, all);
    for (int r = 0; status == GYRE_OK && r < group->n; r++) {
        if (all[r].status != GYRE_OK)
            status = r == group->rank
                         ? (gyre_status_t)all[r].status
                         : gyre_fail((gyre_status_t)all[r].status,
                                     "rank %d (world rank %d) could not start UCX; its message says why", r,
                                     group->world_ranks[r]);
        most = all[r].bytes > most ? all[r].bytes : most;
        most_failed = all[r].failed > most_failed ? all[r].failed : most_failed;
    }
    free(all);
    if (status != GYRE_OK)
        return status;
    /* Records as long as the longest: all ranks know that length now. */
    ug = group->ucx;
    most += sizeof mine.bytes;
    ug->record_bytes = most + most_failed * sizeof(uint64_t);
    ug->addresses = calloc((size_t)group->n, ug->record_bytes);
    record = calloc(1, ug->record_bytes);
    if (!ug->addresses || !record) {
        free(record);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for addresses of %d ranks", group->n);
    }
    write_record(ug, record, most);
    status = exchange(user, record, ug->record_bytes, ug->addresses);
    free(record);
    group->private_bytes += (size_t)group->n * (ug->record_bytes + COMM_LANES * sizeof(void *) + 1);
    ucx_lock();
    if (status == GYRE_OK)
        status = agree_on_failed(ug, most, most_failed);
    ucx_unlock();
    return status;
}

void comm_ucx_progress(comm_group_t *group)
{
    (void)group;
    ucx_lock();
    ucx_poll();
    ucx_unlock();
}

/* TCP alone leaves it to us. */
void ucx_look_at_sockets(void)
{
    const base_time_t now = base_now();
    int tcp = 0;

    if (now - ucx.looked_at < LOOK_MS * MS)
        return;
    ucx.looked_at = now;
    for (const ucx_peer_t *peer = ucx.peers; peer && !tcp; peer = peer->next)
        tcp = peer->tcp;
    if (tcp && ucx_sockets_look(&ucx.silences, ucx.event_fd) == 0)
        log_debug("ucx: none of its TCP connections was found; a link that is cut ends with the heartbeat or "
                  "the deadline");
}

void comm_ucx_sleep(comm_group_t *group, int ms)
{
    struct pollfd event = {.events = POLLIN};
    int armed;

    ucx_lock();
    group->ucx->slept = 1;
    event.fd = ucx.event_fd;
    /* BUSY: something came in meanwhile. */
    armed = ucp_worker_arm(ucx.worker) == UCS_OK;
    if (!armed)
        ucx_poll();
    ucx_look_at_sockets();
    ucx_unlock();
    if (armed)
        poll(&event, 1, ms);
}

/* ---- device memory ----------------------------------------------------------------------------------------- */

static int knows_cuda(uint64_t kinds, char *text, size_t bytes)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if (kinds & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) {
        snprintf(text, bytes, "UCX %u.%u.%u knows CUDA memory", major, minor, release);
        return 1;
    }
    snprintf(text, bytes,
             "this UCX (%u.%u.%u) knows no CUDA memory: it was built without it, or its modules for CUDA "
             "(libuct_cuda) are not there or not in UCX_TLS",
             major, minor, release);
    return 0;
}

gyre_status_t comm_ucx_lend(comm_group_t *group, void *base, size_t bytes, comm_direct_t *out)
{
    comm_ucx_group_t *ug = group->ucx;
    const comm_rdma_t want = (comm_rdma_t)base_setting_int(SET_CUDA_RDMA);

    if (want == COMM_RDMA_DMABUF || want == COMM_RDMA_PEERMEM) {
        snprintf(out->why, sizeof out->why, "between hosts goes UCX, which chooses by itself (auto)");
        return GYRE_OK;
    }
    ucx_lock();
    out->works = knows_cuda(ucx.kinds, out->why, sizeof out->why);
    if (out->works) {
        ug->lent = base;
        ug->lent_bytes = bytes;
    }
    ucx_unlock();
    return GYRE_OK;
}

void comm_ucx_reclaim(comm_group_t *group)
{
    ucx_lock();
    group->ucx->lent = NULL;
    group->ucx->lent_bytes = 0;
    ucx_unlock();
}

int comm_ucx_try_device(char *text, size_t bytes)
{
    uint64_t kinds = 0;
    ucs_status_t status = UCS_OK;
    int works;

    ucx_lock();
    if (ucx.context) {
        kinds = ucx.kinds;
    } else {
        status = make_context(64 << 10);
        if (status == UCS_OK)
            kinds = ask_kinds(ucx.context);
        stop_worker();
    }
    works = knows_cuda(kinds, text, bytes);
    ucx_unlock();
    if (status != UCS_OK)
        snprintf(text, bytes, "UCX does not start: %s", ucs_status_string(status));
    return works;
}
