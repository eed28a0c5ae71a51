/* model/cuda/host_store.c: weights to the device, gradients to the host, unit by unit. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/cuda/host_store.h"

struct model_cuda_host_store {
    const model_params_t *params;
    model_store_t_f32 host;
    model_cuda_store_t store;
    base_device_t device;
    base_stream_t *stream;
    int half;             /* weights of 16 bits */
    size_t size;          /* bytes of a weight on the device */
    char *weights;        /* device, [params->total] */
    float *grads;         /* device, [the largest unit] */
    char *pinned;         /* host, [the largest unit] floats: what travels either way */
    base_event_t *sent;   /* the last weights have left `pinned` */
    unsigned char *there; /* [rows] 1: weights are on the device */
};

/* Elements of the gradients of rows first .. first + rows - 1. */
static size_t extent(const model_params_t *params, size_t first, size_t rows)
{
    size_t sum = 0;
    for (size_t r = first; r < first + rows; r++)
        sum += params->row[r].count;
    return sum;
}

/* bfloat16 of a value that has no more bits than that. */
static void shorten(uint16_t *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (uint16_t)(bits >> 16);
    }
}

static gyre_status_t send_row(model_cuda_host_store_t *s, size_t r, const float *value)
{
    const model_param_t *row = &s->params->row[r];
    gyre_status_t status = base_event_wait(s->sent);
    if (status != GYRE_OK)
        return status;
    if (s->half)
        shorten((uint16_t *)(void *)s->pinned, value, row->count);
    else
        memcpy(s->pinned, value, row->count * sizeof *value);
    status = base_stream_copy(s->stream, s->weights + row->offset * s->size, s->pinned, row->count * s->size);
    if (status == GYRE_OK)
        status = base_event_record(s->sent, s->stream);
    s->there[r] = status == GYRE_OK;
    return status;
}

static gyre_status_t acquire(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                             const void **value)
{
    model_cuda_host_store_t *s = user;
    const float *host[MODEL_KINDS] = {0};
    gyre_status_t status = s->host.acquire(s->host.user, first, rows, next_first, next_rows, host);
    if (status != GYRE_OK)
        return status;
    for (size_t i = 0; status == GYRE_OK && i < rows; i++) {
        if (!s->there[first + i])
            status = send_row(s, first + i, host[i]);
        value[i] = s->weights + s->params->row[first + i].offset * s->size;
    }
    if (status != GYRE_OK)
        s->host.release(s->host.user, first, rows);
    return status;
}

static void release(void *user, size_t first, size_t rows)
{
    model_cuda_host_store_t *s = user;
    s->host.release(s->host.user, first, rows);
}

/* The host is asked when the gradients are there: one unit and sequence at a time. */
static gyre_status_t place(void *user, size_t slot, size_t first, size_t rows, float **grad)
{
    model_cuda_host_store_t *s = user;
    (void)slot;
    for (size_t i = 0; i < rows; i++)
        grad[i] = s->grads + extent(s->params, first, i);
    return GYRE_OK;
}

static gyre_status_t ready(void *user, size_t slot, size_t first, size_t rows)
{
    model_cuda_host_store_t *s = user;
    float *to[MODEL_KINDS] = {0};
    const float *from = (const float *)(const void *)s->pinned;
    size_t count = extent(s->params, first, rows);
    gyre_status_t status = base_stream_copy(s->stream, s->pinned, s->grads, count * sizeof *from);
    if (status == GYRE_OK)
        status = base_stream_wait(s->stream);
    if (status == GYRE_OK)
        status = s->host.place(s->host.user, slot, first, rows, to);
    for (size_t i = 0; status == GYRE_OK && i < rows; i++)
        memcpy(to[i], from + extent(s->params, first, i), s->params->row[first + i].count * sizeof *from);
    return status == GYRE_OK && s->host.ready ? s->host.ready(s->host.user, slot, first, rows) : status;
}

/* Elements of the largest unit: rows of one layer stand together. */
static size_t largest_unit(const model_params_t *params)
{
    size_t largest = 1, now = 0;
    for (size_t r = 0; r < params->rows; r++) {
        now = (r > 0 && params->row[r].layer == params->row[r - 1].layer ? now : 0) + params->row[r].count;
        largest = base_max_size(largest, now);
    }
    return largest;
}

gyre_status_t model_cuda_host_store_create(const model_params_t *params, const model_store_t_f32 *host,
                                           model_precision_t precision, base_device_t device,
                                           base_stream_t *stream, model_cuda_host_store_t **out)
{
    size_t unit = largest_unit(params) * sizeof(float);
    void *weights = NULL, *grads = NULL, *pinned = NULL;
    model_cuda_host_store_t *s = calloc(1, sizeof *s);
    unsigned char *there = calloc(params->rows + 1, 1);
    if (!s || !there) {
        free(s);
        free(there);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a store of %zu rows", params->rows);
    }
    *s = (model_cuda_host_store_t){.params = params,
                                   .host = *host,
                                   .device = device,
                                   .stream = stream,
                                   .half = precision != MODEL_FLOAT32,
                                   .size = precision != MODEL_FLOAT32 ? sizeof(uint16_t) : sizeof(float),
                                   .there = there};
    s->store = (model_cuda_store_t){
        .acquire = acquire, .release = release, .place = place, .ready = ready, .user = s};
    gyre_status_t status = base_device_alloc(device, params->total * s->size, &weights);
    s->weights = weights;
    if (status == GYRE_OK && (status = base_device_alloc(device, unit, &grads)) == GYRE_OK)
        s->grads = grads;
    if (status == GYRE_OK && (status = base_pinned_alloc(device, unit, &pinned)) == GYRE_OK)
        s->pinned = pinned;
    if (status == GYRE_OK)
        status = base_event_create(device, 0, &s->sent);
    if (status != GYRE_OK) {
        model_cuda_host_store_destroy(s);
        return status;
    }
    *out = s;
    return GYRE_OK;
}

void model_cuda_host_store_destroy(model_cuda_host_store_t *s)
{
    if (!s)
        return;
    if (s->sent)
        base_event_destroy(s->sent);
    if (s->pinned)
        base_pinned_free(s->device, s->pinned);
    if (s->grads)
        base_device_free(s->device, s->grads);
    if (s->weights)
        base_device_free(s->device, s->weights);
    free(s->there);
    free(s);
}

const model_cuda_store_t *model_cuda_host_store(model_cuda_host_store_t *s)
{
    return &s->store;
}

void model_cuda_host_store_forget(model_cuda_host_store_t *s)
{
    memset(s->there, 0, s->params->rows);
}

size_t model_cuda_host_store_bytes(const model_cuda_host_store_t *s)
{
    return s->params->total * s->size + largest_unit(s->params) * sizeof(float);
}
