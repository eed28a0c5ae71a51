/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/chain.c: which positions have the same token, for the embedding's gradient
 * (model/gpu/layers/vocabulary.h). */
#include "model/gpu/layers/vocabulary.h"

void model_cuda_chain(int32_t *chain, const int32_t *tokens, size_t T, int32_t *last)
{
    for (size_t t = T; t-- > 0;) {
        chain[t] = last[tokens[t]] + 1;
        last[tokens[t]] = (int32_t)t;
    }
    for (size_t t = 0; t < T; t++)
        if (last[tokens[t]] != (int32_t)t)
            chain[t] = -1 - chain[t];
        else
            last[tokens[t]] = -2 - last[tokens[t]]; /* met: no other position is the first */
    for (size_t t = 0; t < T; t++)
        last[tokens[t]] = -1;
}
