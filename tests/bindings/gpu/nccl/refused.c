/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/refused.c: makes a communicator in a thread, which ends, and again: both are
 * refused. Prints why. */
#include "program.h"

#include <pthread.h>

static void *make(void *unused)
{
    ncclComm_t comm;
    (void)unused;
    CHECK(ncclCommInitAll(&comm, 1, NULL) != ncclSuccess, "it was made");
    return NULL;
}

int main(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, make, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    (void)make(NULL);
    puts(ncclGetLastError(NULL));
    return 0;
}
