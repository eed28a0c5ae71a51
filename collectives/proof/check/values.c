/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/values.c: hash-consed expressions (see the header). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/schedules/canonical.h"
#include "collectives/proof/check/values.h"

static size_t slot_of(const coll_values_t *v, const coll_value_t *x)
{
    uint64_t h = ((uint64_t)x->a << 32 | x->b) * 0x9e3779b97f4a7c15u + x->kind;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return (size_t)(h ^ h >> 32) & (v->table_size - 1);
}

static int grow(coll_values_t *v)
{
    size_t capacity = v->capacity ? 2 * v->capacity : 1024;
    coll_value_t *nodes = realloc(v->nodes, capacity * sizeof *nodes);
    if (nodes)
        v->nodes = nodes;
    uint32_t *table = nodes && capacity < UINT32_MAX / 2 ? calloc(2 * capacity, sizeof *table) : NULL;
    if (!table)
        return 0;
    free(v->table);
    v->table = table;
    v->table_size = 2 * capacity;
    v->capacity = capacity;
    if (v->count == 0)
        v->nodes[v->count++] = (coll_value_t){0};
    for (size_t i = 1; i < v->count; i++) {
        size_t at = slot_of(v, &v->nodes[i]);
        while (table[at])
            at = (at + 1) & (v->table_size - 1);
        table[at] = (uint32_t)i;
    }
    return 1;
}

static uint32_t intern(coll_values_t *v, coll_value_t x)
{
    if (v->failed || (v->count >= v->capacity && !grow(v))) {
        v->failed = 1;
        return COLL_VALUE_NONE;
    }
    size_t at = slot_of(v, &x);
    for (; v->table[at]; at = (at + 1) & (v->table_size - 1)) {
        const coll_value_t *y = &v->nodes[v->table[at]];
        if (y->a == x.a && y->b == x.b && y->kind == x.kind)
            return v->table[at];
    }
    v->nodes[v->count] = x;
    v->table[at] = (uint32_t)v->count;
    return (uint32_t)v->count++;
}

uint32_t coll_value_leaf(coll_values_t *v, int rank, size_t offset)
{
    return intern(
        v, (coll_value_t){.kind = COLL_VALUE_LEAF, .a = (uint32_t)rank, .b = (uint32_t)offset, .leaves = 1});
}

static uint32_t coll_value_sum(coll_values_t *v, uint32_t left, uint32_t right)
{
    if (v->failed)
        return COLL_VALUE_NONE;
    const coll_value_t *l = &v->nodes[left], *r = &v->nodes[right];
    uint32_t leaves = l->leaves + r->leaves < l->leaves ? UINT32_MAX : l->leaves + r->leaves;
    return intern(v, (coll_value_t){.kind = COLL_VALUE_SUM,
                                    .a = left,
                                    .b = right,
                                    .leaves = leaves,
                                    .has_final = l->has_final | r->has_final});
}

uint32_t coll_value_final(coll_values_t *v, uint32_t of)
{
    if (v->failed)
        return COLL_VALUE_NONE;
    return intern(
        v, (coll_value_t){.kind = COLL_VALUE_FINAL, .a = of, .leaves = v->nodes[of].leaves, .has_final = 1});
}

uint32_t coll_value_reduce(coll_values_t *v, const uint32_t *operands, size_t k)
{
    if (k == 1)
        return operands[0];
    size_t left = (size_t)coll_power_below((int)k - 1);
    uint32_t l = coll_value_reduce(v, operands, left);
    return coll_value_sum(v, l, coll_value_reduce(v, operands + left, k - left));
}

/* Records in seen[rank] the IN offset (+ 1) that x takes of each rank; 0 if it takes a rank twice. The right
 * operand is walked in the loop, so that a chain to the right costs no stack. */
static int collect(const coll_values_t *v, uint32_t x, uint32_t *seen, int ranks)
{
    while (v->nodes[x].kind == COLL_VALUE_SUM) {
        if (!collect(v, v->nodes[x].a, seen, ranks))
            return 0;
        x = v->nodes[x].b;
    }
    const coll_value_t *leaf = &v->nodes[x];
    if (leaf->kind != COLL_VALUE_LEAF || leaf->a >= (uint32_t)ranks || seen[leaf->a])
        return 0;
    seen[leaf->a] = leaf->b + 1;
    return 1;
}

/* Takes from seen what y takes; 0 unless it was there. */
static int strike(const coll_values_t *v, uint32_t y, uint32_t *seen)
{
    while (v->nodes[y].kind == COLL_VALUE_SUM) {
        if (!strike(v, v->nodes[y].a, seen))
            return 0;
        y = v->nodes[y].b;
    }
    const coll_value_t *leaf = &v->nodes[y];
    if (leaf->kind != COLL_VALUE_LEAF || seen[leaf->a] != leaf->b + 1)
        return 0;
    seen[leaf->a] = 0;
    return 1;
}

int coll_value_same_leaves(const coll_values_t *v, uint32_t x, uint32_t y, uint32_t *seen, int ranks)
{
    if (x == y)
        return 1;
    if (v->nodes[x].kind == COLL_VALUE_FINAL && v->nodes[y].kind == COLL_VALUE_FINAL) {
        x = v->nodes[x].a;
        y = v->nodes[y].a;
    }
    if (v->nodes[x].leaves != v->nodes[y].leaves || v->nodes[x].leaves > (uint32_t)ranks)
        return 0;
    memset(seen, 0, (size_t)ranks * sizeof *seen);
    return collect(v, x, seen, ranks) && strike(v, y, seen);
}

static size_t print_value(const coll_values_t *v, uint32_t x, char *text, size_t bytes, size_t at)
{
    if (at + 16 >= bytes) { /* room for one number and the dots */
        if (at + 4 <= bytes && (at < 3 || memcmp(text + at - 3, "...", 3) != 0))
            at += (size_t)snprintf(text + at, bytes - at, "...");
        return at;
    }
    const coll_value_t *value = &v->nodes[x];
    if (x == COLL_VALUE_NONE)
        return at + (size_t)snprintf(text + at, bytes - at, "nothing");
    if (value->kind == COLL_VALUE_LEAF)
        return at + (size_t)snprintf(text + at, bytes - at, "%u[%u]", value->a, value->b % 100000);
    if (value->kind == COLL_VALUE_FINAL) {
        at = print_value(v, value->a, text, bytes, at);
        return at + 1 < bytes ? at + (size_t)snprintf(text + at, bytes - at, "!") : at;
    }
    at += (size_t)snprintf(text + at, bytes - at, "(");
    at = print_value(v, value->a, text, bytes, at);
    if (at + 1 < bytes)
        at += (size_t)snprintf(text + at, bytes - at, "+");
    at = print_value(v, value->b, text, bytes, at);
    return at + 1 < bytes ? at + (size_t)snprintf(text + at, bytes - at, ")") : at;
}

void coll_value_print(const coll_values_t *v, uint32_t x, char *text, size_t bytes)
{
    if (bytes)
        text[0] = '\0';
    if (v->count)
        print_value(v, x, text, bytes, 0);
}

void coll_values_free(coll_values_t *v)
{
    free(v->nodes);
    free(v->table);
    *v = (coll_values_t){0};
}
