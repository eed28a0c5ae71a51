/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/memory.c: allocation and registration.
 *
 * ncclCommRegister is a call of one rank; Gyre registers collectively, so the call has no effect. A window
 * with NCCL_WIN_COLL_SYMMETRIC is collective: it becomes a registration of Gyre where devices allow that, as
 * long as there is room for one (256), and where no process has several ranks of a job: its one thread would
 * wait for itself. */
#include "bindings/nccl/shim.h"

#include <stdlib.h>

enum { ROOM = 256 }; /* registrations that a communicator of Gyre can have */

struct ncclWindow_vidmem {
    ncclComm_t comm;
    void *buffer;
    gyre_cuda_registration_t *registration; /* NULL: without effect */
};

shim_relaxed_t shim_relax(void)
{
    shim_relaxed_t it = {.mode = cudaStreamCaptureModeRelaxed};
    it.relaxed = cudaThreadExchangeStreamCaptureMode(&it.mode) == cudaSuccess;
    return it;
}

void shim_relax_end(shim_relaxed_t *it)
{
    if (it->relaxed)
        (void)cudaThreadExchangeStreamCaptureMode(&it->mode);
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    if (!ptr)
        return shim_fail(ncclInvalidArgument, "%s: ptr is NULL", __func__);
    shim_relaxed_t relaxed = shim_relax();
    const cudaError_t error = cudaMalloc(ptr, size);
    shim_relax_end(&relaxed);
    return error == cudaSuccess ? ncclSuccess : shim_cuda(__func__, "cudaMalloc", error);
}
SHIM_API(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr)
{
    shim_relaxed_t relaxed = shim_relax();
    const cudaError_t error = cudaFree(ptr);
    shim_relax_end(&relaxed);
    return error == cudaSuccess ? ncclSuccess : shim_cuda(__func__, "cudaFree", error);
}
SHIM_API(ncclMemFree);

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    const ncclResult_t result = shim_check(__func__, comm);
    if (result != ncclSuccess)
        return result;
    if (!buffer || !size || !handle)
        return shim_fail(ncclInvalidArgument, "%s: size is 0, or buff or handle is NULL", __func__);
    *handle = NULL; /* as NCCL gives where a registration has no effect */
    return ncclSuccess;
}
SHIM_API(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    const ncclResult_t result = shim_check(__func__, comm);
    if (result == ncclSuccess && handle)
        return shim_fail(ncclInvalidArgument, "%s: handle is not one of ncclCommRegister", __func__);
    return result;
}
SHIM_API(ncclCommDeregister);

/* The same on all ranks: they register and deregister in one order. */
static int has_room(ncclComm_t comm)
{
    if (comm->registered < ROOM)
        return 1;
    if (!comm->warned_full)
        shim_warn(
            "ncclCommWindowRegister: the communicator has 256 windows, and further ones have no effect: "
            "make windows of larger pieces of memory");
    comm->warned_full = 1;
    return 0;
}

ncclResult_t shim_window_register(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags)
{
    if (!buffer || !size || !window)
        return shim_fail(ncclInvalidArgument, "ncclCommWindowRegister: size is 0, or buff or win is NULL");
    ncclWindow_t made = calloc(1, sizeof *made);
    if (!made)
        return shim_fail(ncclSystemError, "ncclCommWindowRegister: no memory for a window");
    made->comm = comm;
    made->buffer = buffer;
    if (flags & NCCL_WIN_COLL_SYMMETRIC && !(comm->job && comm->job->several) && has_room(comm)) {
        shim_relaxed_t relaxed = shim_relax();
        const gyre_status_t st = gyre_comm_register_cuda(comm->gyre, buffer, size, &made->registration);
        shim_relax_end(&relaxed);
        if (st != GYRE_OK && st != GYRE_ERR_UNSUPPORTED) {
            free(made);
            return shim_status("ncclCommWindowRegister", st);
        }
        comm->registered += made->registration != NULL;
    }
    *window = made;
    return ncclSuccess;
}

ncclResult_t shim_window_deregister(ncclComm_t comm, ncclWindow_t window)
{
    if (!window)
        return ncclSuccess;
    if (window->comm != comm)
        return shim_fail(ncclInvalidArgument,
                         "ncclCommWindowDeregister: the window is of another communicator");
    comm->registered -= window->registration != NULL;
    shim_relaxed_t relaxed = shim_relax();
    const gyre_status_t st =
        window->registration ? gyre_comm_deregister_cuda(comm->gyre, window->registration) : GYRE_OK;
    shim_relax_end(&relaxed);
    free(window);
    return st == GYRE_OK ? ncclSuccess : shim_status("ncclCommWindowDeregister", st);
}

ncclResult_t shim_window_buffer(ncclComm_t comm, ncclWindow_t window, void **buffer)
{
    if (!window || !buffer || window->comm != comm)
        return shim_fail(ncclInvalidArgument,
                         "ncclWinGetUserPtr: win is not a window of comm, or outUserPtr is NULL");
    *buffer = window->buffer;
    return ncclSuccess;
}
