/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/held.h: sockets that a child of fork closes.
 *
 * A child has copies of its parent's sockets. With them a connection would outlive the rank, and the others
 * would not see it die. So a child closes those that are held here, as soon as fork returns in it. A socket
 * that is made here is held from the start: no other thread can fork in between. */
#ifndef COMM_NET_HELD_H
#define COMM_NET_HELD_H

/* Non-blocking, close-on-exec and held. The socket, or -1 with errno. listener: does not block. */
int boot_socket(int family, int type);
int boot_accept(int listener);
void boot_let_go(int fd); /* closes it, held or not; keeps errno */

/* Holds a socket that was made elsewhere, and no more. Once is enough, and holding it again does nothing. */
void boot_hold(int fd); /* -1: none */
void boot_keep(int fd);

#endif
