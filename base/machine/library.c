/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/library.c: see library.h. */
#include "base/machine/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int base_library_load(const char *file, const base_symbol_t *symbols, size_t n, char *why, size_t room)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *error = library ? NULL : dlerror();

    if (!library) {
        snprintf(why, room, "%s", error ? error : file);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found) {
            snprintf(why, room, "%s has no %s", file, symbols[i].name);
            return 0;
        }
        memcpy(symbols[i].to, &found, sizeof found); /* ISO C converts no pointer to a function's */
    }
    return 1;
}
