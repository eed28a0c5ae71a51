/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/fence.c: membarrier(2). See fence.h. */
#include "base/thread/fence.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int threads_ready, processes_ready;

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void prepare(void)
{
#if !defined(__SANITIZE_THREAD__) /* which would not understand it */
    int saved = errno;
    threads_ready = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
                    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    processes_ready = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0 &&
                      membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
    errno = saved;
#endif
}

int base_fence_threads_ready(void)
{
    pthread_once(&once, prepare);
    return threads_ready;
}

int base_fence_processes_ready(void)
{
    pthread_once(&once, prepare);
    return processes_ready;
}

void base_fence_threads(void)
{
    base_fence();
    (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); /* cannot fail where it is ready */
}

void base_fence_processes(void)
{
    base_fence();
    (void)membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}
