/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/identity.h: which machine this is. */
#ifndef BASE_MACHINE_IDENTITY_H
#define BASE_MACHINE_IDENTITY_H

#include <stdint.h>

enum { BASE_BOOT_BYTES = 40 };

/* The id that the kernel drew when it started; "": /proc does not say. */
void base_machine_boot(char text[BASE_BOOT_BYTES]);

enum { BASE_MACHINE_NET = 1, BASE_MACHINE_PID = 2 };

/* A hash of that id and of namespaces of this process. spaces: BASE_MACHINE_* or none. Two processes that
 * share all of them have the same one, and others another, but for chance. 0: /proc does not say. */
uint64_t base_machine(unsigned spaces);

#endif
