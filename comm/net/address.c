/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/address.c: addresses and sockets of the bootstrap. See address.h. */
#include "comm/net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/net/held.h"

#define IN_USE_SECONDS 2.0 /* for the root's port to become free */

/* A decimal port 1..65535 that fills [text, end); -1 if it is not one. */
static int parse_port(const char *text, const char *end)
{
    int port = 0;
    if (text == end || end - text > 5)
        return -1;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        port = port * 10 + (*text - '0');
    }
    return port >= 1 && port <= 65535 ? port : -1;
}

int boot_root_split(const char *root, char host[256], int *port)
{
    const char *colon = strrchr(root, ':');
    if (colon == NULL)
        return 0;
    const char *from = root;
    const char *to = colon;
    if (*root == '[') {
        if (colon == root || colon[-1] != ']')
            return 0;
        from = root + 1;
        to = colon - 1;
    } else if (memchr(root, ':', (size_t)(colon - root)) != NULL) {
        return 0; /* an IPv6 address without brackets: where its port begins would be a guess */
    }
    size_t len = (size_t)(to - from);
    if (len == 0 || len > 255)
        return 0;
    int number = parse_port(colon + 1, colon + strlen(colon));
    if (number < 0)
        return 0;
    memcpy(host, from, len);
    host[len] = '\0';
    *port = number;
    return 1;
}

const char *boot_root_item(const char *roots, char one[256])
{
    size_t n = strcspn(roots, ",");
    snprintf(one, 256, "%.*s", (int)(n < 255 ? n : 255), roots);
    return roots[n] == ',' ? roots + n + 1 : NULL;
}

static int parse_literal(const char *host, boot_addr_t *addr)
{
    memset(addr, 0, sizeof(*addr));
    if (inet_pton(AF_INET, host, &addr->v4.sin_addr) == 1) {
        addr->v4.sin_family = AF_INET;
        return 1;
    }
    memset(addr, 0, sizeof(*addr));
    if (inet_pton(AF_INET6, host, &addr->v6.sin6_addr) == 1) {
        addr->v6.sin6_family = AF_INET6;
        return 1;
    }
    return 0;
}

int boot_host_is_loopback(const char *host)
{
    boot_addr_t addr;
    return strcmp(host, "localhost") == 0 || (parse_literal(host, &addr) && boot_addr_is_loopback(&addr));
}

int boot_addr_is_loopback(const boot_addr_t *addr)
{
    if (addr->sa.sa_family == AF_INET)
        return (ntohl(addr->v4.sin_addr.s_addr) >> 24) == 127;
    return addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&addr->v6.sin6_addr);
}

int boot_addr_is_link_local(const boot_addr_t *addr)
{
    return addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->v6.sin6_addr);
}

int boot_is_link_local_v4(const struct sockaddr *addr)
{
    enum { NETWORK = 0xa9fe };
    return addr->sa_family == AF_INET &&
           ntohl(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr) >> 16 == NETWORK;
}

socklen_t boot_addr_len(const boot_addr_t *addr)
{
    return addr->sa.sa_family == AF_INET6 ? (socklen_t)sizeof(addr->v6) : (socklen_t)sizeof(addr->v4);
}

int boot_addr_port(const boot_addr_t *addr)
{
    return ntohs(addr->sa.sa_family == AF_INET6 ? addr->v6.sin6_port : addr->v4.sin_port);
}

void boot_addr_set_port(boot_addr_t *addr, int port)
{
    if (addr->sa.sa_family == AF_INET6)
        addr->v6.sin6_port = htons((uint16_t)port);
    else
        addr->v4.sin_port = htons((uint16_t)port);
}

void boot_addr_text(const boot_addr_t *addr, char text[BOOT_ADDR_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (addr->sa.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &addr->v6.sin6_addr, host, sizeof(host));
        snprintf(text, BOOT_ADDR_TEXT, "[%s]:%d", host, boot_addr_port(addr));
    } else {
        inet_ntop(AF_INET, &addr->v4.sin_addr, host, sizeof(host));
        snprintf(text, BOOT_ADDR_TEXT, "%s:%d", host, boot_addr_port(addr));
    }
}

void boot_addr_pack(const boot_addr_t *addr, unsigned char out[BOOT_ADDR_BYTES])
{
    memset(out, 0, BOOT_ADDR_BYTES);
    out[0] = addr->sa.sa_family == AF_INET6 ? 6 : 4;
    int port = boot_addr_port(addr);
    out[2] = (unsigned char)(port >> 8);
    out[3] = (unsigned char)(port & 255);
    if (out[0] == 6) {
        uint32_t scope = htonl(addr->v6.sin6_scope_id);
        memcpy(out + 4, &scope, 4);
        memcpy(out + 8, &addr->v6.sin6_addr, 16);
    } else {
        memcpy(out + 8, &addr->v4.sin_addr, 4);
    }
}

int boot_addr_unpack(const unsigned char in[BOOT_ADDR_BYTES], boot_addr_t *addr)
{
    memset(addr, 0, sizeof(*addr));
    int port = in[2] << 8 | in[3];
    if (port == 0 || (in[0] != 4 && in[0] != 6))
        return 0;
    if (in[0] == 6) {
        uint32_t scope;
        memcpy(&scope, in + 4, 4);
        addr->v6.sin6_family = AF_INET6;
        addr->v6.sin6_scope_id = ntohl(scope);
        memcpy(&addr->v6.sin6_addr, in + 8, 16);
    } else {
        addr->v4.sin_family = AF_INET;
        memcpy(&addr->v4.sin_addr, in + 8, 4);
    }
    boot_addr_set_port(addr, port);
    return 1;
}

/* A dual-stack socket shows IPv4 peers as ::ffff:a.b.c.d; others should see a plain IPv4 address. */
static void unmap(boot_addr_t *addr)
{
    if (addr->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&addr->v6.sin6_addr))
        return;
    boot_addr_t plain;
    memset(&plain, 0, sizeof(plain));
    plain.v4.sin_family = AF_INET;
    plain.v4.sin_port = addr->v6.sin6_port;
    memcpy(&plain.v4.sin_addr, addr->v6.sin6_addr.s6_addr + 12, 4);
    *addr = plain;
}

int boot_addr_of(int fd, int peer, boot_addr_t *addr)
{
    socklen_t len = sizeof(*addr);
    memset(addr, 0, sizeof(*addr));
    int rc = peer ? getpeername(fd, &addr->sa, &len) : getsockname(fd, &addr->sa, &len);
    if (rc != 0 || (addr->sa.sa_family != AF_INET && addr->sa.sa_family != AF_INET6))
        return 0;
    unmap(addr);
    return 1;
}

void boot_socket_tune(int fd)
{
    /* The limit is at least GYRE_HEARTBEAT, since the beats notice more; without beats the limit is the
     * default of that setting. It is at least two seconds, since a lost SYN is repeated after one. */
    double limit = base_setting_seconds(SET_HEARTBEAT);
    limit = limit > 0 ? limit : base_setting_standard_seconds(SET_HEARTBEAT);
    limit = limit < 2 ? 2 : limit > 5e4 ? 5e4 : limit;
    int ms = (int)(limit * 1000), step = limit < 5 ? 1 : (int)(limit / 5); /* of keepalive: whole seconds */
    ms += ms < limit * 1000;
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},     {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, step}, {IPPROTO_TCP, TCP_KEEPINTVL, step},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},     {IPPROTO_TCP, TCP_USER_TIMEOUT, ms},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)) != 0)
            log_warning("bootstrap: setsockopt(%d, %d): %s", options[i].level, options[i].name,
                        strerror(errno));
}

/* Opens a listening socket; returns it, or -1 with errno. both: an IPv6 wildcard that also takes IPv4. */
static int listen_at(const boot_addr_t *addr, int both)
{
    int fd = boot_socket(addr->sa.sa_family, SOCK_STREAM);
    if (fd < 0)
        return -1;
    int one = 1;
    int only6 = !both;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
        (addr->sa.sa_family != AF_INET6 ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof(only6)) == 0) &&
        bind(fd, &addr->sa, boot_addr_len(addr)) == 0 && listen(fd, 1024) == 0)
        return fd;
    boot_let_go(fd);
    return -1;
}

/* Any address of this host, IPv6 and IPv4 where the host has both. */
static int listen_any(int port)
{
    boot_addr_t any;
    memset(&any, 0, sizeof(any));
    any.v6.sin6_family = AF_INET6;
    any.v6.sin6_addr = in6addr_any;
    boot_addr_set_port(&any, port);
    int fd = listen_at(&any, 1);
    if (fd >= 0 || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return fd;
    memset(&any, 0, sizeof(any));
    any.v4.sin_family = AF_INET;
    boot_addr_set_port(&any, port);
    return listen_at(&any, 0);
}

int boot_listen_at(const boot_addr_t *addr, int port)
{
    if (addr == NULL)
        return listen_any(port);
    boot_addr_t at = *addr;
    boot_addr_set_port(&at, port);
    return listen_at(&at, 0);
}

gyre_status_t boot_interface_addr(int family, boot_addr_t *out)
{
    const char *name = base_setting_string(SET_INTERFACE);
    char plain[INET6_ADDRSTRLEN]; /* without the link of a link-local address: fe80::1%eth0 */
    snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "%"), name);
    if (parse_literal(plain, out) && boot_addr_is_link_local(out))
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_INTERFACE=%s is a link-local address, which other hosts cannot use: give "
                         "another address, or the name of an interface that has one",
                         name);
    if (parse_literal(name, out))
        return GYRE_OK;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "cannot list the network interfaces");
    enum { NONE, SPARE, OTHER, PREFERRED }; /* how good it is; a spare one is of 169.254.0.0/16 */
    int found = NONE, link_local = 0;
    for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        boot_addr_t addr;
        if (i->ifa_addr == NULL || strcmp(i->ifa_name, name) != 0)
            continue;
        int f = i->ifa_addr->sa_family;
        if (f != AF_INET && f != AF_INET6)
            continue;
        memset(&addr, 0, sizeof(addr));
        memcpy(&addr, i->ifa_addr, f == AF_INET ? sizeof(addr.v4) : sizeof(addr.v6));
        if (boot_addr_is_link_local(&addr)) {
            link_local = 1;
            continue;
        }
        const int good = boot_is_link_local_v4(i->ifa_addr) ? SPARE : f == family ? PREFERRED : OTHER;
        if (good > found) {
            *out = addr;
            found = good;
        }
    }
    freeifaddrs(all);
    if (!found)
        return gyre_fail(GYRE_ERR_INVALID,
                         link_local ? "GYRE_INTERFACE=%s has link-local addresses only, which other hosts "
                                      "cannot use: give it another address, or name another interface"
                                    : "GYRE_INTERFACE=%s is neither an address nor an interface of this host "
                                      "that has one",
                         name);
    boot_addr_set_port(out, 0);
    return GYRE_OK;
}

static gyre_status_t check_inherited(int fd)
{
    int listening = 0;
    socklen_t len = sizeof(listening);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) != 0)
        return gyre_fail_errno(GYRE_ERR_INVALID, errno, "GYRE_ROOT_FD=%d is not a socket", fd);
    if (!listening)
        return gyre_fail(GYRE_ERR_INVALID, "GYRE_ROOT_FD=%d is a socket that does not listen", fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "GYRE_ROOT_FD=%d", fd);
    return GYRE_OK;
}

gyre_status_t boot_listen_root(const char *root, int root_fd, base_time_t deadline, int *fd, int *inherited)
{
    char host[256];
    int port;
    if (root_fd >= 0) {
        gyre_status_t st = check_inherited(root_fd);
        if (st == GYRE_OK) {
            *fd = root_fd;
            *inherited = 1;
        }
        return st;
    }
    if (!boot_root_split(root, host, &port))
        return gyre_fail(GYRE_ERR_INVALID, "the root \"%s\" is not host:port", root);

    boot_addr_t addr;
    int exact = parse_literal(host, &addr);
    if (!exact && strcmp(host, "localhost") == 0)
        exact = parse_literal("127.0.0.1", &addr);
    if (base_setting_string(SET_INTERFACE)[0] != '\0' && !(exact && boot_addr_is_loopback(&addr))) {
        gyre_status_t st = boot_interface_addr(exact ? addr.sa.sa_family : AF_INET, &addr);
        if (st != GYRE_OK)
            return st;
        exact = 1;
    }
    /* A name is not bound to its address here: Debian maps the own host name to 127.0.1.1, which other hosts
     * could not reach. */
    base_time_t patience = base_deadline(IN_USE_SECONDS);
    int s;
    for (;;) {
        s = -1;
        if (exact) {
            boot_addr_set_port(&addr, port);
            s = listen_at(&addr, 0);
        }
        if (!exact || (s < 0 && errno == EADDRNOTAVAIL && !boot_addr_is_loopback(&addr)))
            s = listen_any(port); /* address translation: this host does not have the root's address */
        if (s >= 0 || errno != EADDRINUSE || base_poll_ms(patience) == 0 || base_poll_ms(deadline) == 0)
            break;
        poll(NULL, 0, 20);
    }
    if (s < 0 && errno == EADDRINUSE)
        return gyre_fail(
            GYRE_ERR_BOOTSTRAP,
            "port %d of the root %s is in use by another process: choose another port in GYRE_ROOT, "
            "or start with ucx-run, which finds a free one (within GYRE_PORT_RANGE if that is set)",
            port, root);
    if (s < 0)
        return gyre_fail_errno(GYRE_ERR_BOOTSTRAP, errno, "rank 0 cannot listen at %s", root);
    *fd = s;
    *inherited = 0;
    return GYRE_OK;
}

gyre_status_t boot_port_range(int *low, int *high)
{
    const char *text = base_setting_string(SET_PORT_RANGE);
    *low = *high = 0;
    if (*text == '\0')
        return GYRE_OK;
    const char *dash = strchr(text, '-');
    if (dash != NULL) {
        *low = parse_port(text, dash);
        *high = parse_port(dash + 1, dash + strlen(dash));
    }
    if (dash == NULL || *low < 0 || *high < *low)
        return gyre_fail(GYRE_ERR_INVALID,
                         "GYRE_PORT_RANGE=%s is not low-high with 1 <= low <= high <= 65535", text);
    return GYRE_OK;
}

static int listen_child(boot_addr_t *mine, int port, int any)
{
    boot_addr_set_port(mine, port);
    return any ? listen_any(port) : listen_at(mine, 0);
}

gyre_status_t boot_listen_child(const char *root, boot_addr_t *mine, int *fd)
{
    char host[256];
    int root_port = 0, low, high;
    gyre_status_t st = boot_port_range(&low, &high);
    if (st != GYRE_OK)
        return st;
    int local_job = boot_root_split(root, host, &root_port) && boot_host_is_loopback(host);
    if (base_setting_string(SET_INTERFACE)[0] != '\0' && !local_job) {
        st = boot_interface_addr(mine->sa.sa_family, mine);
        if (st != GYRE_OK)
            return st;
    }
    /* This rank reached rank 0 over loopback, but other ranks may not (its name means 127.0.1.1 here). Listen
     * at all addresses; rank 0 sends them one that works for them. */
    int any = boot_addr_is_loopback(mine) && !local_job;
    int s = -1;
    for (int port = low; port <= high; port++) {
        if (port == root_port && low < high)
            continue;
        s = listen_child(mine, port, any);
        if (s >= 0 || errno != EADDRINUSE)
            break;
    }
    /* The root's port last: a job that a program joins after this one has rank 0 there. */
    if (s < 0 && low < high && low <= root_port && root_port <= high && errno == EADDRINUSE)
        s = listen_child(mine, root_port, any);
    if (s < 0 && errno == EADDRINUSE && low > 0)
        return gyre_fail(GYRE_ERR_BOOTSTRAP,
                         "all ports of GYRE_PORT_RANGE=%d-%d are in use on this host: widen the range", low,
                         high);
    if (s < 0) {
        char text[BOOT_ADDR_TEXT];
        boot_addr_text(mine, text);
        return gyre_fail_errno(GYRE_ERR_BOOTSTRAP, errno, "cannot listen at %s for other ranks", text);
    }
    boot_addr_t bound;
    if (!boot_addr_of(s, 0, &bound)) {
        st = gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "getsockname");
        boot_let_go(s);
        return st;
    }
    boot_addr_set_port(mine, boot_addr_port(&bound));
    *fd = s;
    return GYRE_OK;
}

/* With no listener on an ephemeral port, connecting from this host can meet itself (simultaneous open). */
static int met_itself(int fd)
{
    boot_addr_t a, b;
    unsigned char pa[BOOT_ADDR_BYTES], pb[BOOT_ADDR_BYTES];
    if (!boot_addr_of(fd, 0, &a) || !boot_addr_of(fd, 1, &b))
        return 0;
    boot_addr_pack(&a, pa);
    boot_addr_pack(&b, pb);
    return memcmp(pa, pb, BOOT_ADDR_BYTES) == 0;
}

int boot_dial(const boot_addr_t *addr, base_time_t deadline, int *err)
{
    int fd = boot_socket(addr->sa.sa_family, SOCK_STREAM);
    if (fd < 0) {
        *err = errno;
        return -1;
    }
    boot_socket_tune(fd);
    int failed = connect(fd, &addr->sa, boot_addr_len(addr)) == 0 ? 0 : errno;
    while (failed == EINPROGRESS || failed == EINTR) {
        struct pollfd p = {.fd = fd, .events = POLLOUT, .revents = 0};
        int n = poll(&p, 1, base_poll_ms(deadline));
        if (n < 0 && errno == EINTR)
            continue;
        socklen_t len = sizeof(failed);
        if (n == 0)
            failed = ETIMEDOUT;
        else if (n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) != 0)
            failed = errno;
    }
    if (failed == 0 && met_itself(fd)) {
        /* Reset it: a closed one would hold the port in TIME_WAIT, and rank 0 could not listen there. */
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        failed = ECONNREFUSED;
    }
    if (failed == 0)
        return fd;
    boot_let_go(fd);
    *err = failed;
    return -1;
}
