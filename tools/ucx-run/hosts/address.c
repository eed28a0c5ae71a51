/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/address.c: see address.h. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "tools/ucx-run/hosts/address.h"

/* Our own address on the way to `host`. 1, or 0. */
static int address_towards(const char *host, boot_addr_t *mine)
{
    const char *at = strchr(host, '@');
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    int ok = 0;
    if (getaddrinfo(at ? at + 1 : host, "9", &hints, &found) != 0)
        return 0;
    for (struct addrinfo *i = found; i && !ok; i = i->ai_next) {
        int fd = socket(i->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ok = fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen) == 0 && boot_addr_of(fd, 0, mine);
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    return ok;
}

/* The address at which ssh reached this host. */
static int address_of_ssh(boot_addr_t *mine)
{
    char address[64];
    const char *text = base_env("SSH_CONNECTION");
    return text && sscanf(text, "%*s %*s %63s", address) == 1 && address_towards(address, mine);
}

static int address_of_interface(boot_addr_t *mine)
{
    struct ifaddrs *all = NULL;
    int ok = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (struct ifaddrs *i = all; i && !ok; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK)) {
            memcpy(mine, i->ifa_addr, sizeof mine->v4);
            ok = 1;
        }
    freeifaddrs(all);
    return ok;
}

int run_address(const char *peer, int hosts, boot_addr_t *mine)
{
    boot_addr_t loopback;
    int have = 0;
    memset(mine, 0, sizeof *mine);
    if (hosts == 1)
        return address_towards("127.0.0.1", mine);
    if (address_towards(peer, mine)) {
        if (!boot_addr_is_loopback(mine))
            return 1;
        loopback = *mine;
        have = 1;
    }
    if (address_of_ssh(mine) && !boot_addr_is_loopback(mine))
        return 1;
    if (have) { /* the others are this machine by another name */
        *mine = loopback;
        return 1;
    }
    return address_of_interface(mine);
}
