/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/plain_store.c: the plain store's callbacks. */
#include "base/error.h"
#include "model/network/stage/plain_store.h"
#include "model/kernels/real.h"

static gyre_status_t plain_acquire(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                                   const real **value)
{
    const REAL(model_plain_store_t) *plain = user;
    (void)next_first;
    (void)next_rows;
    for (size_t i = 0; i < rows; i++)
        value[i] = plain->weights + plain->params->row[first + i].offset;
    return GYRE_OK;
}

static void plain_release(void *user, size_t first, size_t rows)
{
    (void)user;
    (void)first;
    (void)rows;
}

static gyre_status_t plain_place(void *user, size_t slot, size_t first, size_t rows, real **grad)
{
    const REAL(model_plain_store_t) *plain = user;
    (void)slot;
    if (!plain->grads)
        return gyre_fail(GYRE_ERR_INVALID,
                         "this store has no memory for gradients: it serves forward passes only");
    for (size_t i = 0; i < rows; i++)
        grad[i] = plain->grads + plain->params->row[first + i].grad;
    return GYRE_OK;
}

static gyre_status_t plain_ready(void *user, size_t slot, size_t first, size_t rows)
{
    const REAL(model_plain_store_t) *plain = user;
    return plain->ready ? plain->ready(plain->user, slot, first, rows) : GYRE_OK;
}

REAL(model_store_t) REAL(model_plain_store)(REAL(model_plain_store_t) * plain)
{
    return (REAL(model_store_t)){.acquire = plain_acquire,
                                 .release = plain_release,
                                 .place = plain_place,
                                 .ready = plain_ready,
                                 .user = plain};
}
