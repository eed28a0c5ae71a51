/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/scale.c: reductions: the five of NCCL, and sums whose inputs are multiplied first. */
#include "bindings/nccl/shim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The value of a number with one sign bit and no bits but these. has_infinity: as in IEEE 754; otherwise all
 * bits set is the one NaN (OCP's E4M3). */
static double small_float(unsigned bits, int exponent_bits, int fraction_bits, int has_infinity)
{
    const unsigned fraction = bits & ((1u << fraction_bits) - 1);
    const unsigned top = (1u << exponent_bits) - 1;
    const unsigned exponent = bits >> fraction_bits & top;
    const double sign = bits >> (exponent_bits + fraction_bits) & 1 ? -1 : 1;
    const int least = 2 - (1 << (exponent_bits - 1)) - fraction_bits; /* exponent of the smallest number */
    if (exponent == top && has_infinity)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == top && fraction == (1u << fraction_bits) - 1)
        return NAN;
    if (exponent == 0)
        return sign * ldexp(fraction, least);
    return sign * ldexp(fraction + (1u << fraction_bits), least + (int)exponent - 1);
}

/* scalar: one element of `type`, at any address. 0: a double does not hold it. */
static int value_of(const void *scalar, ncclDataType_t type, double *value)
{
    union {
        int8_t i8;
        uint8_t u8;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        uint16_t u16;
        float f32;
        double f64;
    } it = {0};
    memcpy(&it, scalar, gyre_type_size(shim_type(type)));
    switch (type) {
    case ncclInt8:
        *value = it.i8;
        return 1;
    case ncclUint8:
        *value = it.u8;
        return 1;
    case ncclInt32:
        *value = it.i32;
        return 1;
    case ncclUint32:
        *value = it.u32;
        return 1;
    case ncclInt64:
        *value = (double)it.i64;
        return it.i64 >= -(1LL << 53) && it.i64 <= 1LL << 53;
    case ncclUint64:
        *value = (double)it.u64;
        return it.u64 <= 1ULL << 53;
    case ncclFloat16:
        *value = small_float(it.u16, 5, 10, 1);
        return 1;
    case ncclBfloat16:
        *value = small_float(it.u16, 8, 7, 1);
        return 1;
    case ncclFloat8e4m3:
        *value = small_float(it.u8, 4, 3, 0);
        return 1;
    case ncclFloat8e5m2:
        *value = small_float(it.u8, 5, 2, 1);
        return 1;
    case ncclFloat32:
        *value = (double)it.f32;
        return 1;
    default:
        *value = it.f64;
        return 1;
    }
}

static ncclResult_t too_large(const char *name)
{
    return shim_fail(ncclInvalidUsage,
                     "%s: the factor of a 64-bit integer is beyond 2^53, which Gyre does not "
                     "hold exactly",
                     name);
}

/* It waits for the stream. */
ncclResult_t shim_factor(shim_call_t *call)
{
    char scalar[8];
    const size_t bytes = gyre_type_size(shim_type(call->type));
    cudaError_t error = cudaMemcpyAsync(scalar, call->factor, bytes, cudaMemcpyDefault, call->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(call->stream);
    if (error != cudaSuccess)
        return shim_cuda(call->name, "reading the factor of an operation of ncclRedOpCreatePreMulSum", error);
    return value_of(scalar, call->type, &call->redop.scale) ? ncclSuccess : too_large(call->name);
}

ncclResult_t shim_op(shim_call_t *call)
{
    static const gyre_redop_kind_t kinds[ncclNumOps] = {[ncclSum] = GYRE_SUM,
                                                        [ncclProd] = GYRE_PROD,
                                                        [ncclMax] = GYRE_MAX,
                                                        [ncclMin] = GYRE_MIN,
                                                        [ncclAvg] = GYRE_AVG};
    const int place = (int)call->op - ncclNumOps;
    if ((int)call->op >= 0 && place < 0) {
        call->redop = GYRE_OP(kinds[call->op]);
        return ncclSuccess;
    }
    if (place < 0 || place >= call->comm->nscales || !call->comm->scales[place].used)
        return shim_fail(ncclInvalidArgument,
                         "%s: op %d is not one of NCCL, 0 to %d, and not one that "
                         "ncclRedOpCreatePreMulSum has made for this communicator",
                         call->name, (int)call->op, ncclNumOps - 1);
    const shim_scale_t *scale = &call->comm->scales[place];
    if (scale->type != call->type)
        return shim_fail(ncclInvalidArgument,
                         "%s: op %d was made for datatype %d, and the call has datatype %d", call->name,
                         (int)call->op, (int)scale->type, (int)call->type);
    call->redop = GYRE_SCALED_SUM(scale->factor);
    call->factor = scale->device;
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    ncclResult_t result = shim_check(__func__, comm);
    if (result != ncclSuccess)
        return result;
    if (!op || !scalar)
        return shim_fail(ncclInvalidArgument, "%s: %s is NULL", __func__, op ? "scalar" : "op");
    if ((unsigned)type >= ncclNumTypes || (unsigned)residence > ncclScalarHostImmediate)
        return shim_fail(ncclInvalidArgument, "%s: datatype %d or residence %d is unknown", __func__,
                         (int)type, (int)residence);
    shim_scale_t scale = {1, type, residence == ncclScalarDevice ? scalar : NULL, 1};
    if (!scale.device && !value_of(scalar, type, &scale.factor))
        return too_large(__func__);
    int place = 0;
    while (place < comm->nscales && comm->scales[place].used)
        place++;
    if (place == comm->nscales) {
        shim_scale_t *more = realloc(comm->scales, (size_t)(place + 8) * sizeof *more);
        if (!more)
            return shim_fail(ncclSystemError, "%s: no memory for operation %d", __func__, place);
        memset(more + place, 0, 8 * sizeof *more);
        comm->scales = more;
        comm->nscales += 8;
    }
    comm->scales[place] = scale;
    *op = (ncclRedOp_t)(ncclNumOps + place);
    return ncclSuccess;
}
SHIM_API(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    const int place = (int)op - ncclNumOps;
    const ncclResult_t result = shim_check(__func__, comm);
    if (result != ncclSuccess)
        return result;
    if (place < 0 || place >= comm->nscales || !comm->scales[place].used)
        return shim_fail(ncclInvalidArgument,
                         "%s: op %d is not one that ncclRedOpCreatePreMulSum has made for "
                         "this communicator",
                         __func__, (int)op);
    comm->scales[place].used = 0;
    return ncclSuccess;
}
SHIM_API(ncclRedOpDestroy);
