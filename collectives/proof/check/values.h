/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/values.h: symbolic elements for the checker: expressions over contributions,
 * each stored once, so that equal expressions have equal numbers. Internal to the checker. */
#ifndef COLLECTIVES_PROOF_CHECK_VALUES_H
#define COLLECTIVES_PROOF_CHECK_VALUES_H

#include <stddef.h>
#include <stdint.h>

enum { COLL_VALUE_NONE = 0 }; /* memory that was never written */

typedef enum { COLL_VALUE_LEAF = 1, COLL_VALUE_SUM, COLL_VALUE_FINAL } coll_value_kind_t;

typedef struct {
    uint32_t a, b;   /* LEAF: rank and IN offset; SUM: left and right operand; FINAL: what was finished, 0 */
    uint32_t leaves; /* contributions in it, with repetition */
    uint8_t kind;    /* coll_value_kind_t */
    uint8_t has_final; /* it is, or contains, a finished element */
} coll_value_t;

/* All zero is a valid empty set. `failed`: memory ran out, numbers handed out since are 0. */
typedef struct {
    coll_value_t *nodes; /* [capacity]; node 0 is unused */
    uint32_t *table;     /* [table_size] open addressing */
    size_t count, capacity, table_size;
    int failed;
} coll_values_t;

uint32_t coll_value_leaf(coll_values_t *v, int rank, size_t offset);
uint32_t coll_value_final(coll_values_t *v, uint32_t of);
/* operands: [k] in order, combined in the canonical tree over k operands. */
uint32_t coll_value_reduce(coll_values_t *v, const uint32_t *operands, size_t k);
/* 1 if both are built of the same contributions, each once in both, whatever the order. ranks: how many there
 * are; seen: [ranks], any content, scratch. */
int coll_value_same_leaves(const coll_values_t *v, uint32_t x, uint32_t y, uint32_t *seen, int ranks);
/* Writes the expression as text, ranks only: "((0+1)+2)!" where ! marks FINAL; cut off with "..." if long. */
void coll_value_print(const coll_values_t *v, uint32_t x, char *text, size_t bytes);
void coll_values_free(coll_values_t *v);

#endif
