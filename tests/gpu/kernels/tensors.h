/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/kernels/tensors.h: tensors of random numbers on the device, in either type, and their values as
 * doubles. */
#ifndef TESTS_GPU_TENSORS_H
#define TESTS_GPU_TENSORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/gpu/products/matmul.h"
#include "tests/gpu/gpu.h"

typedef struct {
    model_cuda_type_t type;
    size_t count;
    double *value; /* what the device's elements are, exactly */
    char *device;  /* `shift` elements into an allocation, to try other alignments */
    size_t shift;
} tensor_t;

static uint64_t tensor_seed = 1;

static inline uint32_t tensor_bits(void)
{
    tensor_seed = tensor_seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(tensor_seed >> 33);
}

static inline size_t tensor_below(size_t n)
{
    return tensor_bits() % n;
}

/* In (-1, 1). */
static inline double tensor_uniform(void)
{
    return (double)tensor_bits() / 1073741824.0 - 1;
}

static inline float tensor_of_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline uint16_t tensor_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even; no NaN here */
}

static inline size_t tensor_element(const tensor_t *t)
{
    return t->type == MODEL_CUDA_BF16 ? 2 : 4;
}

/* Writes `value`, rounded to the type, to the device. */
static inline void tensor_send(tensor_t *t)
{
    void *memory = malloc(t->count * 4 + 4);
    for (size_t i = 0; i < t->count; i++) {
        float x = (float)t->value[i];
        if (t->type == MODEL_CUDA_BF16) {
            ((uint16_t *)memory)[i] = tensor_to_bf16(x);
            x = tensor_of_bf16(((uint16_t *)memory)[i]);
        } else {
            ((float *)memory)[i] = x;
        }
        t->value[i] = x;
    }
    assert_cuda(cudaMemcpy(t->device, memory, t->count * tensor_element(t), cudaMemcpyHostToDevice));
    free(memory);
}

/* Uniform in (-size, size); on the device `shift` elements into an allocation. */
static inline tensor_t tensor_random(model_cuda_type_t type, size_t count, double size, size_t shift)
{
    tensor_t t = {.type = type, .count = count, .shift = shift};
    void *memory = NULL;
    t.value = malloc((count + 1) * sizeof(double));
    for (size_t i = 0; i < count; i++)
        t.value[i] = size * tensor_uniform();
    assert_cuda(cudaMalloc(&memory, (count + shift + 1) * tensor_element(&t)));
    t.device = (char *)memory + shift * tensor_element(&t);
    tensor_send(&t);
    return t;
}

/* Reads the device into `value`. Everything enqueued is done afterwards. */
static inline void tensor_receive(tensor_t *t)
{
    void *memory = malloc(t->count * 4 + 4);
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaMemcpy(memory, t->device, t->count * tensor_element(t), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < t->count; i++)
        t->value[i] =
            t->type == MODEL_CUDA_BF16 ? tensor_of_bf16(((uint16_t *)memory)[i]) : ((float *)memory)[i];
    free(memory);
}

static inline void tensor_free(tensor_t *t)
{
    free(t->value);
    if (t->device)
        assert_cuda(cudaFree(t->device - t->shift * tensor_element(t)));
    t->value = NULL;
    t->device = NULL;
}

#endif
