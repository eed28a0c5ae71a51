/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/address.h: addresses and sockets of the bootstrap: parsing, listening, connecting.
 *
 * Relies on the settings GYRE_PORT_RANGE and GYRE_INTERFACE. All sockets are non-blocking and
 * close-on-exec, and held (held.h) unless said. The caller ends them with boot_let_go. */
#ifndef COMM_NET_ADDRESS_H
#define COMM_NET_ADDRESS_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include <gyre/status.h>

#include "base/clock.h"

typedef union {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} boot_addr_t;

enum {
    BOOT_ADDR_BYTES = 24, /* packed form: family, port, scope, 16 bytes of address */
    BOOT_ADDR_TEXT = 80
};

/* "host:port" or "[v6]:port" into its parts; host: [256]. 1, or 0 if malformed. */
int boot_root_split(const char *root, char host[256], int *port);
/* Copies the first item of a list of addresses of rank 0, separated by commas, into one[256]. Returns the
 * rest of the list, NULL after the last item. An item that is too long is cut and then not a valid
 * address. */
const char *boot_root_item(const char *roots, char one[256]);
/* 1 if the name or literal means this machine only: "localhost", 127.x.y.z, ::1. */
int boot_host_is_loopback(const char *host);
int boot_addr_is_loopback(const boot_addr_t *addr);
socklen_t boot_addr_len(const boot_addr_t *addr);
int boot_addr_port(const boot_addr_t *addr);
void boot_addr_set_port(boot_addr_t *addr, int port);
void boot_addr_text(const boot_addr_t *addr, char text[BOOT_ADDR_TEXT]);
void boot_addr_pack(const boot_addr_t *addr, unsigned char out[BOOT_ADDR_BYTES]);
int boot_addr_unpack(const unsigned char in[BOOT_ADDR_BYTES], boot_addr_t *addr); /* 0: malformed */
/* The address of a connected socket: its own (peer 0) or the peer's (1). IPv4 mapped into IPv6 is unmapped. 0
 * on failure. */
int boot_addr_of(int fd, int peer, boot_addr_t *addr);

/* Opens rank 0's listening socket at `root`, or checks the inherited one. *inherited: 1 if it must not be
 * closed. A port in use is tried again for a short while: the job before this one may be about to leave
 * it. */
gyre_status_t boot_listen_root(const char *root, int root_fd, base_time_t deadline, int *fd, int *inherited);
/* Opens the listening socket of another rank. `mine`: in: own address of the connection to rank 0; out: the
 * address, with port, at which children reach the socket. */
gyre_status_t boot_listen_child(const char *root, boot_addr_t *mine, int *fd);

/* local.c: opens rank 0's listening socket where no address was agreed, on any free port (of
 * GYRE_PORT_RANGE). The address: loopback if all ranks are on this host, else GYRE_INTERFACE if given, else
 * all addresses. roots: [256]: the "host:port" at which the other ranks may try to reach it, separated by
 * commas, the likeliest first. Programs that this process starts do not inherit the socket; a
 * child of fork does, which may be rank 0: it is not held. The caller closes it. */
gyre_status_t boot_listen_here(int local, char roots[256], int *fd);

/* fe80::/10. Other hosts would need their own name of the link: such an address is of no use to them. */
int boot_addr_is_link_local(const boot_addr_t *addr);
/* 169.254.0.0/16, as the interface to a host's management controller has: such an address means another
 * machine on each link. */
int boot_is_link_local_v4(const struct sockaddr *addr);

/* For local.c: the address of GYRE_INTERFACE, with port 0. family: preferred if the interface has several.
 * Those of fe80::/10 do not count, and those of 169.254.0.0/16 only if there are no others. INVALID: none
 * counts. */
gyre_status_t boot_interface_addr(int family, boot_addr_t *out);
/* Parses GYRE_PORT_RANGE into its ends; 0..0 if unset. */
gyre_status_t boot_port_range(int *low, int *high);
/* Listens at `addr` (NULL: all addresses of this host, IPv6 and IPv4 where it has both) and port. Returns the
 * socket, or -1 with errno. */
int boot_listen_at(const boot_addr_t *addr, int port);

/* resolve.c: getaddrinfo of `host` for TCP with a deadline (EAI_AGAIN). The caller frees *out with
 * freeaddrinfo. */
struct addrinfo;
int boot_resolve(const char *host, int port, base_time_t deadline, struct addrinfo **out);

/* Connects; *err is the errno of a failure (ECONNREFUSED, ETIMEDOUT ...). Returns the socket, or -1. */
int boot_dial(const boot_addr_t *addr, base_time_t deadline, int *err);
/* Turns off delays. Turns a silent partition into an error within about GYRE_HEARTBEAT, at least 5 s: the
 * kernel's keepalive checks idle connections, TCP_USER_TIMEOUT checks those with data under way (keepalive is
 * off for these). */
void boot_socket_tune(int fd);

#endif
