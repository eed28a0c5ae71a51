/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/comm/verbs/test_ring.c: credits of the verbs transport: no message ever lies on another that was not
 * consumed, and no rank waits for a report that no rank owes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/verbs/ring.h"

static uint32_t seed = 1;
static uint32_t dice(uint32_t sides)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % sides;
}

/* A sender and a receiver in one: what is under way, and whose each unit is. */
typedef struct {
    verbs_tx_t tx;
    verbs_rx_t rx;
    uint32_t needs[VERBS_WINDOW], units[VERBS_WINDOW];
    unsigned char taken[VERBS_MOST_UNITS];
} pair_t;

static int try_send(pair_t *p, uint32_t need)
{
    uint32_t unit;

    if (!verbs_tx_place(&p->tx, need, &unit))
        return 0;
    assert_true(unit + need <= p->tx.units);
    for (uint32_t u = unit; u < unit + need; u++) {
        assert_int_equal(p->taken[u], 0);
        p->taken[u] = 1;
    }
    p->needs[p->tx.sent % VERBS_WINDOW] = need;
    p->units[p->tx.sent % VERBS_WINDOW] = unit;
    verbs_tx_sent(&p->tx, need, unit);
    assert_int_equal(verbs_rx_arrived(&p->rx, verbs_imm_upper(verbs_imm_data(unit, 0)), need), 1);
    assert_int_equal(p->rx.next, p->tx.at); /* where both expect the next one, if there is room for it */
    return 1;
}

/* Consumes the oldest; reports to the sender if the receiver must, or if `anyway`. */
static void consume(pair_t *p, int anyway)
{
    uint64_t k = p->rx.consumed;

    assert_int_equal(p->rx.unit[k % VERBS_WINDOW], p->units[k % VERBS_WINDOW]);
    memset(p->taken + p->units[k % VERBS_WINDOW], 0, p->needs[k % VERBS_WINDOW]);
    if (verbs_rx_consume(&p->rx, p->needs[k % VERBS_WINDOW]) || anyway)
        assert_int_equal(verbs_tx_told(&p->tx, (uint32_t)verbs_rx_tell(&p->rx) & 0xffff), 1);
}

static void test_random(void **state)
{
    static const uint32_t sizes[] = {VERBS_LEAST_UNITS, 100, 2048, VERBS_MOST_UNITS};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        pair_t p = {.tx.units = sizes[s], .rx.units = sizes[s]};
        uint32_t most = verbs_units_for(verbs_packet_most(sizes[s]));
        for (int step = 0; step < 200000; step++) {
            uint32_t need = 1 + dice(dice(4) == 0 ? most : 3);
            if (dice(2) == 0)
                try_send(&p, need);
            else if (p.rx.arrived > p.rx.consumed)
                consume(&p, dice(5) == 0);
        }
        assert_true(p.tx.sent > 70000); /* counters went around their 16 bits */
    }
}

/* A receiver that has consumed everything owes no news without which the largest packet could not be sent. */
static void test_no_deadlock(void **state)
{
    (void)state;
    for (uint32_t units = VERBS_LEAST_UNITS; units <= 512; units += 7) {
        pair_t p = {.tx.units = units, .rx.units = units};
        uint32_t most = verbs_units_for(verbs_packet_most(units));
        for (int step = 0; step < 3000; step++) {
            for (uint32_t burst = dice(VERBS_WINDOW); burst > 0 && try_send(&p, 1 + dice(most)); burst--) {
            }
            while (p.rx.arrived > p.rx.consumed)
                consume(&p, 0);
            assert_int_equal(try_send(&p, most), 1);
        }
    }
}

static void test_lies_are_noticed(void **state)
{
    pair_t p = {.tx.units = 64, .rx.units = 64};

    (void)state;
    assert_int_equal(try_send(&p, 1), 1);
    assert_int_equal(verbs_tx_told(&p.tx, 2), 0); /* consumed what was never sent */
    assert_int_equal(verbs_tx_told(&p.tx, 1), 1);
    assert_int_equal(verbs_tx_told(&p.tx, 0), 0); /* took it back */
    assert_int_equal(verbs_tx_is_old(&p.tx, 0), 1);
    assert_int_equal(verbs_tx_is_old(&p.tx, 1), 0);
    assert_int_equal(verbs_tx_is_old(&p.tx, 2), 0); /* a lie is not old */
    assert_int_equal((int)p.tx.consumed, 1);
    assert_int_equal(verbs_rx_arrived(&p.rx, 64, 1), 0);
    assert_int_equal(verbs_rx_arrived(&p.rx, 63, 2), 0);
    for (int k = 1; k < VERBS_WINDOW; k++)
        assert_int_equal(verbs_rx_arrived(&p.rx, 0, 1), 1);
    assert_int_equal(verbs_rx_arrived(&p.rx, 0, 1), 0); /* without credit */
}

static void test_immediate_data(void **state)
{
    (void)state;
    for (uint32_t unit = 0; unit < VERBS_MOST_UNITS; unit++) {
        uint32_t imm = verbs_imm_data(unit, 0x123456789u);
        assert_int_equal(imm & (VERBS_IMM_CONTROL | VERBS_IMM_BYE), 0);
        assert_int_equal(verbs_imm_upper(imm), unit);
        assert_int_equal(imm & 0xffff, 0x6789);
    }
    assert_int_equal(verbs_imm_upper(verbs_imm_control(0x12345, 7)), 0x345);
    assert_int_equal(verbs_imm_control(0x12345, 7) & (VERBS_IMM_CONTROL | VERBS_IMM_BYE), VERBS_IMM_CONTROL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_no_deadlock),
        cmocka_unit_test(test_lies_are_noticed),
        cmocka_unit_test(test_immediate_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
