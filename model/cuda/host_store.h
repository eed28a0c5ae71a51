/* model/cuda/host_store.h: a store of the host (model_store_t_f32: optim/zero on the CPU) behind the interface of a stage on the GPU.
 *
 * Weights are copied to the device when they are acquired for the first time since model_cuda_host_store_forget, in the stage's
 * storage, and stay there: every pass still acquires them on the host, where that is what gathers them (ZeRO-3). The gradients of a unit
 * and sequence are copied to the host when they are ready, which waits for the stream: the price of an optimiser that is not on the
 * device. */
#ifndef MODEL_CUDA_HOST_STORE_H
#define MODEL_CUDA_HOST_STORE_H

#include "base/device.h"
#include "model/cuda/store.h"

typedef struct model_cuda_host_store model_cuda_host_store_t;

/* `params` is the table that `host` was made for; both and `stream`, on which the stages work, outlive it. NO_MEMORY. */
gyre_status_t model_cuda_host_store_create(const model_params_t *params, const model_store_t_f32 *host,
                                           model_precision_t precision, base_device_t device,
                                           base_stream_t *stream, model_cuda_host_store_t **out);
/* Nothing enqueued may still use it. NULL is allowed. */
void model_cuda_host_store_destroy(model_cuda_host_store_t *store);
/* What stages are created with; valid as long as `store`. */
const model_cuda_store_t *model_cuda_host_store(model_cuda_host_store_t *store);
/* The host's weights have changed, or are about to. */
void model_cuda_host_store_forget(model_cuda_host_store_t *store);
/* Bytes of device memory. */
size_t model_cuda_host_store_bytes(const model_cuda_host_store_t *store);

#endif
