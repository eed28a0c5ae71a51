/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/other/values.c: prints the values and layouts of nccl.h, to compare two
 * headers. */
#include <nccl.h>

#include <stddef.h>
#include <stdio.h>

#define SHOW(value)   printf("%s %lld\n", #value, (long long)(value))
#define FIELD(t, f)   printf("%s.%s %zu\n", #t, #f, offsetof(t, f))
#define NEW_CONFIG(f) printf("initial " #f " %lld\n", (long long)config.f)

int main(void)
{
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    SHOW(ncclSuccess), SHOW(ncclUnhandledCudaError), SHOW(ncclSystemError), SHOW(ncclInternalError);
    SHOW(ncclInvalidArgument), SHOW(ncclInvalidUsage), SHOW(ncclRemoteError), SHOW(ncclInProgress);
    SHOW(ncclSum), SHOW(ncclProd), SHOW(ncclMax), SHOW(ncclMin), SHOW(ncclAvg), SHOW(ncclNumOps),
        SHOW(ncclMaxRedOp);
    SHOW(ncclInt8), SHOW(ncclChar), SHOW(ncclUint8), SHOW(ncclInt32), SHOW(ncclInt), SHOW(ncclUint32),
        SHOW(ncclInt64);
    SHOW(ncclUint64), SHOW(ncclFloat16), SHOW(ncclHalf), SHOW(ncclFloat32), SHOW(ncclFloat),
        SHOW(ncclFloat64);
    SHOW(ncclDouble), SHOW(ncclBfloat16), SHOW(ncclFloat8e4m3), SHOW(ncclFloat8e5m2), SHOW(ncclNumTypes);
    SHOW(ncclScalarDevice), SHOW(ncclScalarHostImmediate), SHOW(sizeof(ncclRedOp_t)),
        SHOW(sizeof(ncclDataType_t));
    SHOW(NCCL_UNIQUE_ID_BYTES), SHOW(sizeof(ncclUniqueId)), SHOW(NCCL_SPLIT_NOCOLOR),
        SHOW(NCCL_CONFIG_UNDEF_INT);
    SHOW(NCCL_WIN_DEFAULT), SHOW(NCCL_WIN_COLL_SYMMETRIC), SHOW(NCCL_WIN_REQUIRED_ALIGNMENT);
    SHOW(NCCL_SHRINK_DEFAULT), SHOW(NCCL_SHRINK_ABORT), SHOW(NCCL_VERSION_CODE), SHOW(sizeof(NCCL_SUFFIX));
    SHOW(NCCL_CTA_POLICY_DEFAULT), SHOW(NCCL_CTA_POLICY_EFFICIENCY), SHOW(NCCL_CTA_POLICY_ZERO);
    FIELD(ncclConfig_t, magic), FIELD(ncclConfig_t, version), FIELD(ncclConfig_t, blocking);
    FIELD(ncclConfig_t, cgaClusterSize), FIELD(ncclConfig_t, minCTAs), FIELD(ncclConfig_t, maxCTAs);
    FIELD(ncclConfig_t, netName), FIELD(ncclConfig_t, splitShare), FIELD(ncclConfig_t, trafficClass);
    FIELD(ncclConfig_t, commName), FIELD(ncclConfig_t, collnetEnable), FIELD(ncclConfig_t, CTAPolicy);
    FIELD(ncclConfig_t, shrinkShare), FIELD(ncclConfig_t, nvlsCTAs), FIELD(ncclConfig_t, nChannelsPerNetPeer);
    FIELD(ncclConfig_t, nvlinkCentricSched), FIELD(ncclSimInfo_t, estimatedTime);
    NEW_CONFIG(magic), NEW_CONFIG(blocking), NEW_CONFIG(minCTAs), NEW_CONFIG(nvlinkCentricSched);
    SHOW(info.magic), SHOW(info.estimatedTime);
    return 0;
}
