/* SPDX-License-Identifier: Apache-2.0 */
/* base/defined.h: the operations and types that the program has defined (gyre_op_create, gyre_type_create),
 * by number. Looking one up takes no lock. */
#ifndef BASE_DEFINED_H
#define BASE_DEFINED_H

#include <gyre/types.h>

enum { BASE_DEFINED_MOST = 127 }; /* of each, below GYRE_REDOP_NONE and GYRE_TYPE_NONE */

typedef struct {
    gyre_op_function_t function; /* NULL: not defined */
    gyre_op_guard_t guard;       /* NULL: the function is called as it is */
    void *user;
    int commutes;
} base_redop_t;

static inline gyre_status_t base_redop_call(const base_redop_t *redop, const void *left, void *right,
                                            size_t count, gyre_type_t type)
{
    return redop->guard ? redop->guard(redop->function, left, right, count, type, redop->user)
                        : redop->function(left, right, count, type, redop->user);
}

/* NO_MEMORY: all numbers are taken. */
gyre_status_t base_redop_define(const base_redop_t *redop, gyre_redop_kind_t *kind);
/* INVALID: it is not defined, or it is held. */
gyre_status_t base_redop_end(gyre_redop_kind_t kind);
base_redop_t base_redop_find(gyre_redop_kind_t kind);
/* While a call under way, a plan or buckets use it. No other kind is held: nothing happens. */
void base_redop_hold(gyre_redop_kind_t kind);
void base_redop_release(gyre_redop_kind_t kind);

gyre_status_t base_type_define(size_t bytes, gyre_type_t *type);
/* INVALID as above. */
gyre_status_t base_type_end(gyre_type_t type);
/* While a plan or buckets use it, as above. */
void base_type_hold(gyre_type_t type);
void base_type_release(gyre_type_t type);
/* 0: not defined. */
size_t base_type_bytes(gyre_type_t type);

/* types.c: the types that all programs have. */
typedef struct {
    size_t bytes;
    const char *name;
} base_type_t;
extern const base_type_t base_types[GYRE_TYPE_COUNT];
/* gyre_type_size, which as an exported function is called through a table, for every small call. */
static inline size_t base_type_size(gyre_type_t type)
{
    /* Through unsigned: a caller in another language may pass anything, negative numbers included. */
    return (unsigned)type < GYRE_TYPE_COUNT ? base_types[type].bytes : base_type_bytes(type);
}

#endif
