/* base/device_none.c: a build without CUDA. There are no devices, so only the first three are ever reached; the
 * others say why, should that change. */
#include "base/device_cuda.h"

#ifndef GYRE_CUDA

#include "base/error.h"

int base_cuda_count(void)
{
    return 0;
}

const char *base_cuda_why_not(void)
{
    return "this build has no CUDA (install the CUDA Toolkit 12 or newer and build with CUDA=1)";
}

int base_cuda_of(const void *ptr, int *index)
{
    (void)ptr;
    (void)index;
    return 0;
}

static gyre_status_t none(void)
{
    return gyre_fail(GYRE_ERR_UNSUPPORTED, "no CUDA device: %s", base_cuda_why_not());
}

gyre_status_t base_cuda_name(int index, char *name, size_t bytes)
{
    (void)index;
    (void)name;
    (void)bytes;
    return none();
}

gyre_status_t base_cuda_alloc(int index, size_t bytes, void **ptr)
{
    (void)index;
    (void)bytes;
    (void)ptr;
    return none();
}

gyre_status_t base_cuda_free(int index, void *ptr)
{
    (void)index;
    (void)ptr;
    return none();
}

gyre_status_t base_cuda_copy_now(void *to, const void *from, size_t bytes)
{
    (void)to;
    (void)from;
    (void)bytes;
    return none();
}

gyre_status_t base_cuda_zero_now(void *ptr, size_t bytes)
{
    (void)ptr;
    (void)bytes;
    return none();
}

gyre_status_t base_cuda_stream_create(int index, base_cuda_stream_t **stream)
{
    (void)index;
    (void)stream;
    return none();
}

gyre_status_t base_cuda_stream_destroy(base_cuda_stream_t *stream)
{
    (void)stream;
    return none();
}

gyre_status_t base_cuda_stream_copy(base_cuda_stream_t *stream, void *to, const void *from, size_t bytes)
{
    (void)stream;
    (void)to;
    (void)from;
    (void)bytes;
    return none();
}

gyre_status_t base_cuda_stream_zero(base_cuda_stream_t *stream, void *ptr, size_t bytes)
{
    (void)stream;
    (void)ptr;
    (void)bytes;
    return none();
}

gyre_status_t base_cuda_stream_wait(base_cuda_stream_t *stream)
{
    (void)stream;
    return none();
}

#endif
