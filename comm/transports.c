/* comm/transports.c: the table of transports.
 *
 * A transport is a folder of comm/ that defines its row, and the line of that row here. Outside its folder,
 * this file alone may name a transport; all else goes through the calls of its row (comm_transport_ops_t).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "comm/link.h"

extern const comm_transport_ops_t comm_self, comm_shm, comm_ucx;
#ifdef GYRE_VERBS
extern const comm_transport_ops_t comm_verbs;
#else
static const comm_transport_ops_t comm_verbs = {
    .name = "verbs",
    .scope = COMM_BETWEEN_HOSTS,
    .missing =
        "build with VERBS=1 (apt install libibverbs-dev), or use GYRE_TRANSPORT=ucx, which reaches RDMA "
        "devices, too"};
#endif

const comm_transport_ops_t *const comm_transports[COMM_TRANSPORTS] = {&comm_self, &comm_shm, &comm_verbs,
                                                                      &comm_ucx};

int comm_transport_number(const comm_transport_ops_t *ops)
{
    int number = 0;

    while (comm_transports[number] != ops)
        number++;
    return number;
}

/* ---- for tools ----------------------------------------------------------------------------------------- */

static const comm_transport_ops_t *row(int number)
{
    return number >= 0 && number < COMM_TRANSPORTS ? comm_transports[number] : NULL;
}

int comm_transport_find(const char *name)
{
    int number = 0;

    while (row(number) && strcmp(row(number)->name, name) != 0)
        number++;
    return row(number) ? number : -1;
}

int comm_transport_is_network(int number)
{
    return row(number) && row(number)->scope == COMM_BETWEEN_HOSTS;
}

gyre_status_t comm_transport_describe(int number, int part, char *text, size_t bytes)
{
    if (!row(number) || !row(number)->describe)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "transport %d has no parts", number);
    return row(number)->describe(part, text, bytes);
}

int comm_transport_try_device(int number, base_device_t device, char *text, size_t bytes)
{
    if (!row(number) || !row(number)->try_device)
        return -1;
    return row(number)->try_device(device, text, bytes);
}
