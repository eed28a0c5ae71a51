/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/network.c: ways to other hosts: interfaces, UCX's transports, RDMA devices. */
#include "tools/gyre-doctor/report.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uct/api/uct.h>

#include "base/machine/library.h"
#include "comm/transport.h"

#ifdef GYRE_VERBS
#include <infiniband/verbs.h>
#endif

static void interfaces(report_t *report)
{
    struct ifaddrs *list;
    char text[512] = "";
    if (getifaddrs(&list) != 0) {
        report_add(report, FOUND_WARNING, "interfaces", "", "cannot be listed: %s", strerror(errno));
        return;
    }
    for (struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
            continue;
        int family = i->ifa_addr->sa_family;
        socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        char host[NI_MAXHOST], word[NI_MAXHOST + IF_NAMESIZE + 2];
        if ((family != AF_INET && family != AF_INET6) ||
            getnameinfo(i->ifa_addr, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        snprintf(word, sizeof(word), "%s=%s", i->ifa_name, host);
        report_word(text, sizeof(text), word);
    }
    freeifaddrs(list);
    if (*text != '\0')
        report_add(report, FOUND_OK, "interfaces", "", "%s", text);
    else
        report_add(report, FOUND_NOTE, "interfaces", "jobs on this host alone need none",
                   "only the loopback is up");
}

/* Of UCX, which is loaded, as in a job (comm/ucx/load.c). */
#define UCT_CALLS(X)              \
    X(uct_query_components)       \
    X(uct_release_component_list) \
    X(uct_component_query)        \
    X(uct_md_config_read)         \
    X(uct_config_release)         \
    X(uct_md_open)                \
    X(uct_md_close)               \
    X(uct_md_query_tl_resources)  \
    X(uct_release_tl_resource_list)
static struct {
#define UCT_POINTER(name) __typeof__(name) *name;
    UCT_CALLS(UCT_POINTER)
} uct;

static int load_uct(char *why, size_t room)
{
#define UCT_SYMBOL(name) {#name, &uct.name},
    const base_symbol_t symbols[] = {UCT_CALLS(UCT_SYMBOL)};
    return base_library_load("libuct.so.0", symbols, sizeof symbols / sizeof *symbols, why, room);
}

/* The transports and devices of one of UCX's memory domains; those on a network are noted as ways to other
 * hosts. */
static void domain(report_t *report, uct_component_h component, const char *name, char *net, char *local,
                   size_t bytes)
{
    uct_md_config_t *config;
    uct_md_h md;
    if (uct.uct_md_config_read(component, NULL, NULL, &config) != UCS_OK)
        return;
    ucs_status_t opened = uct.uct_md_open(component, name, config, &md);
    uct.uct_config_release(config);
    if (opened != UCS_OK) /* a device that is listed and not usable: its transports are not there */
        return;
    uct_tl_resource_desc_t *resources;
    unsigned count;
    if (uct.uct_md_query_tl_resources(md, &resources, &count) == UCS_OK) {
        for (unsigned i = 0; i < count; i++) {
            char word[sizeof(resources[i].tl_name) + sizeof(resources[i].dev_name) + 2];
            snprintf(word, sizeof(word), "%s/%s", resources[i].tl_name, resources[i].dev_name);
            if (resources[i].dev_type == UCT_DEVICE_TYPE_NET && strcmp(resources[i].dev_name, "lo") != 0) {
                report_word(net, bytes, word);
                report_word(report->facts.transports, sizeof(report->facts.transports), resources[i].tl_name);
            } else {
                report_word(local, bytes, word);
            }
        }
        uct.uct_release_tl_resource_list(resources);
    }
    uct.uct_md_close(md);
}

static void ucx(report_t *report)
{
    char net[768] = "", local[768] = "";
    uct_component_h *components;
    unsigned count;
    char why[256];
    if (!load_uct(why, sizeof(why))) {
        report_add(report, FOUND_NOTE, "UCX, to other hosts",
                   "jobs on this host alone need none; else install UCX: apt install libucx0", "none: %s",
                   why);
        return;
    }
    if (uct.uct_query_components(&components, &count) != UCS_OK) {
        report_add(report, FOUND_MISSING, "UCX transports", "is ucx installed whole? see ucx_info -d",
                   "UCX cannot list its components");
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
        if (uct.uct_component_query(components[i], &attr) != UCS_OK || attr.md_resource_count == 0)
            continue;
        uct_md_resource_desc_t *mds = calloc(attr.md_resource_count, sizeof(*mds));
        if (mds == NULL)
            continue;
        unsigned domains = attr.md_resource_count;
        attr =
            (uct_component_attr_t){.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES, .md_resources = mds};
        if (uct.uct_component_query(components[i], &attr) == UCS_OK)
            for (unsigned d = 0; d < domains; d++)
                domain(report, components[i], mds[d].md_name, net, local, sizeof(net));
        free(mds);
    }
    uct.uct_release_component_list(components);
    report_add(report, *net != '\0' ? FOUND_OK : FOUND_NOTE, "UCX, to other hosts",
               *net != '\0' ? "" : "jobs on this host alone need none; is a network interface up?", "%s",
               *net != '\0' ? net : "none");
    report_add(report, FOUND_OK, "UCX, on this host", "", "%s", *local != '\0' ? local : "none");
}

/* Whether it moves a GPU's memory by itself (comm/lend.h). */
static void ucx_cuda(report_t *report)
{
    char text[300];
    const int works = comm_transport_try_device(comm_transport_find("ucx"), (base_device_t){BASE_CUDA, 0},
                                                text, sizeof(text));
    report_add(report, works ? FOUND_OK : FOUND_NOTE, "UCX, CUDA memory",
               works ? "" : "only jobs with GPUs on several hosts and no verbs are better off with it",
               "%s: %s", works ? "yes" : "no", text);
}

#ifdef GYRE_VERBS
/* What the verbs transport would make of them. */
static void rails(report_t *report)
{
    char name[32], text[1024];
    int rail = 0, verbs = comm_transport_find("verbs");
    gyre_status_t status;
    while ((status = comm_transport_describe(verbs, rail, text, sizeof(text))) == GYRE_OK) {
        snprintf(name, sizeof(name), "verbs, rail %d", rail++);
        report_add(report, FOUND_OK, name, "", "%s", text);
    }
    report->facts.rails = rail;
    if (status != GYRE_ERR_INVALID)
        report_add(report, FOUND_WARNING, "verbs",
                   "GYRE_VERBS_DEVICES and GYRE_VERBS_GID choose (docs/transports.md)", "%s", text);
}

static void rdma(report_t *report)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (list == NULL || count == 0) {
        if (list == NULL && errno != ENOSYS)
            report_add(report, FOUND_WARNING, "RDMA devices", "", "cannot be listed: %s", strerror(errno));
        else
            report_add(report, FOUND_NOTE, "RDMA devices", "", "none%s",
                       list == NULL ? " (the kernel's RDMA drivers are not loaded)" : "");
        if (list != NULL)
            ibv_free_device_list(list);
        return;
    }
    report->facts.rdma_devices = count;
    for (int i = 0; i < count; i++) {
        char label[80];
        snprintf(label, sizeof(label), "RDMA %.60s", ibv_get_device_name(list[i]));
        struct ibv_context *context = ibv_open_device(list[i]);
        struct ibv_port_attr port;
        if (context == NULL) {
            report_add(report, FOUND_WARNING, label, "may this user open /dev/infiniband/uverbs*?",
                       "cannot be opened: %s", strerror(errno));
        } else if (ibv_query_port(context, 1, &port) != 0) {
            report_add(report, FOUND_WARNING, label, "", "its first port does not answer");
        } else {
            int up = port.state == IBV_PORT_ACTIVE;
            report_add(report, up ? FOUND_OK : FOUND_WARNING, label,
                       up ? "" : "check the cable and the subnet manager", "port 1 %s, %s",
                       ibv_port_state_str(port.state),
                       port.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand");
        }
        if (context != NULL)
            ibv_close_device(context);
    }
    ibv_free_device_list(list);
    rails(report);
}
#else
static void rdma(report_t *report)
{
    report_add(report, FOUND_NOTE, "RDMA devices", "apt install libibverbs-dev, then build with VERBS=1",
               "not looked for: this build has no verbs");
}
#endif

void look_at_network(report_t *report)
{
    report->section = "Network";
    interfaces(report);
    ucx(report);
    ucx_cuda(report);
    rdma(report);
}
