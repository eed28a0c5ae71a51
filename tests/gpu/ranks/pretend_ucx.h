/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/ranks/pretend_ucx.h: a UCX that knows CUDA memory, in tests on the emulator. Its device memory is
 * the host's, so the calls below pass their arguments on without the word CUDA, and check that the declared
 * kind of every buffer is true. On a GPU the UCX of the machine answers. To be included by one file of a
 * program, which needs `guard: 0`. */
#ifndef TESTS_GPU_PRETEND_UCX_H
#define TESTS_GPU_PRETEND_UCX_H

#include "base/device/device.h"
#include "comm/ucx/ucx.h"
#include "tests/gpu/gpu.h"
#include "tests/support/mp.h"

static int rank;                     /* for the text of a failure */
static int pretend, says_cuda;       /* emulated; and it knows CUDA memory */
static unsigned long sent, received; /* messages that were declared to be in CUDA memory */

static ucx_calls_t real_ucx;

static ucs_status_t pretend_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    const ucs_status_t status = real_ucx.ucp_context_query(context, attr);
    if (pretend && (attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES))
        attr->memory_types =
            UCS_BIT(UCS_MEMORY_TYPE_HOST) | (says_cuda ? (uint64_t)UCS_BIT(UCS_MEMORY_TYPE_CUDA) : 0);
    return status;
}

/* What is said of the buffer is so; the real UCX hears nothing of it. */
static int is_cuda(const void *buffer, const ucp_request_param_t *param, ucp_request_param_t *plain)
{
    const int said =
        (param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) && param->memory_type == UCS_MEMORY_TYPE_CUDA;
    const int is = buffer && base_device_of(buffer).kind == BASE_CUDA;
    MP_CHECK(said == is, "rank %d: UCX gets %p as %sCUDA memory", rank, buffer, said ? "" : "not ");
    *plain = *param;
    if (pretend)
        plain->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    return said;
}

static ucs_status_ptr_t pretend_send(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                                     const void *buffer, size_t count, const ucp_request_param_t *param)
{
    ucp_request_param_t plain;
    if (is_cuda(buffer, param, &plain)) {
        MP_CHECK(param->flags & UCP_AM_SEND_FLAG_RNDV, "rank %d: not by rendezvous", rank);
        sent++;
    }
    return real_ucx.ucp_am_send_nbx(ep, id, header, header_length, buffer, count, &plain);
}

static ucs_status_ptr_t pretend_receive(ucp_worker_h worker, void *data, void *buffer, size_t count,
                                        const ucp_request_param_t *param)
{
    ucp_request_param_t plain;
    received += (unsigned long)is_cuda(buffer, param, &plain);
    return real_ucx.ucp_am_recv_data_nbx(worker, data, buffer, count, &plain);
}

/* Before the first communicator. */
static void pretend_ucx(void)
{
    char why[256];

    pretend = gpu_is_emulated();
    ucx_lock();
    MP_CHECK(ucx_load(why, sizeof why), "%s", why);
    ucx_unlock();
    real_ucx = ucx_lib;
    ucx_lib.ucp_context_query = pretend_query;
    ucx_lib.ucp_am_send_nbx = pretend_send;
    ucx_lib.ucp_am_recv_data_nbx = pretend_receive;
}

#endif
