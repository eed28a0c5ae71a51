/* comm/net/address.h: addresses and sockets of the bootstrap: parsing, listening, connecting.
 *
 * Relies on the settings GYRE_PORT_RANGE and GYRE_INTERFACE. All sockets are non-blocking and close-on-exec. */
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
/* Rank 0 may be known by several addresses, with commas between: copies the first into one[256] and returns what follows it, NULL after
 * the last. An item that is too long is cut, which no address is. */
const char *boot_root_item(const char *roots, char one[256]);
/* The name or literal means this machine only: "localhost", 127.x.y.z, ::1. */
int boot_host_is_loopback(const char *host);
int boot_addr_is_loopback(const boot_addr_t *addr);
socklen_t boot_addr_len(const boot_addr_t *addr);
int boot_addr_port(const boot_addr_t *addr);
void boot_addr_set_port(boot_addr_t *addr, int port);
void boot_addr_text(const boot_addr_t *addr, char text[BOOT_ADDR_TEXT]);
void boot_addr_pack(const boot_addr_t *addr, unsigned char out[BOOT_ADDR_BYTES]);
int boot_addr_unpack(const unsigned char in[BOOT_ADDR_BYTES], boot_addr_t *addr); /* 0: malformed */
/* Own (peer 0) or peer's (1) address of a connected socket; IPv4 mapped into IPv6 is unmapped. 0 on failure. */
int boot_addr_of(int fd, int peer, boot_addr_t *addr);

/* Rank 0's listening socket at `root`, or the checked inherited one. *inherited: 1 if it must not be closed.
 * A port in use is tried again for a short while: the job before this one may be about to leave it. */
gyre_status_t boot_listen_root(const char *root, int root_fd, base_time_t deadline, int *fd, int *inherited);
/* Listening socket of another rank. `mine`: in: own address of the connection to rank 0; out: the address, with
 * port, at which children reach the socket. */
gyre_status_t boot_listen_child(const char *root, boot_addr_t *mine, int *fd);

/* local.c: rank 0's listening socket where no address was agreed: any free port (of GYRE_PORT_RANGE), on loopback if all ranks are on
 * this host, at GYRE_INTERFACE if given, else at all addresses. roots: [256]: "host:port", the likeliest first, with commas between, under which the
 * others may try to reach it. Not inherited by other programs. */
gyre_status_t boot_listen_here(int local, char roots[256], int *fd);

/* For local.c. The address that GYRE_INTERFACE names, with port 0; family: preferred where it has several. */
gyre_status_t boot_interface_addr(int family, boot_addr_t *out);
/* GYRE_PORT_RANGE into its ends; 0..0 if unset. */
gyre_status_t boot_port_range(int *low, int *high);
/* Listens at `addr` (NULL: all addresses of this host, IPv6 and IPv4 where it has both) and port. The socket, or -1 with errno. */
int boot_listen_at(const boot_addr_t *addr, int port);

/* resolve.c: getaddrinfo of `host` for TCP, but within the deadline (EAI_AGAIN). *out is to be freed with freeaddrinfo. */
struct addrinfo;
int boot_resolve(const char *host, int port, base_time_t deadline, struct addrinfo **out);

/* Connects; *err is the errno of a failure (ECONNREFUSED, ETIMEDOUT ...). Returns the socket, or -1. */
int boot_dial(const boot_addr_t *addr, base_time_t deadline, int *err);
/* No delay, and a silent partition becomes an error within about GYRE_HEARTBEAT, at least 5 s: the kernel's keepalive looks
 * after idle connections, TCP_USER_TIMEOUT after those with data under way (keepalive is off for these). */
void boot_socket_tune(int fd);

#endif
