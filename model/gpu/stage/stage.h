/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/stage.h: a run of layers of the decoder on one GPU, forward and backward:
 * model/network/stage/stage.h for the device.
 *
 * The sequences of a micro-batch (config.together) go through together: their positions are the rows of one
 * matrix. Everything is enqueued on one stream, also collectives of the tensor-parallel group (gyre/cuda.h).
 * Calls wait only before they overwrite host memory that the GPU may still read (the tokens of a slot that is
 * used again, which the GPU has read long since). Nothing is allocated after the first pass, except graphs
 * (config.graphs), which are made in the second pass and for new pointers.
 *
 * Bits do not depend on the layout, as on the CPU (model/network/stage/stage.h):
 *  - Sums that tensor parallelism cuts have config.leaves leaves, one product each of a strided batch,
 *    joined in the tree of docs/contract.md.
 *  - Sums over positions have the pieces of model/gpu/layers/norm.h.
 *  - The gradient of a weight is one product per sequence, or over all positions of config.grad_sequences of
 *    them; or the tree over the products of up to 8 pieces of these positions, whose number the shape and
 *    config.leaves decide. The store makes the tree over gradients.
 *  - With Gyre's own kernels (model/gpu/products/matmul.h) a row of a product has the same bits for any
 *    micro-batch. cuBLASLt may choose another order for another number of rows: the bits then depend on the
 *    size of the micro-batch.
 *
 * Experts: as on the CPU, but with sequence parallelism positions are gathered before them, too, and not sent
 * (experts.c). In model_traffic_t all_gather and reduce_scatter count these, sums counts the gradients of the
 * choices' weights, and all_to_all is 0.
 *
 * Storage is float or bfloat16; fp16 is refused. Attention never stores its weights
 * (model/gpu/attention/attention.h), so selective recomputation is the same as no recomputation. */
#ifndef MODEL_GPU_STAGE_STAGE_H
#define MODEL_GPU_STAGE_STAGE_H

#include "model/gpu/graphs.h"
#include "model/gpu/stage/store.h"
#include "model/network/stage/stage.h"

struct CUstream_st; /* cudaStream_t is a pointer to it */

typedef struct model_cuda_stage model_cuda_stage_t;

/* Creates a stage on the current device, which must stay current for every call. `params` as on the CPU; both
 * it and `stream` outlive the stage. NO_MEMORY, UNSUPPORTED (a feature), INVALID (with what to do). */
gyre_status_t model_cuda_stage_create(const model_params_t *params, const model_tp_t *tp,
                                      const model_stage_config_t *config, const model_cuda_store_t *store,
                                      struct CUstream_st *stream, model_cuda_stage_t **out);
/* Waits for the stream. NULL is allowed. */
void model_cuda_stage_destroy(model_cuda_stage_t *stage);

/* GYRE_FLOAT32 or GYRE_BFLOAT16: the type of the tensors between stages. */
gyre_type_t model_cuda_stage_type(const model_cuda_stage_t *stage);
/* Elements of the tensor between stages, for one sequence: [T, C], or [T / size, C] with sequence
 * parallelism. */
size_t model_cuda_stage_boundary(const model_cuda_stage_t *stage);
/* Bytes of device memory: activations of all slots; workspace that slots share. */
size_t model_cuda_stage_bytes(const model_cuda_stage_t *stage, size_t *workspace);
/* What model_cuda_stage_bytes and model_cuda_stage_boundary of such a stage would say, of any tp.comm. Needs
 * no device. UNSUPPORTED, INVALID (as above), NO_MEMORY, OVERFLOW. */
gyre_status_t model_cuda_stage_plan(const model_config_t *model, const model_tp_t *tp,
                                    const model_stage_config_t *config, size_t *kept, size_t *workspace,
                                    size_t *boundary);
void model_cuda_stage_traffic(const model_cuda_stage_t *stage, model_traffic_t *out);
/* Of config.graphs. */
void model_cuda_stage_graphs(const model_cuda_stage_t *stage, model_cuda_graphs_count_t *out);

/* The calls of model_stage_*_batch. A micro-batch of config.together sequences is one call, and slots belong
 * together: `slot` and the following slots up to the next multiple of `together` belong to one call. x_in,
 * x_out, d_out, d_in: device memory of the stage's type. loss [n]: device or pinned memory that the stream
 * writes. Collective over the tensor-parallel group. */
gyre_status_t model_cuda_stage_forward(model_cuda_stage_t *stage, size_t slot, size_t n,
                                       const model_sequence_t *sequence, const void *x_in, void *x_out,
                                       double *loss);
gyre_status_t model_cuda_stage_backward(model_cuda_stage_t *stage, size_t slot, size_t n, float scale,
                                        const void *d_out, void *d_in);
gyre_status_t model_cuda_stage_backward_weight(model_cuda_stage_t *stage, size_t slot, size_t n);

/* For a model with experts: out [n][config.layers] = the statistics of the choices of the n sequences in
 * `slot`, after their forward; the same on all ranks of the group. Device or pinned memory that the stream
 * writes. */
gyre_status_t model_cuda_stage_routed(model_cuda_stage_t *stage, size_t slot, size_t n, model_routed_t *out);

/* Logits of positions first .. first + count - 1 of one sequence: [count, V] floats on every rank of the
 * group, in device or pinned memory, written by the stream. Only with head. Uses slot 0. */
gyre_status_t model_cuda_stage_logits(model_cuda_stage_t *stage, const model_sequence_t *sequence,
                                      const void *x_in, size_t first, size_t count, float *logits);

#endif
