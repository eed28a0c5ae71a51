/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/local.c: this host's addresses as other hosts may know them, and rank 0's socket at these
 * addresses.
 *
 * Nothing records which interface the other hosts can reach. The list has the likeliest first: the address
 * from which the kernel would reach Slurm's launching node, the address for the default route, the other
 * interfaces that are up, and last the bridges of containers and virtual machines and the interface to the
 * host's management controller. The other ranks try one after the other; the handshake shows whether they
 * reached rank 0. */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"
#include "comm/net/held.h"

enum { ADDRESSES_MAX = 4 };

typedef struct {
    boot_addr_t addr[ADDRESSES_MAX];
    int n;
} addresses_t;

static int same(const boot_addr_t *a, const boot_addr_t *b)
{
    if (a->sa.sa_family != b->sa.sa_family)
        return 0;
    return a->sa.sa_family == AF_INET6 ? memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 16) == 0
                                       : a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

static void add(addresses_t *all, const boot_addr_t *addr)
{
    if (boot_addr_is_loopback(addr) || all->n == ADDRESSES_MAX)
        return;
    for (int i = 0; i < all->n; i++)
        if (same(&all->addr[i], addr))
            return;
    all->addr[all->n++] = *addr;
}

/* Adds the address from which the kernel would send to `text`. Nothing is sent. */
static void add_route_to(addresses_t *all, const char *text)
{
    boot_addr_t to, from;
    memset(&to, 0, sizeof(to));
    if (text == NULL)
        return;
    if (inet_pton(AF_INET, text, &to.v4.sin_addr) == 1)
        to.v4.sin_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &to.v6.sin6_addr) == 1)
        to.v6.sin6_family = AF_INET6;
    else
        return;
    boot_addr_set_port(&to, 9);
    int fd = socket(to.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, &to.sa, boot_addr_len(&to)) == 0 && boot_addr_of(fd, 0, &from))
        add(all, &from);
    close(fd);
}

/* Bridges on which this host talks to its own containers and virtual machines. */
static int is_inward(const char *name)
{
    static const char *const prefixes[] = {"docker", "virbr", "br-",    "veth", "lxc",
                                           "lxd",    "cni",   "podman", "vmnet"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

static void add_interfaces(addresses_t *all, const struct ifaddrs *list, int family, int inward)
{
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        boot_addr_t addr;
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_flags & IFF_LOOPBACK) ||
            (is_inward(i->ifa_name) || boot_is_link_local_v4(i->ifa_addr)) != inward)
            continue;
        memset(&addr, 0, sizeof(addr));
        memcpy(&addr, i->ifa_addr, family == AF_INET ? sizeof(addr.v4) : sizeof(addr.v6));
        if (!boot_addr_is_link_local(&addr))
            add(all, &addr);
    }
}

static gyre_status_t find(addresses_t *all)
{
    struct ifaddrs *list = NULL;
    all->n = 0;
    add_route_to(all, base_env("SLURM_LAUNCH_NODE_IPADDR"));
    add_route_to(
        all, "198.51.100.1"); /* of a block that is for documentation only: any address outside would do */
    add_route_to(all, "2001:db8::1"); /* likewise */
    if (getifaddrs(&list) != 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot list the network interfaces");
    for (int inward = 0; inward < 2; inward++) {
        add_interfaces(all, list, AF_INET, inward);
        add_interfaces(all, list, AF_INET6, inward);
    }
    freeifaddrs(list);
    return GYRE_OK;
}

/* A port of GYRE_PORT_RANGE, else any; addr NULL: on all addresses. */
static gyre_status_t open_port(const boot_addr_t *addr, int *fd, int *port)
{
    int low, high, s = -1;
    boot_addr_t bound;
    gyre_status_t st = boot_port_range(&low, &high);
    if (st != GYRE_OK)
        return st;
    for (int p = low; p <= high && s < 0; p++) {
        s = boot_listen_at(addr, p);
        if (s < 0 && errno != EADDRINUSE)
            break;
    }
    if (s < 0 && errno == EADDRINUSE && low > 0)
        return gyre_fail(GYRE_ERR_BOOTSTRAP,
                         "all ports of GYRE_PORT_RANGE=%d-%d are in use on rank 0's host: widen the range",
                         low, high);
    if (s < 0)
        return gyre_fail_errno(GYRE_ERR_BOOTSTRAP, errno, "rank 0 cannot listen for the other ranks");
    if (!boot_addr_of(s, 0, &bound)) {
        st = gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "getsockname");
        boot_let_go(s);
        return st;
    }
    boot_keep(s);
    *fd = s;
    *port = boot_addr_port(&bound);
    return GYRE_OK;
}

gyre_status_t boot_listen_here(int local, char roots[256], int *fd)
{
    addresses_t all = {.n = 0};
    gyre_status_t st = GYRE_OK;
    int port = 0, one_only = 1;
    if (local) {
        all.addr[0].v4.sin_family = AF_INET;
        all.addr[0].v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        all.n = 1;
    } else if (*base_setting_string(SET_INTERFACE) != '\0') {
        st = boot_interface_addr(AF_INET, &all.addr[0]);
        all.n = 1;
    } else {
        st = find(&all);
        one_only = 0;
        if (st == GYRE_OK && all.n == 0)
            return gyre_fail(
                GYRE_ERR_BOOTSTRAP,
                "rank 0's host has no network interface that is up, but the launcher says that there are "
                "other hosts; GYRE_INTERFACE names one");
    }
    if (st == GYRE_OK)
        st = open_port(one_only ? &all.addr[0] : NULL, fd, &port);
    size_t used = 0;
    roots[0] = '\0';
    for (int i = 0; i < all.n && st == GYRE_OK; i++) {
        char text[BOOT_ADDR_TEXT];
        boot_addr_set_port(&all.addr[i], port);
        boot_addr_text(&all.addr[i], text);
        if (used + strlen(text) + 2 > 256)
            break;
        used += (size_t)snprintf(roots + used, 256 - used, "%s%s", used > 0 ? "," : "", text);
    }
    return st;
}
