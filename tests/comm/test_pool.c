/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_pool.c: the buffers of comm/memory/pool.h, lent through the rings of comm/shm/ring.h. Every
 * interleaving of one sender and its receivers is tried: no buffer changes while it is read, every message
 * comes as it was sent, and a receiver that is late keeps nobody waiting. With a mistake in the protocol that
 * does not hold. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "comm/memory/pool.h"
#include "comm/shm/ring.h"
#include "tests/support/states.h"

enum { RECEIVERS = 2, NOBODY = RECEIVERS, SLOTS = 4, BUFFERS = 2, HALF = 2 };

typedef enum { NO_MISTAKE, REPORTS_EARLY, LENDS_TOO_SHORT, NEVER_LENDS } mistake_t;
typedef enum { FINDS, WRITES, SENDS, SENT_ALL } sender_phase_t;
typedef enum { LOOKS, READS, ENDS } receiver_phase_t;

/* A message to receiver `to`. pool: it needs a buffer; else it lies in the ring. */
typedef struct {
    unsigned char to, pool;
} message_t;

typedef struct {
    ring_rx_t rx;
    receiver_phase_t phase;
    int at;                   /* number of messages that it has had */
    unsigned char seen[HALF]; /* of the present one */
    uint64_t buffer;
} receiver_t;

/* All that there is: copied to go back to a state. */
typedef struct {
    struct {
        comm_ring_ctl_t ctl;
        ring_slot_t slots[SLOTS];
    } ring[RECEIVERS];
    comm_pool_t pool;
    ring_tx_t tx[RECEIVERS];
    unsigned char buffer[BUFFERS][HALF];
    sender_phase_t phase;
    int at, taken, skipped;
    receiver_t receiver[RECEIVERS];
} world_t;

static world_t now;
static const message_t *program;
static int messages, late; /* late: this receiver does nothing */
static mistake_t mistake;
static int wrong, most_skipped;

static unsigned char content(int number)
{
    return (unsigned char)(1 + number);
}

/* The number of the `index`-th message to `to`; -1: there is none. */
static int message_to(int to, int index)
{
    for (int m = 0; m < messages; m++)
        if (program[m].to == to && index-- == 0)
            return m;
    return -1;
}

static int sender_step(void)
{
    if (now.phase == SENT_ALL)
        return 0;
    const message_t *message = &program[now.at];
    ring_tx_t *tx = &now.tx[message->to];
    ring_rndv_t head = {.bytes = HALF};

    switch (now.phase) {
    case FINDS:
        if (!ring_room(tx, 1))
            return 0;
        now.taken = message->pool ? comm_pool_find(&now.pool) : -1;
        now.skipped += message->pool && now.taken < 0;
        now.phase = now.taken < 0 ? SENDS : WRITES;
        return 1;
    case WRITES:
        now.buffer[now.taken][0] = content(now.at);
        now.phase = SENDS;
        return 1;
    case SENDS:
        if (now.taken < 0) { /* another way than a buffer, as comm/shm/link.c has */
            const unsigned char whole[HALF] = {content(now.at), content(now.at)};
            ring_put(tx, PACKET_EAGER, (comm_tag_t){0}, whole, HALF);
        } else {
            now.buffer[now.taken][1] = content(now.at);
            head.place.offset = (uint64_t)now.taken;
            ring_put(tx, PACKET_POOL, (comm_tag_t){0}, &head, sizeof head);
            if (mistake != NEVER_LENDS)
                comm_pool_lend(&now.pool, now.taken, &tx->ctl->consumed,
                               tx->head - (mistake == LENDS_TOO_SHORT));
        }
        now.at++;
        now.phase = now.at == messages ? SENT_ALL : FINDS;
        return 1;
    default:
        return 0;
    }
}

static void take_from_ring(receiver_t *r, ring_kind_t kind, const ring_slot_t *slot)
{
    ring_rndv_t head;

    if (kind == PACKET_EAGER) {
        ring_get(&r->rx, r->seen, HALF);
        r->phase = ENDS;
        return;
    }
    memcpy(&head, slot->body, sizeof head);
    r->buffer = head.place.offset;
    if (mistake == REPORTS_EARLY)
        ring_advance(&r->rx, sizeof head, 1);
    r->seen[0] = now.buffer[r->buffer][0];
    r->phase = READS;
}

static int receiver_step(int me)
{
    receiver_t *r = &now.receiver[me];
    const int number = message_to(me, r->at);
    const ring_slot_t *slot;
    ring_kind_t kind = 0;
    size_t bytes = 0;

    if (number < 0)
        return 0;
    switch (r->phase) {
    case LOOKS:
        slot = ring_peek(&r->rx, &kind, &bytes);
        if (slot)
            take_from_ring(r, kind, slot);
        return slot != NULL;
    case READS:
        r->seen[1] = now.buffer[r->buffer][1];
        r->phase = ENDS;
        return 1;
    default:
        wrong |= r->seen[0] != content(number) || r->seen[1] != content(number);
        ring_peek(&r->rx, &kind, &bytes);
        if (kind == PACKET_EAGER || mistake != REPORTS_EARLY)
            ring_advance(&r->rx, bytes, kind == PACKET_POOL);
        r->at++;
        r->phase = LOOKS;
        return 1;
    }
}

static states_t met;

static int is_new(void)
{
    const int is = states_new(&met, base_hash64(&now, sizeof now, 7));
    assert_true(is >= 0);
    return is;
}

static int is_over(void)
{
    int over = now.phase == SENT_ALL;

    for (int r = 0; r < RECEIVERS; r++)
        over &= r == late || message_to(r, now.receiver[r].at) < 0;
    return over;
}

static void explore(void)
{
    world_t *here = malloc(sizeof *here);
    int moved = 0;

    assert_non_null(here);
    *here = now;
    for (int who = -1; who < RECEIVERS && !wrong; who++) {
        if (who == late || !(who < 0 ? sender_step() : receiver_step(who)))
            continue;
        moved = 1;
        if (is_new())
            explore();
        now = *here;
    }
    most_skipped = now.skipped > most_skipped ? now.skipped : most_skipped;
    wrong |= !moved && !is_over(); /* they wait for each other */
    free(here);
}

/* 1: all is right in every interleaving. */
static int holds(const message_t *list, int count, int who_is_late, mistake_t with)
{
    memset(&now, 0, sizeof now);
    states_clear(&met);
    program = list;
    messages = count;
    late = who_is_late;
    mistake = with;
    wrong = most_skipped = 0;
    now.pool.count = BUFFERS;
    for (int r = 0; r < RECEIVERS; r++) {
        ring_tx_open(&now.tx[r], &now.ring[r].ctl, SLOTS);
        ring_rx_open(&now.receiver[r].rx, &now.ring[r].ctl, SLOTS);
    }
    explore();
    return !wrong;
}

static const message_t all_to_one[] = {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}},
                       in_turn[] = {{0, 1}, {1, 1}, {0, 1}, {1, 1}, {0, 1}, {1, 1}},
                       mixed[] = {{0, 1}, {0, 0}, {1, 1}, {1, 0}, {0, 1}, {1, 1}},
                       first_late[] = {{0, 1}, {0, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
enum { COUNT = sizeof mixed / sizeof mixed[0] };

static void every_interleaving(void **state)
{
    size_t states = 0;

    (void)state;
    assert_true(holds(all_to_one, COUNT, NOBODY, NO_MISTAKE));
    states += met.met;
    assert_true(holds(in_turn, COUNT, NOBODY, NO_MISTAKE));
    states += met.met;
    assert_true(holds(mixed, COUNT, NOBODY, NO_MISTAKE));
    states += met.met;
    assert_true(holds(first_late, COUNT, NOBODY, NO_MISTAKE));
    states += met.met;
    printf("%zu states\n", states);
    assert_true(states > 300);
}

/* It keeps all buffers: what others get goes another way, and comes. */
static void late_receivers(void **state)
{
    (void)state;
    assert_true(holds(first_late, COUNT, 0, NO_MISTAKE));
    assert_int_equal(most_skipped, COUNT - 2);
}

static void mistakes(void **state)
{
    (void)state;
    assert_false(holds(all_to_one, COUNT, NOBODY, REPORTS_EARLY));
    assert_false(holds(all_to_one, COUNT, NOBODY, LENDS_TOO_SHORT));
    assert_false(holds(all_to_one, COUNT, NOBODY, NEVER_LENDS));
}

/* A rank uses the memory of as many buffers as it has messages under way. */
static void memory(void **state)
{
    _Atomic uint64_t consumed = 0;
    comm_pool_t pool = {.count = COMM_POOL_BUFFERS};

    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        assert_int_equal(comm_pool_find(&pool), 0);
        comm_pool_lend(&pool, 0, &consumed, i);
        consumed = i;
    }
    assert_int_equal(pool.used, 1);
    for (int i = 0; i < COMM_POOL_BUFFERS; i++) {
        assert_int_equal(comm_pool_find(&pool), i);
        comm_pool_lend(&pool, i, &consumed, 1001u + (uint64_t)i);
    }
    assert_int_equal(comm_pool_find(&pool), -1);
    consumed++;
    assert_int_equal(comm_pool_find(&pool), 0);
}

static int begin(void **state)
{
    (void)state;
    return !states_open(&met, 1 << 20);
}

static int end(void **state)
{
    (void)state;
    states_close(&met);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_interleaving),
        cmocka_unit_test(late_receivers),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
