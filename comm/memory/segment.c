/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/segment.c: layout and life of a group's shared memory on one host (see segment.h for the
 * picture). */
#include "comm/memory/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/thread/futex.h"
#include "comm/memory/rooms.h"

enum {
    SEGMENT_MAGIC = 0x47595331, /* "GYS1" */
    SLOTS_MIN = 4,   /* a header, two slots of payload, and the free slot that a sender must keep */
    SLOTS_MAX = 4096 /* 256 KiB */
};

/* By the room that there is: with slots for a root that is far ahead, with few, and without the longer
 * classes. Where everybody both posts and reads, few slots are best, since they stay in the first-level
 * cache; a root that posts one broadcast after the other is faster with many (4 KiB 0.41 -> 0.27 us, 16
 * KiB 1.7 -> 1.1). */
static const comm_outbox_shape_t outbox_shapes[] = {
    {64, {32, 64, 16}, {1 << 10, 4 << 10, 16 << 10}},
    {32, {32, 16, 4}, {1 << 10, 4 << 10, 16 << 10}},
    {32, {32, 8, 0}, {1 << 10, 4 << 10, 0}},
    {32, {16, 0, 0}, {1 << 10, 0, 0}},
    {0, {0}, {0}},
};
enum { EXCHANGE_SHAPES = sizeof outbox_shapes / sizeof outbox_shapes[0] };

static int known_outbox(const comm_outbox_shape_t *shape, int locals)
{
    for (int i = 0; i < EXCHANGE_SHAPES; i++)
        if (memcmp(shape, &outbox_shapes[i], sizeof *shape) == 0)
            return shape->lines == 0 || locals <= COMM_OUTBOX_RANKS;
    return 0;
}

/* A ring of lane 0 with fewer slots does not hold a packet of COMM_POOL_BYTES, within a line. */
enum { SLOTS_LONG = 4 * COMM_POOL_BYTES / COMM_LINE };

typedef struct {
    _Atomic uint64_t cookie; /* random; proves that a fetched descriptor is this segment */
    _Atomic int32_t left;    /* ranks that have closed it */
    _Atomic uint32_t lines;  /* the most that one of them had used of the outboxes' lines */
    _Atomic uint32_t soiled; /* 1: one of them had used more, and that was not given back yet */
    uint32_t magic;
    int32_t locals;
    uint32_t slots[COMM_LANES];
    comm_outbox_shape_t outbox;
    uint32_t buffers;
} segment_header_t;

static size_t ring_bytes(uint32_t slots)
{
    return sizeof(comm_ring_ctl_t) + (size_t)slots * COMM_LINE;
}

/* Derives the offsets from locals, shape, buffers and slots. Local areas: bell, board, one byte per possible
 * CMA owner. Outboxes share pages with their neighbours only at their ends. They are a line more than pages
 * apart: lines of one operation, which a rank reads of all others, lie in different sets of its cache. */
static void layout(comm_segment_t *seg)
{
    const size_t locals = (size_t)seg->locals, pairs = locals * (locals - 1);

    seg->cells_at = base_round_up(sizeof(segment_header_t), COMM_LINE);
    seg->locals_at = seg->cells_at + base_round_up((size_t)seg->locals * sizeof(int32_t), COMM_LINE);
    seg->local_stride =
        sizeof(comm_bell_t) + sizeof(comm_board_t) + base_round_up((size_t)seg->locals, COMM_LINE);
    seg->outbox_at = base_round_up(seg->locals_at + locals * seg->local_stride, 4096);
    seg->outbox_stride =
        seg->outbox.lines > 0 ? base_round_up(comm_outbox_bytes(&seg->outbox), 4096) + COMM_LINE : 0;
    seg->pool_at = base_round_up(seg->outbox_at + locals * seg->outbox_stride, 4096);
    seg->bytes = seg->pool_at + locals * seg->buffers * COMM_POOL_BYTES;
    for (int lane = 0; lane < COMM_LANES; lane++) {
        seg->lane_at[lane] = seg->bytes;
        seg->bytes = base_round_up(seg->bytes + pairs * ring_bytes(seg->slots[lane]), 4096);
    }
}

static uint32_t power_of_two_below(size_t value)
{
    uint32_t slots = SLOTS_MIN;

    while (slots < SLOTS_MAX && (size_t)slots * 2 <= value)
        slots *= 2;
    return slots;
}

size_t comm_segment_budget(size_t budget, int locals)
{
    const size_t most = SIZE_MAX / COMM_BUDGET_RANKS;
    const size_t share = locals <= COMM_BUDGET_RANKS ? COMM_BUDGET_RANKS : (size_t)locals;

    return budget / COMM_BUDGET_RANKS > most / share ? most : budget / COMM_BUDGET_RANKS * share;
}

/* Of each ordered pair's part half goes to lane 0, which carries the first channel of every collective, and a
 * quarter to each of the others. */
static void share_out_rings(comm_segment_t *seg, size_t budget)
{
    const size_t pairs = (size_t)seg->locals * (size_t)(seg->locals - 1);
    const size_t part =
        (budget - seg->lane_at[0]) / pairs / COMM_LINE; /* slots per pair, control lines included */

    for (int lane = 0; lane < COMM_LANES; lane++) {
        size_t share = lane == 0 ? part / 2 : part / 4;
        uint32_t slots = power_of_two_below(share > 1 ? share - 1 : 0);
        seg->slots[lane] = lane == 0 || slots <= SLOTS_MAX / 2 ? slots : SLOTS_MAX / 2;
    }
    layout(seg);
    /* SLOTS_MIN may be more than a quarter. */
    for (; seg->bytes > budget && seg->slots[0] > SLOTS_MIN; layout(seg))
        seg->slots[0] /= 2;
}

/* Outboxes get at most half of the budget. Where rings would be too short for messages of COMM_POOL_BYTES,
 * pools get at most a quarter. Rings get the rest. They have at least SLOTS_MIN slots even where that exceeds
 * the budget (from some 500 ranks at the default): rings that carry nothing take no memory. */
static void share_out(comm_segment_t *seg, size_t setting)
{
    const size_t budget = comm_segment_budget(setting, seg->locals);

    seg->buffers = 0;
    for (int lane = 0; lane < COMM_LANES; lane++)
        seg->slots[lane] = SLOTS_MIN;
    for (int i = seg->locals <= COMM_OUTBOX_RANKS ? 0 : EXCHANGE_SHAPES - 1; i < EXCHANGE_SHAPES; i++) {
        seg->outbox = outbox_shapes[i];
        layout(seg);
        if (seg->bytes <= budget && seg->pool_at <= budget / 2)
            break; /* else the rings come first */
    }
    if (seg->bytes > budget || seg->locals < 2)
        return;
    share_out_rings(seg, budget);
    if (seg->slots[0] >= SLOTS_LONG)
        return;
    /* Shorter rings again, for a pool. */
    for (int lane = 0; lane < COMM_LANES; lane++)
        seg->slots[lane] = SLOTS_MIN;
    for (seg->buffers = COMM_POOL_BUFFERS; seg->buffers > 0; seg->buffers /= 2) {
        layout(seg);
        if (seg->bytes <= budget && seg->lane_at[0] - seg->pool_at <= budget / 4)
            break;
    }
    layout(seg);
    share_out_rings(seg, budget);
}

/* A message is cut into packets of a quarter of the ring, after a head of one slot. */
static size_t holds(uint32_t slots)
{
    const size_t packet = (size_t)(slots / 4) * COMM_LINE;
    return packet > COMM_LINE ? 3 * (packet - COMM_LINE) : 0;
}

size_t comm_segment_ring_holds(const comm_segment_t *seg, int lane)
{
    return holds(seg->slots[lane]);
}

size_t comm_segment_ring_would_hold(size_t budget, int locals, int lane)
{
    comm_segment_t seg = {.locals = locals};
    share_out(&seg, budget);
    return holds(seg.slots[lane]);
}

/* A file for a segment and, if it may be so long, for those of later groups. -1 and the error in *status. */
static int make_file(const comm_segment_t *seg, gyre_status_t *status)
{
    const uint64_t backing = comm_backing_length(seg->bytes, seg->locals);
    const int fd = base_memory_file("gyre-group", seg->bytes, backing);
    if (fd < 0)
        *status = gyre_fail_errno(
            errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOSPC || errno == EDQUOT
                ? GYRE_ERR_NO_MEMORY
                : GYRE_ERR_SYSTEM,
            errno, "cannot make the shared segment of %d ranks, %zu bytes (see ulimit -n, and gyre-doctor)",
            seg->locals, seg->bytes);
    return fd;
}

static gyre_status_t map(comm_segment_t *seg, int fd)
{
    void *base = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)seg->at);

    if (base == MAP_FAILED)
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, errno, "cannot map the shared segment of %zu bytes",
                               seg->bytes);
    seg->base = base;
    return GYRE_OK;
}

gyre_status_t comm_segment_create(size_t budget, int locals, uint64_t cookie, comm_backing_t *backing,
                                  comm_segment_t *seg, int *out_fd)
{
    comm_segment_t made = {.locals = locals};
    segment_header_t *header;
    gyre_status_t status = GYRE_OK;
    int fd = -1;

    share_out(&made, budget);
    if (made.bytes > comm_segment_budget(budget, locals))
        log_warning("%d ranks on this host need at least %zu bytes of shared memory, more than "
                    "GYRE_SHM_BUDGET (%zu for each %d ranks); using that much",
                    locals, made.bytes, budget, COMM_BUDGET_RANKS);
    made.at = backing ? comm_backing_take(backing, made.bytes) : 0;
    made.backing = made.at ? backing : NULL;
    if (!made.backing)
        fd = make_file(&made, &status);
    if (status == GYRE_OK)
        status = map(&made, made.backing ? comm_backing_fd(backing) : fd);
    if (status != GYRE_OK) {
        if (fd >= 0)
            close(fd);
        return status;
    }
    header = (segment_header_t *)made.base;
    header->magic = SEGMENT_MAGIC;
    header->locals = locals;
    memcpy(header->slots, made.slots, sizeof header->slots);
    header->outbox = made.outbox;
    header->buffers = made.buffers;
    atomic_store_explicit(&header->cookie, cookie, memory_order_release);
    *seg = made;
    *out_fd = fd;
    return GYRE_OK;
}

/* Fills in what the header at seg->at of the file says. */
static gyre_status_t read_header(int fd, uint64_t cookie, comm_segment_t *seg)
{
    segment_header_t header;
    struct stat file;

    if (fstat(fd, &file) != 0 || file.st_size < 4096 ||
        pread(fd, &header, sizeof header, (off_t)seg->at) != (ssize_t)sizeof header)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "what was fetched is not a segment");
    if (atomic_load_explicit(&header.cookie, memory_order_relaxed) != cookie ||
        header.magic != SEGMENT_MAGIC || header.locals != seg->locals)
        goto wrong;
    for (int lane = 0; lane < COMM_LANES; lane++) {
        seg->slots[lane] = header.slots[lane];
        if (seg->slots[lane] < SLOTS_MIN || seg->slots[lane] > SLOTS_MAX ||
            (seg->slots[lane] & (seg->slots[lane] - 1)) != 0)
            goto wrong;
    }
    seg->outbox = header.outbox;
    seg->buffers = header.buffers;
    if (!known_outbox(&seg->outbox, seg->locals) || seg->buffers > COMM_POOL_BUFFERS)
        goto wrong;
    layout(seg);
    if ((uint64_t)file.st_size >= seg->at && (uint64_t)file.st_size - seg->at >= seg->bytes)
        return GYRE_OK;
wrong:
    return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "the fetched segment is not this group's");
}

static gyre_status_t open_at(int fd, comm_segment_t made, uint64_t cookie, comm_segment_t *seg)
{
    gyre_status_t status = read_header(fd, cookie, &made);

    if (status == GYRE_OK)
        status = map(&made, fd);
    if (status == GYRE_OK)
        *seg = made;
    return status;
}

gyre_status_t comm_segment_open(int fd, int locals, uint64_t cookie, comm_segment_t *seg)
{
    return open_at(fd, (comm_segment_t){.locals = locals}, cookie, seg);
}

gyre_status_t comm_segment_open_in(comm_backing_t *backing, uint64_t at, int locals, uint64_t cookie,
                                   comm_segment_t *seg)
{
    const comm_segment_t made = {.backing = backing, .at = at, .locals = locals};

    return open_at(comm_backing_fd(backing), made, cookie, seg);
}

gyre_status_t comm_segment_enter(comm_backing_t *backing, uint64_t room, size_t budget, int locals,
                                 comm_segment_t *seg)
{
    comm_segment_t made = {.backing = backing,
                           .at = room & ~COMM_ROOM_KEPT,
                           .kept = (room & COMM_ROOM_KEPT) != 0,
                           .locals = locals};
    gyre_status_t status;

    share_out(&made, budget);
    status = comm_room_enter(backing, &made);
    if (status == GYRE_OK)
        *seg = made;
    return status;
}

size_t comm_segment_room(size_t budget, int locals)
{
    comm_segment_t least = {.locals = locals, .outbox = outbox_shapes[EXCHANGE_SHAPES - 1]};

    for (int lane = 0; lane < COMM_LANES; lane++)
        least.slots[lane] = SLOTS_MIN;
    layout(&least);
    return base_max_size(least.bytes, comm_segment_budget(budget, locals));
}

int comm_segment_leave(const comm_segment_t *seg)
{
    segment_header_t *header = (segment_header_t *)seg->base;
    uint32_t lines = atomic_load_explicit(&header->lines, memory_order_relaxed);

    while (lines < seg->lines &&
           !atomic_compare_exchange_weak_explicit(&header->lines, &lines, seg->lines, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    if (seg->soiled)
        atomic_store_explicit(&header->soiled, 1, memory_order_relaxed);
    /* acq_rel: what the others did here comes before the last one gives it back */
    return atomic_fetch_add_explicit(&header->left, 1, memory_order_acq_rel) == seg->locals - 1;
}

void comm_segment_close(comm_segment_t *seg)
{
    if (seg->kept) {
        comm_room_leave(seg);
    } else if (seg->base) {
        const int last = seg->backing && comm_segment_leave(seg);
        munmap(seg->base, seg->bytes);
        if (last)
            comm_backing_give_back(seg->backing, seg->at, seg->bytes);
    }
    memset(seg, 0, sizeof *seg);
}

void comm_segment_unsoil(const comm_segment_t *seg)
{
    segment_header_t *header = (segment_header_t *)seg->base;

    if (!atomic_load_explicit(&header->soiled, memory_order_relaxed) ||
        !comm_backing_give_back(seg->backing, seg->at + seg->cells_at, seg->bytes - seg->cells_at))
        return;
    atomic_store_explicit(&header->lines, 0, memory_order_relaxed);
    /* release: the owner of the room, who sees the 0, finds zeros */
    atomic_store_explicit(&header->soiled, 0, memory_order_release);
}

int comm_segment_left_by_all(const comm_segment_t *seg)
{
    const segment_header_t *header = (const segment_header_t *)seg->base;

    /* acquire: what they did here comes before what is done here next */
    return atomic_load_explicit(&header->left, memory_order_acquire) == seg->locals &&
           !atomic_load_explicit(&header->soiled, memory_order_acquire);
}

int comm_segment_clean(comm_backing_t *backing, const comm_segment_t *seg, int keep)
{
    segment_header_t *header = (segment_header_t *)seg->base;
    const uint32_t most = seg->outbox.lines,
                   used = atomic_load_explicit(&header->lines, memory_order_relaxed);

    if (!keep)
        return comm_backing_give_back(backing, seg->at, seg->bytes);
    /* Operation k has line k % lines; the progress line comes before line 0. */
    for (int l = 0; l < seg->locals && most > 0 && used > 0; l++)
        memset(comm_segment_outbox(seg, l), 0, (size_t)(1 + (used < most ? used + 1 : most)) * COMM_LINE);
    memset(seg->base, 0, seg->locals_at + (size_t)seg->locals * seg->local_stride);
    return 1;
}

void comm_segment_populate(const void *at, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at & ~(page - 1);
    uintptr_t to = base_round_up((uintptr_t)at + bytes, page);
    int saved = errno;

    if (madvise((void *)from, to - from, MADV_POPULATE_WRITE) != 0)
        errno = saved; /* then they come one by one */
#else
    (void)at;
    (void)bytes;
#endif
}

comm_board_t *comm_segment_board(const comm_segment_t *seg, int local)
{
    return (comm_board_t *)(void *)((unsigned char *)comm_segment_bell(seg, local) + sizeof(comm_bell_t));
}

int32_t *comm_segment_cells(const comm_segment_t *seg)
{
    return (int32_t *)(void *)(seg->base + seg->cells_at);
}

_Atomic unsigned char *comm_segment_cma(const comm_segment_t *seg, int reader, int owner)
{
    unsigned char *bytes =
        (unsigned char *)comm_segment_bell(seg, reader) + sizeof(comm_bell_t) + sizeof(comm_board_t);

    return (_Atomic unsigned char *)(bytes + owner);
}

unsigned char *comm_segment_outbox(const comm_segment_t *seg, int local)
{
    return seg->base + seg->outbox_at + (size_t)local * seg->outbox_stride;
}

unsigned char *comm_segment_buffer(const comm_segment_t *seg, int local, uint32_t buffer)
{
    return seg->base + seg->pool_at + ((size_t)local * seg->buffers + buffer) * COMM_POOL_BYTES;
}

comm_ring_ctl_t *comm_segment_ring(const comm_segment_t *seg, int from, int to, int lane)
{
    size_t pair = (size_t)from * (size_t)(seg->locals - 1) + (size_t)(to > from ? to - 1 : to);

    return (comm_ring_ctl_t *)(void *)(seg->base + seg->lane_at[lane] + pair * ring_bytes(seg->slots[lane]));
}

/* The number of the post, or 0: nothing there, or never still (its owner died in the middle of a post). */
static uint64_t entry_read(comm_board_entry_t *e, comm_call_t *call)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        uint64_t words[COMM_CALL_WORDS], before, after;

        before = atomic_load_explicit(&e->seq, memory_order_acquire);
        if (before == 0)
            return 0;
        if (before & 1) {
            base_relax();
            continue;
        }
        /* Acquire on each word: the second look at the number cannot move before them, and a word of a newer
         * call brings that call's odd number with it. */
        for (int i = 0; i < COMM_CALL_WORDS; i++)
            words[i] = atomic_load_explicit(&e->words[i], memory_order_acquire);
        after = atomic_load_explicit(&e->seq, memory_order_relaxed);
        if (before == after) {
            memcpy(call, words, sizeof words);
            return before;
        }
    }
    return 0;
}

int comm_board_read(comm_board_t *board, comm_call_t *call)
{
    uint64_t newest = 0;
    for (int i = 0; i < COMM_BOARD_CALLS; i++) {
        comm_call_t one;
        uint64_t seq = entry_read(&board->entry[i], &one);
        if (seq > newest) {
            newest = seq;
            *call = one;
        }
    }
    return newest != 0;
}

static int is_call(const comm_call_t *call, uint32_t seq, int p2p, int peer)
{
    return call->seq == seq && ((call->flags & COMM_CALL_P2P) != 0) == (p2p != 0) &&
           (!p2p || call->root == peer);
}

int comm_board_find(comm_board_t *board, uint32_t seq, int p2p, int peer, comm_call_t *call)
{
    comm_call_t one;
    for (int i = 0; i < COMM_BOARD_CALLS; i++) {
        if (entry_read(&board->entry[i], &one) && is_call(&one, seq, p2p, peer)) {
            *call = one;
            return 1;
        }
    }
    return 0;
}

int comm_board_find_own(const comm_board_t *board, uint32_t seq, int p2p, int peer, comm_call_t *call)
{
    for (uint64_t back = 1; back <= COMM_BOARD_CALLS && back <= board->posts; back++) {
        const comm_board_entry_t *e = &board->entry[(board->posts - back) % COMM_BOARD_CALLS];
        uint64_t words[COMM_CALL_WORDS];

        for (int i = 0; i < COMM_CALL_WORDS; i++)
            words[i] = atomic_load_explicit(&e->words[i], memory_order_relaxed);
        memcpy(call, words, sizeof words);
        if (is_call(call, seq, p2p, peer))
            return 1;
    }
    return 0;
}
