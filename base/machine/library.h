/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/library.h: functions of a library that is loaded when it is needed, and may not be there. */
#ifndef BASE_MACHINE_LIBRARY_H
#define BASE_MACHINE_LIBRARY_H

#include <stddef.h>

typedef struct {
    const char *name; /* of a function */
    void *to;         /* the pointer to it, which is to be set */
} base_symbol_t;

/* Loads `file`, which dlopen looks up, for as long as the process lives, and sets the pointers to its [n]
 * functions. 0: it cannot be loaded, or lacks one of them; why: [room] the reason, which names the file; some
 * pointers may be set. */
int base_library_load(const char *file, const base_symbol_t *symbols, size_t n, char *why, size_t room);

#endif
