/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/net/test_interface.c: the address that GYRE_INTERFACE means, on a host whose interfaces this
 * test makes up. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"

static const struct {
    char name[8];
    const char *address;
} interfaces[] = {{"gyre0", "fe80::1"},     {"gyre0", "192.0.2.1"},   {"gyre1", "fe80::2"},
                  {"gyre1", "2001:db8::2"}, {"gyre1", "192.0.2.2"},   {"gyre2", "fe80::3"},
                  {"gyre5", "169.254.5.1"}, {"gyre5", "192.0.2.5"},   {"gyre5", "169.254.5.2"},
                  {"gyre6", "169.254.6.1"}, {"gyre6", "2001:db8::6"}, {"gyre4", "169.254.3.1"},
                  {"gyre3", "192.0.2.3"},   {"gyre3", "2001:db8::3"}, {"gyre3", "192.0.2.4"}};
enum { COUNT = sizeof interfaces / sizeof *interfaces, LISTED = 4 /* the last ones: up */ };

/* These stand for the system's. */
int getifaddrs(struct ifaddrs **all)
{
    static struct ifaddrs list[COUNT];
    static boot_addr_t addr[COUNT];
    for (int i = 0; i < COUNT; i++) {
        const int v6 = strchr(interfaces[i].address, ':') != NULL;
        addr[i].sa.sa_family = v6 ? AF_INET6 : AF_INET;
        void *to = v6 ? (void *)&addr[i].v6.sin6_addr : (void *)&addr[i].v4.sin_addr;
        assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, interfaces[i].address, to), 1);
        list[i] = (struct ifaddrs){.ifa_name = (char *)(uintptr_t)interfaces[i].name,
                                   .ifa_addr = &addr[i].sa,
                                   .ifa_flags = i < COUNT - LISTED ? 0 : IFF_UP,
                                   .ifa_next = i + 1 < COUNT ? &list[i + 1] : NULL};
    }
    *all = list;
    return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
    (void)all;
}

static void expect(const char *interface, int family, const char *address)
{
    boot_addr_t addr;
    char text[BOOT_ADDR_TEXT];
    base_settings_set(SET_INTERFACE, interface, "test");
    assert_int_equal(boot_interface_addr(family, &addr), GYRE_OK);
    boot_addr_text(&addr, text);
    assert_string_equal(text, address);
}

static void refuse(const char *interface, const char *why)
{
    boot_addr_t addr;
    base_settings_set(SET_INTERFACE, interface, "test");
    for (int v6 = 0; v6 < 2; v6++) {
        assert_int_equal(boot_interface_addr(v6 ? AF_INET6 : AF_INET, &addr), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), interface));
        assert_non_null(strstr(gyre_last_error(), why));
    }
}

static void test_names(void **state)
{
    (void)state;
    expect("gyre0", AF_INET, "192.0.2.1:0");
    expect("gyre0", AF_INET6, "192.0.2.1:0"); /* it has no other that is of use */
    expect("gyre1", AF_INET, "192.0.2.2:0");
    expect("gyre1", AF_INET6, "[2001:db8::2]:0");
    expect("gyre3", AF_INET, "192.0.2.3:0");
    expect("gyre3", AF_INET6, "[2001:db8::3]:0");
    expect("gyre5", AF_INET, "192.0.2.5:0");
    expect("gyre5", AF_INET6, "192.0.2.5:0");
    expect("gyre6", AF_INET, "[2001:db8::6]:0");
    expect("gyre4", AF_INET, "169.254.3.1:0"); /* two hosts with a cable between them may have no other */
    expect("gyre4", AF_INET6, "169.254.3.1:0");
    refuse("gyre2", "has link-local addresses only");
    refuse("gyre9", "is neither an address nor an interface");
}

static void test_addresses(void **state)
{
    (void)state;
    expect("192.0.2.77", AF_INET6, "192.0.2.77:0");
    expect("2001:db8::77", AF_INET, "[2001:db8::77]:0");
    refuse("fe80::1", "is a link-local address");
    refuse("fe80::1%gyre0", "is a link-local address");
    refuse("192.0.2.1%gyre0", "is neither an address nor an interface");
}

/* Rank 0's own addresses: what leads to other hosts comes before the link to a management controller. */
static void test_order(void **state)
{
    (void)state;
    char roots[256];
    int fd;
    base_settings_set(SET_INTERFACE, "", "test");
    assert_int_equal(boot_listen_here(0, roots, &fd), GYRE_OK);
    close(fd);
    const char *far = strstr(roots, "192.0.2.3:"), *near = strstr(roots, "169.254.3.1:");
    assert_true(far && (!near || far < near)); /* four at most, with this machine's real ones first */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_addresses),
                                       cmocka_unit_test(test_order)};
    base_settings_load();
    base_log_set_level(BASE_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
