/* model/network/stage/plain_store.h: the simplest store of a stage (model/network/stage/stage.h): all weights in one flat buffer, one flat buffer of
 * gradients for whatever sequence is in work. For one process, tests and sampling; training brings stores of its own. */
#ifndef MODEL_NETWORK_STAGE_PLAIN_STORE_H
#define MODEL_NETWORK_STAGE_PLAIN_STORE_H

#include "model/network/stage/stage.h"

/* All fields are the caller's and outlive the stage. */
typedef struct {
    const model_params_t *params;
    const float *weights; /* [params->total] */
    float *grads;         /* [params->grad_total]; NULL: backward is INVALID */
    model_rows_fn ready;  /* NULL: nobody listens */
    void *user;           /* of ready */
} model_plain_store_t_f32;

typedef struct {
    const model_params_t *params;
    const double *weights;
    double *grads;
    model_rows_fn ready;
    void *user;
} model_plain_store_t_f64;

/* What a stage is created with; `plain` outlives it. */
model_store_t_f32 model_plain_store_f32(model_plain_store_t_f32 *plain);
model_store_t_f64 model_plain_store_f64(model_plain_store_t_f64 *plain);

#endif
