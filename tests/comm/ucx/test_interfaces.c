/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_interfaces.c: which interfaces count as links that messages are striped over. */
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/ucx/ucx.h"

enum { UP = IFF_UP | IFF_RUNNING };

/* These stand for the system's and UCX's: gyrebr0 is a bridge without ports, there is no RDMA device, and UCX
 * is one that would take the bridge. */
int access(const char *path, int mode)
{
    (void)mode;
    return strcmp(path, "/sys/class/net/gyrebr0/bridge") == 0 ? 0 : -1;
}

int glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found)
{
    (void)pattern;
    (void)flags;
    (void)failed;
    (void)found;
    return GLOB_NOMATCH;
}

static void old_release(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = 1;
    *minor = 13;
    *release = 0;
}

static int count(struct ifaddrs *all, int n)
{
    static struct sockaddr_in in = {.sin_family = AF_INET};

    for (int i = 0; i < n; i++) {
        all[i].ifa_addr = (struct sockaddr *)&in;
        all[i].ifa_next = i + 1 < n ? &all[i + 1] : NULL;
    }
    return ucx_count_links(all);
}

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

/* names: of interfaces, with - before those whose address is link-local, as 169.254.3.1. */
static int count_of(const char *const *names, int n)
{
    static struct sockaddr_in far = {.sin_family = AF_INET}, near = {.sin_family = AF_INET};
    struct ifaddrs all[4] = {{0}};

    far.sin_addr.s_addr = htonl(0x0a000001);
    near.sin_addr.s_addr = htonl(0xa9fe0301);
    for (int i = 0; i < n; i++)
        all[i] = (struct ifaddrs){.ifa_name = (char *)(uintptr_t)names[i] + (*names[i] == '-'),
                                  .ifa_flags = UP,
                                  .ifa_addr = (struct sockaddr *)(*names[i] == '-' ? &near : &far),
                                  .ifa_next = i + 1 < n ? &all[i + 1] : NULL};
    return ucx_count_links(all);
}

/* Such an interface leads to no other host, unless it has another address or there is nothing else. */
static void test_link_local(void **state)
{
    (void)state;
    assert_int_equal(count_of((const char *const[]){"gyre0", "-gyre1"}, 2), 1);
    assert_int_equal(count_of((const char *const[]){"-gyre2", "gyre0", "gyre1"}, 3), 2);
    assert_int_equal(count_of((const char *const[]){"-gyre0", "gyre0", "gyre1"}, 3), 2);
    assert_int_equal(count_of((const char *const[]){"-gyre0", "-gyre1"}, 2), 2);
}

/* It is left out. What remains is counted, also where no address goes by the interface's name. */
static void test_bridge(void **state)
{
    struct ifaddrs all[] = {{.ifa_name = "gyrebr0", .ifa_flags = UP},
                            {.ifa_name = "gyre0:1", .ifa_flags = UP},
                            {.ifa_name = "gyre1:1", .ifa_flags = UP}};

    (void)state;
    assert_int_equal(count(all, 3), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_links), cmocka_unit_test(test_bridge),
                                       cmocka_unit_test(test_link_local)};

    ucx_lib.ucp_get_version = old_release;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
