/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/experts.h: a mixture of experts on the GPU, between its products: choices, slots, rows on
 * their way to experts and back, and backward of all that (model/network/stage/moe.inc,
 * model/kernels/moe.inc).
 *
 * Each expert has `cap` slots for each sequence. Positions get slots in their order; later ones are dropped.
 * All shapes are thus fixed before a run, and nothing waits to learn how many rows an expert got. Free slots
 * hold zeros, and experts map zeros to zeros.
 *
 * Shapes: n sequences of T positions, C channels, E experts, of which e from `first` on are here, k choices
 * of a position. Slots here: [e][n][cap], so an expert's slots of all sequences are the rows of one matrix. S
 * is float or bfloat16; sums, probabilities and shares are float. Every rank of a tensor-parallel group
 * routes all positions alike.
 *
 * No atomics: every sum has one order, that of model/kernels/moe.inc unless said otherwise. Launchers enqueue
 * on `stream`. */
#ifndef MODEL_GPU_LAYERS_EXPERTS_H
#define MODEL_GPU_LAYERS_EXPERTS_H

#include <stdint.h>

#include "model/gpu/products/matmul.h"
#include "model/network/routed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A layer router's decisions; all on the device. */
typedef struct {
    size_t sequences, T, experts, top_k, cap; /* n, T, E, k up to MODEL_CHOICES */
    size_t first, here;                       /* experts of this rank: first .. first + here - 1 */
    size_t leaf_experts;                      /* of a leaf of the sum over experts */
    float *prob;                              /* [n][T,E] */
    float *share;                             /* [n][T,k] weights of the choices */
    /* [n][T,k] experts, the most probable first; of equals the one with the lower number */
    int32_t *choice;
    int32_t *place;  /* [n][T,k] among the expert's slots of the sequence; -1: dropped */
    int32_t *owner;  /* [e][n][cap] choice t k + i that has the slot; -1: it is free */
    int32_t *chosen; /* [n][E] number of choices of the expert */
    float *mass;     /* [n][E] sum over positions of prob */
} model_cuda_routing_t;

/* prob holds logits and becomes probabilities; writes choice and share. The bits are the host's. */
gyre_status_t model_cuda_route(const model_cuda_routing_t *r, struct CUstream_st *stream);
/* place, owner, chosen, mass of prob and choice. mass is added up by 256 threads, thread i from position i on
 * in steps of 256, and these in a tree. */
gyre_status_t model_cuda_assign(const model_cuda_routing_t *r, struct CUstream_st *stream);
/* slots S [e][n][cap,C]: the row of x S [n][T,C] that each has got; zeros in free ones. */
gyre_status_t model_cuda_fill_slots(model_cuda_type_t type, const model_cuda_routing_t *r, size_t channels,
                                    void *slots, const void *x, struct CUstream_st *stream);
/* sum [n][T,C] = for each position the sum of its slots' rows here, times their shares if `weighted`, in the
 * tree over leaves in which an expert that was not chosen counts +0. */
gyre_status_t model_cuda_join_slots(model_cuda_type_t type, const model_cuda_routing_t *r, size_t channels,
                                    float *sum, const void *slots, int weighted, struct CUstream_st *stream);
/* Backward of the weighted sum, from dy S [n][T,C]: d_slots S = dy's rows times their shares, zeros in free
 * slots; d_share [n][T,k] = dy's row times that of `slots` where the slot is here; the rest of it is left
 * as it is (0: sums over ranks complete it). */
gyre_status_t model_cuda_slots_back(model_cuda_type_t type, const model_cuda_routing_t *r, size_t channels,
                                    void *d_slots, float *d_share, const void *slots, const void *dy,
                                    struct CUstream_st *stream);
/* Gradients of the router's logits are floats that meet products with S: each is MODEL_CUDA_PARTS(type)
 * numbers of S that add up to it, [n][T][parts][E]. Of bfloat16's 8 bits three make a float's 24. */
#define MODEL_CUDA_PARTS(type) ((type) == MODEL_CUDA_BF16 ? (size_t)3 : (size_t)1)

/* d_logits S [n][T][parts][E] from d_share [n][T,k], and from the balance loss: `balance` is its weight times
 * E times the loss scale, 0: none. */
gyre_status_t model_cuda_route_back(model_cuda_type_t type, const model_cuda_routing_t *r, double balance,
                                    void *d_logits, const float *d_share, struct CUstream_st *stream);
/* out S [n][rows,C] = sum [n][rows,C] + d_logits W^T, W S [C,E]; rows begin .. begin + rows - 1 of each
 * sequence of d_logits. Experts are added one after the other. */
gyre_status_t model_cuda_router_input(model_cuda_type_t type, const model_cuda_routing_t *r, size_t channels,
                                      size_t rows, size_t begin, void *out, const float *sum,
                                      const void *d_logits, const void *w, struct CUstream_st *stream);
/* routed [n][layers] of chosen and mass [layers][stride][E], of which the first n are read; `balance` is
 * the loss's weight. */
gyre_status_t model_cuda_routed(model_routed_t *routed, const int32_t *chosen, const float *mass,
                                size_t layers, size_t stride, size_t sequences, size_t T, size_t experts,
                                size_t cap, double balance, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
