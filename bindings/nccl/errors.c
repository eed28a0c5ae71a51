/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/errors.c: results, and the text of ncclGetLastError. */
#include "bindings/nccl/shim.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char mine[SHIM_TEXT]; /* of this thread's last error */
static _Thread_local char shown[SHIM_TEXT];
static char latest[SHIM_TEXT]; /* of any thread's, for one that has met none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep(void)
{
    pthread_mutex_lock(&lock);
    memcpy(latest, mine, SHIM_TEXT);
    pthread_mutex_unlock(&lock);
}

ncclResult_t shim_fail(ncclResult_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(mine, SHIM_TEXT, format, arguments);
    va_end(arguments);
    keep();
    const char *log = getenv("GYRE_LOG");
    if (!log || strcmp(log, "none") != 0)
        (void)fprintf(stderr, "libgyre-nccl: %s\n", mine);
    return result;
}

void shim_warn(const char *text)
{
    const char *log = getenv("GYRE_LOG");
    if (!log || (strcmp(log, "none") != 0 && strcmp(log, "error") != 0))
        (void)fprintf(stderr, "libgyre-nccl: warning: %s\n", text);
}

static ncclResult_t result_of(gyre_status_t status)
{
    switch (status) {
    case GYRE_OK:
        return ncclSuccess;
    case GYRE_IN_PROGRESS:
        return ncclInProgress;
    case GYRE_ERR_INVALID:
    case GYRE_ERR_TYPE:
    case GYRE_ERR_OVERFLOW:
    case GYRE_ERR_OVERLAP:
        return ncclInvalidArgument;
    case GYRE_ERR_UNSUPPORTED:
    case GYRE_ERR_MISMATCH:
        return ncclInvalidUsage;
    case GYRE_ERR_PEER_DEAD:
    case GYRE_ERR_TIMEOUT:
    case GYRE_ERR_ABORTED:
    case GYRE_ERR_TRANSPORT:
        return ncclRemoteError;
    case GYRE_ERR_INTERNAL:
        return ncclInternalError;
    default:
        return ncclSystemError;
    }
}

/* Gyre has logged it. */
ncclResult_t shim_status(const char *name, gyre_status_t status)
{
    (void)snprintf(mine, SHIM_TEXT, "%s: %s", name, gyre_last_error());
    keep();
    return result_of(status);
}

ncclResult_t shim_repeat(ncclResult_t result, const char text[SHIM_TEXT])
{
    memcpy(mine, text, SHIM_TEXT);
    keep();
    return result;
}

ncclResult_t shim_cuda(const char *name, const char *call, cudaError_t error)
{
    (void)cudaGetLastError(); /* the program does not look for it */
    return shim_fail(ncclUnhandledCudaError, "%s: %s: %s", name, call, cudaGetErrorString(error));
}

ncclResult_t shim_no_memory(const char *name)
{
    return shim_fail(ncclSystemError, "%s: no memory for a communicator", name);
}

ncclResult_t shim_check(const char *name, ncclComm_t comm)
{
    if (!comm || comm->magic != SHIM_MAGIC)
        return shim_fail(ncclInvalidArgument, "%s: comm is %s", name,
                         comm ? "not a communicator, or was destroyed" : "NULL");
    if (comm->finalized)
        return shim_fail(ncclInvalidArgument, "%s: comm has had ncclCommFinalize; destroy it", name);
    return ncclSuccess;
}

void shim_announce(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *asked = getenv("NCCL_DEBUG");
    if (asked && *asked && !atomic_flag_test_and_set(&said))
        (void)fprintf(stderr, "libgyre-nccl: Gyre %s, as NCCL 2.28.9; GYRE_LOG=info says more\n",
                      gyre_version());
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm; /* may be NULL */
    if (mine[0])
        return mine;
    pthread_mutex_lock(&lock);
    memcpy(shown, latest, SHIM_TEXT);
    pthread_mutex_unlock(&lock);
    return shown;
}
SHIM_API(ncclGetLastError);

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "success";
    case ncclUnhandledCudaError:
        return "a CUDA call failed; ncclGetLastError has the text";
    case ncclSystemError:
        return "a call of the operating system failed; ncclGetLastError has the text";
    case ncclInternalError:
        return "a defect of Gyre; please report it with the text of ncclGetLastError";
    case ncclInvalidArgument:
        return "an argument is wrong; ncclGetLastError names it";
    case ncclInvalidUsage:
        return "calls that do not fit together, or that Gyre lacks; ncclGetLastError says which";
    case ncclRemoteError:
        return "another rank failed, was aborted or is late; ncclGetLastError names it";
    case ncclInProgress:
        return "in progress";
    default:
        return "unknown result";
    }
}
SHIM_API(ncclGetErrorString);

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return shim_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION(2, 28, 9);
    return ncclSuccess;
}
SHIM_API(ncclGetVersion);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void ncclResetDebugInit(void) {}
SHIM_API(ncclResetDebugInit);
