/* tools/ucx-run/hosts/address.h: at which of its addresses this host is met by the other hosts of a job. */
#ifndef TOOLS_UCX_RUN_HOSTS_ADDRESS_H
#define TOOLS_UCX_RUN_HOSTS_ADDRESS_H

#include "comm/net/address.h"

/* The address from which this host reaches `peer` (user@name or address); where that is the loopback although there are several
 * `hosts`, the one at which ssh reached us, or that of the first interface that is up. With one host: the loopback. The port is 0.
 * 1, or 0 if there is none. */
int run_address(const char *peer, int hosts, boot_addr_t *mine);

#endif
