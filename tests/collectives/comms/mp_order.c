/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 4, over UCX: 3 */
/* tests/collectives/comms/mp_order.c: gyre_comm_set: a communicator keeps its own order of reductions, and
 * two of the same process may differ. Setting is refused while operations are under way; where ranks
 * disagree, all of them get an error, nothing changes, and the communicator works on. */
#include "tests/support/mp.h"

#include <string.h>

#include "base/settings/settings.h"
#include "collectives/run/communicator.h"

enum { COUNT = 20000 };

static int n, rank;
static float in[COUNT];

static void set_order(gyre_comm_t *comm, gyre_order_t order)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order;
    MP_OK(gyre_comm_set(comm, &options));
}

static void reduce(gyre_comm_t *comm, float *out)
{
    memset(out, 0, COUNT * sizeof *out);
    MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
}

static int same(const float *a, const float *b)
{
    return memcmp(a, b, COUNT * sizeof *a) == 0;
}

/* With the ring forced, the two orders differ in their bits from 3 ranks on, and each comes back as it
 * was. */
static void orders_of_two(gyre_comm_t *world)
{
    static float canonical[COUNT], fast[COUNT], again[COUNT];
    gyre_comm_t *other, *child;
    MP_OK(gyre_comm_split(world, 0, rank, &other));
    set_order(other, GYRE_ORDER_FAST);
    reduce(world, canonical);
    reduce(other, fast);
    MP_CHECK(same(canonical, fast) == (n < 3), "%d ranks: the orders should %s", n,
             n < 3 ? "agree" : "differ");
    MP_OK(gyre_comm_split(other, 0, rank, &child));
    reduce(child, again);
    MP_CHECK(same(fast, again), "a split does not reduce as its parent does");
    reduce(world, again);
    MP_CHECK(same(canonical, again), "another communicator's order is not the world's");
    set_order(other, GYRE_ORDER_CANONICAL); /* the plans of before must not be used */
    reduce(other, again);
    MP_CHECK(same(canonical, again), "back in the canonical order, the bits are not");
    MP_OK(gyre_comm_destroy(child));
    MP_OK(gyre_comm_destroy(other));
}

static void not_while_under_way(gyre_comm_t *world)
{
    static float out[COUNT];
    gyre_request_t *request;
    MP_OK(gyre_iall_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world, &request));
    MP_CHECK(gyre_comm_set(world, NULL) == GYRE_ERR_INVALID, "changed under an operation");
    MP_CHECK(strstr(gyre_last_error(), "not waited for"), "%s", gyre_last_error());
    MP_OK(gyre_wait(&request));
}

static void ranks_that_disagree(gyre_comm_t *world)
{
    static float before[COUNT], out[COUNT];
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    reduce(comm, before);
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = rank == 0 ? GYRE_ORDER_EXACT : GYRE_ORDER_FAST;
    gyre_status_t got = gyre_comm_set(comm, &options);
    MP_CHECK(got == GYRE_ERR_MISMATCH, "%s: %s", gyre_status_string(got), gyre_last_error());
    MP_CHECK(strstr(gyre_last_error(), "order exact") && strstr(gyre_last_error(), "order fast"), "%s",
             gyre_last_error());
    reduce(comm, out);
    MP_CHECK(same(before, out), "the order has changed all the same");
    MP_OK(gyre_comm_destroy(comm));
}

static void refused(gyre_comm_t *comm, gyre_options_t options, const char *text)
{
    gyre_status_t got = gyre_comm_set(comm, &options);
    MP_CHECK(got == GYRE_ERR_INVALID, "%s: %s", text, gyre_status_string(got));
    MP_CHECK(strstr(gyre_last_error(), text), "%s: %s", text, gyre_last_error());
}

static void wrong_options(gyre_comm_t *world)
{
    const gyre_options_t standard = GYRE_OPTIONS_INITIALIZER;
    gyre_options_t o = standard;
    o.order = (gyre_order_t)4;
    refused(world, o, "order 4 is not");
    o = standard;
    o.algorithm = "rink";
    refused(world, o, "there is no algorithm \"rink\"");
    o.algorithm = "allreduce:ring";
    refused(world, o, "there is no collective \"allreduce\"");
    o = standard;
    o.timeout_s = -1;
    refused(world, o, "timeout_s");
    o = standard;
    o.size = 8;
    refused(world, o, "size");
    refused(NULL, standard, "NULL");
    MP_OK(gyre_comm_set(world, NULL));
}

/* Products of floating-point numbers have no exact result; integers and extremes have. */
static void without_exact_result(gyre_comm_t *world)
{
    gyre_comm_t *comm;
    static float out[COUNT];
    int32_t one = rank + 1, product;
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    set_order(comm, GYRE_ORDER_EXACT);
    MP_CHECK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_PROD), comm) == GYRE_ERR_UNSUPPORTED,
             "an exact product");
    MP_CHECK(strstr(gyre_last_error(), "prod of float has no exact result"), "%s", gyre_last_error());
    MP_OK(gyre_all_reduce(&one, &product, 1, GYRE_INT32, GYRE_OP(GYRE_PROD), comm));
    MP_CHECK(product == (n == 2 ? 2 : n == 3 ? 6 : 24), "%d", product);
    MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_MAX), comm));
    MP_OK(gyre_comm_destroy(comm));
}

/* Not only by the first call that it would be for, if there is one. */
static void wrong_setting(void)
{
    gyre_comm_t *world;
    MP_OK(base_settings_set(SET_ALGO, "rink", "test"));
    MP_EXPECT(gyre_init(NULL, &world), GYRE_ERR_INVALID,
              "GYRE_ALGO: algorithm \"rink\": there is no algorithm");
    MP_OK(base_settings_set(SET_ALGO, "allreduce:ring", "test"));
    MP_EXPECT(gyre_init(NULL, &world), GYRE_ERR_INVALID, "there is no collective \"allreduce\"");
}

int main(void)
{
    gyre_comm_t *world;
    MP_OK(base_settings_load());
    wrong_setting();
    MP_OK(base_settings_set(SET_ALGO, "all_reduce:ring", "test"));
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    config.timeout_s = 99;
    config.options = &options;
    options.timeout_s = 77;
    MP_OK(gyre_init(&config, &world));
    MP_CHECK(world->timeout_s == 77, "a deadline of %g s", world->timeout_s);
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    uint64_t seed = (uint64_t)rank + 1;
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(random_next(&seed) >> 40) * 1e-3f;
    orders_of_two(world);
    not_while_under_way(world);
    ranks_that_disagree(world);
    wrong_options(world);
    MP_CHECK(world->timeout_s == 99, "%g s instead of the job's deadline", world->timeout_s);
    without_exact_result(world);
    MP_OK(gyre_finalize(world));
    return 0;
}
