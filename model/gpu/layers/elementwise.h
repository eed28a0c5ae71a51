/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/elementwise.h: operations element by element on the GPU: sums of leaves, gated
 * activations, rotary positions, dropout's gradient, copies of small rows. In fp32 the bits are those of the
 * .inc files of model/kernels. Launchers enqueue on `stream`. */
#ifndef MODEL_GPU_LAYERS_ELEMENTWISE_H
#define MODEL_GPU_LAYERS_ELEMENTWISE_H

#include "model/gpu/layers/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out [count] of `type` = the tree over part [leaves][count], rounded. With one leaf and bf16: a
 * conversion. */
gyre_status_t model_cuda_join(model_cuda_type_t type, void *out, const float *part, size_t leaves,
                              size_t count, struct CUstream_st *stream);

/* out [count] = alpha a + b, all of `type`; out may be a or b. */
gyre_status_t model_cuda_scale_add(model_cuda_type_t type, void *out, float alpha, const void *a,
                                   const void *b, size_t count, struct CUstream_st *stream);

/* y [rows, F] = act(gate) up; x [rows, 2 F] is gate and up side by side. */
gyre_status_t model_cuda_gated(model_cuda_type_t type, model_act_t act, void *y, const void *x, size_t rows,
                               size_t F, struct CUstream_st *stream);
/* dx [rows, 2 F] from dy [rows, F]. */
gyre_status_t model_cuda_gated_back(model_cuda_type_t type, model_act_t act, void *dx, const void *dy,
                                    const void *x, size_t rows, size_t F, struct CUstream_st *stream);

/* In place: heads 0 .. heads - 1 of each row of x [leaves][sequences][T][ld], head_dim apart, turn by their
 * position's angles (model_rope_table: turn [T][2 half], fp32), or back. */
typedef struct {
    model_cuda_type_t type;
    void *x;
    const float *turn;
    const int32_t *positions; /* device, [sequences][T]; NULL: 0 .. T - 1 */
    size_t leaves, sequences, T, ld, heads, head_dim, half;
    int interleaved, back;
} model_cuda_rope_t;
gyre_status_t model_cuda_rope(const model_cuda_rope_t *rope, struct CUstream_st *stream);

/* y = drop(x) of rows [sequences][rows][channels]; sequences of y are step_y, of x step_x elements apart. y
 * may be x. Its backward is itself. */
gyre_status_t model_cuda_drop(model_cuda_type_t type, void *y, size_t step_y, const void *x, size_t step_x,
                              size_t sequences, size_t rows, size_t channels,
                              const model_cuda_dropout_t *drop, struct CUstream_st *stream);

/* Up to MODEL_CUDA_COPIES rows of floats, each from one place to another, or the sum of several, in one
 * launch. */
enum { MODEL_CUDA_COPIES = 8 };
typedef struct {
    float *to[MODEL_CUDA_COPIES];
    const float *from[MODEL_CUDA_COPIES];
    size_t rows, count; /* how many, and elements of each */
    size_t terms, step; /* so many that lie `step` elements apart are added one after another; 0: 1 */
} model_cuda_copies_t;
gyre_status_t model_cuda_copy_rows(const model_cuda_copies_t *copies, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
