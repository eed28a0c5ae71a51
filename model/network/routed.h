/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/routed.h: statistics of a mixture of experts. */
#ifndef MODEL_NETWORK_ROUTED_H
#define MODEL_NETWORK_ROUTED_H

#include <stddef.h>

/* A layer router's result for a sequence. */
typedef struct {
    double balance; /* its balance loss, times config.balance */
    double z;       /* its z-loss, times config.router_z */
    size_t dropped; /* choices, of T top_k, that found their expert full */
} model_routed_t;

enum { MODEL_CHOICES = 16 }; /* experts of a position, at most */

#endif
