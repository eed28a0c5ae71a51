/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_interfaces.c: which interfaces count as links that messages are striped over. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/ucx/ucx.h"

enum { UP = IFF_UP | IFF_RUNNING };

static int count(struct ifaddrs *all, int n)
{
    static struct sockaddr_in in = {.sin_family = AF_INET};

    for (int i = 0; i < n; i++) {
        all[i].ifa_addr = (struct sockaddr *)&in;
        all[i].ifa_next = i + 1 < n ? &all[i + 1] : NULL;
    }
    return ucx_count_links(all);
}

/* The names are of no interface of this machine: none is a bridge. */
static void test_links(void **state)
{
    struct ifaddrs one[] = {{.ifa_name = "lo", .ifa_flags = UP | IFF_LOOPBACK},
                            {.ifa_name = "gyre0", .ifa_flags = UP},
                            {.ifa_name = "gyre0", .ifa_flags = UP},
                            {.ifa_name = "gyre0:1", .ifa_flags = UP}, /* a name of its own for an address */
                            {.ifa_name = "gyre0:admin", .ifa_flags = UP},
                            {.ifa_name = "gyre1", .ifa_flags = IFF_UP}};
    struct ifaddrs two[] = {{.ifa_name = "gyre0:1", .ifa_flags = UP},
                            {.ifa_name = "gyre01", .ifa_flags = UP},
                            {.ifa_name = "gyre0", .ifa_flags = UP}};

    (void)state;
    assert_int_equal(count(one, 6), 1);
    assert_int_equal(count(two, 3), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_links)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
