/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 5, over UCX: 3 */
/* no TSan: one thread; mp_userops runs the same paths */
/* tests/collectives/mp_scan.c: gyre_scan and gyre_exscan give the bytes of an all_reduce over just the ranks
 * of each prefix: for every kind of type and reduction, by each algorithm, in each order and form. Then what
 * is refused, and ranks that disagree. */
#include "tests/support/mp.h"

#include <stdint.h>
#include <string.h>

enum { MOST_N = 5, MOST = 9000, ELEM = 16, GUARD = 64, BYTES = MOST * ELEM };

static int n, rank;
static gyre_comm_t *world;
static gyre_comm_t *first[MOST_N + 1]; /* ranks 0 .. p - 1; NULL: this rank is not in it */
static unsigned char in[BYTES], want[MOST_N + 1][BYTES], memory[2][BYTES + 2 * GUARD];
static unsigned char *const out = memory[0] + GUARD, *const more = memory[1] + GUARD;

/* part: bytes of a floating-point number in an element; 0: any bytes will do. */
typedef struct {
    gyre_type_t type;
    gyre_redop_t op;
    size_t part;
} case_t;

/* Neither commutes nor associates: shows the order and the tree. */
static gyre_status_t skewed(const void *left, void *right, size_t count, gyre_type_t type, void *user)
{
    const uint32_t *l = left;
    uint32_t *r = right;
    (void)user;
    for (size_t i = 0; i < count * gyre_type_size(type) / 4; i++)
        r[i] = 3 * l[i] + 5 * r[i] + 1;
    return GYRE_OK;
}

/* Random bytes; of numbers, any that are finite and not large. */
static void fill(const case_t *c, unsigned char *to, size_t bytes, uint64_t seed)
{
    uint64_t state = seed * 1000 + (uint64_t)rank, word = 0;
    for (size_t i = 0; i < bytes; i++) {
        word = i % 8 ? word >> 8 : random_next(&state);
        to[i] = (unsigned char)word;
        if (c->part && i % c->part == c->part - 1)
            to[i] &= 0xbf;
    }
}

/* want[p] = all_reduce over ranks 0 .. p - 1 of `in`, on all ranks. */
static void make_wanted(const case_t *c, size_t count, gyre_order_t order)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order;
    for (int p = 1; p <= n; p++) {
        if (first[p]) {
            MP_OK(gyre_comm_set(first[p], &options));
            MP_OK(gyre_all_reduce(in, want[p], count, c->type, c->op, first[p]));
        }
        MP_OK(gyre_broadcast(want[p], want[p], count * gyre_type_size(c->type), GYRE_UINT8, p - 1, world));
    }
}

static void poison(void)
{
    memset(memory, 0xa7, sizeof memory);
}

/* `got` of a call over `inputs` ranks; 0: untouched, that is, poison or what `in` has. */
static void expect(const case_t *c, const char *form, const unsigned char *got, int inputs, size_t count,
                   int in_place)
{
    const size_t bytes = count * gyre_type_size(c->type);
    const char *type = gyre_type_name(c->type), *op = gyre_redop_name(c->op.kind);
    const unsigned char *right = inputs ? want[inputs] : in;
    for (size_t i = 0; i < bytes; i++)
        MP_CHECK(got[i] == (inputs || in_place ? right[i] : 0xa7),
                 "rank %d of %d: %s of %zu x %s, %s: byte %zu is wrong", rank, n, form, count, type, op, i);
    for (size_t i = 1; i <= GUARD; i++)
        MP_CHECK(got[-(ptrdiff_t)i] == 0xa7 && got[bytes + i - 1] == 0xa7, "%s wrote next to recv", form);
}

static void forms(const case_t *c, size_t count, gyre_comm_t *comm)
{
    const size_t bytes = count * gyre_type_size(c->type);
    const int below = rank;
    gyre_request_t *requests[2];
    poison();
    MP_OK(gyre_scan(in, out, count, c->type, c->op, comm));
    MP_OK(gyre_exscan(in, more, count, c->type, c->op, comm));
    expect(c, "scan", out, rank + 1, count, 0);
    expect(c, "exscan", more, below, count, 0);
    poison();
    memcpy(out, in, bytes);
    memcpy(more, in, bytes);
    MP_OK(gyre_group_start());
    MP_OK(gyre_exscan(more, more, count, c->type, c->op, comm));
    MP_OK(gyre_iscan(out, out, count, c->type, c->op, comm, &requests[0]));
    MP_OK(gyre_group_end());
    MP_OK(gyre_wait(&requests[0]));
    expect(c, "scan in place, in a group", out, rank + 1, count, 1);
    expect(c, "exscan in place, in a group", more, below, count, 1);
    poison();
    MP_OK(gyre_iexscan(in, rank ? more : NULL, count, c->type, c->op, comm, &requests[0]));
    MP_OK(gyre_iscan(in, out, count, c->type, c->op, comm, &requests[1]));
    MP_OK(gyre_wait_all(2, requests));
    expect(c, "iscan", out, rank + 1, count, 0);
    expect(c, "iexscan", more, below, count, 0);
}

static void plans(const case_t *c, size_t count)
{
    gyre_plan_t *both[2];
    gyre_request_t *request;
    MP_OK(gyre_plan_scan(in, out, count, c->type, c->op, world, &both[0]));
    MP_OK(gyre_plan_exscan(in, more, count, c->type, c->op, world, &both[1]));
    for (uint64_t turn = 0; turn < 3; turn++) {
        fill(c, in, count * gyre_type_size(c->type), 77 + turn);
        make_wanted(c, count, GYRE_ORDER_CANONICAL);
        poison();
        MP_OK(gyre_start(both[turn % 2], &request));
        MP_OK(gyre_start(both[1 - turn % 2], NULL));
        MP_OK(gyre_wait(&request));
        expect(c, "a planned scan", out, rank + 1, count, 0);
        expect(c, "a planned exscan", more, rank, count, 0);
    }
    MP_OK(gyre_plan_free(&both[0]));
    MP_OK(gyre_plan_free(&both[1]));
}

static const gyre_order_t orders[] = {GYRE_ORDER_CANONICAL, GYRE_ORDER_FAST, GYRE_ORDER_EXACT};
enum { ORDERS = 3 };

/* Each algorithm in each order, in chunks shorter than the vector. Fast order is canonical order here. */
static void prefixes(const case_t *cases, size_t ncases, int last_order)
{
    static const char *const algorithms[] = {NULL, "direct", "butterfly"};
    static const size_t counts[] = {1, 67, MOST, 0};
    for (int o = 0; o < last_order; o++)
        for (size_t a = 0; a < 3; a++) {
            gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
            gyre_comm_t *comm;
            options.order = orders[o];
            options.algorithm = algorithms[a];
            options.chunk = a ? 4096 : 0;
            MP_OK(gyre_comm_dup(world, &comm));
            MP_OK(gyre_comm_set(comm, &options));
            for (size_t k = 0; k < ncases; k++)
                for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                    if (i == 1 && k % 3 != a) /* a third of them */
                        continue;
                    fill(&cases[k], in, counts[i] * gyre_type_size(cases[k].type), k + 1);
                    make_wanted(&cases[k], counts[i],
                                orders[o] == GYRE_ORDER_EXACT ? GYRE_ORDER_EXACT : GYRE_ORDER_CANONICAL);
                    forms(&cases[k], counts[i], comm);
                }
            MP_OK(gyre_comm_destroy(comm));
        }
}

/* Whole numbers, whose prefixes are known without any of it. */
static void known(void)
{
    int64_t mine = rank + 1, upto = 0, below = -5;
    MP_OK(gyre_scan(&mine, &upto, 1, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    MP_OK(gyre_exscan(&mine, &below, 1, GYRE_INT64, GYRE_OP(GYRE_SUM), world));
    MP_CHECK(upto == (int64_t)(rank + 1) * (rank + 2) / 2, "%ld", (long)upto);
    MP_CHECK(below == (rank ? (int64_t)rank * (rank + 1) / 2 : -5), "%ld", (long)below);
}

static void refused(gyre_status_t got, gyre_status_t status, const char *word)
{
    MP_CHECK(got == status && strstr(gyre_last_error(), word), "%s (%s), not %s with \"%s\"",
             gyre_status_string(got), gyre_last_error(), gyre_status_string(status), word);
}

static void refusals(void)
{
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM), avg = GYRE_OP(GYRE_AVG), band = GYRE_OP(GYRE_BAND);
    const gyre_type_t type = GYRE_FLOAT32;
    gyre_request_t *request;
    gyre_plan_t *plan = NULL;
    refused(gyre_scan(in, out, 4, type, avg, world), GYRE_ERR_INVALID, "scan: there is no avg");
    refused(gyre_iexscan(in, out, 4, type, avg, world, &request), GYRE_ERR_INVALID,
            "exscan: there is no avg");
    refused(gyre_plan_scan(in, out, 4, type, avg, world, &plan), GYRE_ERR_INVALID, "there is no avg");
    refused(gyre_scan(in, out, 4, type, band, world), GYRE_ERR_TYPE, "scan: there is no band");
    refused(gyre_scan(in, in + 4, 4, type, sum, world), GYRE_ERR_OVERLAP, "scan: send");
    refused(gyre_scan(in, NULL, 4, type, sum, world), GYRE_ERR_INVALID, "scan: recv is NULL");
    refused(gyre_exscan(NULL, out, 4, type, sum, world), GYRE_ERR_INVALID, "exscan: send is NULL");
    refused(gyre_iscan(in, out, 4, type, sum, world, NULL), GYRE_ERR_INVALID, "iscan: request is NULL");
    refused(gyre_plan_exscan(in, out, 4, type, sum, world, NULL), GYRE_ERR_INVALID, "plan_exscan: plan");
    refused(gyre_scan(in, out, 4, type, sum, NULL), GYRE_ERR_INVALID, "scan: comm is NULL");
    MP_CHECK(!plan, "a plan was made");
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    gyre_comm_t *comm;
    MP_OK(gyre_comm_dup(world, &comm));
    options.leaves = 2;
    MP_OK(gyre_comm_set(comm, &options));
    refused(gyre_scan(in, out, 4, type, sum, comm), GYRE_ERR_UNSUPPORTED,
            "scan: the communicator has leaves");
    options.leaves = 1;
    options.order = GYRE_ORDER_EXACT;
    MP_OK(gyre_comm_set(comm, &options));
    refused(gyre_exscan(in, out, 4, type, GYRE_OP(GYRE_PROD), comm), GYRE_ERR_UNSUPPORTED, "exact");
    MP_OK(gyre_comm_destroy(comm));
    known();
}

/* One rank calls another of the two. Rank 0, which needs nothing, may see it in the next call only. */
static void disagreement(int count)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_dup(world, &comm));
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    gyre_status_t st = rank == n - 1 ? gyre_exscan(in, out, (size_t)count, GYRE_UINT32, sum, comm)
                                     : gyre_scan(in, out, (size_t)count, GYRE_UINT32, sum, comm);
    if (st == GYRE_OK)
        st = gyre_barrier(comm);
    refused(st, GYRE_ERR_MISMATCH, "exscan #");
    MP_CHECK(strstr(gyre_last_error(), " scan #"), "\"%s\" shows one call only", gyre_last_error());
    MP_OK(gyre_comm_destroy(comm));
}

int main(void)
{
    case_t cases[] = {
        {GYRE_FLOAT32, GYRE_OP(GYRE_SUM), 4},
        {GYRE_FLOAT64, GYRE_OP(GYRE_SUM), 8},
        {GYRE_BFLOAT16, GYRE_OP(GYRE_SUM), 2},
        {GYRE_FLOAT16, GYRE_SCALED_SUM(0.5), 2},
        {GYRE_INT32, GYRE_OP(GYRE_SUM), 0},
        {GYRE_UINT8, GYRE_OP(GYRE_MAX), 0},
        {GYRE_INT64, GYRE_OP(GYRE_LXOR), 0},
        {GYRE_FLOAT64, GYRE_OP(GYRE_PROD), 8},
        {GYRE_COMPLEX64, GYRE_OP(GYRE_PROD), 4},
        {GYRE_FLOAT8_E5M2, GYRE_OP(GYRE_SUM), 1},
        {.part = 0},
    };
    enum { CASES = sizeof cases / sizeof *cases, EXACT = 4 };
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    for (int p = 1; p <= n; p++)
        MP_OK(gyre_comm_split(world, rank < p ? 0 : -1, rank, &first[p]));
    MP_OK(gyre_type_create(12, &cases[CASES - 1].type));
    MP_OK(gyre_op_create(skewed, NULL, 0, &cases[CASES - 1].op));
    known();
    prefixes(cases, EXACT, ORDERS);
    prefixes(cases + EXACT, CASES - EXACT, 2);
    plans(&cases[0], 1000);
    plans(&cases[CASES - 1], 7);
    refusals();
    if (n > 1) {
        disagreement(3);
        disagreement(30000);
    }
    MP_OK(gyre_op_free(&cases[CASES - 1].op));
    MP_OK(gyre_type_free(&cases[CASES - 1].type));
    for (int p = 1; p <= n; p++)
        MP_OK(gyre_comm_destroy(first[p]));
    MP_OK(gyre_finalize(world));
    return 0;
}
