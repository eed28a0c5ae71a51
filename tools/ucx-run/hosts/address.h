/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/address.h: the address of this host at which the other hosts of a job reach it. */
#ifndef TOOLS_UCX_RUN_HOSTS_ADDRESS_H
#define TOOLS_UCX_RUN_HOSTS_ADDRESS_H

#include "comm/net/address.h"

/* Finds the address from which this host reaches `peer` (user@name or address). If that is the loopback
 * although there are several `hosts`: the address at which ssh reached this host, or that of the first
 * interface that is up. With one host: the loopback. The port is 0. Returns 1, or 0 if there is no such
 * address. */
int run_address(const char *peer, int hosts, boot_addr_t *mine);

#endif
