/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/verbs/test_choose.c: the verbs transport's choices, from tables, without an adapter. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <infiniband/verbs.h>

#include "comm/verbs/choose.h"

static verbs_gid_t gid(int index, int version, const char *address)
{
    verbs_gid_t made = {.index = index, .version = version};

    if (strchr(address, '.')) {
        made.raw[10] = made.raw[11] = 0xff;
        assert_int_equal(inet_pton(AF_INET, address, made.raw + 12), 1);
    } else {
        assert_int_equal(inet_pton(AF_INET6, address, made.raw), 1);
    }
    return made;
}

static int chosen(const verbs_gid_t *table, int n, int wanted, const char *says)
{
    char why[160];
    int at = verbs_gid_choose(table, n, wanted, why, sizeof why);

    if (!strstr(why, says))
        fail_msg("'%s' does not say '%s'", why, says);
    return at;
}

static void test_gids(void **state)
{
    /* as a ConnectX with RoCE shows them */
    const verbs_gid_t roce[] = {gid(0, 1, "fe80::1"),   gid(1, 2, "fe80::1"),     gid(2, 1, "192.0.2.1"),
                                gid(3, 2, "192.0.2.1"), gid(4, 2, "2001:db8::1"), gid(5, 2, "::")};
    const verbs_gid_t infiniband[] = {gid(0, 0, "fe80::2:c903:1:2"), gid(1, 0, "fe80::3")};

    (void)state;
    assert_int_equal(chosen(roce, 6, -1, "RoCE v2, IPv4"), 3);
    assert_int_equal(chosen(roce, 3, -1, "RoCE v2, link-local"), 1); /* version 2 before any of version 1 */
    assert_int_equal(chosen(roce + 4, 2, -1, "RoCE v2, IPv6, the only one"), 0);
    assert_int_equal(chosen(roce, 6, 0, "as GYRE_VERBS_GID asks"), 0);
    assert_int_equal(chosen(roce, 6, 5, "empty"), -1);
    assert_int_equal(chosen(roce, 6, 99, "empty or not there"), -1);
    assert_int_equal(chosen(roce + 5, 1, -1, "address"), -1);
    assert_int_equal(chosen(infiniband, 2, -1, "InfiniBand"), 0);
}

static void test_gid_text(void **state)
{
    char text[46];

    (void)state;
    verbs_gid_text(gid(0, 2, "192.0.2.1").raw, text);
    assert_string_equal(text, "192.0.2.1");
    verbs_gid_text(gid(0, 2, "fe80::1").raw, text);
    assert_string_equal(text, "fe80::1");
}

static void test_global_route(void **state)
{
    const verbs_gid_t a = gid(0, 0, "fe80::1"), b = gid(0, 0, "fe80::2"), far = gid(0, 0, "fec0::2");

    (void)state;
    assert_int_equal(verbs_needs_grh(0, 0, a.raw, b.raw), 0);
    assert_int_equal(verbs_needs_grh(0, 1, a.raw, b.raw), 1);
    assert_int_equal(verbs_needs_grh(0, 0, a.raw, far.raw), 1);
    assert_int_equal(verbs_needs_grh(1, 0, a.raw, b.raw), 1);
}

/* For any deadline: the error comes in less than half of it, and the count is not one that some adapter takes
 * for "forever". */
static void test_patience(void **state)
{
    (void)state;
    for (double deadline = 0.1; deadline < 1e6; deadline *= 1.3) {
        verbs_patience_t p = verbs_patience(deadline);
        double target = deadline / 2 < VERBS_PATIENCE_S ? deadline / 2 : VERBS_PATIENCE_S;
        double one = 4.096e-6 * (double)(1u << p.timeout);
        assert_true(p.retries >= 1 && p.retries <= 6);
        assert_true(p.timeout >= 1 && p.timeout <= 31);
        assert_true(p.seconds > one * p.retries && p.seconds <= target && p.seconds > target / 2 - 1e-9);
    }
    assert_true(verbs_patience(0).seconds <= VERBS_PATIENCE_S &&
                verbs_patience(0).seconds > VERBS_PATIENCE_S / 2);
    assert_int_equal(verbs_patience(-1).timeout, verbs_patience(300).timeout);
    assert_true(verbs_patience(1e-6).seconds < 0.02); /* no shorter: networks need some time */
}

static verbs_port_t port(const char *name, int number, int active, int roce, int distance, double gbits)
{
    verbs_port_t made = {
        .port = number, .active = active, .roce = roce, .distance = distance, .gbits = gbits};

    snprintf(made.name, sizeof made.name, "%s", name);
    snprintf(made.state, sizeof made.state, "%s", active ? "ACTIVE" : "DOWN");
    return made;
}

static int count_of(const verbs_port_t *ports, int n, const char *list, int most, int *which,
                    const char *says)
{
    char why[300];
    int count = verbs_ports_choose(ports, n, list, most, which, why, sizeof why);

    if (!strstr(why, says))
        fail_msg("'%s' does not say '%s'", why, says);
    return count;
}

static void test_ports(void **state)
{
    /* two packages with two adapters each, one of them slow, and a port that is down */
    const verbs_port_t ports[] = {port("mlx5_3", 1, 1, 0, 2, 200), port("mlx5_2", 1, 1, 0, 2, 200),
                                  port("mlx5_1", 1, 1, 0, 0, 200), port("mlx5_0", 1, 1, 0, 0, 200),
                                  port("mlx5_0", 2, 0, 0, 0, 200), port("mlx4_0", 1, 1, 0, 0, 40),
                                  port("bnxt_0", 1, 1, 1, 0, 100)};
    int which[4];

    (void)state;
    assert_int_equal(count_of(ports, 7, "", 4, which, "on our NUMA node"), 2);
    assert_int_equal(which[0], 3); /* by name, not by the order in which they were found */
    assert_int_equal(which[1], 2);
    assert_int_equal(count_of(ports, 7, "", 1, which, "1 of 6"), 1);
    assert_int_equal(count_of(ports, 2, "", 4, which, "none is nearer"), 2);
    assert_int_equal(which[0], 1);
    assert_int_equal(count_of(ports, 7, "mlx5_3,mlx5_0:1", 4, which, "GYRE_VERBS_DEVICES"), 2);
    assert_int_equal(which[0], 3);
    assert_int_equal(which[1], 0);
    assert_int_equal(count_of(ports, 7, "mlx5_0,mlx5_1,mlx5_2", 2, which, "GYRE_VERBS_DEVICES"), 2);
    assert_int_equal(count_of(ports, 7, "mlx4_0,bnxt_0", 4, which, "InfiniBand and of RoCE"), 0);
    assert_int_equal(count_of(ports, 7, "mlx5", 4, which, "names no active port"), 0); /* a name, no prefix */
    assert_int_equal(count_of(ports, 7, "mlx5_0:2", 4, which, "mlx5_0 port 2 is DOWN"), 0);
    /* all must be there */
    assert_int_equal(count_of(ports, 7, "mlx5_0,mlx5_9", 4, which, "no active port with mlx5_9"), 0);
    assert_int_equal(count_of(ports, 7, "mlx5_0:2,mlx5_1", 4, which, "mlx5_0 port 2 is DOWN"), 0);
    assert_int_equal(count_of(ports, 7, ",mlx5_0", 4, which, "has an empty name"), 0);
    assert_int_equal(count_of(ports, 7, "mlx5_0:1x", 4, which, "no active port with mlx5_0:1x"), 0);
    assert_int_equal(count_of(ports + 4, 1, "", 4, which, "mlx5_0 port 2 is DOWN"), 0);
    assert_int_equal(count_of(ports, 0, "", 4, which, "no RDMA device"), 0);
    assert_int_equal(count_of(ports + 6, 1, "", 4, which, "the only port"), 1);
}

static void test_words(void **state)
{
    (void)state;
    for (int status = IBV_WC_SUCCESS + 1; status <= IBV_WC_GENERAL_ERR; status++) {
        assert_non_null(verbs_wc_words(status));
        assert_true(strlen(verbs_wc_cause(status)) > 0);
    }
    assert_string_equal(verbs_wc_words(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
    assert_non_null(strstr(verbs_wc_cause(IBV_WC_RETRY_EXC_ERR), "gone"));
    assert_non_null(strstr(verbs_wc_words(9999), "unknown"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gids),     cmocka_unit_test(test_gid_text), cmocka_unit_test(test_global_route),
        cmocka_unit_test(test_patience), cmocka_unit_test(test_ports),    cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
