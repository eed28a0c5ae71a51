/* model/cuda/group.h: collectives of a tensor-parallel group on device memory, in the place that they have in a stream's work. */
#ifndef MODEL_CUDA_GROUP_H
#define MODEL_CUDA_GROUP_H

#include <gyre/gyre.h>

struct CUstream_st;

typedef struct model_cuda_group model_cuda_group_t;

/* For operands of up to `bytes`, results included where they are apart. `comm` outlives it. NO_MEMORY. */
gyre_status_t model_cuda_group_create(gyre_comm_t *comm, size_t bytes, struct CUstream_st *stream,
                                      model_cuda_group_t **out);
/* Nothing of it may be under way. NULL is allowed. */
void model_cuda_group_destroy(model_cuda_group_t *group);

/* gyre_all_reduce in place, gyre_reduce_scatter and gyre_all_gather (gyre/collectives.h) of device memory. */
gyre_status_t model_cuda_all_reduce(model_cuda_group_t *group, void *x, size_t count, gyre_type_t type,
                                    gyre_redop_t op);
gyre_status_t model_cuda_reduce_scatter(model_cuda_group_t *group, const void *send, void *recv, size_t count,
                                        gyre_type_t type, gyre_redop_t op);
gyre_status_t model_cuda_all_gather(model_cuda_group_t *group, const void *send, void *recv, size_t count,
                                    gyre_type_t type);

#endif
