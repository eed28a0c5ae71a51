/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/check/expected.c: what each element of OUT must hold in the end, and whether it does. */
#include "collectives/proof/check/internal.h"

#include "collectives/schedules/algorithms.h"

static int inputs_of(const coll_args_t *a, int rank)
{
    return a->leaves ? a->leaves[rank + 1] - a->leaves[rank] : 1;
}

/* The reduction over ranks 0 .. ranks - 1 of the elements at `offset` of each IN (counted from each rank's
 * own block start). */
static uint32_t reduction(check_t *c, const coll_args_t *args, int ranks, int block, size_t offset)
{
    size_t count = 0;
    for (int r = 0; r < ranks; r++) {
        const size_t start = block < 0 ? 0 : args[r].displs[block];
        for (int l = 0; l < inputs_of(&args[r], r); l++)
            c->operands[count++] =
                coll_value_leaf(&c->values, r, (size_t)l * args[r].stride + start + offset);
    }
    return coll_value_final(&c->values, coll_value_reduce(&c->values, c->operands, count));
}

static void want_leaves(check_t *c, proc_t *p, size_t at, int rank, size_t offset, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p->want[at + i] = coll_value_leaf(&c->values, rank, offset + i);
}

static void expect_rank(check_t *c, const coll_args_t *args, int rank, const uint32_t *reduced)
{
    proc_t *p = &c->proc[rank];
    const coll_args_t *a = &args[rank];
    int root = a->root;
    switch (c->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
        for (size_t i = 0; i < p->extent[COLL_OUT]; i++)
            p->want[i] = reduced[i]; /* NOLINT(clang-analyzer-core.NullDereference): the caller looked */
        break;
    case COLL_REDUCE_SCATTER:
        for (size_t i = 0; i < p->extent[COLL_OUT]; i++)
            p->want[i] = reduction(c, args, c->n, rank, i);
        break;
    case COLL_SCAN:
    case COLL_EXSCAN:
        for (size_t i = 0; i < p->extent[COLL_OUT]; i++)
            p->want[i] = reduction(c, args, coll_op_inputs(c->op, c->n, rank), -1, i);
        break;
    case COLL_ALL_GATHER:
    case COLL_GATHER:
        for (int r = 0; p->extent[COLL_OUT] && r < c->n; r++)
            want_leaves(c, p, a->displs[r], r, 0, a->counts[r]);
        break;
    case COLL_BROADCAST:
        want_leaves(c, p, 0, root, 0, a->count);
        break;
    case COLL_SCATTER:
        want_leaves(c, p, 0, root, args[root].displs[rank], a->counts[rank]);
        break;
    case COLL_ALL_TO_ALL:
        for (int r = 0; r < c->n; r++)
            want_leaves(c, p, a->rdispls[r], r, args[r].displs[rank], a->rcounts[r]);
        break;
    default:
        break;
    }
}

/* IN starts as this rank's contributions; gaps between blocks stay "nothing". */
static void fill_in(check_t *c, const coll_args_t *a, proc_t *p)
{
    int blocks = c->op == COLL_REDUCE_SCATTER || c->op == COLL_SCATTER || c->op == COLL_ALL_TO_ALL;
    cell_t *in = p->cells + p->base[COLL_IN];
    if (!blocks) {
        for (size_t i = 0; i < p->extent[COLL_IN]; i++)
            in[i].value = coll_value_leaf(&c->values, a->rank, i);
        return;
    }
    for (int l = 0; p->extent[COLL_IN] && l < inputs_of(a, a->rank); l++)
        for (int r = 0; r < c->n; r++)
            for (size_t k = 0; k < a->counts[r]; k++) {
                const size_t i = (size_t)l * a->stride + a->displs[r] + k;
                in[i].value = coll_value_leaf(&c->values, a->rank, i);
            }
}

int coll_check_expect(check_t *c, const coll_args_t *args)
{
    uint32_t *reduced = NULL;
    if (c->op == COLL_ALL_REDUCE || c->op == COLL_REDUCE) {
        reduced = coll_check_alloc(c, args[0].count, sizeof *reduced);
        for (size_t i = 0; reduced && i < args[0].count; i++)
            reduced[i] = reduction(c, args, c->n, -1, i);
    }
    for (int r = 0; r < c->n && !c->out_of_memory; r++) {
        expect_rank(c, args, r, reduced);
        fill_in(c, &args[r], &c->proc[r]);
        /* an announcement, which the executor writes: elements that are no contribution */
        for (size_t i = 0; coll_algo_is(c->proc[r].schedule->algo, COLL_REACHES) && i < args[r].place &&
                           i < c->proc[r].extent[COLL_TMP];
             i++)
            c->proc[r].cells[c->proc[r].base[COLL_TMP] + i].value =
                coll_value_leaf(&c->values, r, c->proc[r].extent[COLL_IN] + i);
    }
    return !c->out_of_memory && !c->values.failed;
}

static int check_barrier(check_t *c)
{
    for (int r = 0; r < c->n; r++) {
        for (int other = 0; other < c->n; other++) {
            int knows = other == r;
            for (int ch = 0; ch < COLL_MAX_CHANNELS; ch++)
                for (int from = 0; from < COLL_MAX_CHANNELS; from++)
                    knows |= c->proc[r].clock[ch][other * COLL_MAX_CHANNELS + from] > 0;
            if (!knows)
                return coll_check_fail(c, r, UINT32_MAX,
                                       "leaves the barrier without knowing that rank %d entered", other);
        }
    }
    return 1;
}

int coll_check_results(check_t *c)
{
    if (c->op == COLL_BARRIER)
        return check_barrier(c);
    for (int r = 0; r < c->n; r++) {
        const proc_t *p = &c->proc[r];
        for (size_t i = 0; i < p->extent[COLL_OUT]; i++) {
            uint32_t has = p->cells[p->base[COLL_OUT] + i].value, want = p->want[i];
            if (want == COLL_VALUE_NONE || has == want ||
                (c->fast && coll_value_same_leaves(&c->values, has, want, c->seen, c->n)))
                continue;
            char left[200], right[200];
            coll_value_print(&c->values, has, left, sizeof left);
            coll_value_print(&c->values, want, right, sizeof right);
            return coll_check_fail(c, r, UINT32_MAX, "element %zu of OUT is %s, expected %s", i, left, right);
        }
    }
    return 1;
}
