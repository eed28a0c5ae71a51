/* comm/boot_addr.h: addresses and sockets of the bootstrap: parsing, listening, connecting.
 *
 * Relies on the settings GYRE_PORT_RANGE and GYRE_INTERFACE. All sockets are non-blocking and close-on-exec. */
#ifndef COMM_BOOT_ADDR_H
#define COMM_BOOT_ADDR_H

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

/* Connects; *err is the errno of a failure (ECONNREFUSED, ETIMEDOUT ...). Returns the socket, or -1. */
int boot_dial(const boot_addr_t *addr, base_time_t deadline, int *err);
/* No delay, and a silent partition becomes an error within about GYRE_HEARTBEAT, at least 5 s: the kernel's keepalive looks
 * after idle connections, TCP_USER_TIMEOUT after those with data under way (keepalive is off for these). */
void boot_socket_tune(int fd);

#endif
