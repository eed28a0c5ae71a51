/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/choose.c: see the header. */
#include "comm/verbs/choose.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- GIDs ---------------------------------------------------------------------------------------------- */

static int is_ipv4(const unsigned char raw[16])
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(raw, mapped, sizeof mapped) == 0;
}

static int is_link_local(const unsigned char raw[16])
{
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

static int is_empty(const unsigned char raw[16])
{
    static const unsigned char zero[16];

    return memcmp(raw, zero, sizeof zero) == 0;
}

void verbs_gid_text(const unsigned char raw[16], char text[46])
{
    text[0] = '\0';
    if (is_ipv4(raw))
        inet_ntop(AF_INET, raw + 12, text, 46);
    else
        inet_ntop(AF_INET6, raw, text, 46);
}

/* How much a RoCE entry is liked; 0: not usable. */
static int worth(const verbs_gid_t *gid)
{
    int worth = is_empty(gid->raw) ? 0 : is_ipv4(gid->raw) ? 3 : is_link_local(gid->raw) ? 1 : 2;

    return worth == 0 ? 0 : worth + (gid->version == 2 ? 3 : 0);
}

static const char *kind(const verbs_gid_t *gid)
{
    return gid->version == 0         ? "InfiniBand"
           : is_ipv4(gid->raw)       ? gid->version == 2 ? "RoCE v2, IPv4" : "RoCE v1, IPv4"
           : is_link_local(gid->raw) ? gid->version == 2 ? "RoCE v2, link-local" : "RoCE v1, link-local"
           : gid->version == 2       ? "RoCE v2, IPv6"
                                     : "RoCE v1, IPv6";
}

int verbs_gid_choose(const verbs_gid_t *table, int n, int wanted, char *why, size_t bytes)
{
    int best = -1, usable = 0;

    for (int i = 0; i < n; i++) {
        if (is_empty(table[i].raw))
            continue;
        usable++;
        if (wanted >= 0) {
            if (table[i].index == wanted)
                best = i;
        } else if (best < 0 || (table[i].version != 0 && worth(&table[i]) > worth(&table[best]))) {
            best = i;
        }
    }
    if (best < 0 && wanted >= 0)
        snprintf(why, bytes, "GYRE_VERBS_GID=%d asks for an entry that is empty or not there", wanted);
    else if (best < 0)
        snprintf(why, bytes, "the port's table of GIDs is empty: give its network interface an address");
    else if (wanted >= 0)
        snprintf(why, bytes, "%s, as GYRE_VERBS_GID asks", kind(&table[best]));
    else if (usable == 1)
        snprintf(why, bytes, "%s, the only one", kind(&table[best]));
    else
        snprintf(why, bytes, "%s, the best of %d", kind(&table[best]), usable);
    return best;
}

int verbs_needs_grh(int roce, int port_demands_it, const unsigned char ours[16],
                    const unsigned char theirs[16])
{
    /* The upper half of an InfiniBand GID is its subnet. */
    return roce || port_demands_it || memcmp(ours, theirs, 8) != 0;
}

/* ---- how long a queue pair tries ----------------------------------------------------------------------- */

verbs_patience_t verbs_patience(double deadline)
{
    enum { RETRIES = 6, LEAST = 8, MOST = 31 };
    double target = deadline > 0 && deadline / 2 < VERBS_PATIENCE_S ? deadline / 2 : VERBS_PATIENCE_S;
    verbs_patience_t patience = {.timeout = LEAST, .retries = RETRIES};
    double one = 4.096e-6 * (1u << LEAST);

    /* Many short tries rather than few long ones: a packet that was lost costs one of them. */
    while (patience.timeout < MOST && 2 * one * (RETRIES + 1) <= target) {
        one *= 2;
        patience.timeout++;
    }
    patience.seconds = one * (RETRIES + 1);
    return patience;
}

/* ---- ports --------------------------------------------------------------------------------------------- */

/* Is `port` the one, or one of the device, that the item of a list names? item: [bytes] */
static int names(const char *item, size_t bytes, const verbs_port_t *port)
{
    const size_t length = strlen(port->name);
    char *end;

    if (bytes < length || strncmp(item, port->name, length) != 0)
        return 0;
    if (bytes == length)
        return 1;
    return item[length] == ':' && strtol(item + length + 1, &end, 10) == port->port && end == item + bytes;
}

/* Is `port` one that `list` names? */
static int named(const verbs_port_t *port, const char *list)
{
    for (size_t word; *list; list += word + (list[word] == ',')) {
        word = strcspn(list, ",");
        if (names(list, word, port))
            return 1;
    }
    return 0;
}

/* Ports that the user names must all be there, and of one link layer. 0: they are not; why: what is wrong. */
static int check_list(const verbs_port_t *ports, int n, const char *list, char *why, size_t bytes)
{
    int roce[2] = {0, 0};

    for (int i = 0; i < n; i++)
        roce[ports[i].roce != 0] |= ports[i].active && named(&ports[i], list);
    for (const char *item = list; *item;) {
        const size_t word = strcspn(item, ",");
        const verbs_port_t *seen = &ports[0];
        int found = 0;
        if (word == 0) {
            snprintf(why, bytes, "GYRE_VERBS_DEVICES=%.100s has an empty name", list);
            return 0;
        }
        for (int i = 0; i < n && !found; i++) {
            found = names(item, word, &ports[i]) && ports[i].active;
            if (names(item, word, &ports[i]))
                seen = &ports[i];
        }
        if (!found) {
            snprintf(why, bytes, "GYRE_VERBS_DEVICES=%.100s names no active port with %.*s; %s port %d is %s",
                     list, (int)(word < 64 ? word : 64), item, seen->name, seen->port,
                     seen->active ? "there" : seen->state);
            return 0;
        }
        item += word + (item[word] == ',');
    }
    if (roce[0] && roce[1])
        snprintf(why, bytes,
                 "GYRE_VERBS_DEVICES=%.100s names ports of InfiniBand and of RoCE: no ranks use both", list);
    return !(roce[0] && roce[1]);
}

/* Orders active ports: nearer first, then faster, then by name and number. Hosts of one kind thus number
 * their rails alike. */
static int before(const verbs_port_t *a, const verbs_port_t *b)
{
    int names = strcmp(a->name, b->name);

    if (a->distance != b->distance)
        return a->distance < b->distance;
    if (a->gbits > b->gbits || a->gbits < b->gbits)
        return a->gbits > b->gbits;
    return names != 0 ? names < 0 : a->port < b->port;
}

static int best_of(const verbs_port_t *ports, int n, const char *list, const int *taken, int count)
{
    int best = -1;

    for (int i = 0; i < n; i++) {
        int is_taken = 0;
        for (int k = 0; k < count; k++)
            is_taken |= taken[k] == i;
        if (is_taken || !ports[i].active || (*list && !named(&ports[i], list)))
            continue;
        if (best < 0 || before(&ports[i], &ports[best]))
            best = i;
    }
    return best;
}

/* Can the port be a further rail with the first one? A port that the user names is taken. */
static int goes_with(const verbs_port_t *port, const verbs_port_t *first, const char *list)
{
    return *list || (port->roce == first->roce && port->distance == first->distance &&
                     port->gbits * 2 >= first->gbits);
}

int verbs_ports_choose(const verbs_port_t *ports, int n, const char *list, int most, int *chosen, char *why,
                       size_t bytes)
{
    static const char *const distances[] = {"on our NUMA node", "on our package", "none is nearer"};
    int count = 0, active = 0, looked[64], seen = 0;

    for (int i = 0; i < n; i++)
        active += ports[i].active;
    if (*list && active > 0 && !check_list(ports, n, list, why, bytes))
        return 0;
    for (int next; seen < 64 && (next = best_of(ports, n, list, looked, seen)) >= 0;) {
        looked[seen++] = next;
        if (count < most && (count == 0 || goes_with(&ports[next], &ports[chosen[0]], list)))
            chosen[count++] = next;
    }
    if (count > 0 && *list)
        snprintf(why, bytes, "as GYRE_VERBS_DEVICES asks");
    else if (count > 0 && active == 1)
        snprintf(why, bytes, "the only port that is active");
    else if (count > 0)
        snprintf(why, bytes, "%d of %d active ports: %s", count, active,
                 distances[ports[chosen[0]].distance]);
    else if (n == 0)
        snprintf(why, bytes,
                 "there is no RDMA device: is the adapter's driver loaded (ls /sys/class/infiniband)?");
    else
        snprintf(why, bytes,
                 "none of the %d ports is active (%s port %d is %s): look at the cable, the "
                 "interface and the subnet manager",
                 n, ports[0].name, ports[0].port, ports[0].state);
    return count;
}

/* ---- errors -------------------------------------------------------------------------------------------- */

typedef struct {
    int status;
    const char *words, *cause;
} meaning_t;

static const meaning_t meanings[] = {
    {IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded",
     "the peer's adapter does not answer: its process or host is gone, or the network between drops packets"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "receiver-not-ready retry counter exceeded",
     "the peer had no receive posted, which its credits exclude: please report it"},
    {IBV_WC_REM_ACCESS_ERR, "remote access error",
     "the peer's memory is not registered any more: was a buffer freed while an operation used it?"},
    {IBV_WC_REM_INV_REQ_ERR, "remote invalid request", "the peer's adapter refused the request"},
    {IBV_WC_REM_OP_ERR, "remote operation error", "the peer's queue pair failed while it served the request"},
    {IBV_WC_REM_ABORT_ERR, "remote abort", "the peer's queue pair was taken down"},
    {IBV_WC_LOC_PROT_ERR, "local protection error",
     "our memory is not registered any more: was a buffer freed while an operation used it?"},
    {IBV_WC_LOC_LEN_ERR, "local length error", "a message was longer than what was posted for it"},
    {IBV_WC_LOC_QP_OP_ERR, "local queue pair operation error",
     "the adapter or its driver refused the request"},
    {IBV_WC_LOC_ACCESS_ERR, "local access error", "our adapter may not write where the peer asked it to"},
    {IBV_WC_WR_FLUSH_ERR, "work request flushed", "the queue pair had failed before"},
    {IBV_WC_FATAL_ERR, "fatal transport error", "the adapter failed: see the kernel's log"},
    {IBV_WC_RESP_TIMEOUT_ERR, "response timeout", "the peer's adapter does not answer"},
    {IBV_WC_BAD_RESP_ERR, "bad response", "the peer's adapter answered with something unexpected"},
    {IBV_WC_MW_BIND_ERR, "memory window bind error", "the adapter or its driver refused the request"},
    {IBV_WC_GENERAL_ERR, "general transport error", "see the kernel's log"},
};

static const meaning_t *meaning_of(int status)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        if (meanings[i].status == status)
            return &meanings[i];
    }
    return NULL;
}

const char *verbs_wc_words(int status)
{
    const meaning_t *meaning = meaning_of(status);

    return meaning ? meaning->words : "unknown completion status";
}

const char *verbs_wc_cause(int status)
{
    const meaning_t *meaning = meaning_of(status);

    return meaning ? meaning->cause : "see the kernel's log";
}
