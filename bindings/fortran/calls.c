/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/fortran/calls.c: the other calls of module gyre: requests, plans, buckets, communicators, exact
 * sums, memory. */
#include "bindings/fortran/arrays.h"

#include <stdint.h>

/* Requests. */
GYRE_API void gyre_f_wait(gyre_request_t **request, int *status)
{
    fortran_plain("wait", gyre_wait(request), status);
}
GYRE_API void gyre_f_test(gyre_request_t **request, _Bool *finished, int *status)
{
    gyre_status_t rc = gyre_test(request);
    *finished = rc != GYRE_IN_PROGRESS;
    fortran_plain("test", rc == GYRE_IN_PROGRESS ? GYRE_OK : rc, status);
}
GYRE_API void gyre_f_wait_all(const int *count, gyre_request_t **requests, int *status)
{
    fortran_plain("wait_all", gyre_wait_all(*count > 0 ? (size_t)*count : 0, requests), status);
}
GYRE_API void gyre_f_group_start(int *status)
{
    fortran_plain("group_start", gyre_group_start(), status);
}
GYRE_API void gyre_f_group_end(int *status)
{
    fortran_plain("group_end", gyre_group_end(), status);
}
GYRE_API void gyre_f_progress(gyre_comm_t *const *comm, int *status)
{
    fortran_plain("progress", gyre_progress(*comm), status);
}

/* options->chunk, or that the call is refused: 1 */
static int chunk_refused(const char *name, const int64_t *chunk, gyre_options_t *options, int *status)
{
    fortran_call_t c = {.name = name};
    if (chunk && *chunk < 0) {
        fortran_no(&c, GYRE_ERR_INVALID, "chunk is %lld: pass 0 or more", (long long)*chunk);
        fortran_refuse(&c, status);
    }
    options->chunk = chunk ? (size_t)*chunk : 0;
    return c.refused;
}

/* Plans: gyre/plan.h. */
GYRE_API void gyre_f_start(gyre_plan_t *const *plan, gyre_request_t **request, int *status)
{
    fortran_plain("start", gyre_start(*plan, request), status);
}
GYRE_API void gyre_f_plan_set(gyre_plan_t *const *plan, const int *order, const char *algorithm,
                              const int64_t *chunk, const int64_t *tag, int *status)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order ? (gyre_order_t)*order : GYRE_ORDER_DEFAULT;
    options.algorithm = algorithm && *algorithm ? algorithm : NULL;
    options.tag = tag ? (uint64_t)*tag : 0;
    if (!chunk_refused("plan_set", chunk, &options, status))
        fortran_plain("plan_set", gyre_plan_set(*plan, &options), status);
}
GYRE_API void gyre_f_plan_free(gyre_plan_t **plan, int *status)
{
    fortran_plain("plan_free", gyre_plan_free(plan), status);
}

/* Operations of the program's own. */
GYRE_API void gyre_f_op_create(gyre_op_function_t function, const int *commutative, void *user,
                               gyre_redop_t *op, int *status)
{
    fortran_plain("op_create", gyre_op_create(function, user, *commutative ? GYRE_OP_COMMUTATIVE : 0, op),
                  status);
}
GYRE_API void gyre_f_op_free(gyre_redop_t *op, int *status)
{
    fortran_plain("op_free", gyre_op_free(op), status);
}

/* Buckets: gyre/bucket.h. Tensors and buckets are numbered from 0. */
GYRE_API void gyre_f_buckets_create(gyre_comm_t *const *comm, const CFI_cdesc_t *counts,
                                    const CFI_cdesc_t *mold, const gyre_redop_t *op, gyre_buckets_t **buckets,
                                    const int *mode, const int64_t *bucket_bytes, gyre_bucket_fn landed,
                                    void *const *user, int *status)
{
    fortran_call_t c = fortran_begin("buckets_create", comm, -1);
    size_t tensors = counts->rank == 1 && counts->dim[0].extent > 0 ? (size_t)counts->dim[0].extent : 0;
    gyre_buckets_config_t config = {.size = sizeof config, .op = *op, .landed = landed};
    config.type = fortran_type_of(mold);
    config.user = user ? *user : NULL;
    config.mode = mode ? (gyre_bucket_mode_t)*mode : GYRE_BUCKET_ALL_REDUCE;
    config.bucket_bytes = bucket_bytes && *bucket_bytes > 0 ? (size_t)*bucket_bytes : 0;
    if (!c.refused && config.type == GYRE_TYPE_NONE)
        fortran_no(&c, GYRE_ERR_TYPE, "mold has a type that Gyre does not have");
    if (!c.refused && bucket_bytes && *bucket_bytes < 0)
        fortran_no(&c, GYRE_ERR_INVALID, "bucket_bytes is %lld: pass 0 or more", (long long)*bucket_bytes);
    if (c.refused || fortran_list(&c, counts, "counts", tensors, &c.counts[0]))
        fortran_refuse(&c, status);
    else
        fortran_done(&c, gyre_buckets_create(*comm, &config, tensors, c.counts[0], buckets), status);
}
GYRE_API void gyre_f_buckets_destroy(gyre_buckets_t **buckets, int *status)
{
    gyre_status_t rc = gyre_buckets_destroy(*buckets);
    *buckets = NULL;
    fortran_plain("buckets_destroy", rc, status);
}
static size_t index_of(int i)
{
    return i < 0 ? SIZE_MAX : (size_t)i;
}
GYRE_API void gyre_f_buckets_tensor(gyre_buckets_t *const *buckets, const int *tensor, void **ptr,
                                    int *status)
{
    void *at = gyre_buckets_tensor(*buckets, index_of(*tensor));
    fortran_call_t c = {.name = "buckets_tensor"};
    if (!at) {
        fortran_no(&c, GYRE_ERR_INVALID, "there is no tensor %d", *tensor);
        fortran_refuse(&c, status);
        return;
    }
    *ptr = at;
    fortran_plain("buckets_tensor", GYRE_OK, status);
}
GYRE_API int gyre_f_buckets_count(gyre_buckets_t *const *buckets)
{
    return (int)gyre_buckets_count(*buckets);
}
GYRE_API void gyre_f_buckets_get(gyre_buckets_t *const *buckets, const int *index, gyre_bucket_t *bucket,
                                 int *status)
{
    fortran_plain("buckets_get", gyre_buckets_get(*buckets, index_of(*index), bucket), status);
}
GYRE_API void gyre_f_buckets_ready(gyre_buckets_t *const *buckets, const int *tensor, int *status)
{
    fortran_plain("buckets_ready", gyre_buckets_ready(*buckets, index_of(*tensor)), status);
}
GYRE_API void gyre_f_buckets_progress(gyre_buckets_t *const *buckets, int *status)
{
    fortran_plain("buckets_progress", gyre_buckets_progress(*buckets), status);
}
GYRE_API void gyre_f_buckets_wait(gyre_buckets_t *const *buckets, int *status)
{
    fortran_plain("buckets_wait", gyre_buckets_wait(*buckets), status);
}
GYRE_API void gyre_f_buckets_times(gyre_buckets_t *const *buckets, double *total_s, double *exposed_s,
                                   int *status)
{
    fortran_plain("buckets_times", gyre_buckets_times(*buckets, total_s, exposed_s), status);
}

/* Communicators. Strings end with a zero; their Fortran side is in gyre.f90. */
GYRE_API void gyre_f_init(gyre_comm_t **comm, const double *timeout_s, int *status)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    if (timeout_s)
        config.timeout_s = *timeout_s;
    fortran_plain("init", gyre_init(&config, comm), status);
}
static void ended(const char *name, gyre_status_t rc, gyre_comm_t **comm, int *status)
{
    if (rc == GYRE_OK)
        *comm = NULL;
    fortran_plain(name, rc, status);
}
GYRE_API void gyre_f_finalize(gyre_comm_t **comm, int *status)
{
    ended("finalize", gyre_finalize(*comm), comm, status);
}
GYRE_API void gyre_f_comm_destroy(gyre_comm_t **comm, int *status)
{
    ended("comm_destroy", gyre_comm_destroy(*comm), comm, status);
}
GYRE_API void gyre_f_comm_split(gyre_comm_t *const *comm, const int *color, const int *key, gyre_comm_t **out,
                                int *status)
{
    fortran_plain("comm_split", gyre_comm_split(*comm, *color, *key, out), status);
}
GYRE_API void gyre_f_comm_split_type(gyre_comm_t *const *comm, const int *type, const int *key,
                                     gyre_comm_t **out, int *status)
{
    fortran_plain("comm_split_type", gyre_comm_split_type(*comm, (gyre_split_t)*type, *key, out), status);
}
GYRE_API void gyre_f_comm_dup(gyre_comm_t *const *comm, gyre_comm_t **out, int *status)
{
    fortran_plain("comm_dup", gyre_comm_dup(*comm, out), status);
}
GYRE_API void gyre_f_comm_create_group(gyre_comm_t *const *comm, const CFI_cdesc_t *members, const int *tag,
                                       gyre_comm_t **out, int *status)
{
    fortran_call_t c = fortran_begin("comm_create_group", comm, -1);
    if (c.refused || fortran_ranks(&c, members, "ranks", &c.to, &c.nto))
        fortran_refuse(&c, status);
    else
        fortran_done(&c, gyre_comm_create_group(*comm, c.to, c.nto, (uint64_t)*tag, out), status);
}
GYRE_API void gyre_f_comm_shrink(gyre_comm_t *const *comm, gyre_comm_t **out, int *status)
{
    fortran_plain("comm_shrink", gyre_comm_shrink(*comm, out), status);
}
GYRE_API void gyre_f_comm_abort(gyre_comm_t *const *comm, const char *reason, int *status)
{
    fortran_plain("comm_abort", gyre_comm_abort(*comm, reason), status);
}
GYRE_API void gyre_f_comm_set(gyre_comm_t *const *comm, const int *order, const int *leaves,
                              const char *algorithm, const int64_t *chunk, const double *timeout_s,
                              const int64_t *tag, int *status)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order ? (gyre_order_t)*order : GYRE_ORDER_DEFAULT;
    options.algorithm = algorithm && *algorithm ? algorithm : NULL;
    options.timeout_s = timeout_s ? *timeout_s : 0;
    options.tag = tag ? (uint64_t)*tag : 0;
    options.leaves = leaves ? *leaves : 1;
    if (!chunk_refused("comm_set", chunk, &options, status))
        fortran_plain("comm_set", gyre_comm_set(*comm, &options), status);
}
GYRE_API int gyre_f_comm_number(gyre_comm_t *const *comm, const int *which)
{
    switch (*which) {
    case 0:
        return gyre_comm_rank(*comm);
    case 1:
        return gyre_comm_size(*comm);
    case 2:
        return gyre_comm_local_rank(*comm);
    case 3:
        return gyre_comm_local_size(*comm);
    case 4:
        return gyre_comm_hosts(*comm);
    default:
        return gyre_comm_error(*comm);
    }
}

/* Exact sums and memory. */
GYRE_API void gyre_f_exact_create(gyre_exact_t **sum, int *status)
{
    fortran_plain("exact_create", gyre_exact_create(sum), status);
}
GYRE_API void gyre_f_exact_destroy(gyre_exact_t **sum, int *status)
{
    fortran_plain("exact_destroy", gyre_exact_destroy(*sum), status);
    *sum = NULL;
}
GYRE_API void gyre_f_exact_add(gyre_exact_t *const *sum, const CFI_cdesc_t *x, int *status)
{
    fortran_call_t c = {.name = "exact_add", .op = -1, .type = GYRE_TYPE_NONE};
    if (fortran_array(&c, x, "x", &c.send, &c.count))
        fortran_refuse(&c, status);
    else
        fortran_done(&c, gyre_exact_add(*sum, c.send, c.count, c.type), status);
}
GYRE_API void gyre_f_exact_add_dot(gyre_exact_t *const *sum, const CFI_cdesc_t *x, const CFI_cdesc_t *y,
                                   int *status)
{
    fortran_call_t c = {.name = "exact_add_dot", .op = -1, .type = GYRE_TYPE_NONE};
    size_t has = 0;
    if (fortran_array(&c, x, "x", &c.send, &c.count) || fortran_array(&c, y, "y", &c.recv, &has) ||
        fortran_must(&c, "y", has, c.count))
        fortran_refuse(&c, status);
    else
        fortran_done(&c, gyre_exact_add_dot(*sum, c.send, c.recv, c.count, c.type), status);
}
GYRE_API void gyre_f_exact_all_reduce(gyre_exact_t *const *sum, gyre_comm_t *const *comm, int *status)
{
    fortran_plain("exact_all_reduce", gyre_exact_all_reduce(*sum, *comm), status);
}
GYRE_API void gyre_f_exact_value(gyre_exact_t *const *sum, double *value, int *status)
{
    fortran_plain("exact_value", gyre_exact_value(*sum, value), status);
}
GYRE_API void gyre_f_mem_alloc(const int64_t *bytes_, void **ptr, int *status)
{
    fortran_plain("mem_alloc", gyre_mem_alloc(*bytes_ < 0 ? SIZE_MAX : (size_t)*bytes_, ptr), status);
}
GYRE_API void gyre_f_mem_alloc_shared(gyre_comm_t *const *comm, const int64_t *bytes_, void **ptr,
                                      int *status)
{
    fortran_plain("mem_alloc_shared",
                  gyre_mem_alloc_shared(*comm, *bytes_ < 0 ? SIZE_MAX : (size_t)*bytes_, ptr), status);
}
GYRE_API void gyre_f_mem_peer(void *const *ptr, const int *rank, void **peer, int *status)
{
    fortran_plain("mem_peer", gyre_mem_peer(*ptr, *rank, peer, NULL), status);
}
GYRE_API void gyre_f_mem_free(void **ptr, int *status)
{
    gyre_status_t rc = gyre_mem_free(*ptr);
    if (rc == GYRE_OK)
        *ptr = NULL;
    fortran_plain("mem_free", rc, status);
}
