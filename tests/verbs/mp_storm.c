/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 */
/* tests/verbs/mp_storm.c: what transports find hard. Messages of every awkward length and alignment, far more
 * of them under way than any ring has places; buffers that are freed and mapped anew at the same address with
 * other pages; several communicators at once; a thousand small messages before the peer receives one; every
 * collective in between. It runs over whatever transport the job uses: over shared memory with make check,
 * over verbs with make check-verbs. */
#include "tests/support/mp.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 3 << 20 };

static gyre_comm_t *world;
static int n, rank;

static void fill(unsigned char *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)((i * 131 + seed * 29 + (i >> 9)) & 255);
}

static void verify(const unsigned char *p, size_t bytes, uint64_t seed, const char *what)
{
    for (size_t i = 0; i < bytes; i++)
        MP_CHECK(p[i] == (unsigned char)((i * 131 + seed * 29 + (i >> 9)) & 255),
                 "%s: byte %zu of %zu is wrong", what, i, bytes);
}

/* Lengths around what transports switch at. */
static size_t length(uint64_t *state)
{
    static const size_t edges[] = {1,     2,     3,     7,     8,      63,     64,     65,
                                   255,   256,   511,   512,   513,    1000,   4095,   4096,
                                   4097,  8191,  8192,  8193,  16383,  16385,  32767,  32768,
                                   32769, 65535, 65536, 65537, 100001, 131072, 262143, 262145};
    uint64_t pick = random_next(state);
    size_t edge = edges[pick % (sizeof edges / sizeof edges[0])];

    return pick & 1 << 20 ? edge : 1 + (size_t)(random_next(state) % (edge * 2));
}

/* Every rank sends to every other, several messages per pair at once, all lengths, with guards before and
 * after. */
static void crossfire(gyre_comm_t *comm, uint64_t seed, unsigned char *arena)
{
    enum { PER_PAIR = 4, GUARD = 16 };
    uint64_t state = seed;
    int size = gyre_comm_size(comm), me = gyre_comm_rank(comm), count = 0;
    unsigned char *at = arena;
    gyre_request_t *requests[2 * 8 * PER_PAIR];
    struct {
        unsigned char *p;
        size_t bytes;
        uint64_t seed;
    } expected[8 * PER_PAIR];
    int expecting = 0;

    for (int k = 0; k < PER_PAIR; k++) {
        for (int from = 0; from < size; from++) {
            for (int to = 0; to < size; to++) {
                size_t bytes = length(&state), offset = random_next(&state) % 8;
                uint64_t mark = random_next(&state);
                if (from == to || (me != from && me != to))
                    continue;
                unsigned char *p = at + GUARD + offset;
                at = p + bytes + GUARD;
                MP_CHECK(at <= arena + MOST * 4, "the arena is too small");
                if (me == from) {
                    fill(p, bytes, mark);
                    MP_OK(gyre_isend(p, bytes, GYRE_UINT8, to, comm, &requests[count++]));
                } else {
                    memset(p - GUARD, 0xee, bytes + 2 * GUARD);
                    expected[expecting].p = p;
                    expected[expecting].bytes = bytes;
                    expected[expecting++].seed = mark;
                    MP_OK(gyre_irecv(p, bytes, GYRE_UINT8, from, comm, &requests[count++]));
                }
            }
        }
    }
    MP_OK(gyre_wait_all((size_t)count, requests));
    for (int i = 0; i < expecting; i++) {
        verify(expected[i].p, expected[i].bytes, expected[i].seed, "crossfire");
        for (int g = 1; g <= GUARD; g++)
            MP_CHECK(expected[i].p[-g] == 0xee && expected[i].p[expected[i].bytes + (size_t)g - 1] == 0xee,
                     "a message of %zu bytes wrote outside its buffer", expected[i].bytes);
    }
}

/* Rank 0 is far ahead: all its messages are under way before any rank receives. Twice round with different
 * lengths. */
static void flood(int count, size_t bytes)
{
    unsigned char *buffers = malloc((size_t)count * bytes);
    gyre_request_t **requests = malloc((size_t)count * sizeof *requests);
    int to = 1;

    MP_CHECK(buffers && requests, "no memory");
    if (rank == 0) {
        for (int i = 0; i < count; i++) {
            fill(buffers + (size_t)i * bytes, bytes, (uint64_t)i);
            MP_OK(gyre_isend(buffers + (size_t)i * bytes, bytes, GYRE_UINT8, to, world, &requests[i]));
        }
        MP_OK(gyre_wait_all((size_t)count, requests));
    } else if (rank == to) {
        for (int i = 0; i < count; i++) {
            unsigned char *p = buffers + (size_t)i * bytes;
            MP_OK(gyre_recv(p, bytes, GYRE_UINT8, 0, world));
            verify(p, bytes, (uint64_t)i, "flood");
        }
    }
    free(requests);
    free(buffers);
}

/* To and fro with the shortest messages, then many one way, then a peer that keeps the other waiting until it
 * sleeps: short messages go another way to a rank that watches for them, and it must be awake to do so. */
static void naps(int rounds)
{
    enum { QUICK = 70, MANY = 150, LONGEST = 40 };
    unsigned char p[LONGEST];

    for (int i = 0; i < rounds * (QUICK + MANY) && rank < 2; i++) {
        int round = i / (QUICK + MANY), at = i % (QUICK + MANY);
        size_t bytes = 1 + (size_t)(i * 7 + round) % LONGEST;
        int sender = at < QUICK ? i & 1 : round & 1;
        if (rank != sender) {
            MP_OK(gyre_recv(p, bytes, GYRE_UINT8, sender, world));
            verify(p, bytes, (uint64_t)i, "naps");
            continue;
        }
        if (at == QUICK || at == QUICK / 2)
            usleep(25000);
        fill(p, bytes, (uint64_t)i);
        MP_OK(gyre_send(p, bytes, GYRE_UINT8, 1 - sender, world));
    }
}

/* The same addresses, other memory at them each time: what was registered must not be taken for what is there
 * now. */
static void remapped(size_t bytes, int rounds)
{
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    MP_CHECK(place != MAP_FAILED, "no memory");
    for (int round = 0; round < rounds; round++) {
        MP_CHECK(munmap(place, bytes) == 0, "munmap");
        void *again = mmap(place, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        MP_CHECK(again == place, "the place was taken");
        for (int source = 0; source < n; source++) {
            uint64_t seed = (uint64_t)(round * n + source);
            fill(place, bytes, rank == source ? seed : 999);
            MP_OK(gyre_broadcast(rank == source ? place : NULL, place, bytes, GYRE_UINT8, source, world));
            verify(place, bytes, seed, "broadcast from and into memory mapped anew");
        }
        int next = (rank + 1) % n, before = (rank + n - 1) % n;
        unsigned char *out = place, *in = out + bytes / 2;
        fill(out, bytes / 2, (uint64_t)(rank + 7));
        MP_OK(gyre_group_start());
        MP_OK(gyre_send(out, bytes / 2, GYRE_UINT8, next, world));
        MP_OK(gyre_recv(in, bytes / 2, GYRE_UINT8, before, world));
        MP_OK(gyre_group_end());
        verify(in, bytes / 2, (uint64_t)(before + 7), "message into memory mapped anew");
    }
    MP_CHECK(munmap(place, bytes) == 0, "munmap");
    /* and through gyre_mem_alloc, whose memory goes back to where it came from */
    for (int round = 0; round < rounds; round++) {
        void *p;
        MP_OK(gyre_mem_alloc(bytes, &p));
        fill(p, bytes, rank == round % n ? (uint64_t)round : 999);
        MP_OK(gyre_broadcast(rank == round % n ? p : NULL, p, bytes, GYRE_UINT8, round % n, world));
        verify(p, bytes, (uint64_t)round, "broadcast in memory of gyre_mem_alloc");
        MP_OK(gyre_mem_free(p));
    }
}

/* Operations of several communicators are under way at the same time; they must not meet each other's
 * messages. */
static void communicators(int count, unsigned char *arena)
{
    enum { COMMS = 4, WORDS = 20011 };
    gyre_comm_t *comms[COMMS];
    gyre_request_t *requests[COMMS];
    int64_t *in = malloc(sizeof *in * WORDS), *out = malloc(sizeof *out * COMMS * WORDS);

    MP_CHECK(in && out, "no memory");
    for (int c = 0; c < COMMS; c++) /* ranks in another order in each */
        MP_OK(gyre_comm_split(world, 0, (rank * (c + 1) + c) % n, &comms[c]));
    for (int round = 0; round < count; round++) {
        for (int i = 0; i < WORDS; i++)
            in[i] = (int64_t)(rank + 1) * (i + round);
        for (int c = 0; c < COMMS; c++)
            MP_OK(gyre_iall_reduce(in, out + c * WORDS, WORDS, GYRE_INT64, GYRE_OP(GYRE_SUM), comms[c],
                                   &requests[c]));
        MP_OK(gyre_wait_all(COMMS, requests));
        for (int c = 0; c < COMMS; c++) {
            for (int i = 0; i < WORDS; i++)
                MP_CHECK(out[c * WORDS + i] == (int64_t)n * (n + 1) / 2 * (i + round),
                         "communicator %d, element %d", c, i);
        }
        crossfire(comms[round % COMMS], (uint64_t)round * 77 + 5, arena);
    }
    for (int c = 0; c < COMMS; c++)
        MP_OK(gyre_comm_destroy(comms[c]));
    free(in);
    free(out);
}

int main(void)
{
    void *own;
    unsigned char *arena = malloc((size_t)MOST * 4);

    MP_CHECK(arena, "no memory");
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(gyre_mem_alloc((size_t)MOST * 4, &own));
    for (uint64_t seed = 1; seed <= 12; seed++)
        crossfire(world, seed, seed & 1 ? arena : own);
    flood(1500, 9);
    flood(300, 3001);
    flood(60, 70001);
    naps(6);
    remapped(16 << 10, 8);
    remapped(1 << 20, 3);
    communicators(6, arena);
    MP_OK(gyre_mem_free(own));
    MP_OK(gyre_finalize(world));
    free(arena);
    return 0;
}
