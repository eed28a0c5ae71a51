/* comm/exchange.c: outboxes in shared memory. See exchange.h. */
#include "comm/exchange.h"

#include <string.h>

#include "base/cacheline.h"
#include "base/error.h"
#include "comm/link.h"

/* Measured (two ranks, all_reduce): claiming makes 1 KiB 0.54 -> 0.36 us and 256 B 0.30 -> 0.22 together with demoting,
 * which costs more than it brings from 1 KiB on. */
enum { DEMOTE_MOST = 512, CLAIM_MOST = 2048 };

/* Written by the owner, read by the others. */
typedef struct {
    _Atomic uint64_t done; /* operations that the owner is done with */
    uint64_t pad[7];
} __attribute__((aligned(64))) progress_t;

typedef struct {
    _Atomic uint64_t number; /* of the operation whose post lies here; stored last */
    uint32_t seq, sig;       /* comm_tag_t */
    unsigned char payload[COMM_EXCHANGE_INLINE];
} __attribute__((aligned(64))) line_t;

size_t comm_exchange_bytes(const comm_exchange_shape_t *shape)
{
    return sizeof(progress_t) + shape->lines * sizeof(line_t) + shape->slots * shape->slot_bytes;
}

void comm_exchange_open(comm_exchange_t *x, const comm_exchange_shape_t *shape, void *memory, int ranks,
                        int mine)
{
    memset(x, 0, sizeof *x);
    x->base = memory;
    x->stride = comm_exchange_bytes(shape);
    x->shape = *shape;
    x->ranks = ranks;
    x->mine = mine;
}

static progress_t *progress_of(const comm_exchange_t *x, int rank)
{
    return (progress_t *)(void *)(x->base + (size_t)rank * x->stride);
}

static line_t *line_of(const comm_exchange_t *x, int rank, uint64_t number)
{
    line_t *lines = (line_t *)(void *)(progress_of(x, rank) + 1);
    return &lines[number & (x->shape.lines - 1)];
}

static unsigned char *slot_of(const comm_exchange_t *x, int rank, uint64_t number)
{
    unsigned char *slots = (unsigned char *)line_of(x, rank, 0) + x->shape.lines * sizeof(line_t);
    return slots + (number & (x->shape.slots - 1)) * x->shape.slot_bytes;
}

static void *place_of(const comm_exchange_t *x, int rank, size_t bytes)
{
    if (bytes <= COMM_EXCHANGE_INLINE)
        return line_of(x, rank, x->number)->payload;
    return slot_of(x, rank, x->number);
}

/* 1 if all others are done with operation `number`. Looks at the progress line only of those who may not be. */
static int all_done(comm_exchange_t *x, uint64_t number)
{
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < x->ranks; r++) {
        if (r == x->mine)
            continue;
        if (x->seen[r] < number)
            /* acquire: our stores into the place come after the owner's loads from it, which its release
             * in comm_exchange_finish follows */
            x->seen[r] = atomic_load_explicit(&progress_of(x, r)->done, memory_order_acquire);
        if (x->seen[r] < least)
            least = x->seen[r];
    }
    x->safe = least;
    return least >= number;
}

void *comm_exchange_reserve(comm_exchange_t *x, size_t bytes)
{
    uint32_t places = bytes <= COMM_EXCHANGE_INLINE ? x->shape.lines : x->shape.slots;
    if (x->number > x->safe + places && !all_done(x, x->number - places))
        return NULL;
    return place_of(x, x->mine, bytes);
}

void comm_exchange_post(comm_exchange_t *x, size_t bytes, comm_tag_t tag)
{
    line_t *line = line_of(x, x->mine, x->number);
    if (bytes > COMM_EXCHANGE_INLINE && bytes <= DEMOTE_MOST)
        base_demote(slot_of(x, x->mine, x->number), bytes);
    line->seq = tag.seq;
    line->sig = tag.sig;
    /* release: whoever sees the number sees tag and payload */
    atomic_store_explicit(&line->number, x->number, memory_order_release);
    base_demote(line, sizeof *line);
    x->posted = bytes;
}

gyre_status_t comm_exchange_look(comm_exchange_t *x, int rank, size_t bytes, comm_tag_t tag,
                                 const void **payload)
{
    line_t *line = line_of(x, rank, x->number);
    /* acquire: pairs with the release in comm_exchange_post */
    if (atomic_load_explicit(&line->number, memory_order_acquire) != x->number)
        return GYRE_IN_PROGRESS;
    if (line->sig != tag.sig || line->seq != tag.seq)
        return gyre_fail_quiet(GYRE_ERR_MISMATCH, "what rank %d posted belongs to another call", rank);
    x->seen[rank] = x->number - 1; /* it posts an operation only after it is done with the one before */
    *payload = place_of(x, rank, bytes);
    return GYRE_OK;
}

int comm_exchange_laggard(const comm_exchange_t *x)
{
    int last = x->mine == 0;
    for (int r = 0; r < x->ranks; r++)
        if (r != x->mine && x->seen[r] < x->seen[last])
            last = r;
    return last;
}

void comm_exchange_finish(comm_exchange_t *x)
{
    /* release: our loads from the outboxes come before; pairs with the acquire in all_done */
    atomic_store_explicit(&progress_of(x, x->mine)->done, x->number, memory_order_release);
    /* The others have read these lines: have them back before the next post, likely one of equal size, needs them. */
    base_claim(line_of(x, x->mine, x->number + 1), sizeof(line_t));
    if (x->posted > COMM_EXCHANGE_INLINE)
        base_claim(slot_of(x, x->mine, x->number + 1), x->posted < CLAIM_MOST ? x->posted : CLAIM_MOST);
}

comm_exchange_t *comm_group_exchange(comm_group_t *group)
{
    return group->exchange.base ? &group->exchange : NULL;
}

void comm_group_ring(comm_group_t *group)
{
    comm_bell_t *bell[COMM_EXCHANGE_RANKS];
    int ready = atomic_load_explicit(&comm_bell_registered, memory_order_relaxed);
    for (int l = 0; l < group->seg.locals; l++) {
        bell[l] = comm_segment_bell(&group->seg, l);
        ready &= (int)atomic_load_explicit(&bell[l]->heavy, memory_order_relaxed);
    }
    if (ready) /* as in comm_bell_order */
        base_fence_light();
    else
        base_fence();
    for (int l = 0; l < group->seg.locals; l++)
        if (l != group->seg.local && atomic_load_explicit(&bell[l]->sleeping, memory_order_relaxed))
            comm_bell_ring_slow(bell[l]);
}
