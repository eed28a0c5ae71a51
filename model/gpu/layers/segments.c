/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/layers/segments.c: the positions of each token side by side, for the embedding's gradient
 * (model/gpu/layers/vocabulary.h). */
#include "model/gpu/layers/vocabulary.h"

void model_cuda_segments(int32_t *segments, const int32_t *tokens, size_t T, int32_t *last)
{
    int32_t used = 0;
    for (size_t t = 0; t < T; t++)
        last[tokens[t]]--; /* -1 - how many there are */
    for (size_t t = 0; t < T; t++) {
        int32_t *place = &last[tokens[t]];
        if (*place < 0) {
            int32_t count = -1 - *place;
            segments[used] = -1 - (int32_t)t;
            *place = used + 1; /* of the token's next position */
            used += count;
        } else {
            segments[(*place)++] = (int32_t)t;
        }
    }
    for (size_t t = 0; t < T; t++)
        last[tokens[t]] = -1;
}
