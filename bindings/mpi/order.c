/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/order.c: GYRE_ORDER, the order of sums that a program asks for. A communicator of MPI gets one
 * of Gyre when it is made, so that not one sum is made by the MPI library; and where that makes a sum all the
 * same, a line says so. */
#include "shim.h"
#ifdef OPEN_MPI
#pragma GCC visibility push(default)
#include <mpi-ext.h> /* Open MPI 4.1 has persistent collectives as MPIX_ calls */
#pragma GCC visibility pop
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char order[SHIM_ORDER_MOST]; /* "": the program asks for none */
static bool promised;               /* GYRE_ORDER=fast promises nothing */
void shim_order_init(void)
{
    const char *value = getenv("GYRE_ORDER");
    snprintf(order, sizeof(order), "%s", value != NULL ? value : "");
    promised = order[0] != '\0' && strcmp(order, "fast") != 0;
}
const char *shim_order(void)
{
    return order[0] != '\0' ? order : NULL;
}
void shim_share_order(const char first[SHIM_ORDER_MOST], int rank)
{
    /* Some launchers give a variable to the ranks of one host only. */
    if (order[0] == '\0' && first[0] != '\0') {
        setenv("GYRE_ORDER", first, 1);
        shim_order_init();
    } else if (strcmp(order, first) != 0) {
        shim_end_job(
            "MPI_Init: GYRE_ORDER is %s on rank %d, and %s on rank 0: give it to all ranks (mpirun -x "
            "GYRE_ORDER, mpirun -genv GYRE_ORDER VALUE)",
            order, rank, first[0] != '\0' ? first : "not set");
    }
}

/* ---- what has MPI's order all the same ----------------------------------------------------------------- */

/* A line for the first call of a kind. */
static void say(const char *call, int rank, const char *what, const char *why)
{
    if (rank == 0)
        fprintf(stderr, "libgyre-mpi: GYRE_ORDER=%s: %s %s has the MPI library's order: %s\n", shim_order(),
                call, what, why);
}
/* Why a reduction on a communicator that Gyre has is the MPI library's. */
enum { OWN_OPERATION, EXACT_PRODUCT, NO_TYPE, NEVER_TAKEN };
static void say_type(shim_call_t id, const char *call, MPI_Datatype type, MPI_Op op, int rank)
{
    static atomic_uint said[2 * CALL_COUNT]; /* a bit for each reason */
    static const char *const reasons[] = {
        [OWN_OPERATION] = "the operation is the program's own (MPI_Op_create)",
        [EXACT_PRODUCT] = "Gyre has no exact products",
        [NO_TYPE] = "Gyre does not add or multiply this datatype",
        [NEVER_TAKEN] = "calls of this kind are never taken",
    };
    char name[MPI_MAX_OBJECT_NAME] = "";
    char what[MPI_MAX_OBJECT_NAME + sizeof("of a derived datatype")];
    int length = 0;
    gyre_type_t to;
    gyre_redop_t by;
    const int reason = op != MPI_SUM && op != MPI_PROD           ? OWN_OPERATION
                       : shim_reduction(type, op, &to, &by)      ? NEVER_TAKEN
                       : shim_reduction(type, MPI_SUM, &to, &by) ? EXACT_PRODUCT
                                                                 : NO_TYPE;
    if (atomic_fetch_or(&said[id], 1u << reason) & 1u << reason)
        return;
    PMPI_Type_get_name(type, name, &length);
    snprintf(what, sizeof(what), "of %s", name[0] != '\0' ? name : "a derived datatype");
    say(call, rank, what, reasons[reason]);
}
static const char *why_not(shim_why_t why)
{
    switch (why) {
    case WHY_NO_JOB:
        return "its ranks are not those of an MPI_COMM_WORLD";
    case WHY_INTER:
        return "it is an inter-communicator";
    case WHY_FOREIGN:
        return "its ranks are of several MPI_COMM_WORLD";
    case WHY_NEW:
        return "it was made by a call that does not block, as MPI_Comm_idup, and no blocking collective came "
               "before";
    default:
        return NULL; /* one rank, or arguments that MPI refuses */
    }
}
void shim_keeps_order(shim_call_t id, const char *call, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    static atomic_bool said[WHY_COUNT]; /* of communicators without a collective so far */
    int rank = 0;
    int size = 1;
    int inter = 0;
    if (comm == MPI_COMM_NULL || !promised || !shim_depends_on_order(type, op))
        return;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_test_inter(comm, &inter);
    shim_comm_t *state = shim_comm_known(comm);
    if (size == 1 && !inter)
        return;
    if (state != NULL && state->why == WHY_TAKEN) {
        say_type(id, call, type, op, rank);
        return;
    }
    const shim_why_t reason = state != NULL    ? state->why
                              : inter          ? WHY_INTER
                              : !shim_job.open ? WHY_NO_JOB
                                               : WHY_NEW;
    const char *why = why_not(reason);
    if (why != NULL && !atomic_exchange(state != NULL ? &state->said : &said[reason], true))
        say(call, rank, "on this communicator", why);
}

/* ---- communicators, as they are made ------------------------------------------------------------------- */

/* Open MPI's Fortran and MPICH's mpi_f08 call the PMPI names. */
#define MAKES(name, parameters, arguments)                 \
    int MPI_##name(UNPACK parameters, MPI_Comm *made)      \
    {                                                      \
        const int rc = REAL(name)(UNPACK arguments, made); \
        if (rc == MPI_SUCCESS)                             \
            shim_comm_made(*made);                         \
        return rc;                                         \
    }                                                      \
    SHIM_ALIAS(name)
MAKES(Comm_dup, (MPI_Comm comm), (comm))
MAKES(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info), (comm, info))
MAKES(Comm_split, (MPI_Comm comm, int color, int key), (comm, color, key))
MAKES(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info), (comm, type, key, info))
MAKES(Comm_create, (MPI_Comm comm, MPI_Group group), (comm, group))
MAKES(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag), (comm, group, tag))
MAKES(Cart_create, (MPI_Comm comm, int n, const int *dims, const int *periods, int reorder),
      (comm, n, dims, periods, reorder))
MAKES(Cart_sub, (MPI_Comm comm, const int *remain), (comm, remain))
MAKES(Graph_create, (MPI_Comm comm, int n, const int *index, const int *edges, int reorder),
      (comm, n, index, edges, reorder))
MAKES(Dist_graph_create,
      (MPI_Comm comm, int n, const int *from, const int *degrees, const int *to, const int *weights,
       MPI_Info info, int reorder),
      (comm, n, from, degrees, to, weights, info, reorder))
MAKES(Dist_graph_create_adjacent,
      (MPI_Comm comm, int in, const int *from, const int *in_weights, int out, const int *to,
       const int *out_weights, MPI_Info info, int reorder),
      (comm, in, from, in_weights, out, to, out_weights, info, reorder))
MAKES(Intercomm_merge, (MPI_Comm inter, int high), (inter, high))

/* ---- calls that are never taken ------------------------------------------------------------------------ */

/* Persistent ones and those of MPI-4's large counts. N: the type of a count. */
#define KEEPS(mpi, name, call, parameters, arguments)                  \
    int mpi##_##call(UNPACK parameters)                                \
    {                                                                  \
        shim_keeps_order(CALL_##name, #mpi "_" #call, type, op, comm); \
        return P##mpi##_##call(UNPACK arguments);                      \
    }
#define VECTOR(N) const void *send, void *recv, N count, MPI_Datatype type, MPI_Op op, MPI_Comm comm
#define ROOTED(N) const void *send, void *recv, N count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm
#define BLOCKS(N) const void *send, void *recv, const N *count, MPI_Datatype type, MPI_Op op, MPI_Comm comm
#define OF_VECTOR send, recv, count, type, op, comm
#define OF_ROOTED send, recv, count, type, op, root, comm
#define OF_BLOCKS OF_VECTOR
#define STARTED   MPI_Info info, MPI_Request *request
#define REDUCING(X)                           \
    X(Allreduce, allreduce, VECTOR)           \
    X(Reduce, reduce, ROOTED)                 \
    X(Reduce_scatter, reduce_scatter, BLOCKS) \
    X(Reduce_scatter_block, reduce_scatter_block, VECTOR) X(Scan, scan, VECTOR) X(Exscan, exscan, VECTOR)
#define KEEPS_STARTED(mpi, name, of) \
    KEEPS(mpi, name, name##_init, (of(int), STARTED), (OF_##of, info, request))
#if MPI_VERSION >= 4
#define KEEPS_MPI_4(name, lower, of)                                                           \
    KEEPS_STARTED(MPI, name, of)                                                               \
    KEEPS(MPI, name, name##_c, (of(MPI_Count)), (OF_##of))                                     \
    KEEPS(MPI, name, I##lower##_c, (of(MPI_Count), MPI_Request * request), (OF_##of, request)) \
    KEEPS(MPI, name, name##_init_c, (of(MPI_Count), STARTED), (OF_##of, info, request))
REDUCING(KEEPS_MPI_4)
MAKES(Comm_create_from_group, (MPI_Group group, const char *tag, MPI_Info info, MPI_Errhandler handler),
      (group, tag, info, handler))
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define KEEPS_MPIX(name, lower, of) KEEPS_STARTED(MPIX, name, of)
REDUCING(KEEPS_MPIX)
#endif
