/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_cells.c: which ranks share a cell, by their masks, on the fixtures. */
#include "base/log.h"
#include "fixture.h"

enum { WORDS = 4, MOST = 64 };

/* Rank r may use the PUs first[r] .. first[r] + many - 1, by the system's numbers, and more where it has
 * many. */
static int cells_of(const topo_t *topo, int ranks, const int *first, int many, int *cells)
{
    uint64_t masks[MOST][WORDS] = {{0}};
    const uint64_t *pointers[MOST];
    int count = -1;
    for (int r = 0; r < ranks; r++) {
        pointers[r] = masks[r];
        for (int i = first[r]; i < first[r] + many; i++)
            masks[r][i / 64] |= (uint64_t)1 << (i % 64);
    }
    assert_int_equal(topo_cells(topo, ranks, pointers, WORDS, cells, &count), GYRE_OK);
    return count;
}

/* 8 L3 caches of 8 cores with 2 PUs: PUs 0 to 15 below the first. */
static void caches(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    int first[MOST], cells[MOST];
    for (int r = 0; r < MOST; r++)
        first[r] = 2 * r;
    assert_int_equal(cells_of(topo, MOST, first, 2, cells), 8);
    for (int r = 0; r < MOST; r++)
        assert_int_equal(cells[r], r / 8);
    for (int r = 0; r < MOST; r++) /* dealt out in turn, the last cache first */
        first[r] = 112 - 16 * (r % 8) + r / 8;
    assert_int_equal(cells_of(topo, MOST, first, 1, cells), 8);
    for (int r = 0; r < MOST; r++)
        assert_int_equal(cells[r], r % 8);
    for (int r = 0; r < 4; r++) /* bound to whole caches */
        first[r] = 16 * (r / 2);
    assert_int_equal(cells_of(topo, 4, first, 16, cells), 2);
    assert_int_equal(cells[1], 0);
    assert_int_equal(cells[2], 1);
    topo_free(topo);
}

/* Wider than a cache: by NUMA nodes; wider than a node: one cell. */
static void nodes(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("numa-64.xml");
    const int halves[4] = {64, 0, 64, 0}, overlap[4] = {0, 0, 64, 60}, alone[1] = {5};
    int cells[4];
    assert_int_equal(cells_of(topo, 4, halves, 64, cells), 2);
    for (int r = 0; r < 4; r++)
        assert_int_equal(cells[r], r % 2);
    assert_int_equal(cells_of(topo, 4, overlap, 16, cells), 1);
    for (int r = 0; r < 4; r++)
        assert_int_equal(cells[r], 0);
    assert_int_equal(cells_of(topo, 4, halves, 128, cells), 1);
    assert_int_equal(cells_of(topo, 1, alone, 1, cells), 1);
    topo_free(topo);
    topo = load_fixture("gpu-8.xml"); /* a package of two caches, each with its NUMA node */
    const int quarters[4] = {0, 12, 24, 36};
    assert_int_equal(cells_of(topo, 4, quarters, 12, cells), 4);
    topo_free(topo);
}

/* A cache that spans its package decides nothing; PUs that the topology lacks and empty masks put all ranks
 * in one cell. */
static void nothing_to_divide(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("one-core.xml");
    const int known[3] = {0, 0, 0}, unknown[3] = {0, 0, 130};
    int cells[3], count;
    const uint64_t mask[WORDS] = {1}, *masks[1] = {mask};
    assert_int_equal(cells_of(topo, 3, known, 1, cells), 1);
    assert_int_equal(cells_of(topo, 3, unknown, 1, cells), 1);
    assert_int_equal(cells_of(topo, 3, known, 0, cells), 1);
    for (int r = 0; r < 3; r++)
        assert_int_equal(cells[r], 0);
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(topo_cells(topo, 0, masks, WORDS, cells, &count), GYRE_ERR_INVALID);
    assert_int_equal(topo_cells(NULL, 1, masks, WORDS, cells, &count), GYRE_ERR_INVALID);
    topo_free(topo);
}

/* This machine without its devices has the same cores as with them. */
static void cores_alone(void **state)
{
    (void)state;
    topo_t *bare, *whole;
    topo_summary_t a, b;
    assert_int_equal(topo_load_cores(&bare), GYRE_OK);
    assert_int_equal(topo_load(NULL, &whole), GYRE_OK);
    topo_summary(bare, &a);
    topo_summary(whole, &b);
    assert_int_equal(a.devices, 0);
    assert_int_equal(a.cores, b.cores);
    assert_int_equal(a.numa_nodes, b.numa_nodes);
    assert_int_equal(a.l3_count, b.l3_count);
    topo_free(bare);
    topo_free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches),
        cmocka_unit_test(nodes),
        cmocka_unit_test(nothing_to_divide),
        cmocka_unit_test(cores_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
