/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/device.c: the process's rails: the ports of adapters that it uses, and its address at each.
 *
 * Rails are opened when the first group needs them and closed with the last. The nearest ports are chosen.
 * With one port only, nothing is measured, since finding a machine's devices takes a while. */
#include "comm/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "topo/topo.h"

enum { PORTS = 64, GIDS = 256 };

static struct {
    pthread_mutex_t lock;
    verbs_rail_t rail[VERBS_RAILS];
    int count, users;
} rails = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- ports --------------------------------------------------------------------------------------------- */

/* Gigabits per second of a port; as the headers of rdma-core name them. */
static double speed(const struct ibv_port_attr *port)
{
    static const struct {
        int code;
        double gbits;
    } lanes[] = {{1, 2.5}, {2, 5}, {4, 10}, {8, 10}, {16, 14}, {32, 25}, {64, 50}, {128, 100}};
    double width = port->active_width == 1   ? 1
                   : port->active_width == 2 ? 4
                   : port->active_width == 4 ? 8
                   : port->active_width == 8 ? 12
                                             : 2;

    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        if (lanes[i].code == port->active_speed)
            return lanes[i].gbits * width;
    }
    return 0;
}

static void describe_port(verbs_port_t *port, const char *name, int number, const struct ibv_port_attr *attr)
{
    *port = (verbs_port_t){.port = number,
                           .active = attr->state == IBV_PORT_ACTIVE,
                           .roce = attr->link_layer == IBV_LINK_LAYER_ETHERNET,
                           .distance = 2,
                           .gbits = speed(attr)};
    snprintf(port->name, sizeof port->name, "%s", name);
    snprintf(port->state, sizeof port->state, "%s", ibv_port_state_str(attr->state));
}

/* Every port of every adapter that this process may open. `open` of them could not be opened: *refused
 * names one. */
static int list_ports(verbs_port_t *ports, char *refused, size_t bytes)
{
    int devices = 0, count = 0;
    struct ibv_device **list = ibv_get_device_list(&devices);

    for (int d = 0; list && d < devices; d++) {
        const char *name = ibv_get_device_name(list[d]);
        struct ibv_context *context;
        struct ibv_device_attr attr;
        if (list[d]->transport_type != IBV_TRANSPORT_IB) {
            snprintf(refused, bytes, "%s is an iWARP adapter, which is reached over TCP instead", name);
            continue;
        }
        context = ibv_open_device(list[d]);
        if (!context) {
            snprintf(refused, bytes, "%s cannot be opened (%s): may this user open /dev/infiniband/uverbs*?",
                     name, strerror(errno));
            continue;
        }
        memset(&attr, 0, sizeof attr);
        if (ibv_query_device(context, &attr) != 0)
            snprintf(refused, bytes, "%s does not answer", name);
        for (int p = 1; p <= attr.phys_port_cnt && count < PORTS; p++) {
            struct ibv_port_attr port;
            memset(&port, 0, sizeof port);
            if (ibv_query_port(context, (uint8_t)p, &port) == 0)
                describe_port(&ports[count++], name, p, &port);
        }
        ibv_close_device(context);
    }
    if (list)
        ibv_free_device_list(list);
    return count;
}

static void measure_distances(verbs_port_t *ports, int n)
{
    topo_t *topo;

    if (topo_load(NULL, &topo) != GYRE_OK) {
        log_info("verbs: the machine's topology is not known (%s): all adapters count as equally near",
                 gyre_last_error());
        return;
    }
    for (int i = 0; i < n; i++)
        ports[i].distance = topo_rdma_distance(topo, ports[i].name);
    topo_free(topo);
}

/* ---- GIDs ---------------------------------------------------------------------------------------------- */

/* Reads the first line of a file of the port in /sys; "" if there is no such file. */
static void read_word(const verbs_rail_t *rail, const char *file, int index, char *word, size_t bytes)
{
    char path[256];
    FILE *in;

    word[0] = '\0';
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/%s/%d", rail->name, rail->port,
             file, index);
    in = fopen(path, "re");
    if (!in)
        return;
    if (fgets(word, (int)bytes, in))
        word[strcspn(word, "\n")] = '\0';
    fclose(in);
}

static int list_gids(const verbs_rail_t *rail, int length, verbs_gid_t *table)
{
    int count = 0;

    for (int i = 0; i < length && count < GIDS; i++) {
        union ibv_gid gid;
        char type[32];
        if (ibv_query_gid(rail->context, (uint8_t)rail->port, i, &gid) != 0)
            continue;
        table[count] = (verbs_gid_t){.index = i};
        memcpy(table[count].raw, gid.raw, sizeof gid.raw);
        if (rail->address.roce) {
            read_word(rail, "types", i, type, sizeof type);
            /* Kernels before 4.9 have no such file, and version 1 only. */
            table[count].version = strcmp(type, "RoCE v2") == 0 ? 2 : 1;
            read_word(rail, "ndevs", i, table[count].dev, sizeof table[count].dev);
        }
        count++;
    }
    return count;
}

static gyre_status_t choose_gid(verbs_rail_t *rail, int length, char *text, size_t bytes)
{
    verbs_gid_t *table = calloc(GIDS, sizeof *table);
    char why[160], name[46];
    int at;

    if (!table)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the GIDs of %s", rail->name);
    at = verbs_gid_choose(table, list_gids(rail, length, table), (int)base_setting_int(SET_VERBS_GID), why,
                          sizeof why);
    if (at >= 0) {
        rail->gid_index = table[at].index;
        memcpy(rail->address.gid, table[at].raw, sizeof rail->address.gid);
        verbs_gid_text(table[at].raw, name);
        snprintf(text, bytes, "GID %d %s%s%s (%s)", table[at].index, name, table[at].dev[0] ? " of " : "",
                 table[at].dev, why);
    }
    free(table);
    return at >= 0 ? GYRE_OK
                   : gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s port %d: %s", rail->name, rail->port, why);
}

/* ---- rails --------------------------------------------------------------------------------------------- */

static void close_rail(verbs_rail_t *rail)
{
    if (rail->pd)
        ibv_dealloc_pd(rail->pd);
    if (rail->context)
        ibv_close_device(rail->context);
    *rail = (verbs_rail_t){0};
}

static struct ibv_context *open_device(const char *name)
{
    int devices = 0;
    struct ibv_device **list = ibv_get_device_list(&devices);
    struct ibv_context *context = NULL;

    for (int d = 0; list && d < devices && !context; d++) {
        if (strcmp(ibv_get_device_name(list[d]), name) == 0)
            context = ibv_open_device(list[d]);
    }
    if (list)
        ibv_free_device_list(list);
    return context;
}

static uint8_t capped(int value, int most)
{
    return (uint8_t)(value < 1 ? 1 : value > most ? most : value);
}

static gyre_status_t open_rail(verbs_rail_t *rail, const verbs_port_t *from)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    char gid[320];
    gyre_status_t status;

    memset(&device, 0, sizeof device);
    memset(&port, 0, sizeof port);
    *rail = (verbs_rail_t){.port = from->port};
    snprintf(rail->name, sizeof rail->name, "%s", from->name);
    rail->context = open_device(rail->name);
    rail->pd = rail->context ? ibv_alloc_pd(rail->context) : NULL;
    if (!rail->pd || ibv_query_device(rail->context, &device) != 0 ||
        ibv_query_port(rail->context, (uint8_t)rail->port, &port) != 0)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "%s port %d cannot be used: %s", rail->name, rail->port,
                               strerror(errno));
    if (fcntl(rail->context->async_fd, F_SETFL, fcntl(rail->context->async_fd, F_GETFL) | O_NONBLOCK) != 0)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "the events of %s cannot be read: %s", rail->name,
                               strerror(errno));
    rail->address.lid = port.lid;
    rail->address.mtu = (uint8_t)port.active_mtu;
    rail->address.roce = (uint8_t)from->roce;
    rail->address.rd_atomic = capped(device.max_qp_rd_atom, 16);
    rail->reads_out = capped(device.max_qp_init_rd_atom, 16);
    rail->message_most = port.max_msg_sz >= 1u << 20 ? port.max_msg_sz : 1u << 20;
    rail->cqe_most = device.max_cqe;
    rail->srq_most = device.max_srq > 0 ? device.max_srq_wr : 0;
#ifdef IBV_QPF_GRH_REQUIRED
    rail->demands_grh = (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
#endif
    status = choose_gid(rail, port.gid_tbl_len, gid, sizeof gid);
    if (status == GYRE_OK)
        snprintf(rail->text, sizeof rail->text, "%s port %d (%s, %.0f Gbit/s, MTU %d), %s%s", from->name,
                 rail->port, from->roce ? "RoCE" : "InfiniBand", from->gbits, 128 << port.active_mtu,
                 from->roce ? "" : "LID ", gid);
    return status;
}

static gyre_status_t start(void)
{
    verbs_port_t *ports = calloc(PORTS, sizeof *ports);
    int chosen[VERBS_RAILS], n, count, active = 0;
    char why[300], refused[160] = "";
    gyre_status_t status = GYRE_OK;

    if (!ports)
        return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a list of RDMA ports");
    n = list_ports(ports, refused, sizeof refused);
    for (int i = 0; i < n; i++)
        active += ports[i].active;
    if (active > 1)
        measure_distances(ports, n);
    count = verbs_ports_choose(ports, n, base_setting_string(SET_VERBS_DEVICES), VERBS_RAILS, chosen, why,
                               sizeof why);
    if (count == 0)
        status = gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "verbs cannot be used here: %s",
                                 n == 0 && refused[0] ? refused : why);
    for (int i = 0; i < count && status == GYRE_OK; i++) {
        verbs_rail_t *rail = &rails.rail[rails.count];
        status = open_rail(rail, &ports[chosen[i]]);
        if (status == GYRE_OK) {
            size_t used = strlen(rail->text);
            snprintf(rail->text + used, sizeof rail->text - used, "; chosen: %s", why);
            log_info("verbs: rail %d is %s", rails.count, rail->text);
            rail->number = rails.count++;
            continue;
        }
        close_rail(rail);
        /* Ports that the user named must all work; of those that Gyre chose, one must work. */
        if (*base_setting_string(SET_VERBS_DEVICES) == '\0' && (i + 1 < count || rails.count > 0)) {
            log_warning("verbs: going on without one port of several: %s", gyre_last_error());
            status = GYRE_OK;
        }
    }
    free(ports);
    return status;
}

static void stop(void)
{
    verbs_windows_drop();
    for (int i = 0; i < rails.count; i++)
        close_rail(&rails.rail[i]);
    rails.count = 0;
}

gyre_status_t verbs_rails_open(int quiet, verbs_rail_t **out, int *count)
{
    gyre_status_t status = GYRE_OK;
    char text[512];

    pthread_mutex_lock(&rails.lock);
    if (rails.users == 0)
        status = start();
    if (status == GYRE_OK) {
        rails.users++;
        *out = rails.rail;
        *count = rails.count;
    } else {
        snprintf(text, sizeof text, "%s", gyre_last_error());
        stop();
        if (!quiet)
            status = gyre_fail(
                status, "%s; GYRE_TRANSPORT=ucx works without (gyre-doctor shows what there is)", text);
    }
    pthread_mutex_unlock(&rails.lock);
    return status;
}

void verbs_rails_close(void)
{
    pthread_mutex_lock(&rails.lock);
    if (--rails.users == 0)
        stop();
    pthread_mutex_unlock(&rails.lock);
}

gyre_status_t verbs_describe(int number, char *text, size_t bytes)
{
    verbs_rail_t *rail;
    int count;
    gyre_status_t status = verbs_rails_open(1, &rail, &count);

    if (status != GYRE_OK) {
        snprintf(text, bytes, "%s", gyre_last_error());
        return status;
    }
    if (number < 0 || number >= count)
        status = gyre_fail_quiet(GYRE_ERR_INVALID, "no such rail: there are %d", count);
    else
        snprintf(text, bytes, "%s", rail[number].text);
    verbs_rails_close();
    return status;
}

const char *verbs_rail_state(const verbs_rail_t *rail)
{
    struct ibv_port_attr port;

    memset(&port, 0, sizeof port);
    if (ibv_query_port(rail->context, (uint8_t)rail->port, &port) != 0)
        return "not answering";
    return ibv_port_state_str(port.state);
}

void verbs_rail_events(verbs_rail_t *rail)
{
    struct ibv_async_event event;

    /* The object of an event cannot be destroyed before the event is acknowledged: destroying a queue pair
     * waits for that. */
    for (; ibv_get_async_event(rail->context, &event) == 0; ibv_ack_async_event(&event)) {
        verbs_link_t *link = NULL;
        comm_verbs_group_t *vg = NULL;
        int type = (int)event.event_type + 1;
        switch (event.event_type) {
        case IBV_EVENT_DEVICE_FATAL:
            atomic_store_explicit(&rail->fatal, 1, memory_order_relaxed);
            break;
        case IBV_EVENT_CQ_ERR:
            vg = event.element.cq->cq_context;
            break;
        case IBV_EVENT_SRQ_ERR:
            vg = event.element.srq->srq_context;
            break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            /* NULL: the one for datagrams, whose completions report it, too */
            link = event.element.qp->qp_context;
            break;
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            continue;
        default:
            break;
        }
        log_info("verbs: %s (port %d) reported: %s", rail->name, rail->port,
                 ibv_event_type_str(event.event_type));
        if (link) {
            atomic_store_explicit(&link->event, type, memory_order_release);
            vg = link->vg;
        }
        if (vg)
            atomic_store_explicit(&vg->event, type, memory_order_release);
    }
}
