/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/data.h: what data.c and wide.c share: numbers whose reductions are exact. */
#ifndef TOOLS_GYRE_PERF_DATA_H
#define TOOLS_GYRE_PERF_DATA_H

#include "tools/gyre-perf/perf.h"

/* A rank's own 64 bits of it: one multiplication, since the expected result needs n of them per element. */
uint64_t perf_rank_bits(uint64_t key, int rank);
/* Inputs of all ranks. Leaf k of rank r has the input of number r * leaves + k. */
static inline int perf_all_inputs(const perf_case_t *c)
{
    return c->n * c->leaves;
}
/* The inputs that make this rank's result: 0 .. the value - 1. */
static inline int perf_inputs(const perf_case_t *c)
{
    return coll_op_inputs(c->coll->op, perf_all_inputs(c), c->rank);
}
/* The rank's number in a float reduction of c->op over elements of `type`, and what all of them come to. */
double perf_number(const perf_case_t *c, gyre_type_t type, uint64_t key, size_t i, int rank);
double perf_reduced_number(const perf_case_t *c, gyre_type_t type, uint64_t key, size_t i);
/* v, which the type represents exactly as a normal number or zero, as its bits. */
uint64_t perf_encode(gyre_type_t type, double v);

/* Complex numbers and pairs: wide.c. word: as for perf_input_word. */
static inline int perf_is_wide(gyre_type_t type)
{
    return type == GYRE_COMPLEX64 || type == GYRE_COMPLEX128 || type >= GYRE_FLOAT32_INT32;
}
uint64_t perf_wide_input(const perf_case_t *c, uint64_t key, size_t i, int rank, int word);
uint64_t perf_wide_reduced(const perf_case_t *c, uint64_t key, size_t i, int word);

#endif
