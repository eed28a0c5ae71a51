/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/shim.h: what the files of libgyre-mpi share: the MPI library's own functions, the
 * communicators of Gyre that belong to those of MPI, datatypes, and what is counted and compared.
 *
 * A call is taken or passed on by what all its ranks know alike: the communicator, and for reductions the
 * datatype and the operation. Calls that only move data are always taken, as bytes. */
#ifndef GYRE_MPI_SHIM_H
#define GYRE_MPI_SHIM_H

#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop
#include <gyre/gyre.h>
#include <stdbool.h>
#include <stddef.h>

/* The calls that may be taken. */
/* clang-format off */
#define SHIM_CALLS(X) \
    X(Allreduce) X(Reduce) X(Reduce_scatter) X(Reduce_scatter_block) X(Scan) X(Exscan) X(Bcast) X(Barrier) \
    X(Gather) X(Gatherv) X(Scatter) X(Scatterv) X(Allgather) X(Allgatherv) X(Alltoall) X(Alltoallv) \
    X(Alltoallw)
/* clang-format on */
#define SHIM_ID(name) CALL_##name,
typedef enum { SHIM_CALLS(SHIM_ID) CALL_COUNT } shim_call_t;

/* The MPI library's own function. For what this library defines, also under its PMPI name (Open MPI). */
#define SHIM_REAL(name) extern __typeof__(&PMPI_##name) shim_real_##name;
SHIM_CALLS(SHIM_REAL)
#define REAL(name) shim_real_##name

/* Why a call is passed on. WHY_TAKEN: it is not. */
typedef enum {
    WHY_TAKEN,
    WHY_NO_JOB,
    WHY_ALONE,
    WHY_INTER,
    WHY_FOREIGN,
    WHY_NEW,
    WHY_FAILED,
    WHY_TYPE,
    WHY_ARGUMENT,
    WHY_COUNT
} shim_why_t;

/* What belongs to a communicator of MPI. */
typedef struct shim_comm {
    gyre_comm_t *gyre; /* NULL: calls on it are passed on */
    shim_why_t why;
    int rank;
    int size;
    int calls;              /* while it is new: collectives so far, the same number on all ranks */
    long long id;           /* the same number on all ranks */
    int *members;           /* [size], ranks in MPI_COMM_WORLD */
    struct shim_comm *next; /* in the list of those whose MPI communicator was freed */
} shim_comm_t;

/* comms.c */
/* That of `comm`, which all its ranks make in the collective after the first GYRE_MPI_AFTER ones: called once
 * in each. NULL: pass the call on, for the reason in *why. */
shim_comm_t *shim_comm_of(MPI_Comm comm, shim_why_t *why);
/* Waits for a request that was started with `started`, and lets MPI's messages make progress. */
gyre_status_t shim_wait(gyre_status_t started, gyre_request_t **request);
/* What MPI returns for `status`; for an error the error handler of `comm` was called. */
int shim_result(MPI_Comm comm, gyre_status_t status);

/* types.c */
void shim_types_init(void);
/* The type and operation of Gyre with the same results. False: there are none. */
bool shim_reduction(MPI_Datatype type, MPI_Op op, gyre_type_t *gyre_type, gyre_redop_t *gyre_op);
/* An element as its bytes: plain: they lie in memory in the order of the signature, without gaps. */
typedef struct {
    bool plain;
    size_t size;
    MPI_Aint extent;
} shim_type_t;
void shim_type_of(MPI_Datatype type, shim_type_t *out);
/* Copies `count` elements at `from` into size * count bytes, and back. MPI's error. */
int shim_pack(void *from, size_t count, MPI_Datatype type, size_t size, void *bytes);
int shim_unpack(void *bytes, size_t count, MPI_Datatype type, size_t size, void *to);

/* report.c */
extern bool shim_checking; /* GYRE_MPI_CHECK */
/* A call under way. */
typedef struct {
    shim_call_t id;
    MPI_Comm comm;
    size_t bytes;
    double from;
    /* GYRE_MPI_CHECK: where the result lies, what was there before, and what MPI made of it. */
    unsigned char *region;
    size_t length;
    size_t compared; /* the first bytes of it */
    unsigned char *expected;
    gyre_type_t type; /* GYRE_TYPE_NONE: the data was moved */
} shim_run_t;
void shim_report_init(void);
void shim_passed_on(shim_call_t id, shim_why_t why);
/* check_keep before the real call, check_swap after it. */
void shim_check_keep(shim_run_t *run, void *region, size_t length, size_t compared, gyre_type_t type);
void shim_check_swap(shim_run_t *run);
void shim_begin(shim_run_t *run);
/* Counts, compares, and gives what MPI returns for `status`. */
int shim_end(shim_run_t *run, gyre_status_t status);
void shim_report_print(int rank);

#endif
