/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_network.c: routes over the presets connect, have the length that they must have, and have
 * names that show their links. Files are read, and errors in them are reported. */
/* one thread: TSan has nothing to see */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/topo/fixture.h"
#include "topo/network/network.h"

static topo_network_t *open_network(const char *what, int ranks, int per_node)
{
    topo_network_t *t = NULL;
    assert_int_equal(topo_network_open(what, ranks, per_node, &t), GYRE_OK);
    assert_non_null(t);
    for (uint32_t i = 0; i < t->nlinks; i++) {
        assert_true(t->links[i].rate > 0);
        assert_true(t->links[i].latency >= t->least_latency);
    }
    return t;
}

static uint32_t hops(const topo_network_t *t, int src, int dst, uint32_t *links)
{
    uint32_t n = topo_network_route(t, src, dst, links);
    assert_true(n <= t->most_hops);
    assert_true((n == 0) == (src == dst));
    for (uint32_t i = 0; i < n; i++)
        assert_true(links[i] < t->nlinks);
    return n;
}

static const char *name_of(const topo_network_t *t, uint32_t link)
{
    static char text[128];
    return topo_network_link_name(t, link, text, sizeof text);
}

static void fat_tree(void **state)
{
    (void)state;
    uint32_t links[8];
    for (int ratio = 1; ratio <= 4; ratio *= 2) {
        char what[32];
        snprintf(what, sizeof what, "fat-tree:%d", ratio);
        topo_network_t *t = open_network(what, 100, 0); /* leaves of 16 */
        assert_int_equal(t->leaf, 16);
        assert_int_equal(t->spines, 16 / ratio);
        for (int s = 0; s < 100; s++)
            for (int d = 0; d < 100; d++) {
                int node, leaf, spine, other, again;
                uint32_t n = hops(t, s, d, links);
                assert_int_equal(n, s == d ? 0 : s / 16 == d / 16 ? 2 : 4);
                assert_int_equal(topo_network_group(t, s), s / 16);
                if (n == 0)
                    continue;
                assert_int_equal(sscanf(name_of(t, links[0]), "node %d up", &node), 1);
                assert_int_equal(node, s);
                assert_int_equal(sscanf(name_of(t, links[n - 1]), "node %d down", &node), 1);
                assert_int_equal(node, d);
                if (n < 4)
                    continue;
                assert_int_equal(sscanf(name_of(t, links[1]), "leaf %d to spine %d", &leaf, &spine), 2);
                assert_int_equal(sscanf(name_of(t, links[2]), "spine %d to leaf %d", &again, &other), 2);
                assert_int_equal(leaf, s / 16);
                assert_int_equal(other, d / 16);
                assert_int_equal(spine, again);
                assert_in_range(spine, 0, t->spines - 1);
            }
        topo_network_free(t);
    }
}

static int around(int a, int b, int size)
{
    int ahead = (b - a + size) % size;
    return ahead < size - ahead ? ahead : size - ahead;
}

static void torus(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int ranks, dims[3];
    } cases[] = {{"torus:4x5x3", 60, {4, 5, 3}}, {"torus:6x7", 42, {6, 7, 1}}, {"torus", 64, {8, 8, 1}},
                 {"torus", 512, {8, 8, 8}},      {"torus", 13, {1, 13, 1}},    {"torus", 4096, {16, 16, 16}}};
    uint32_t links[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        topo_network_t *t = open_network(cases[i].what, cases[i].ranks, 0);
        const int *d = cases[i].dims;
        assert_memory_equal(t->dims, d, sizeof t->dims);
        for (int s = 0; s<t->ranks; s += t->ranks> 512 ? 97 : 1)
            for (int e = 0; e < t->ranks; e++) {
                uint32_t n = hops(t, s, e, links);
                int at[3] = {s % d[0], s / d[0] % d[1], s / d[0] / d[1]};
                int to[3] = {e % d[0], e / d[0] % d[1], e / d[0] / d[1]}, most = 0;
                for (int k = 0; k < 3; k++)
                    most += around(at[k], to[k], d[k]);
                assert_int_equal(n, most);
                for (uint32_t h = 0; h < n; h++) { /* walk it */
                    int node;
                    char sign, axis;
                    assert_int_equal(sscanf(name_of(t, links[h]), "node %d %c%c", &node, &sign, &axis), 3);
                    assert_int_equal(node, at[0] + d[0] * (at[1] + d[1] * at[2]));
                    int k = axis - 'x';
                    at[k] = (at[k] + (sign == '+' ? 1 : d[k] - 1)) % d[k];
                }
                assert_memory_equal(at, to, sizeof at);
            }
        topo_network_free(t);
    }
}

static void dragonfly(void **state)
{
    (void)state;
    uint32_t links[8];
    for (int ranks = 2; ranks <= 300; ranks += 71) {
        topo_network_t *t = open_network("dragonfly", ranks, 0);
        int p = t->hosts, a = t->routers;
        for (int s = 0; s < ranks; s++)
            for (int d = 0; d < ranks; d++) {
                int group = s / (p * a), router = s / p % a, crossed = 0, x, y, w;
                uint32_t n = hops(t, s, d, links);
                assert_true(n <= 5);
                for (uint32_t h = 1; h + 1 < n; h++) {
                    const char *name = name_of(t, links[h]);
                    if (sscanf(name, "group %d router %d to %d", &x, &y, &w) == 3) {
                        assert_int_equal(x, group);
                        if (!crossed) /* else it is the gate, see gates() */
                            assert_int_equal(y, router);
                        router = w;
                    } else {
                        assert_int_equal(sscanf(name, "group %d to group %d, link %d", &x, &y, &w), 3);
                        assert_int_equal(x, group);
                        group = y;
                        assert_int_equal(crossed++, 0);
                        router = h + 2 == n ? d / p % a : router;
                    }
                }
                assert_int_equal(crossed, s / (p * a) != d / (p * a));
                if (n) {
                    assert_int_equal(group, d / (p * a));
                    assert_int_equal(router, d / p % a);
                }
            }
        topo_network_free(t);
    }
}

/* With as many groups as there can be, one cable joins each two of them: it leaves a group where the way back
 * enters it, and no router holds more of them than it has ports. */
static void gates(void **state)
{
    (void)state;
    uint32_t links[8];
    int exit_of[9][9], entry[9][9], held[9][4] = {{0}};
    topo_network_t *t = open_network("dragonfly", 72, 0);
    assert_int_equal(t->groups, 9);
    assert_int_equal(t->bundles, 1);
    assert_int_equal(t->nlinks, 2 * 72 + 9 * 4 * 4 + 9 * 8);
    for (int s = 0; s < 72; s++)
        for (int d = 0; d < 72; d++) {
            int g = s / 8, h = d / 8, out = s / 2 % 4, in = d / 2 % 4, x, y, z, crossed = 0;
            uint32_t n = hops(t, s, d, links);
            for (uint32_t i = 1; g != h && i + 1 < n; i++)
                if (sscanf(name_of(t, links[i]), "group %d router %d to %d", &x, &y, &z) != 3)
                    crossed = 1;
                else if (crossed)
                    in = y;
                else
                    out = z;
            if (g == h)
                continue;
            if (s % 8 == 0 && d % 8 == 0) {
                exit_of[g][h] = out;
                entry[g][h] = in;
                held[g][out]++;
            }
            assert_int_equal(exit_of[g][h], out);
            assert_int_equal(entry[g][h], in);
        }
    for (int g = 0; g < 9; g++)
        for (int h = 0; h < 9; h++)
            if (g != h)
                assert_int_equal(exit_of[g][h], entry[h][g]);
    for (int g = 0; g < 9; g++)
        for (int r = 0; r < 4; r++)
            assert_int_equal(held[g][r], 2);
    topo_network_free(t);
}

static void nvswitch(void **state)
{
    (void)state;
    uint32_t links[8];
    topo_network_t *t = open_network("nvswitch", 21, 0); /* the last node has 5 GPUs */
    for (int s = 0; s < 21; s++)
        for (int d = 0; d < 21; d++) {
            uint32_t n = hops(t, s, d, links);
            if (s == d)
                continue;
            assert_int_equal(n, s / 8 == d / 8 || s % 8 == d % 8 ? 2 : 4);
            int at = s, gpu;
            for (uint32_t h = 0; h < n; h += 2) { /* into a switch or rail, and out of it */
                char in[64], out[64];
                snprintf(in, sizeof in, "%s", name_of(t, links[h]));
                snprintf(out, sizeof out, "%s", name_of(t, links[h + 1]));
                assert_int_equal(sscanf(in, "GPU %d", &gpu), 1);
                assert_int_equal(gpu, at);
                assert_int_equal(sscanf(out, "GPU %d", &gpu), 1);
                if (strstr(in, "NVSwitch")) {
                    assert_non_null(strstr(out, "from NVSwitch"));
                    assert_int_equal(gpu / 8, at / 8);
                } else {
                    assert_non_null(strstr(out, "from its rail"));
                    assert_int_equal(gpu % 8, at % 8);
                }
                at = gpu;
            }
            assert_int_equal(at, d);
        }
    topo_network_free(t);
}

static void shared_nodes(void **state)
{
    (void)state;
    uint32_t links[64];
    static const char *const what[] = {"fat-tree", "torus", "dragonfly", "ethernet"};
    for (size_t i = 0; i < 4; i++) {
        topo_network_t *t = open_network(what[i], 64, 4);
        assert_int_equal(t->nodes, 16);
        assert_int_equal(hops(t, 5, 6, links), 1);
        assert_string_equal(name_of(t, links[0]), "memory of rank 5");
        uint32_t n = hops(t, 3, 63, links);
        assert_true(n >= 1);
        for (uint32_t h = 0; h < n; h++)
            assert_true(links[h] >= 64);
        topo_network_free(t);
    }
}

static const char *write_file(const char *text)
{
    static char path[] = "/tmp/gyre-network-XXXXXX";
    strcpy(path, "/tmp/gyre-network-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void file(void **state)
{
    (void)state;
    uint32_t links[8];
    const char *path =
        write_file("{\"title\": \"two racks\", \"nodes\": [\"a\", \"b\", \"c\"], \"cost\": {\"send_ns\": 7},"
                   "\"links\": [{\"between\": [\"a\", \"s1\"], \"latency_ns\": 500, \"rate\": 25},"
                   "{\"between\": [\"b\", \"s1\"], \"latency_ns\": 500, \"rate\": 25},"
                   "{\"between\": [\"c\", \"s2\"], \"latency_ns\": 500, \"rate\": 25},"
                   "{\"from\": \"s1\", \"to\": \"s2\", \"latency_ns\": 700, \"rate\": 12.5},"
                   "{\"from\": \"s2\", \"to\": \"s1\", \"latency_ns\": 900, \"rate\": 1.5}]}");
    topo_network_t *t = open_network(path, 3, 0);
    assert_string_equal(t->title, "two racks");
    assert_int_equal(t->nlinks, 8);
    assert_true(t->cost.send == 7);
    assert_int_equal(hops(t, 0, 1, links), 2);
    assert_int_equal(hops(t, 2, 0, links), 3);
    assert_string_equal(name_of(t, links[0]), "c to s2");
    assert_string_equal(name_of(t, links[1]), "s2 to s1");
    assert_true(t->links[links[1]].rate == 1.5);
    assert_string_equal(name_of(t, links[2]), "s1 to a");
    topo_network_free(t);
    t = open_network(path, 6, 2); /* two ranks on each */
    assert_int_equal(hops(t, 4, 5, links), 1);
    assert_int_equal(hops(t, 5, 1, links), 3);
    assert_string_equal(name_of(t, links[1]), "s2 to s1");
    assert_true(t->links[links[1]].rate == 1.5);
    topo_network_free(t);
    assert_int_equal(topo_network_open(path, 4, 0, &t), GYRE_ERR_INVALID); /* three places */
    unlink(path);
}

#define LINKED(keys, to) \
    "{" keys "\"nodes\": 2, \"links\": [{\"between\": [\"n0\", " to "], \"latency_ns\": 1, \"rate\": 1}]}"

static void mistakes(void **state)
{
    (void)state;
    topo_network_t *t = NULL;
    static const struct {
        const char *what;
        int ranks;
        gyre_status_t status;
    } bad[] = {{"no-such-network", 8, GYRE_ERR_NOT_FOUND},
               {"torus:3x3", 8, GYRE_ERR_INVALID},
               {"torus:8", 8, GYRE_ERR_INVALID},
               {"torus:2x0x4", 8, GYRE_ERR_INVALID},
               {"fat-tree:0", 8, GYRE_ERR_INVALID},
               {"fat-tree:two", 8, GYRE_ERR_INVALID},
               {"ethernet:2", 8, GYRE_ERR_INVALID},
               {"ethernet", 0, GYRE_ERR_INVALID},
               {"host", 8, GYRE_ERR_INVALID},
               {"/", 8, GYRE_ERR_IO}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(topo_network_open(bad[i].what, bad[i].ranks, 0, &t), bad[i].status);
    static const char *const files[] = {
        "{",
        "[]",
        "{\"nodes\": 2}",
        "{\"nodes\": 0, \"links\": [{\"between\": [\"n0\", \"s\"], \"latency_ns\": 1, \"rate\": 1}]}",
        "{\"nodes\": [\"a\", \"a\"], \"links\": [{\"between\": [\"a\", \"s\"], \"latency_ns\": 1, \"rate\": "
        "1}]}",
        "{\"nodes\": 2, \"links\": [{\"between\": [\"n0\"], \"latency_ns\": 1, \"rate\": 1}]}",
        "{\"nodes\": 2, \"links\": [{\"between\": [\"n0\", \"n1\"], \"rate\": 1}]}",
        "{\"nodes\": 2, \"links\": [{\"between\": [\"n0\", \"n1\"], \"latency_ns\": 1, \"rate\": 0}]}",
        "{\"nodes\": 2, \"links\": [{\"between\": [\"n0\", \"s\"], \"latency_ns\": 1, \"rate\": 1}]}",
        "{\"nodes\": 2, \"links\": [{\"from\": \"n0\", \"to\": \"n1\", \"latency_ns\": 1, \"rate\": 1}]}",
        "{\"nodes\": 2, \"cost\": {\"send_ns\": \"x\"}, \"links\": [{\"between\": [\"n0\", \"n1\"], "
        "\"latency_ns\": 1, "
        "\"rate\": 1}]}",
        LINKED("\"rank_per_node\": 2, ", "\"n1\""),
        LINKED("\"cost\": {\"send\": 1}, ", "\"n1\""),
        LINKED("\"cost\": 7, ", "\"n1\""),
        LINKED("", "\"n1\", \"n2\""),
        LINKED("", "\"n1\"], \"latency\": [1")};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = write_file(files[i]);
        assert_int_equal(topo_network_open(path, 2, 0, &t), GYRE_ERR_FORMAT);
        unlink(path);
    }
    assert_null(t);
}

/* Two hosts of 2 packages, 4 NUMA nodes, and in each of these 2 caches of 8 cores: how far two ranks are is
 * how many links a message takes. */
static void machine(void **state)
{
    (void)state;
    static const struct {
        int a, b;
        uint32_t links;
        const char *top; /* the outermost link */
    } rows[] = {{0, 7, 2, "core 0 out"},
                {0, 8, 4, "cache 0 out"},
                {9, 16, 6, "NUMA node 0 out"},
                {63, 64, 8, "package 0 out"},
                {200, 3, 10, "host 1 out"}};
    char path[512], what[600];
    uint32_t links[16];
    snprintf(what, sizeof what, "machine:%s", fixture_path("epyc-128.xml", path, sizeof path));
    topo_network_t *t = open_network(what, 256, 128);
    assert_int_equal(t->nodes, 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(hops(t, rows[i].a, rows[i].b, links), rows[i].links);
        assert_string_equal(name_of(t, links[rows[i].links / 2 - 1]), rows[i].top);
        assert_int_equal(hops(t, rows[i].b, rows[i].a, links), rows[i].links);
    }
    assert_int_equal(topo_network_group(t, 17), 1);
    assert_int_equal(topo_network_group(t, 128 + 17), 9);
    assert_int_equal(topo_network_seat(t, 128 + 17).cache, 18);
    topo_network_free(t);
    t = open_network(what, 256, 0); /* as many per host as there are cores */
    assert_int_equal(t->nodes, 2);
    topo_network_free(t);
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(topo_network_open(what, 256, 129, &t), GYRE_ERR_INVALID);
    assert_int_equal(topo_network_open("machine:/nonexistent.xml", 2, 0, &t), GYRE_ERR_NOT_FOUND);
}

/* A machine of whose caches only the first and the third may be used: two hosts of it share nothing. */
static void share_of_a_machine(void **state)
{
    (void)state;
    static const char key[] = " allowed_cpuset=\"";
    char path[512], what[64] = "machine:build/test_network.XXXXXX", *text = NULL;
    size_t bytes = 0;
    uint32_t a[16], b[16];
    FILE *in = fopen(fixture_path("numa-64.xml", path, sizeof path), "r");
    assert_non_null(in);
    assert_true(getdelim(&text, &bytes, '\0', in) > 0);
    fclose(in);
    char *from = strstr(text, key);
    assert_non_null(from);
    from += sizeof key - 1;
    const int fd = mkstemp(what + 8);
    assert_true(fd >= 0);
    dprintf(fd, "%.*s0x0000ffff,0x0000ffff%s", (int)(from - text), text, strchr(from, '"'));
    close(fd);
    free(text);
    topo_network_t *t = open_network(what, 32, 16);
    unlink(what + 8);
    for (int r = 0; r < 32; r++) {
        assert_int_equal(topo_network_seat(t, r).cache, r / 8);
        assert_int_equal(topo_network_seat(t, r).package, r / 16);
    }
    const uint32_t hops_a = hops(t, 8, 0, a), hops_b = hops(t, 16, 24, b);
    for (uint32_t i = 0; i < hops_a; i++)
        for (uint32_t k = 0; k < hops_b; k++)
            assert_true(a[i] != b[k]);
    topo_network_free(t);
}

/* Ranks dealt out in turn: neighbours in number are in different places, and every place has its share. */
static void dealt(void **state)
{
    (void)state;
    char path[512], what[600];
    topo_network_t *t = open_network("ethernet", 10, 4); /* hosts of 4, 4 and 2 */
    static const int hosts[10] = {0, 1, 2, 0, 1, 2, 0, 1, 0, 1};
    assert_int_equal(topo_network_deal(t, TOPO_DEAL_HOSTS), GYRE_OK);
    for (int r = 0; r < 10; r++) {
        assert_int_equal(topo_network_node(t, r), hosts[r]);
        assert_int_equal(topo_network_seat(t, r).host, hosts[r]);
    }
    topo_network_free(t);
    t = open_network("fat-tree", 64, 0); /* leaves of 16 */
    assert_int_equal(topo_network_deal(t, TOPO_DEAL_GROUPS), GYRE_OK);
    for (int r = 0; r < 64; r++) {
        assert_int_equal(topo_network_group(t, r), r % 4);
        assert_int_equal(topo_network_seat(t, r).fabric, r % 4 + 1);
    }
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(topo_network_deal(t, TOPO_DEAL_CACHES), GYRE_ERR_INVALID);
    topo_network_free(t);
    snprintf(what, sizeof what, "machine:%s", fixture_path("numa-64.xml", path, sizeof path));
    t = open_network(what, 64, 0);
    assert_int_equal(topo_network_deal(t, TOPO_DEAL_CACHES), GYRE_OK);
    for (int r = 0; r < 64; r++)
        assert_int_equal(topo_network_seat(t, r).cache, r % 8);
    topo_network_free(t);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fat_tree), cmocka_unit_test(torus),    cmocka_unit_test(dragonfly),
        cmocka_unit_test(gates),    cmocka_unit_test(nvswitch), cmocka_unit_test(shared_nodes),
        cmocka_unit_test(file),     cmocka_unit_test(machine),  cmocka_unit_test(share_of_a_machine),
        cmocka_unit_test(dealt),    cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
