/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/generate/draw.h: a token from logits. */
#ifndef PIPELINE_GENERATE_DRAW_H
#define PIPELINE_GENERATE_DRAW_H

#include <stddef.h>
#include <stdint.h>

/* Parameters of the largest model that says a text within seconds on a core, whatever a token costs. */
#define PIPE_SMALL_PARAMETERS 20000000u

typedef struct {
    double temperature; /* > 0; 0: always the likeliest token, of equals the first */
    size_t top_k;       /* only the k likeliest tokens, and those as likely as the last of them; 0: all */
    /* of these the likeliest, until their sum is so much (Holtzman et al. 2020), and those as likely as the
     * last of them; 0: all */
    double top_p;
    uint64_t seed;
} pipe_draw_t;

/* Draws from softmax(logits [vocab] / temperature). The random number is a function of seed, sequence and
 * index alone. scratch [vocab]. */
size_t pipe_draw(const pipe_draw_t *how, const float *logits, size_t vocab, uint64_t sequence, uint64_t index,
                 float *scratch);

#endif
