/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_cma.c: reading and writing memory through the kernel, directly and by way of the room for
 * places that lie badly for each other. The other process is this one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "comm/memory/cma.c"

enum { MOST = 2 * ROOM + 5000, AROUND = 32 };

static unsigned char *theirs, *ours; /* [MOST + 2 * PAGE] at a page */

/* Of this process it is always allowed, unless a filter forbids the call as such (containers). */
static int forbidden(void)
{
    uint64_t word = 1, there = 2;
    return comm_cma_read(getpid(), (uintptr_t)&there, &word, sizeof word) == EPERM;
}

static int set_up(void **state)
{
    (void)state;
    const size_t bytes = (MOST + 3 * PAGE) / PAGE * PAGE;
    theirs = aligned_alloc(PAGE, bytes);
    ours = aligned_alloc(PAGE, bytes);
    return theirs && ours ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(theirs);
    free(ours);
    return 0;
}

/* Moves from `in` to `out`, which has AROUND bytes before and after. */
static void move_once(unsigned char *in, unsigned char *out, size_t bytes, int reads)
{
    for (size_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)(i * 11 + i / 253);
    memset(out - AROUND, 0x5a, bytes + 2 * AROUND);
    assert_int_equal(reads ? comm_cma_read(getpid(), (uintptr_t)in, out, bytes)
                           : comm_cma_write(getpid(), (uintptr_t)out, in, bytes),
                     0);
    assert_memory_equal(in, out, bytes);
    for (size_t i = 0; i < AROUND; i++) {
        assert_int_equal(out[-1 - (ptrdiff_t)i], 0x5a);
        assert_int_equal(out[bytes + i], 0x5a);
    }
}

static void all_ways(void)
{
    static const size_t sizes[] = {1, 2047, 2048, 4096, ROOM - 1, ROOM, ROOM + 1, MOST};
    static const size_t ahead[] = {0, 1, 16, 31, 32, 2048, PAGE - 16};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t a = 0; a < sizeof ahead / sizeof *ahead; a++) {
            move_once(theirs + 48, ours + 48 + ahead[a], sizes[s], 1);
            move_once(ours + 48, theirs + 48 + ahead[a], sizes[s], 0);
        }
}

static void moves(void **state)
{
    (void)state;
    if (forbidden())
        skip();
    all_ways(); /* as this processor has it */
    assert_int_not_equal(room_pays, PAYS_UNKNOWN);
    room_pays = PAYS;
    all_ways();
    room_pays = PAYS_NOT;
    all_ways();
}

static void goes_on_without_the_room(void **state)
{
    (void)state;
    if (forbidden())
        skip();
    room_pays = PAYS;
    assert_false(atomic_flag_test_and_set(&room_taken)); /* as another thread does */
    rooms[ROOM / 2] = 99;
    all_ways();
    assert_int_equal(rooms[ROOM / 2], 99);
    atomic_flag_clear(&room_taken);
}

/* What cannot be reached is an error in each way, and the room is free again. */
static void fails(void **state)
{
    (void)state;
    if (forbidden())
        skip();
    const uint64_t nowhere = 16; /* the first page of a process is never there */
    room_pays = PAYS;
    assert_int_equal(comm_cma_read(getpid(), nowhere, ours, 64), EFAULT);
    assert_int_equal(comm_cma_read(getpid(), nowhere, ours + 32, PAGE), EFAULT);
    assert_int_equal(comm_cma_write(getpid(), nowhere + 16, ours + 16, PAGE), EFAULT);
    assert_false(atomic_flag_test_and_set(&room_taken));
    atomic_flag_clear(&room_taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(goes_on_without_the_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
