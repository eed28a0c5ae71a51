/* tests/collectives/test_cells.c: when one host's cells decide over the algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"
#include "comm/link.h"

enum { RANKS = 48, CELL = 8 };

static coll_choice_t choice_of(int cells, int cores, size_t count)
{
    static coll_tune_t tune;
    int part_of[RANKS], host_of[RANKS] = {0};
    for (int r = 0; r < RANKS; r++)
        part_of[r] = cells > 1 ? r / CELL : 0;
    coll_tune_builtin(&tune);
    tune.cost.cores = cores;
    comm_group_t *group = aligned_alloc(_Alignof(comm_group_t), sizeof *group);
    gyre_comm_t *comm = calloc(1, sizeof *comm);
    assert_non_null(group);
    assert_non_null(comm);
    *group = (comm_group_t){.n = RANKS, .hosts = 1, .cores = cores};
    comm->group = group;
    comm->n = RANKS;
    comm->hosts = 1;
    comm->host_of = host_of;
    comm->part_of = part_of;
    comm->parts = cells;
    comm->tune = &tune;
    coll_choice_t choice;
    const coll_args_t args = {.op = COLL_REDUCE, .n = RANKS, .count = count, .chunk = 1, .host = part_of};
    assert_int_equal(coll_select(comm, &args, 4, 0, &choice), GYRE_OK);
    free(comm);
    free(group);
    return choice;
}

static void reductions_to_a_root(void **state)
{
    (void)state;
    const size_t large = (size_t)256 << 8; /* floats: 256 KiB */
    coll_choice_t c = choice_of(RANKS / CELL, RANKS, large);
    assert_int_equal(c.algo, COLL_HIERARCHICAL);
    assert_int_equal(c.why, COLL_WHY_MODEL);
    assert_int_not_equal(choice_of(1, RANKS, large).algo, COLL_HIERARCHICAL);        /* no cells */
    assert_int_not_equal(choice_of(RANKS / CELL, 2, large).algo, COLL_HIERARCHICAL); /* ranks take turns */
    assert_int_not_equal(choice_of(RANKS / CELL, RANKS, 2).algo, COLL_HIERARCHICAL); /* few bytes */
}

int main(void)
{
    if (base_settings_load() != GYRE_OK)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(reductions_to_a_root)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
