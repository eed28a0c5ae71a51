/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/choose.c: which calls on device memory run one of the host's schedules, and which are
 * left to the shots of collectives/gpu/shots/peers.c. What ranks decide by is the same on all of them. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include "base/checked.h"
#include "base/settings/settings.h"
#include "collectives/schedules/algorithms.h"

enum { LARGE = 1 << 20 }; /* bytes of a vector or block that a schedule may serve unnamed */

size_t coll_cuda_longest(const coll_cuda_t *c, const coll_shape_t *s)
{
    size_t most = 0;
    if (s->op == COLL_BARRIER)
        return 0;
    if (coll_op_is_vector(s->op) || s->uniform)
        return s->count;
    if (s->op != COLL_REDUCE_SCATTER && s->op != COLL_ALL_GATHER)
        return 0;
    for (int r = 0; r < c->comm->n; r++)
        most = base_max_size(most, s->counts[r]);
    return most;
}

int coll_cuda_adds(const coll_shape_t *s)
{
    if (!coll_op_reduces(s->op))
        return 1;
    return coll_cuda_has_kernel(s->redop, s->type) && !coll_op_scans(s->op);
}

/* The GPUs of a host may be joined in three ways: by a switch of NVLink, which gives every two of them the
 * full rate at once; by NVLink between some; or by PCIe, where all that leaves a GPU shares one link, and
 * reads cost more than writes. The driver reports of two devices whether NVLink joins them (atomics work
 * across it), and how they rank among the pairs of the machine. */
int coll_cuda_uneven_links(int device, const int *devices, int n)
{
    int first = -1;
    for (int r = 0; r < n; r++) {
        int rank = 0, atomics = 0;
        if (devices[r] < 0 || devices[r] == device)
            continue;
        if (cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, device, devices[r]) !=
                cudaSuccess ||
            cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, devices[r]) !=
                cudaSuccess) {
            (void)cudaGetLastError(); /* nothing is known of them */
            continue;
        }
        if (!atomics || (first >= 0 && rank != first))
            return 1;
        first = rank;
    }
    return 0;
}

/* What serves long ones. Sums in canonical order are lists of nodes on a ring, so they take a butterfly where
 * that has no more volume than a ring of plain sums. */
static coll_algo_t for_large(const coll_cuda_t *c, const coll_shape_t *s, size_t bytes)
{
    const int n = c->comm->n, power = (n & (n - 1)) == 0;
    const size_t engines = (size_t)base_setting_int(SET_CUDA_ENGINES);
    switch (s->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE_SCATTER:
        return power && c->comm->options.order != GYRE_ORDER_FAST ? COLL_BUTTERFLY : COLL_RING;
    case COLL_REDUCE:
        return COLL_TREE;
    case COLL_BROADCAST:
        return COLL_RING;
    case COLL_ALL_GATHER: /* copy engines move as much over each link as a ring */
        return engines > 0 && bytes >= engines ? COLL_ALGO_AUTO : COLL_RING;
    default:
        return COLL_ALGO_AUTO;
    }
}

static coll_algo_t by_rule(const coll_cuda_t *c, const coll_shape_t *s, size_t longest, const char **why)
{
    enum { AUTO = 0, SHOTS, SCHEDULE }; /* as the words of GYRE_CUDA_ALGO */
    const long long setting = base_setting_int(SET_CUDA_ALGO);
    const size_t bytes = longest * gyre_type_size(s->type);
    const int wanted = setting == SCHEDULE || (setting == AUTO && c->uneven_links && !c->stream_waits);
    const coll_algo_t algo = wanted && bytes >= LARGE ? for_large(c, s, bytes) : COLL_ALGO_AUTO;
    *why = setting == SHOTS                      ? "GYRE_CUDA_ALGO=shots"
           : setting == AUTO && !c->uneven_links ? "every two GPUs are joined alike"
           : setting == AUTO && c->stream_waits  ? "ranks share GPUs, and a schedule's kernel waits"
           : bytes < LARGE                       ? "shorter than 1 MiB"
           : algo == COLL_ALGO_AUTO              ? "no schedule is chosen for this operation"
           : setting == SCHEDULE                 ? "GYRE_CUDA_ALGO=schedule"
                                                 : "GPUs are not all joined alike by NVLink";
    return algo;
}

gyre_status_t coll_cuda_choose(const coll_cuda_t *c, const coll_shape_t *s, coll_algo_t *algo,
                               const char **why)
{
    const char *unasked;
    coll_args_t args = coll_call_args(c->comm, s);
    const size_t longest = coll_cuda_longest(c, s);
    args.place = c->path == COLL_CUDA_PEERS; /* so `shared` may be named: shots are in each other's memory */
    gyre_status_t st =
        s->op == COLL_BARRIER ? GYRE_OK : coll_forced(coll_comm_algorithm(c->comm), &args, algo);
    why = why ? why : &unasked;
    *why = "GYRE_ALGO names it";
    if (st != GYRE_OK)
        return st;
    if (c->path != COLL_CUDA_PEERS || c->comm->n < 2 || longest == 0) {
        *algo = COLL_ALGO_AUTO;
        *why = "";
        return GYRE_OK;
    }
    if (c->several) { /* a schedule takes memory, which may wait for a rank that the thread calls for next */
        *algo = COLL_ALGO_AUTO;
        *why = "a process has several of the ranks";
        return GYRE_OK;
    }
    if (coll_shape_is_exact(s)) { /* one thread sees what all ranks give */
        *algo = COLL_ALGO_AUTO;
        *why = "the order is exact";
        return GYRE_OK;
    }
    if (*algo == COLL_ALGO_AUTO && c->comm->pin.op == s->op)
        *algo = (coll_algo_t)c->comm->pin.algo;
    if (*algo == COLL_ALGO_AUTO)
        *algo = by_rule(c, s, longest, why);
    else if (coll_algo_is(*algo, COLL_FLAT)) /* what shots are */
        *algo = COLL_ALGO_AUTO;
    if (*algo != COLL_ALGO_AUTO && !coll_algo_serves(*algo, s->op, &args)) {
        *algo = COLL_ALGO_AUTO;
        *why = "the schedule that is chosen does not serve this call";
    }
    return GYRE_OK;
}

#endif
