/* SPDX-License-Identifier: Apache-2.0 */
/* base/defined.c: see the header. A number is the lowest free one: ranks that define alike number alike. */
#include "base/defined.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"

typedef struct {
    /* NULL: free. Release/acquire: who sees it sees the rest. */
    _Atomic(gyre_op_function_t) function;
    gyre_op_guard_t guard;
    void *user;
    int commutes;
    _Atomic uint32_t held;
} slot_t;

typedef struct {
    _Atomic size_t bytes; /* 0: free */
    _Atomic uint32_t held;
} type_slot_t;

static struct {
    pthread_mutex_t lock; /* of defining and ending */
    slot_t redops[BASE_DEFINED_MOST];
    type_slot_t types[BASE_DEFINED_MOST];
} defined = {.lock = PTHREAD_MUTEX_INITIALIZER};

static slot_t *slot_of(gyre_redop_kind_t kind)
{
    const unsigned number = (unsigned)kind - GYRE_REDOP_USER;
    return number < BASE_DEFINED_MOST ? &defined.redops[number] : NULL;
}

gyre_status_t base_redop_define(const base_redop_t *redop, gyre_redop_kind_t *kind)
{
    int number = 0;
    pthread_mutex_lock(&defined.lock);
    while (number < BASE_DEFINED_MOST && atomic_load(&defined.redops[number].function))
        number++;
    if (number < BASE_DEFINED_MOST) {
        slot_t *slot = &defined.redops[number];
        slot->guard = redop->guard;
        slot->user = redop->user;
        slot->commutes = redop->commutes;
        atomic_store_explicit(&slot->function, redop->function, memory_order_release);
        *kind = (gyre_redop_kind_t)(GYRE_REDOP_USER + number);
    }
    pthread_mutex_unlock(&defined.lock);
    if (number < BASE_DEFINED_MOST)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_op_create: there are %d operations already", number);
}

gyre_status_t base_redop_end(gyre_redop_kind_t kind)
{
    slot_t *slot = slot_of(kind);
    uint32_t held = 0;
    int known = 0;
    pthread_mutex_lock(&defined.lock);
    if (slot && atomic_load(&slot->function)) {
        known = 1;
        held = atomic_load(&slot->held);
        if (!held)
            atomic_store(&slot->function, NULL);
    }
    pthread_mutex_unlock(&defined.lock);
    if (!known)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_op_free: %d is not an operation of gyre_op_create",
                         (int)kind);
    if (held)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_op_free: %u calls, plans or buckets that use %s have not ended", held,
                         gyre_redop_name(kind));
    return GYRE_OK;
}

base_redop_t base_redop_find(gyre_redop_kind_t kind)
{
    const slot_t *slot = slot_of(kind);
    base_redop_t redop = {0};
    if (slot && (redop.function = atomic_load_explicit(&slot->function, memory_order_acquire))) {
        redop.guard = slot->guard;
        redop.user = slot->user;
        redop.commutes = slot->commutes;
    }
    return redop;
}

void base_redop_hold(gyre_redop_kind_t kind)
{
    slot_t *slot = slot_of(kind);
    if (slot)
        atomic_fetch_add(&slot->held, 1);
}

void base_redop_release(gyre_redop_kind_t kind)
{
    slot_t *slot = slot_of(kind);
    if (slot)
        atomic_fetch_sub(&slot->held, 1);
}

gyre_status_t base_type_define(size_t bytes, gyre_type_t *type)
{
    int number = 0;
    pthread_mutex_lock(&defined.lock);
    while (number < BASE_DEFINED_MOST && atomic_load(&defined.types[number].bytes))
        number++;
    if (number < BASE_DEFINED_MOST) {
        atomic_store(&defined.types[number].bytes, bytes);
        *type = (gyre_type_t)(GYRE_TYPE_USER + number);
    }
    pthread_mutex_unlock(&defined.lock);
    if (number < BASE_DEFINED_MOST)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_NO_MEMORY, "gyre_type_create: there are %d types already", number);
}

static type_slot_t *type_slot_of(gyre_type_t type)
{
    const unsigned number = (unsigned)type - GYRE_TYPE_USER;
    return number < BASE_DEFINED_MOST ? &defined.types[number] : NULL;
}

gyre_status_t base_type_end(gyre_type_t type)
{
    type_slot_t *slot = type_slot_of(type);
    uint32_t held = 0;
    int known = 0;
    pthread_mutex_lock(&defined.lock);
    if (slot && atomic_load(&slot->bytes)) {
        known = 1;
        held = atomic_load(&slot->held);
        if (!held)
            atomic_store(&slot->bytes, 0);
    }
    pthread_mutex_unlock(&defined.lock);
    if (!known)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_type_free: %d is not a type of gyre_type_create", (int)type);
    if (held)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_type_free: %u plans or buckets of %s were not freed", held,
                         gyre_type_name(type));
    return GYRE_OK;
}

void base_type_hold(gyre_type_t type)
{
    type_slot_t *slot = type_slot_of(type);
    if (slot)
        atomic_fetch_add(&slot->held, 1);
}

void base_type_release(gyre_type_t type)
{
    type_slot_t *slot = type_slot_of(type);
    if (slot)
        atomic_fetch_sub(&slot->held, 1);
}

size_t base_type_bytes(gyre_type_t type)
{
    const type_slot_t *slot = type_slot_of(type);
    return slot ? atomic_load_explicit(&slot->bytes, memory_order_relaxed) : 0;
}
