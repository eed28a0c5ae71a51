/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/collectives/schedules/test_orders.c: what the order of places is worth, by the simulator: on recorded
 * machines and on networks, ranks that were dealt out in turn move the fewest bytes that places allow between
 * them, and are done sooner. */
#include "collectives/proof/simulate/simulate.h"
#include "tests/topo/fixture.h"

enum { ES = 4, MOST = 160 };

typedef struct {
    topo_network_t *network;
    int n, order[MOST];
    size_t counts[MOST], displs[MOST];
} room_t;

static void open_room(room_t *room, const char *what, int n, int per_host, topo_deal_t deal)
{
    char path[512], text[600];
    topo_seat_t seats[MOST];
    snprintf(text, sizeof text, "%s", what);
    if (strstr(what, ".xml"))
        snprintf(text, sizeof text, "machine:%s", fixture_path(what, path, sizeof path));
    room->n = n;
    assert_int_equal(topo_network_open(text, n, per_host, &room->network), GYRE_OK);
    assert_int_equal(topo_network_deal(room->network, deal), GYRE_OK);
    for (int r = 0; r < n; r++)
        seats[r] = topo_network_seat(room->network, r);
    assert_int_equal(topo_seat_order(n, seats, room->order), GYRE_OK);
}

static coll_simulation_t run(room_t *room, coll_algo_t algo, coll_op_t op, size_t count, int ordered)
{
    coll_simulation_t r = {0};
    coll_args_t a = {.op = op,
                     .n = room->n,
                     .count = count,
                     .counts = room->counts,
                     .displs = room->displs,
                     .uniform = 1,
                     .fast_order = 1,
                     .chunk = 1 << 14,
                     .order = ordered ? room->order : NULL};
    for (int i = 0; i < room->n; i++) {
        room->counts[i] = count;
        room->displs[i] = (size_t)i * count;
    }
    assert_int_equal(coll_simulate(room->network, &a, algo, ES, &r), GYRE_OK);
    return r;
}

static void expect_bytes(double got, double want)
{
    if (got < want - 0.5 || got > want + 0.5)
        fail_msg("%.0f bytes, and not %.0f", got, want);
}

/* Every link of a ring carries all blocks but one. By rank each link crosses; in the order of places as many
 * do as there are places. */
static void rings_on_machines(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int cores, hosts, nodes; /* nodes: NUMA nodes of a host */
        topo_deal_t deal;
    } rows[] = {
        {"epyc-128.xml", 128, 1, 8, TOPO_DEAL_CACHES},   {"epyc-128.xml", 128, 1, 8, TOPO_DEAL_GROUPS},
        {"rapids-112.xml", 112, 1, 8, TOPO_DEAL_GROUPS}, {"grace-144.xml", 144, 1, 2, TOPO_DEAL_GROUPS},
        {"numa-64.xml", 64, 1, 2, TOPO_DEAL_CACHES},     {"numa-64.xml", 64, 4, 2, TOPO_DEAL_HOSTS},
        {"grace-144.xml", 36, 3, 2, TOPO_DEAL_HOSTS}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static room_t room;
        const int n = rows[i].cores, hosts = rows[i].hosts;
        const double one = 4096 * (n - 1.0);
        open_room(&room, rows[i].file, n, n / hosts, rows[i].deal);
        const coll_simulation_t by_rank = run(&room, COLL_RING, COLL_ALL_GATHER, 4096 / ES, 0);
        const coll_simulation_t ordered = run(&room, COLL_RING, COLL_ALL_GATHER, 4096 / ES, 1);
        expect_bytes(ordered.between_nodes, hosts > 1 ? hosts * one : 0);
        expect_bytes(by_rank.between_nodes, hosts > 1 ? n * one : 0);
        expect_bytes(ordered.between_groups, hosts * rows[i].nodes * one);
        assert_true(by_rank.between_groups > 1.9 * ordered.between_groups);
        assert_true(ordered.ns < by_rank.ns);
        topo_network_free(room.network);
    }
}

/* Trees, too: by rank a binomial broadcast over ranks dealt out to leaf switches crosses switches with half
 * of its messages and more. */
static void trees_over_switches(void **state)
{
    (void)state;
    static const coll_algo_t algos[] = {COLL_BINOMIAL, COLL_TREE, COLL_BINE};
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        static room_t room;
        open_room(&room, "fat-tree:4", 64, 1, TOPO_DEAL_GROUPS); /* 4 leaves of 16 */
        const coll_simulation_t by_rank = run(&room, algos[i], COLL_BROADCAST, 1 << 18, 0);
        const coll_simulation_t ordered = run(&room, algos[i], COLL_BROADCAST, 1 << 18, 1);
        assert_true(ordered.between_groups < 0.7 * by_rank.between_groups);
        assert_true(ordered.ns < by_rank.ns);
        topo_network_free(room.network);
    }
}

/* Ranks that sit near their neighbours already are left alone. */
static void nothing_to_gain(void **state)
{
    (void)state;
    static room_t room;
    open_room(&room, "epyc-128.xml", 128, 64, TOPO_DEAL_NEAR);
    for (int r = 0; r < 128; r++)
        assert_int_equal(room.order[r], r);
    topo_network_free(room.network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rings_on_machines),
                                       cmocka_unit_test(trees_over_switches),
                                       cmocka_unit_test(nothing_to_gain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
