/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/config.c: the options of UCX that Gyre sets, and why. The user's own UCX_* variables always
 * win. */
#include <dirent.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/net/address.h"
#include "comm/ucx/ucx.h"

/* 1: this UCX is older than release 1.`minor`. As long as it is not loaded: the UCX that Gyre was built
 * with, which is not newer. */
static int is_before(unsigned minor)
{
    unsigned major = UCP_API_MAJOR, is = UCP_API_MINOR, release;

    if (ucx_is_loaded())
        ucx_lib.ucp_get_version(&major, &is, &release);
    return major == 1 && is < minor;
}

/* Until 1.14 ucp_config_modify takes an option by the name that it has in the table of its transport, older
 * than any prefix that transports add (ucs_config_parser_set_value got its prefix argument later). */
static int takes_old_names(void)
{
    return is_before(15);
}

/* Sets option UCX_`name` unless the user set it. old_name: its name in releases before 1.15. */
static void modify(ucp_config_t *config, const char *name, const char *old_name, const char *value)
{
    char variable[64];

    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (base_env(variable))
        return;
    if (ucx_lib.ucp_config_modify(config, takes_old_names() ? old_name : name, value) != UCS_OK)
        log_info("this UCX does not know %s", variable);
}

/* Do the user's UCX_TLS (a list of transports; after ^, of transports to leave out) leave any of `names`
 * in? */
static int may_use(const char *const *names)
{
    const char *list = base_env("UCX_TLS");
    int without, named = 0;

    if (!list || !*list)
        return 1;
    without = *list == '^';
    list += without;
    while (*list && !named) {
        size_t length = strcspn(list, ",:"); /* "ud:aux" is ud as well */
        for (int i = 0; names[i]; i++)
            named = named || (strlen(names[i]) == length && strncmp(names[i], list, length) == 0);
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return named != without;
}

/* Is there a Soft-RoCE device? Only its driver names its network card in a file `parent`. */
static int have_soft_roce(void)
{
    static const char devices[] = "/sys/class/infiniband";
    DIR *dir = opendir(devices);
    struct dirent *entry;
    char path[sizeof devices + sizeof entry->d_name + sizeof "//parent"];
    int found = 0;

    while (dir && !found && (entry = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s/parent", devices, entry->d_name);
        found = entry->d_name[0] != '.' && access(path, F_OK) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Is it a bridge or a tunnel, as containers and virtual machines have? Its addresses do not reach other
 * hosts. */
static int leads_nowhere(const char *interface)
{
    static const char *const marks[] = {"bridge", "tun_flags"};
    char path[64 + IF_NAMESIZE];
    int found = 0;

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        snprintf(path, sizeof path, "/sys/class/net/%s/%s", interface, marks[i]);
        found = found || access(path, F_OK) == 0;
    }
    return found;
}

/* ---- interfaces that lead to no other host ------------------------------------------------------------- */

static int is_there(const char *pattern)
{
    glob_t found;
    const int there = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;

    if (there)
        globfree(&found);
    return there;
}

/* Is it a bridge that joins containers and virtual machines of this host alone? A bridge that leads to other
 * hosts has a port that is a device, or that lies on one, as a VLAN and a bond do. */
static int is_inward(const char *interface)
{
    char path[64 + IF_NAMESIZE];

    snprintf(path, sizeof path, "/sys/class/net/%s/bridge", interface);
    if (access(path, F_OK) != 0)
        return 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/brif/*/device", interface);
    if (is_there(path))
        return 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/brif/*/lower_*", interface);
    return !is_there(path);
}

/* Of an address's interface: eth0:1 is an address of eth0. */
static void name_of(const struct ifaddrs *a, char name[IF_NAMESIZE])
{
    snprintf(name, IF_NAMESIZE, "%.*s", (int)strcspn(a->ifa_name, ":"), a->ifa_name);
}

static int is_up(const struct ifaddrs *a)
{
    const unsigned wanted = IFF_UP | IFF_RUNNING;

    return a->ifa_addr && (a->ifa_flags & wanted) == wanted;
}

/* Would UCX take the interface of this address for one to other hosts, and rightly, as far as the address
 * says? */
static int is_usable(const struct ifaddrs *a)
{
    if (!is_up(a) || boot_is_link_local_v4(a->ifa_addr))
        return 0;
    if (a->ifa_addr->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr);
    return a->ifa_addr->sa_family == AF_INET;
}

static int is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return 1;
    return 0;
}

/* UCX takes an interface with link-local addresses only for a link to other hosts, and before 1.16 also a
 * bridge of containers, such as docker0, and a fast one. Writes the names of all other interfaces to list. 0:
 * none is to be left out: there is none, or nothing else, or the user or an RDMA device decides. */
static int without_dead_ends(const struct ifaddrs *all, char *list, size_t room)
{
    const int takes_bridges = is_before(16);
    size_t used = 0;
    int links = 0, ends = 0;
    char name[IF_NAMESIZE];

    *list = '\0';
    if (base_env("UCX_NET_DEVICES") || is_there("/sys/class/infiniband/*"))
        return 0;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        name_of(a, name);
        if (!is_usable(a) || is_listed(list, name))
            continue;
        if (takes_bridges && is_inward(name)) {
            ends++;
            continue;
        }
        if (strlen(name) + 2 > room - used)
            return 0;
        used += (size_t)snprintf(list + used, room - used, "%s%s", used ? "," : "", name);
        links += !(a->ifa_flags & IFF_LOOPBACK);
    }
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        name_of(a, name);
        ends += is_up(a) && boot_is_link_local_v4(a->ifa_addr) && !is_listed(list, name);
    }
    return ends && links;
}

static void leave_out_dead_ends(ucp_config_t *config)
{
    struct ifaddrs *all;
    char list[1024];

    if (getifaddrs(&all) != 0)
        return;
    if (without_dead_ends(all, list, sizeof list)) {
        modify(config, "NET_DEVICES", "NET_DEVICES", list);
        log_info("ucx: bridges of containers and interfaces with link-local addresses only are left out; "
                 "UCX_NET_DEVICES=all takes them");
    }
    freeifaddrs(all);
}

/* ---- striping ------------------------------------------------------------------------------------------ */

/* 1: there are several interfaces, and one is a bridge or a tunnel. */
static _Atomic int spoiled;

int ucx_count_links(const struct ifaddrs *all)
{
    const struct ifaddrs *seen;
    int links = 0, nowhere = 0;
    char list[1024], name[IF_NAMESIZE], other[IF_NAMESIZE];
    const int chosen = without_dead_ends(all, list, sizeof list);

    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        name_of(a, name);
        if (!is_up(a) || a->ifa_flags & IFF_LOOPBACK || a->ifa_addr->sa_family != AF_INET ||
            (chosen && !is_listed(list, name)))
            continue;
        for (seen = all; seen != a; seen = seen->ifa_next) {
            name_of(seen, other);
            if (seen->ifa_addr && seen->ifa_addr->sa_family == AF_INET && strcmp(name, other) == 0)
                break;
        }
        links += seen == a; /* its first address */
        nowhere = nowhere || leads_nowhere(name);
    }
    spoiled = links > 1 && nowhere;
    return nowhere ? 1 : links;
}

static int count_links(void)
{
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0)
        return 1;
    const int links = ucx_count_links(all);
    freeifaddrs(all);
    return links;
}

int ucx_links(void)
{
    enum { MOST_RAILS = 4 };
    static _Atomic int known; /* looked up once: what UCX has opened does not change either */
    const char *named = base_env("UCX_NET_DEVICES");
    int links = known;

    if (links)
        return links;
    links = 1;
    if (!named || strcmp(named, "all") == 0)
        links = count_links();
    else
        for (; *named; named++)
            links += *named == ',';
    links = links > MOST_RAILS ? MOST_RAILS : links < 1 ? 1 : links;
    known = links;
    return links;
}

/* By default UCX sends an eager message over one device. A chunk of a collective is cut in pieces that go
 * over all devices. */
static void stripe(ucp_config_t *config, uint32_t piece)
{
    char value[16];

    snprintf(value, sizeof value, "%u", piece);
    modify(config, "TCP_RX_SEG_SIZE", "RX_SEG_SIZE", value);
    if (ucx_links() < 2) {
        if (spoiled)
            log_info("messages over TCP are not striped: this host has a bridge or a tunnel that UCX would "
                     "use, too; name the links in UCX_NET_DEVICES and their number in UCX_MAX_EAGER_RAILS");
        return;
    }
    snprintf(value, sizeof value, "%d", ucx_links());
    modify(config, "MAX_EAGER_RAILS", "MAX_EAGER_RAILS", value);
}

/* By itself UCX waits in connect(), and 1.13 ends the process if the peer goes right after that: it takes the
 * connection that it opens a second time, in vain, for one that only receives (`!(ep->flags &
 * UCT_TCP_EP_FLAG_CTX_TYPE_TX)' in uct_tcp_ep_destroy_progress). With CONN_NB it does not wait. (It would
 * abort if the connection is refused while its own messages wait for it; comm/ucx/greet.c keeps these back.)
 * A host that was cut off is given up after 7 s instead of two minutes. */
static void connect_in_time(ucp_config_t *config)
{
    modify(config, "TCP_CONN_NB", "CONN_NB", "y");
    if (base_env("UCX_TCP_TX_MAX_BUFS"))
        return;
    modify(config, "TCP_SYN_CNT", "SYN_CNT", "2");
    /* 1.13 stores 8 bytes in the 4 of SYN_CNT, also over this option; this is what it is by itself. */
    modify(config, "TCP_TX_MAX_BUFS", "TX_MAX_BUFS", "-1");
}

/* What TCP sends straight from a caller's buffer is completed twice if the connection breaks meanwhile
 * (uct_tcp_ep_sendv completes it after uct_tcp_ep_handle_send_err has; from 1.10 to 1.22 at least): the
 * process ends with "Assertion `comp->count > 0' failed", or without assertions a freed request is written
 * to. So messages are sent through buffers of UCX, which are as long as a piece: that takes no longer. */
static void copy_out(ucp_config_t *config, uint32_t piece)
{
    char value[16];

    modify(config, "ZCOPY_THRESH", "ZCOPY_THRESH", "inf");
    modify(config, "TCP_PUT_ENABLE", "PUT_ENABLE", "n");
    snprintf(value, sizeof value, "%u", piece);
    if (!base_env("UCX_TCP_RX_SEG_SIZE")) /* must not be shorter */
        modify(config, "TCP_TX_SEG_SIZE", "TX_SEG_SIZE", value);
}

void ucx_configure(ucp_config_t *config, uint32_t piece)
{
    /* Options of transports that UCX_TLS rules out would be complained about. */
    static const char *const tcp[] = {"all", "tcp", NULL};
    static const char *const ud[] = {"all", "ib", "rc", "rc_v", "rc_verbs", "ud", "ud_v", "ud_verbs", NULL};

    /* We have shared memory of our own, and UCX's leaves files in /dev/shm when a rank is killed. */
    modify(config, "TLS", "TLS", "^sm");
    /* With UCX's own settings an idle connection never notices a lost host. Ask for its death within about 4
     * s. (comm/ucx/sockets.c has the reason why nothing bounds connections with data under way.) */
    if (may_use(tcp)) {
        modify(config, "TCP_KEEPIDLE", "KEEPIDLE", "1s");
        modify(config, "TCP_KEEPINTVL", "KEEPINTVL", "1s");
        modify(config, "TCP_KEEPCNT", "KEEPCNT", "3");
        stripe(config, piece);
    }
    if (may_use(tcp)) {
        leave_out_dead_ends(config);
        connect_in_time(config);
        copy_out(config, piece);
    }
    /* Over Soft-RoCE UCX compares an address at the wrong place. It would drop every datagram, also those
     * that connect the other transports, and end the process after 30 s. */
    if (may_use(ud) && have_soft_roce())
        modify(config, "UD_VERBS_ETH_DGID_CHECK", "UD_ETH_DGID_CHECK", "n");
}
