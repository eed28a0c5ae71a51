/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/fail.cc: the k-th call of CUDA fails, for tests of what a program does then. */
#include "tests/emulated/machine.h"

#include <mutex>

namespace emulated
{

static struct {
    std::mutex lock;
    bool counting, sticky;
    long left, count;
    cudaError_t error;
    const char *struck;
} plan;

cudaError_t planned(const char *call)
{
    std::lock_guard<std::mutex> guard(plan.lock);
    if (!plan.counting)
        return cudaSuccess;
    plan.count++;
    if (--plan.left != 0)
        return cudaSuccess;
    plan.struck = call;
    if (plan.sticky)
        set_sticky(plan.error);
    return fail(plan.error);
}

} // namespace emulated

using namespace emulated;

/* From now on the k-th call that takes, moves or starts something fails with `error`; sticky: and so does
 * every later call, as where a device is lost. Calls that only ask or free do not count: they are repeated as
 * often as time permits, or cannot fail by themselves. k 0: none fails, and none is counted. */
extern "C" void emulated_fail(long k, int error, int sticky)
{
    std::lock_guard<std::mutex> guard(plan.lock);
    plan.counting = k > 0;
    if (k == 0)
        return;
    plan.left = k;
    plan.count = 0;
    plan.error = (cudaError_t)error;
    plan.sticky = sticky != 0;
    plan.struck = NULL;
}

/* Calls that were counted. */
extern "C" long emulated_calls(void)
{
    std::lock_guard<std::mutex> guard(plan.lock);
    return plan.count;
}

/* The call that failed; NULL: none so far. */
extern "C" const char *emulated_struck(void)
{
    std::lock_guard<std::mutex> guard(plan.lock);
    return plan.struck;
}

/* What has not been freed: own 1: memory of devices; 0: mapped memory of peers, pinned memory, streams,
 * events and graphs. */
extern "C" long emulated_left(int own)
{
    return (long)(own ? allocations(true) : allocations(false) + handles());
}
