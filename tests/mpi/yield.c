/* SPDX-License-Identifier: Apache-2.0 */
/* tests/mpi/yield.c: preloaded under MPICH where there are more ranks than cores. Debian's MPICH never gives
 * a core away while it waits, so each message takes a time slice of the kernel. With this one it yields in
 * each turn in which UCX has nothing. */
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

unsigned ucp_worker_progress(void *worker);
unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*real)(void *);
    if (real == NULL) {
        /* By its name: Python loads MPICH where RTLD_NEXT does not look. */
        void *library = dlopen("libucp.so.0", RTLD_LAZY);
        void *symbol = library != NULL ? dlsym(library, "ucp_worker_progress") : NULL;
        if (symbol == NULL)
            abort();
        memcpy(&real, &symbol, sizeof(real));
    }
    const unsigned moved = real(worker);
    if (moved == 0)
        sched_yield();
    return moved;
}
