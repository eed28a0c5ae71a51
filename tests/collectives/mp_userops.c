/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 4 5 9, and in check-long: 6 7 8; over UCX: 3 */
/* tests/collectives/mp_userops.c: operations and types of the program's own. An operation that neither
 * commutes nor associates shows the order of the operands and the tree: every algorithm must give what plain
 * recursion gives. Then operations that fail, differ between ranks, or are freed too early; and
 * gyre_reduce_local. */
#include "tests/support/mp.h"

#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "collectives/schedules/algorithms.h"

enum { MOST_N = 9, MOST = 4000, WORDS = 5 };

static int n, rank;
static gyre_comm_t *world;
static uint32_t in[MOST_N * MOST * WORDS], out[MOST_N * MOST * WORDS];

/* ---- operations ---- */
/* user: number of words of an element. Neither commutes nor associates. */
static gyre_status_t skewed(const void *left, void *right, size_t count, gyre_type_t type, void *user)
{
    const size_t words = *(const size_t *)user;
    const uint32_t *l = left;
    uint32_t *r = right;
    MP_CHECK(gyre_type_size(type) == words * 4, "elements of %zu bytes", gyre_type_size(type));
    MP_CHECK(l + count * words <= r || r + count * words <= l, "the operands overlap");
    for (size_t i = 0; i < count * words; i++)
        r[i] = 3 * l[i] + 5 * r[i] + 1;
    return GYRE_OK;
}

/* 2 x 2 matrices modulo 2^32: associates, but does not commute. */
static gyre_status_t product(const void *left, void *right, size_t count, gyre_type_t type, void *user)
{
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++) {
        const uint32_t *l = (const uint32_t *)left + 4 * i;
        uint32_t *r = (uint32_t *)right + 4 * i;
        const uint32_t m[4] = {l[0] * r[0] + l[1] * r[2], l[0] * r[1] + l[1] * r[3],
                               l[2] * r[0] + l[3] * r[2], l[2] * r[1] + l[3] * r[3]};
        memcpy(r, m, sizeof m);
    }
    return GYRE_OK;
}

static gyre_status_t fails(const void *left, void *right, size_t count, gyre_type_t type, void *user)
{
    (void)left, (void)right, (void)count, (void)type;
    return *(const gyre_status_t *)user;
}

/* ---- against recursion ---- */
static uint32_t input(int r, size_t i)
{
    uint64_t state = (uint64_t)r * 1000003u + i;
    return (uint32_t)random_next(&state);
}

/* Element i of the tree over ranks first .. first + k - 1. */
static void tree(gyre_op_function_t op, void *user, gyre_type_t type, int first, int k, size_t i,
                 uint32_t *to)
{
    const size_t words = gyre_type_size(type) / 4;
    uint32_t left[WORDS];
    int half = 1;
    if (k == 1) {
        for (size_t w = 0; w < words; w++)
            to[w] = input(first, i * words + w);
        return;
    }
    while (2 * half < k)
        half *= 2;
    tree(op, user, type, first, half, i, left);
    tree(op, user, type, first + half, k - half, i, to);
    MP_OK(op(left, to, 1, type, user));
}

typedef struct {
    gyre_op_function_t function;
    void *user;
    gyre_type_t type;
    gyre_redop_t op;
    const char *name;
} own_t;

static void expect(const own_t *o, const char *call, const char *algo, const uint32_t *got, size_t from,
                   size_t count)
{
    const size_t words = gyre_type_size(o->type) / 4;
    const size_t step = count > 200 ? count / 97 : 1; /* and the last */
    for (size_t i = 0; i < count; i = i + step < count || i + 1 == count ? i + step : count - 1) {
        uint32_t want[WORDS];
        tree(o->function, o->user, o->type, 0, n, from + i, want);
        MP_CHECK(memcmp(got + i * words, want, words * 4) == 0,
                 "rank %d of %d: %s of %zu with %s by %s: element %zu is wrong", rank, n, call, count,
                 o->name, algo, i);
    }
}

static void fill(uint32_t *to, size_t words)
{
    for (size_t i = 0; i < words; i++)
        to[i] = input(rank, i);
}

static int serves(coll_algo_t algo, coll_op_t op, int reach)
{
    return algo == COLL_ALGO_AUTO ||
           (coll_algo_serves(algo, op, NULL) && (!coll_algo_is(algo, COLL_REACHES) || reach));
}

static void reduces(gyre_comm_t *comm, coll_algo_t algo, int reach, const own_t *o, size_t count)
{
    const size_t words = gyre_type_size(o->type) / 4, mine = (size_t)rank * count;
    const char *name = coll_algo_name(algo);
    fill(in, (size_t)n * count * words);
    if (serves(algo, COLL_ALL_REDUCE, reach)) {
        MP_OK(gyre_all_reduce(in, out, count, o->type, o->op, comm));
        expect(o, "all_reduce", name, out, 0, count);
        fill(out, count * words);
        MP_OK(gyre_all_reduce(out, out, count, o->type, o->op, comm));
        expect(o, "all_reduce in place", name, out, 0, count);
    }
    if (serves(algo, COLL_REDUCE_SCATTER, reach)) {
        MP_OK(gyre_reduce_scatter(in, out, count, o->type, o->op, comm));
        expect(o, "reduce_scatter", name, out, mine, count);
        fill(out, (size_t)n * count * words);
        MP_OK(gyre_reduce_scatter(out, out + mine * words, count, o->type, o->op, comm));
        expect(o, "reduce_scatter in place", name, out + mine * words, mine, count);
    }
    if (serves(algo, COLL_REDUCE, reach))
        for (int root = 0; root<n; root += n> 2 ? n - 1 : 1) {
            MP_OK(gyre_reduce(in, rank == root ? out : NULL, count, o->type, o->op, root, comm));
            if (rank == root)
                expect(o, "reduce", name, out, 0, count);
        }
}

/* All algorithms, in canonical order and in any: an operation that does not commute has no other. */
static void algorithms(const own_t *own, size_t owns)
{
    static const size_t counts[] = {1, 67, 1 << 10};
    const char *transport = base_setting_string(SET_TRANSPORT);
    const int reach = strcmp(transport, "ucx") != 0 && n > 1;
    for (coll_algo_t algo = COLL_ALGO_AUTO; algo < COLL_ALGO_END; algo++)
        for (int fast = 0; fast < 2 && algo != COLL_LEAVES; fast++) { /* which is not to be named */
            gyre_comm_t *comm;
            MP_OK(base_settings_set(SET_ALGO, coll_algo_name(algo), "test"));
            MP_OK(gyre_comm_split(world, 0, rank, &comm));
            gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
            options.order = fast ? GYRE_ORDER_FAST : GYRE_ORDER_CANONICAL;
            MP_OK(gyre_comm_set(comm, &options));
            for (size_t k = 0; k < owns; k++)
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                    if (c == (k + (size_t)algo) % 3 || (algo == COLL_ALGO_AUTO && !fast))
                        reduces(comm, algo, reach, &own[k], counts[c]);
            MP_OK(gyre_comm_destroy(comm));
        }
    MP_OK(base_settings_set(SET_ALGO, "auto", "test"));
    for (size_t k = 0; k < owns; k++)
        reduces(world, COLL_ALGO_AUTO, 0, &own[k], MOST);
}

static void refused(gyre_status_t got, gyre_status_t want, const char *word)
{
    MP_CHECK(got == want && strstr(gyre_last_error(), word), "%s (%s), not %s with \"%s\"",
             gyre_status_string(got), gyre_last_error(), gyre_status_string(want), word);
}

/* What only moves, and requests, groups and buckets. */
static void other_calls(const own_t *o)
{
    const size_t words = gyre_type_size(o->type) / 4, count = 33;
    gyre_request_t *requests[2];
    fill(in, count * words);
    MP_OK(gyre_all_gather(in, out, count, o->type, world));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < count * words; i++)
            MP_CHECK(out[(size_t)r * count * words + i] == input(r, i), "all_gather: word %zu of rank %d", i,
                     r);
    MP_OK(gyre_broadcast(in, out, count, o->type, n - 1, world));
    for (size_t i = 0; i < count * words; i++)
        MP_CHECK(out[i] == input(n - 1, i), "broadcast: word %zu", i);
    MP_OK(gyre_group_start());
    MP_OK(gyre_iall_reduce(in, out, count, o->type, o->op, world, &requests[0]));
    MP_OK(gyre_iall_reduce(in, out + count * words, count, o->type, o->op, world, &requests[1]));
    MP_OK(gyre_group_end());
    MP_OK(gyre_wait_all(2, requests));
    expect(o, "all_reduce in a group", "auto", out, 0, count);
    expect(o, "all_reduce in a group", "auto", out + count * words, 0, count);
    if (n > 1) {
        MP_OK(gyre_isend(in, count, o->type, (rank + 1) % n, world, &requests[0]));
        MP_OK(gyre_irecv(out, count, o->type, (rank + n - 1) % n, world, &requests[1]));
        MP_OK(gyre_wait_all(2, requests));
        MP_CHECK(out[1] == input((rank + n - 1) % n, 1), "a message has other words");
    }
    gyre_plan_t *plan;
    MP_OK(gyre_plan_all_reduce(in, out, count, o->type, o->op, world, &plan));
    for (int turn = 0; turn < 2; turn++) {
        memset(out, 0, count * words * 4);
        fill(in, count * words);
        MP_OK(gyre_start(plan, &requests[0]));
        MP_OK(gyre_wait(&requests[0]));
        expect(o, "a planned all_reduce", "auto", out, 0, count);
    }
    gyre_redop_t copy = o->op;
    refused(gyre_op_free(&copy), GYRE_ERR_INVALID, "plans");
    MP_OK(gyre_plan_free(&plan));
    gyre_buckets_t *b;
    gyre_buckets_config_t config = {.size = sizeof config, .type = o->type, .op = o->op};
    MP_OK(gyre_buckets_create(world, &config, 1, &count, &b));
    gyre_type_t same = o->type;
    refused(gyre_op_free(&copy), GYRE_ERR_INVALID, "buckets");
    refused(gyre_type_free(&same), GYRE_ERR_INVALID, "buckets");
    fill(gyre_buckets_tensor(b, 0), count * words);
    MP_OK(gyre_buckets_ready(b, 0));
    MP_OK(gyre_buckets_wait(b));
    expect(o, "a bucket", "auto", gyre_buckets_tensor(b, 0), 0, count);
    MP_OK(gyre_buckets_destroy(b));
}

/* ---- what goes wrong ---- */
/* The operation fails on rank `culprit` only: all ranks get an error with its words. */
static void failing(gyre_status_t returned, gyre_status_t want, size_t count)
{
    const int culprit = n - 1;
    gyre_comm_t *comm;
    gyre_redop_t op;
    gyre_status_t code = rank == culprit ? returned : GYRE_OK;
    const base_time_t until = base_deadline(20);
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_op_create(fails, &code, GYRE_OP_COMMUTATIVE, &op));
    gyre_status_t st = gyre_all_reduce(in, out, count, GYRE_INT32, op, comm);
    if (st == GYRE_OK) /* the others may have had what they need */
        st = gyre_barrier(comm);
    MP_CHECK(st == want || (rank != culprit && st != GYRE_OK), "rank %d got %s, not %s", rank,
             gyre_status_string(st), gyre_status_string(want));
    char number[32];
    snprintf(number, sizeof number, "returned %d", (int)returned);
    MP_CHECK(strstr(gyre_last_error(), "userop") && strstr(gyre_last_error(), number),
             "rank %d reads \"%s\", without the operation or \"%s\"", rank, gyre_last_error(), number);
    MP_CHECK(gyre_comm_error(comm) != GYRE_OK, "the communicator is alive");
    MP_CHECK(base_now() < until, "more than 20 s");
    MP_OK(gyre_op_free(&op));
    MP_OK(gyre_comm_destroy(comm));
}

static void disagreement(const own_t *a, const own_t *b)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    const own_t *mine = rank ? a : b;
    gyre_status_t st = gyre_all_reduce(in, out, 5, mine->type, mine->op, comm);
    if (st == GYRE_OK)
        st = gyre_barrier(comm);
    MP_CHECK(st == GYRE_ERR_MISMATCH, "rank %d got %s (%s)", rank, gyre_status_string(st), gyre_last_error());
    const char *const words[] = {gyre_redop_name(a->op.kind), gyre_redop_name(b->op.kind),
                                 gyre_type_name(a->type), gyre_type_name(b->type)};
    for (int i = 0; i < 4; i++)
        MP_CHECK(strstr(gyre_last_error(), words[i]), "\"%s\" does not name %s", gyre_last_error(), words[i]);
    MP_OK(gyre_comm_destroy(comm));
}

static void bad_arguments(const own_t *o)
{
    gyre_redop_t op = o->op, unknown = GYRE_OP(GYRE_REDOP_NONE), sum = GYRE_OP(GYRE_SUM);
    gyre_type_t type = GYRE_FLOAT32;
    refused(gyre_op_create(NULL, NULL, 0, &op), GYRE_ERR_INVALID, "function is NULL");
    refused(gyre_op_create(product, NULL, 0, NULL), GYRE_ERR_INVALID, "op is NULL");
    refused(gyre_op_create(product, NULL, 6, &op), GYRE_ERR_INVALID, "0x6");
    refused(gyre_op_free(&sum), GYRE_ERR_INVALID, "0 is not");
    MP_OK(gyre_op_free(&unknown));
    MP_OK(gyre_op_free(NULL));
    refused(gyre_type_create(0, &type), GYRE_ERR_INVALID, "not 0");
    refused(gyre_type_create(GYRE_TYPE_BYTES_MOST + 1, &type), GYRE_ERR_INVALID, "4096");
    refused(gyre_type_create(4, NULL), GYRE_ERR_INVALID, "NULL");
    refused(gyre_type_free(&type), GYRE_ERR_INVALID, "10 is not");
    MP_OK(gyre_type_free(NULL));
    refused(gyre_all_reduce(in, out, 1, o->type, sum, world), GYRE_ERR_TYPE, "gyre_op_create only");
    refused(gyre_all_reduce(in, out, 1, GYRE_INT32, unknown, world), GYRE_ERR_TYPE, "255");
    refused(gyre_all_reduce(in, out, 1, GYRE_TYPE_NONE, op, world), GYRE_ERR_TYPE, "255");
    op.scaled = 1;
    refused(gyre_all_reduce(in, out, 1, o->type, op, world), GYRE_ERR_TYPE, "scaled");
    MP_CHECK(gyre_type_size(GYRE_TYPE_NONE) == 0 && strcmp(gyre_type_name(GYRE_TYPE_NONE), "unknown") == 0,
             "there is a type 255");
    /* all numbers: one more is refused, and they come again */
    gyre_redop_t all[130];
    int made = 0;
    while (made < 130 && gyre_op_create(product, NULL, 0, &all[made]) == GYRE_OK)
        made++;
    MP_CHECK(made > 100 && made < 128, "%d operations were made", made);
    refused(gyre_op_create(product, NULL, 0, &op), GYRE_ERR_NO_MEMORY, "127");
    while (made-- > 0)
        MP_OK(gyre_op_free(&all[made]));
}

/* A number that comes to stand for another type or operation: nothing of the old one is left. */
static void numbers_come_again(void)
{
    size_t words = 1;
    own_t o = {.function = skewed, .user = &words, .name = "skewed"};
    for (words = 1; words <= WORDS; words++) {
        MP_OK(gyre_type_create(words * 4, &o.type));
        MP_OK(gyre_op_create(skewed, &words, 0, &o.op));
        reduces(world, COLL_ALGO_AUTO, 0, &o, 40);
        reduces(world, COLL_ALGO_AUTO, 0, &o, MOST / 2);
        MP_OK(gyre_type_free(&o.type));
        MP_OK(gyre_op_free(&o.op));
        MP_CHECK(o.type == GYRE_TYPE_NONE && o.op.kind == GYRE_REDOP_NONE, "the handles are as before");
    }
}

/* Rank 0 has two leaves: the tree is over n + 1 of them. */
static void leaves(const own_t *o)
{
    const size_t words = gyre_type_size(o->type) / 4, count = 300, mine = rank ? 1 : 2;
    gyre_comm_t *comm;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.leaves = (int)mine;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_set(comm, &options));
    for (size_t leaf = 0; leaf < mine; leaf++)
        for (size_t i = 0; i < count * words; i++)
            in[leaf * count * words + i] = input(rank ? rank + 1 : (int)leaf, i);
    MP_OK(gyre_all_reduce(in, out, count, o->type, o->op, comm));
    for (size_t i = 0; i < count; i++) {
        uint32_t want[WORDS];
        tree(o->function, o->user, o->type, 0, n + 1, i, want);
        MP_CHECK(memcmp(out + i * words, want, words * 4) == 0, "leaves, %s: element %zu is wrong", o->name,
                 i);
    }
    MP_OK(gyre_comm_destroy(comm));
}

/* An exact result is one of sums. */
static void exact(const own_t *o)
{
    gyre_comm_t *comm;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = GYRE_ORDER_EXACT;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    MP_OK(gyre_comm_set(comm, &options));
    refused(gyre_all_reduce(in, out, 1, o->type, o->op, comm), GYRE_ERR_UNSUPPORTED, "exact");
    MP_OK(gyre_comm_destroy(comm));
}

static void freed_too_early(const own_t *o)
{
    gyre_redop_t op;
    gyre_request_t *r;
    char token = 0;
    MP_OK(gyre_op_create(o->function, o->user, 0, &op));
    if (n > 1 && rank > 0)
        MP_OK(gyre_recv(&token, 1, GYRE_INT8, 0, world));
    MP_OK(gyre_iall_reduce(in, out, 3, o->type, op, world, &r));
    if (n > 1 && rank == 0) { /* nobody else has begun */
        gyre_redop_t copy = op;
        refused(gyre_op_free(&copy), GYRE_ERR_INVALID, "have not ended");
        for (int p = 1; p < n; p++)
            MP_OK(gyre_send(&token, 1, GYRE_INT8, p, world));
    }
    MP_OK(gyre_wait(&r));
    MP_OK(gyre_op_free(&op));
}

/* ---- without a communicator ---- */
static void locally(void)
{
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, c[3];
    size_t words = 1;
    gyre_redop_t op;
    MP_OK(gyre_reduce_local(a, b, c, 3, GYRE_FLOAT32, GYRE_OP(GYRE_SUM)));
    MP_CHECK(c[0] == 11 && c[2] == 33, "the sum is %g, %g", (double)c[0], (double)c[2]);
    MP_OK(gyre_reduce_local(a, b, b, 3, GYRE_FLOAT32, GYRE_OP(GYRE_MAX)));
    MP_CHECK(b[0] == 10, "the maximum is %g", (double)b[0]);
    MP_OK(gyre_reduce_local(a, b, a, 3, GYRE_FLOAT32, GYRE_OP(GYRE_AVG)));
    MP_CHECK(a[0] == 11, "an average that adds is %g", (double)a[0]);
    MP_OK(gyre_op_create(skewed, &words, 0, &op));
    enum { LONG = 3000 };
    static uint32_t x[LONG], y[LONG], z[LONG];
    for (int form = 0; form < 3; form++) {
        for (uint32_t i = 0; i < LONG; i++) {
            x[i] = i;
            y[i] = 7 * i;
        }
        uint32_t *to = form == 0 ? z : form == 1 ? x : y;
        MP_OK(gyre_reduce_local(x, y, to, LONG, GYRE_UINT32, op));
        for (uint32_t i = 0; i < LONG; i++)
            MP_CHECK(to[i] == 3 * i + 35 * i + 1, "form %d: element %u is %u", form, i, to[i]);
    }
    MP_OK(gyre_reduce_local(z, z, z, LONG, GYRE_UINT32, op));
    MP_CHECK(z[1] == 8 * 39 + 1, "element 1 is %u", z[1]);
    MP_OK(gyre_op_free(&op));
    refused(gyre_reduce_local(a, b, a + 1, 2, GYRE_FLOAT32, GYRE_OP(GYRE_SUM)), GYRE_ERR_OVERLAP, "overlaps");
    refused(gyre_reduce_local(a, NULL, c, 2, GYRE_FLOAT32, GYRE_OP(GYRE_SUM)), GYRE_ERR_INVALID, "right");
    refused(gyre_reduce_local(a, b, c, 2, GYRE_FLOAT32, GYRE_OP(GYRE_BAND)), GYRE_ERR_TYPE, "band");
    refused(gyre_reduce_local(a, b, c, 2, GYRE_FLOAT32, GYRE_SCALED_SUM(2)), GYRE_ERR_TYPE, "scaled");
    refused(gyre_reduce_local(a, b, c, SIZE_MAX / 2, GYRE_FLOAT32, GYRE_OP(GYRE_SUM)), GYRE_ERR_OVERFLOW,
            "memory");
    MP_OK(gyre_reduce_local(NULL, NULL, NULL, 0, GYRE_FLOAT32, GYRE_OP(GYRE_SUM)));
    gyre_status_t code = GYRE_ERR_SYSTEM;
    MP_OK(gyre_op_create(fails, &code, 0, &op));
    refused(gyre_reduce_local(a, b, c, 3, GYRE_FLOAT32, op), GYRE_ERR_SYSTEM, "returned 300");
    MP_OK(gyre_op_free(&op));
}

int main(void)
{
    size_t three = 3, five = 5;
    own_t own[3] = {{.function = skewed, .user = &three, .name = "skewed"},
                    {.function = product, .name = "product"},
                    {.function = skewed, .user = &five, .name = "wide"}};
    locally();
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    for (int k = 0; k < 3; k++) {
        MP_OK(gyre_type_create(k == 0 ? 12 : k == 1 ? 16 : 20, &own[k].type));
        MP_OK(gyre_op_create(own[k].function, own[k].user, 0, &own[k].op));
    }
    algorithms(own, 3);
    for (int k = 0; k < 3; k++)
        other_calls(&own[k]);
    numbers_come_again();
    freed_too_early(&own[1]);
    exact(&own[1]);
    leaves(&own[0]);
    leaves(&own[1]);
    bad_arguments(&own[0]);
    if (n > 1) {
        failing(GYRE_ERR_TRANSPORT, GYRE_ERR_TRANSPORT, 5);
        failing(GYRE_ERR_INVALID, GYRE_ERR_ABORTED, 5);
        failing((gyre_status_t)7, GYRE_ERR_ABORTED, 100000);
        disagreement(&own[0], &own[1]);
    }
    for (int k = 0; k < 3; k++) {
        MP_OK(gyre_op_free(&own[k].op));
        MP_OK(gyre_type_free(&own[k].type));
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
