/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/ranges.c: ranges by NVTX, whose header finds a profiler at run time (NVTX_INJECTION64_PATH,
 * which Nsight Systems sets) and has no library. */
#include "base/device/ranges.h"

#ifdef GYRE_CUDA

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static nvtxDomainHandle_t domain; /* NULL: there is no profiler */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
    domain = nvtxDomainCreateA("gyre");
}

void base_range_begin(const char *name, uint64_t payload)
{
    pthread_once(&once, find);
    if (domain == NULL)
        return;
    nvtxEventAttributes_t range = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    range.payload.ullValue = payload;
    nvtxDomainRangePushEx(domain, &range);
}

void base_range_end(void)
{
    if (domain != NULL)
        nvtxDomainRangePop(domain);
}

#else

void base_range_begin(const char *name, uint64_t payload)
{
    (void)name;
    (void)payload;
}
void base_range_end(void) {}

#endif
