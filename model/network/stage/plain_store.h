/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/plain_store.h: the simplest store of a stage (model/network/stage/stage.h): all weights
 * in one flat buffer, one flat buffer of gradients for the present sequence. For one process, tests and
 * sampling; training has stores of its own. */
#ifndef MODEL_NETWORK_STAGE_PLAIN_STORE_H
#define MODEL_NETWORK_STAGE_PLAIN_STORE_H

#include "model/network/stage/stage.h"

#include "model/kernels/real.h"
#include "model/network/stage/plain_store_api.inc"
#undef real
#undef real_bits_t
#undef REAL
#undef REAL_TYPE

#endif
