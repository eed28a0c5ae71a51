/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/test_mail_ring.c: pieces of messages never lie where one lies that was not fetched,
 * whatever their lengths, and both ends come to the same places. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/gpu/mail/ring.h"

enum { ROOM = 4096, PIECES = 5000 };

static uint32_t state = 12345;
static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)state * below) >> 32);
}

static void no_piece_lies_on_another(void **unused)
{
    static size_t place[PIECES + 1], bytes[PIECES + 1];
    coll_mail_ring_t out = {0}, in = {0};
    uint64_t fetched, most = 0, other;
    (void)unused;
    for (uint64_t q = 1; q <= PIECES; q++) {
        bytes[q] = draw(3) == 0 ? draw(ROOM + 1) : draw(300);
        place[q] = coll_mail_ring_next(&out, ROOM, bytes[q], &fetched);
        assert_int_equal(coll_mail_ring_next(&in, ROOM, bytes[q], &other), place[q]);
        assert_int_equal(other, fetched);
        assert_int_equal(out.count, q);
        assert_true(fetched < q); /* it does not wait for later ones */
        assert_int_equal(place[q] % COLL_MAIL_ALIGN, 0);
        assert_true(place[q] + bytes[q] <= ROOM);
        most = fetched > most ? fetched : most;
        assert_true(q - most <= COLL_MAIL_LETTERS);
        for (uint64_t p = most + 1; p < q; p++)
            assert_true(place[p] + bytes[p] <= place[q] || place[q] + bytes[q] <= place[p]);
    }
}

static void what_fits_waits_for_nobody(void **unused)
{
    coll_mail_ring_t ring = {0};
    uint64_t fetched;
    (void)unused;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(coll_mail_ring_next(&ring, ROOM, ROOM / 4, &fetched), (size_t)i * ROOM / 4);
        assert_int_equal(fetched, 0);
    }
    assert_int_equal(coll_mail_ring_next(&ring, ROOM, 1, &fetched), 0);
    assert_int_equal(fetched, 1);
    assert_int_equal(coll_mail_ring_next(&ring, ROOM, 0, &fetched),
                     COLL_MAIL_ALIGN); /* nor an empty one for more */
    assert_int_equal(fetched, 1);
    assert_int_equal(coll_mail_ring_next(&ring, ROOM, ROOM, &fetched), 0);
    assert_int_equal(fetched, 6); /* all, and the empty one too */
}

static void letters_are_not_overwritten(void **unused)
{
    coll_mail_ring_t ring = {0};
    uint64_t fetched;
    (void)unused;
    for (uint64_t q = 1; q <= 3 * COLL_MAIL_LETTERS; q++) {
        coll_mail_ring_next(&ring, (size_t)1 << 20, 0, &fetched);
        assert_int_equal(fetched, q <= COLL_MAIL_LETTERS ? 0 : q - COLL_MAIL_LETTERS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_piece_lies_on_another),
        cmocka_unit_test(what_fits_waits_for_nobody),
        cmocka_unit_test(letters_are_not_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
