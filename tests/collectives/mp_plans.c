/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3, over UCX: 2 3 */
/* tests/collectives/mp_plans.c: persistent operations: each gives the bytes of its plain call at every start,
 * in all forms; ranks may mix plans and plain calls; a start builds, allocates and looks up nothing; and what
 * is refused leaves everything as it was. */
#include <string.h>

#include "tests/support/mp.h"

#include "collectives/run/communicator.h"

enum { ROUNDS = 3, MOST = 12000, RANKS = 8 };

static const gyre_redop_t sum = {GYRE_SUM, 0, 1.0};
static gyre_comm_t *world;
static int n, rank, root;
static size_t count;
/* Buffers of the plan, and of the plain call that it is compared with. */
static int32_t in[RANKS * MOST], out[RANKS * MOST], in2[RANKS * MOST], out2[RANKS * MOST];
static size_t counts[RANKS], displs[RANKS], sent[RANKS], sent_at[RANKS], got[RANKS], got_at[RANKS];

/* Blocks of different lengths, with a hole between them: count for rank r is that of every rank's list. */
static void set_blocks(void)
{
    size_t at = 0;
    for (int r = 0; r < n; r++) {
        counts[r] = count / 2 + (size_t)r % 3;
        displs[r] = at;
        at += counts[r] + 1;
        sent[r] = count / 2 + (size_t)(rank + r) % 4;
        got[r] = sent[r];
        sent_at[r] = r ? sent_at[r - 1] + sent[r - 1] : 0;
        got_at[r] = r ? got_at[r - 1] + got[r - 1] + 2 : 1;
    }
}

/* Each call twice: planned on in and out, and plain on in2 and out2. */
typedef struct {
    const char *name;
    gyre_status_t (*plan)(gyre_comm_t *comm, gyre_plan_t **plan);
    gyre_status_t (*plain)(gyre_comm_t *comm);
} form_t;
#define FORM(name, args_of)                                                 \
    static gyre_status_t plan_##name(gyre_comm_t *comm, gyre_plan_t **plan) \
    {                                                                       \
        return gyre_plan_##name(args_of(in, out), comm, plan);              \
    }                                                                       \
    static gyre_status_t plain_##name(gyre_comm_t *comm)                    \
    {                                                                       \
        return gyre_##name(args_of(in2, out2), comm);                       \
    }
#define REDUCTION(a, b)    a, b, count, GYRE_INT32, sum
#define REDUCTION_V(a, b)  a, b, counts, GYRE_INT32, sum
#define MOVE(a, b)         a, b, count, GYRE_INT32
#define GATHER_V(a, b)     a, b, counts, displs, GYRE_INT32
#define ROOTED(a, b)       a, b, count, GYRE_INT32, root
#define REDUCE(a, b)       a, b, count, GYRE_INT32, sum, root
#define TO_ROOT_V(a, b)    a, counts[rank], b, counts, displs, GYRE_INT32, root
#define FROM_ROOT_V(a, b)  a, counts, displs, b, counts[rank], GYRE_INT32, root
#define ALL_TO_ALL_V(a, b) a, sent, sent_at, b, got, got_at, GYRE_INT32
FORM(all_reduce, REDUCTION)
FORM(reduce_scatter, REDUCTION)
FORM(reduce_scatterv, REDUCTION_V)
FORM(all_gather, MOVE)
FORM(all_gatherv, GATHER_V)
FORM(broadcast, ROOTED)
FORM(reduce, REDUCE)
FORM(gather, ROOTED)
FORM(gatherv, TO_ROOT_V)
FORM(scatter, ROOTED)
FORM(scatterv, FROM_ROOT_V)
FORM(all_to_all, MOVE)
FORM(all_to_allv, ALL_TO_ALL_V)
#define ROW(name)                        \
    {                                    \
#name, plan_##name, plain_##name \
    }
static const form_t forms[] = {ROW(all_reduce),      ROW(reduce_scatter),
                               ROW(reduce_scatterv), ROW(all_gather),
                               ROW(all_gatherv),     ROW(broadcast),
                               ROW(reduce),          ROW(gather),
                               ROW(gatherv),         ROW(scatter),
                               ROW(scatterv),        ROW(all_to_all),
                               ROW(all_to_allv),     {"barrier", gyre_plan_barrier, gyre_barrier}};

static void fill(int round)
{
    for (size_t i = 0; i < (size_t)n * MOST; i++) {
        in[i] = in2[i] = (int32_t)(i * 7 + (size_t)(rank * 1000 + round));
        out[i] = out2[i] = -1;
    }
}

static void start(gyre_plan_t *plan, int how)
{
    gyre_request_t *r = NULL;
    switch (how) {
    case 0:
        MP_OK(gyre_start(plan, NULL));
        return;
    case 1:
        MP_OK(gyre_start(plan, &r));
        MP_OK(gyre_wait(&r));
        return;
    default:
        MP_OK(gyre_group_start());
        MP_OK(gyre_start(plan, how == 2 ? NULL : &r));
        MP_OK(gyre_group_end());
        MP_OK(gyre_wait(&r));
    }
}

static void same_bytes(gyre_comm_t *comm)
{
    gyre_plan_t *plan[sizeof forms / sizeof *forms];
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        set_blocks();
        MP_OK(forms[f].plan(comm, &plan[f]));
        memset(counts, 255, sizeof counts); /* the plan has its own */
        memset(displs, 255, sizeof displs);
        memset(got_at, 255, sizeof got_at);
    }
    set_blocks();
    for (int how = 0; how < 4; how++)
        for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
            fill(how);
            start(plan[f], how);
            MP_OK(forms[f].plain(comm));
            MP_CHECK(!memcmp(out, out2, (size_t)n * MOST * sizeof *out), "%s differs, form %d, count %zu",
                     forms[f].name, how, count);
        }
    /* some ranks by a plan, some by the plain call */
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        fill(9);
        if (rank % 2) {
            MP_OK(forms[f].plain(comm));
            start(plan[f], 0);
        } else {
            start(plan[f], 1);
            MP_OK(forms[f].plain(comm));
        }
        MP_CHECK(!memcmp(out, out2, (size_t)n * MOST * sizeof *out), "%s differs between a plan and a call",
                 forms[f].name);
    }
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        MP_OK(gyre_plan_free(&plan[f]));
        MP_CHECK(!plan[f], "not NULL");
    }
}

static gyre_comm_t *split(void)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    return comm;
}

/* Two plans alternate; many other shapes are called in between, more than are remembered. */
static void keeps_its_schedule(gyre_comm_t *comm)
{
    gyre_plan_t *a, *b;
    gyre_comm_stats_t before = {.size = sizeof before}, after = {.size = sizeof after};
    int32_t x = rank, y = 0;
    MP_OK(gyre_plan_all_reduce(&x, &y, 1, GYRE_INT32, sum, comm, &a));
    MP_OK(gyre_plan_all_reduce(in, out, MOST, GYRE_INT32, sum, comm, &b));
    fill(0);
    start(a, 1);
    start(b, 1);
    for (size_t k = 1; k <= COLL_PLANS_MOST + 10; k++)
        MP_OK(gyre_broadcast(in2, out2, k, GYRE_INT8, 0, comm));
    MP_OK(gyre_comm_stats(comm, &before));
    const uint64_t uses = comm->plans.uses;
    for (int i = 0; i < 100; i++) {
        x = rank + i;
        start(i % 2 ? a : b, i / 2 % 3);
        MP_CHECK(i % 2 == 0 || y == n * (n - 1) / 2 + n * i, "start %d: %d", i, (int)y);
    }
    MP_OK(gyre_comm_stats(comm, &after));
    MP_CHECK(after.plans_built == before.plans_built && after.allocations == before.allocations &&
                 comm->plans.uses == uses,
             "a start is not free: %llu schedules, %llu allocations, %llu look-ups",
             (unsigned long long)(after.plans_built - before.plans_built),
             (unsigned long long)(after.allocations - before.allocations),
             (unsigned long long)(comm->plans.uses - uses));
    const size_t held = comm->held_bytes;
    MP_OK(gyre_plan_free(&b));
    MP_CHECK(held > comm->held_bytes && comm->held_bytes > 0, "%zu of %zu bytes", comm->held_bytes, held);
    start(a, 0);
    MP_OK(gyre_plan_free(&a));
    MP_CHECK(comm->held_bytes == 0 && !comm->held, "%zu bytes", comm->held_bytes);
}

/* Options that are set after it was made change plain calls only. */
static void keeps_its_options(gyre_comm_t *comm)
{
    gyre_plan_t *plan;
    int32_t x[2] = {1, 10}, y = 0;
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.leaves = 2;
    options.order = GYRE_ORDER_FAST;
    MP_OK(gyre_plan_all_reduce(x, &y, 1, GYRE_INT32, sum, comm, &plan));
    MP_OK(gyre_comm_set(comm, &options));
    MP_OK(gyre_all_reduce(x, &y, 1, GYRE_INT32, sum, comm));
    MP_CHECK(y == 11 * n, "%d", (int)y);
    start(plan, 0);
    MP_CHECK(y == n, "%d", (int)y);
    MP_OK(gyre_plan_free(&plan));
    MP_OK(gyre_plan_all_reduce(x, &y, 1, GYRE_INT32, sum, comm, &plan));
    MP_OK(gyre_comm_set(comm, NULL));
    start(plan, 1);
    MP_CHECK(y == 11 * n, "%d", (int)y);
    MP_OK(gyre_plan_free(&plan));
}

enum { FLOATS = 1000 };

/* What cancels to the last bit, so that each order has its own sums. */
static void hostile(float *x)
{
    for (int i = 0; i < FLOATS; i++)
        x[i] = (rank % 2 ? -1.0f : 1.0f) * 1e8f + (float)((rank * 37 + i * 11) % 101) / 7.0f;
}

static uint64_t messages(const gyre_comm_t *comm)
{
    gyre_comm_stats_t stats = {.size = sizeof stats};
    MP_OK(gyre_comm_stats(comm, &stats));
    return stats.messages_sent;
}

static gyre_options_t with(gyre_order_t order, const char *algorithm, size_t chunk)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order;
    options.algorithm = algorithm;
    options.chunk = chunk;
    return options;
}

/* A plan of `comm` with options of its own is as a call on a communicator that has these. */
static void has_its_own_options(gyre_comm_t *comm)
{
    static float x[FLOATS], planned[FLOATS], plain[FLOATS], before[FLOATS];
    const gyre_options_t all[] = {with(GYRE_ORDER_EXACT, NULL, 0), with(GYRE_ORDER_FAST, "ring", 0),
                                  with(GYRE_ORDER_FAST, "ring", 256), with(GYRE_ORDER_CANONICAL, "tree", 0),
                                  with(GYRE_ORDER_DEFAULT, "all_reduce:direct", 0)};
    gyre_plan_t *plan;
    int differs = 0;
    hostile(x);
    MP_OK(gyre_all_reduce(x, before, FLOATS, GYRE_FLOAT32, sum, comm));
    MP_OK(gyre_plan_all_reduce(x, planned, FLOATS, GYRE_FLOAT32, sum, comm, &plan));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gyre_comm_t *other = split();
        MP_OK(gyre_comm_set(other, &all[i]));
        uint64_t from = messages(other);
        MP_OK(gyre_all_reduce(x, plain, FLOATS, GYRE_FLOAT32, sum, other));
        const uint64_t wanted = messages(other) - from;
        MP_OK(gyre_plan_set(plan, &all[i]));
        from = messages(comm);
        start(plan, (int)i % 4);
        MP_CHECK(messages(comm) - from == wanted, "options %zu: %llu messages, not %llu", i,
                 (unsigned long long)(messages(comm) - from), (unsigned long long)wanted);
        MP_CHECK(!memcmp(planned, plain, sizeof plain), "options %zu: other bits", i);
        differs |= memcmp(planned, before, sizeof before) != 0;
        MP_OK(gyre_comm_destroy(other));
    }
    MP_CHECK(differs == (n > 2), "no order shows in the bits");
    MP_OK(gyre_plan_set(plan, NULL)); /* as its communicator, and as plain calls of other ranks there */
    if (rank % 2)
        MP_OK(gyre_all_reduce(x, planned, FLOATS, GYRE_FLOAT32, sum, comm));
    else
        start(plan, 0);
    MP_CHECK(!memcmp(planned, before, sizeof before), "other bits than its communicator's");
    MP_OK(gyre_plan_free(&plan));
    MP_CHECK(comm->held_bytes == 0, "%zu bytes", comm->held_bytes);
}

static void refuses(gyre_plan_t *plan, const gyre_options_t *options, gyre_status_t wanted, const char *text)
{
    gyre_status_t st = gyre_plan_set(plan, options);
    MP_CHECK(st == wanted && strstr(gyre_last_error(), text), "%s: \"%s\", not \"%s\"",
             gyre_status_string(st), gyre_last_error(), text);
}

static void refused_options(gyre_comm_t *comm)
{
    static float x[FLOATS], y[FLOATS];
    gyre_plan_t *plan, *product;
    gyre_request_t *r = NULL;
    gyre_options_t options = with(GYRE_ORDER_FAST, NULL, 0), bad = options;
    MP_OK(gyre_plan_all_reduce(x, y, FLOATS, GYRE_FLOAT32, sum, comm, &plan));
    MP_OK(gyre_plan_all_reduce(x, y, FLOATS, GYRE_FLOAT32, GYRE_OP(GYRE_PROD), comm, &product));
    refuses(NULL, &options, GYRE_ERR_INVALID, "gyre_plan_set: plan is NULL");
    bad.order = (gyre_order_t)9;
    refuses(plan, &bad, GYRE_ERR_INVALID, "gyre_plan_set: order 9");
    bad = options;
    bad.leaves = 2;
    refuses(plan, &bad, GYRE_ERR_INVALID, "leaves is 2");
    bad = options;
    bad.timeout_s = 1;
    refuses(plan, &bad, GYRE_ERR_INVALID, "timeout_s 1");
    bad = with(GYRE_ORDER_FAST, "nonsense", 0);
    refuses(plan, &bad, GYRE_ERR_INVALID, "gyre_plan_set");
    bad = with(GYRE_ORDER_EXACT, NULL, 0);
    refuses(product, &bad, GYRE_ERR_UNSUPPORTED, "no exact result");
    MP_OK(gyre_start(plan, &r));
    refuses(plan, &options, GYRE_ERR_INVALID, "under way");
    MP_OK(gyre_wait(&r));
    options.leaves = 2; /* a plan that was made before does not know them */
    MP_OK(gyre_comm_set(comm, &options));
    options.leaves = 1;
    refuses(plan, &options, GYRE_ERR_UNSUPPORTED, "has leaves");
    MP_OK(gyre_plan_free(&plan));
    static float twice[2 * FLOATS];
    MP_OK(gyre_plan_all_reduce(twice, y, FLOATS, GYRE_FLOAT32, sum, comm, &plan));
    MP_OK(gyre_comm_set(comm, NULL));
    refuses(plan, &options, GYRE_ERR_UNSUPPORTED, "or had them");
    start(plan, 0);
    start(product, 0);
    MP_OK(gyre_plan_free(&plan));
    MP_OK(gyre_plan_free(&product));
}

/* Ranks that set different options learn that at the start. */
static void options_differ(const gyre_options_t *mine)
{
    gyre_comm_t *comm = split();
    gyre_plan_t *plan;
    MP_OK(gyre_plan_all_reduce(in, out, 4000, GYRE_INT32, sum, comm, &plan));
    MP_OK(gyre_plan_set(plan, mine));
    MP_OK(gyre_barrier(world)); /* as in mismatch */
    gyre_status_t st = gyre_start(plan, NULL);
    MP_CHECK(n == 1 ? st == GYRE_OK : st == GYRE_ERR_MISMATCH, "%s: %s", gyre_status_string(st),
             gyre_last_error());
    MP_CHECK(n == 1 || strstr(gyre_last_error(), "gyre_plan_set"), "%s", gyre_last_error());
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    refuses(plan, NULL, GYRE_ERR_INVALID, "has ended");
    MP_OK(gyre_plan_free(&plan));
}

static gyre_status_t add(const void *left, void *right, size_t elements, gyre_type_t type, void *user)
{
    const int32_t *a = left;
    int32_t *b = right;
    (void)type, (void)user;
    for (size_t i = 0; i < elements; i++)
        b[i] += a[i];
    return GYRE_OK;
}

/* An operation of the program's own lasts as long as a plan with it. */
static void keeps_its_operation(void)
{
    gyre_plan_t *plan[2];
    gyre_redop_t own;
    int32_t x = rank, y = 0;
    gyre_comm_t *comm = split();
    MP_OK(gyre_op_create(add, NULL, GYRE_OP_COMMUTATIVE, &own));
    for (int i = 0; i < 2; i++)
        MP_OK(gyre_plan_all_reduce(&x, &y, 1, GYRE_INT32, own, comm, &plan[i]));
    start(plan[0], 0);
    MP_CHECK(y == n * (n - 1) / 2, "%d", (int)y);
    MP_OK(gyre_plan_free(&plan[0]));
    MP_CHECK(gyre_op_free(&own) == GYRE_ERR_INVALID, "a plan has it");
    start(plan[1], 1);
    MP_OK(gyre_comm_destroy(comm));
    MP_CHECK(gyre_op_free(&own) == GYRE_ERR_INVALID, "a plan has it");
    MP_OK(gyre_plan_free(&plan[1]));
    MP_OK(gyre_op_free(&own));
}

/* So does a type: its number would come to stand for elements of another size. */
static void keeps_its_type(void)
{
    gyre_plan_t *plan[2];
    gyre_type_t own, other;
    const size_t one = 1;
    const int to = (rank + 1) % n, from = (rank + n - 1) % n;
    const gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    int32_t x = rank + 1, y[8] = {0};
    gyre_comm_t *comm = split();
    MP_OK(gyre_type_create(sizeof x, &own));
    MP_OK(gyre_plan_all_gather(&x, y, 1, own, comm, &plan[0]));
    MP_OK(gyre_plan_neighbor_exchange(&x, &one, NULL, 1, &to, y, &one, NULL, 1, &from, own, comm, &plan[1]));
    for (int i = 0; i < 2; i++) {
        MP_EXPECT(gyre_type_free(&own), GYRE_ERR_INVALID, "gyre_type_free: ");
        MP_CHECK(own != GYRE_TYPE_NONE && gyre_type_size(own) == sizeof x, "it was freed");
        MP_OK(gyre_type_create(2 * sizeof x, &other));
        if (i == 0)
            MP_OK(gyre_plan_set(plan[i], &options));
        start(plan[i], i);
        MP_CHECK(y[0] == (i == 0 ? 1 : from + 1) && y[n] == 0, "%d, then %d", (int)y[0], (int)y[n]);
        MP_OK(gyre_type_free(&other));
        MP_OK(gyre_plan_free(&plan[i]));
    }
    MP_OK(gyre_type_free(&own));
    MP_OK(gyre_comm_destroy(comm));
}

static void refused(gyre_comm_t *comm)
{
    gyre_plan_t *plan = NULL;
    gyre_request_t *r = NULL, *again = NULL;
    int32_t x = 1, y = 0;
    MP_CHECK(gyre_plan_all_reduce(&x, &y, 1, GYRE_INT32, sum, comm, NULL) == GYRE_ERR_INVALID, "plan NULL");
    MP_CHECK(gyre_plan_all_reduce(&x, &y, 1, GYRE_INT32, sum, NULL, &plan) == GYRE_ERR_INVALID, "comm NULL");
    MP_CHECK(gyre_plan_all_reduce(&x, &y, 1, (gyre_type_t)99, sum, comm, &plan) == GYRE_ERR_TYPE, "type");
    MP_CHECK(gyre_plan_all_reduce(NULL, &y, 1, GYRE_INT32, sum, comm, &plan) == GYRE_ERR_INVALID, "NULL");
    MP_CHECK(gyre_plan_broadcast(&x, &y, 1, GYRE_INT32, n, comm, &plan) == GYRE_ERR_INVALID, "root");
    MP_CHECK(gyre_plan_all_gather(in, out, SIZE_MAX / 2, GYRE_INT32, comm, &plan) == GYRE_ERR_OVERFLOW,
             "length");
    MP_CHECK(!plan, "a plan without arguments");
    MP_CHECK(gyre_start(NULL, NULL) == GYRE_ERR_INVALID, "no plan");
    MP_CHECK(gyre_plan_free(NULL) == GYRE_ERR_INVALID, "no plan");
    MP_OK(gyre_plan_free(&plan));

    MP_OK(gyre_plan_all_reduce(&x, &y, 1, GYRE_INT32, sum, comm, &plan));
    MP_OK(gyre_start(plan, &r));
    MP_CHECK(gyre_start(plan, &again) == GYRE_ERR_INVALID && !again, "it is under way");
    MP_CHECK(strstr(gyre_last_error(), "all_reduce is under way"), "%s", gyre_last_error());
    MP_CHECK(gyre_start(plan, NULL) == GYRE_ERR_INVALID, "it is under way");
    MP_CHECK(gyre_plan_free(&plan) == GYRE_ERR_INVALID && plan, "it is under way");
    MP_OK(gyre_wait(&r));
    MP_CHECK(y == n, "%d", (int)y);

    MP_OK(gyre_group_start()); /* nothing of a group with a refused call is started */
    MP_OK(gyre_start(plan, NULL));
    MP_CHECK(gyre_start(plan, NULL) == GYRE_ERR_INVALID, "it is under way");
    MP_CHECK(gyre_group_end() == GYRE_ERR_INVALID, "a call was refused");
    MP_OK(gyre_group_start());
    MP_OK(gyre_start(plan, &r));
    MP_CHECK(gyre_start(plan, &again) == GYRE_ERR_INVALID, "it is under way");
    MP_CHECK(gyre_group_end() == GYRE_ERR_INVALID, "a call was refused");
    MP_CHECK(gyre_plan_free(&plan) == GYRE_ERR_INVALID, "the request was not ended");
    MP_CHECK(gyre_wait(&r) == GYRE_ERR_INVALID, "it was not started");
    x = 2;
    start(plan, 0);
    MP_CHECK(y == 2 * n, "%d", (int)y);
    MP_OK(gyre_plan_free(&plan));
}

static void mismatch(void)
{
    gyre_comm_t *comm = split();
    gyre_plan_t *plan;
    const size_t mine = rank == 0 ? 4 : 5;
    MP_OK(gyre_plan_all_reduce(in, out, mine, GYRE_INT32, sum, comm, &plan));
    MP_OK(gyre_barrier(world)); /* none may start before all have a plan: it ends the communicator */
    gyre_status_t st = gyre_start(plan, NULL);
    MP_CHECK(n == 1 ? st == GYRE_OK : st == GYRE_ERR_MISMATCH, "%s", gyre_status_string(st));
    if (n > 1) {
        MP_CHECK(strstr(gyre_last_error(), "count 4") && strstr(gyre_last_error(), "count 5"), "%s",
                 gyre_last_error());
        MP_CHECK(gyre_start(plan, NULL) == GYRE_ERR_MISMATCH, "%s", gyre_last_error());
    }
    MP_OK(gyre_barrier(world));
    MP_OK(gyre_comm_destroy(comm));
    MP_CHECK(gyre_start(plan, NULL) == GYRE_ERR_INVALID && strstr(gyre_last_error(), "has ended"), "%s",
             gyre_last_error());
    MP_OK(gyre_plan_free(&plan));
}

/* Plans that outlive their communicators. */
static void after_the_end(void)
{
    gyre_plan_t *plan[3];
    gyre_request_t *r = NULL;
    gyre_comm_t *comm = split();
    MP_OK(gyre_plan_all_reduce(in, out, 4, GYRE_INT32, sum, comm, &plan[0]));
    MP_OK(gyre_plan_barrier(comm, &plan[1]));
    MP_OK(gyre_plan_all_reduce(in, out, MOST, GYRE_INT32, sum, world, &plan[2]));
    start(plan[2], 1);
    start(plan[0], 0);
    MP_OK(gyre_barrier(world));
    if (rank == n - 1)
        MP_OK(gyre_comm_abort(comm, "enough"));
    while (gyre_comm_error(comm) == GYRE_OK)
        ;
    MP_CHECK(gyre_start(plan[1], NULL) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
    MP_CHECK(gyre_start(plan[1], &r) == GYRE_ERR_ABORTED && !r, "%s", gyre_last_error());
    MP_OK(gyre_plan_free(&plan[1]));
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_finalize(world));
    for (int i = 0; i < 3; i += 2) {
        MP_CHECK(gyre_start(plan[i], NULL) == GYRE_ERR_INVALID, "%s", gyre_last_error());
        MP_OK(gyre_plan_free(&plan[i]));
    }
}

int main(void)
{
    setenv("GYRE_FAULT", "0:1000000:kill", 1); /* armed, and never strikes: starts of `world` are the same */
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    root = n - 1;
    gyre_comm_t *comm = split();
    const size_t lengths[] = {0, 3, 300, MOST / 2};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        count = lengths[k];
        same_bytes(comm);
    }
    keeps_its_schedule(comm);
    refused(comm);
    keeps_its_options(comm);
    has_its_own_options(comm);
    has_its_own_options(world);
    refused_options(comm);
    MP_OK(gyre_comm_destroy(comm));
    mismatch();
    const gyre_options_t chunk = with(GYRE_ORDER_FAST, "ring", rank == 0 ? 512 : 1024),
                         order = with(rank == 0 ? GYRE_ORDER_CANONICAL : GYRE_ORDER_EXACT, NULL, 0);
    options_differ(&chunk);
    options_differ(&order);
    keeps_its_operation();
    keeps_its_type();
    after_the_end();
    return 0;
}
