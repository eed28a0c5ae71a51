/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 */
/* tests/collectives/comms/mp_free.c: memory that an operation under way uses is neither freed nor
 * deregistered; the error names the operation, which goes on. Nor is it when the communicator has failed and
 * the operation has not ended yet. */
#include "tests/support/mp.h"

#include <string.h>

enum { COUNT = 100000 };

static void refused(gyre_status_t status, const char *call, const char *operation)
{
    MP_CHECK(status == GYRE_ERR_INVALID && strstr(gyre_last_error(), call) &&
                 strstr(gyre_last_error(), operation),
             "%s during %s: %s, %s", call, operation, gyre_status_string(status), gyre_last_error());
}

static float *allocated(void)
{
    float *at = NULL;
    MP_OK(gyre_mem_alloc(COUNT * sizeof *at, (void **)&at));
    for (int i = 0; i < COUNT; i++)
        at[i] = 1;
    return at;
}

/* The others do not come. */
static void aborted(gyre_comm_t *world, int rank)
{
    gyre_comm_t *part;
    gyre_request_t *request;
    MP_OK(gyre_comm_dup(world, &part));
    if (rank == 0) {
        float *in = allocated(), *out = allocated();
        MP_OK(gyre_iall_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), part, &request));
        MP_OK(gyre_comm_abort(part, "enough of it"));
        refused(gyre_mem_free(in), "gyre_mem_free", "all_reduce");
        refused(gyre_mem_free(out), "gyre_mem_free", "all_reduce");
        MP_CHECK(gyre_wait(&request) == GYRE_ERR_ABORTED, "%s", gyre_last_error());
        MP_OK(gyre_mem_free(in));
        MP_OK(gyre_mem_free(out));
    }
    MP_OK(gyre_comm_destroy(part));
}

int main(void)
{
    gyre_comm_t *world;
    gyre_request_t *requests[2] = {NULL, NULL}, *grouped;
    float *in, *out, *message, *idle, token = 0;
    setenv("GYRE_LOG", "none", 1); /* the refusals are wanted */
    MP_OK(gyre_init(NULL, &world));
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    in = allocated();
    message = allocated();
    idle = allocated();
    out = malloc(COUNT * sizeof *out);
    MP_CHECK(out, "no memory");
    MP_OK(gyre_mem_register(out, COUNT * sizeof *out));
    if (rank != 0) { /* comes once rank 0 has tried */
        MP_OK(gyre_recv(&token, 1, GYRE_FLOAT32, 0, world));
        if (rank == 1)
            MP_OK(gyre_recv(message, COUNT, GYRE_FLOAT32, 0, world));
        MP_OK(gyre_all_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world));
    } else {
        MP_OK(gyre_iall_reduce(in, out, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world, &requests[0]));
        refused(gyre_mem_free(in), "gyre_mem_free", "all_reduce");
        refused(gyre_mem_deregister(out), "gyre_mem_deregister", "all_reduce");
        MP_OK(gyre_mem_free(idle));
        idle = NULL;
        for (int peer = 1; peer < n; peer++)
            MP_OK(gyre_send(&token, 1, GYRE_FLOAT32, peer, world));
        MP_OK(gyre_group_start());
        MP_OK(gyre_isend(message, COUNT, GYRE_FLOAT32, 1, world, &grouped));
        refused(gyre_mem_free(message), "gyre_mem_free", "send");
        MP_OK(gyre_group_end());
        requests[1] = grouped;
        MP_OK(gyre_wait_all(2, requests));
    }
    aborted(world, rank);
    for (int i = 0; i < COUNT; i++)
        MP_CHECK(out[i] == (float)n, "element %d is %g", i, (double)out[i]);
    MP_OK(gyre_mem_free(in));
    MP_OK(gyre_mem_free(message));
    MP_OK(gyre_mem_free(idle));
    MP_OK(gyre_mem_deregister(out));
    free(out);
    MP_OK(gyre_finalize(world));
    return 0;
}
