/* gyre/comm.h: communicators: a group of ranks that call collectives together.
 *
 * A communicator is used by one thread at a time. Different communicators may be used by different threads
 * at once and never wait for each other. Collectives of one communicator run in the order of their calls,
 * which must be the same on all its ranks. */
#ifndef GYRE_COMM_H
#define GYRE_COMM_H

#include <gyre/types.h>
#include <gyre/version.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_comm gyre_comm_t;

/* Options of gyre_init; set every field through GYRE_CONFIG_INITIALIZER, then change some. `size` lets the
 * struct grow without breaking programs that were built against an older header (docs/abi.md). */
typedef struct {
    size_t size;           /* sizeof(gyre_config_t) */
    int rank;              /* -1: from the environment */
    int nranks;            /* -1: from the environment */
    const char *root;      /* "host:port" of rank 0's rendezvous; NULL: from the environment */
    const char *secret;    /* job secret, 64 hex digits; NULL: from the environment */
    double init_timeout_s; /* 0: GYRE_INIT_TIMEOUT */
    double timeout_s;      /* deadline of every operation; 0: GYRE_TIMEOUT */
    int progress_thread;   /* 1: a thread drives non-blocking operations; 0: no; -1: GYRE_PROGRESS_THREAD */
    int reserved;          /* 0 */
} gyre_config_t;
#define GYRE_CONFIG_INITIALIZER                                    \
    {                                                              \
        sizeof(gyre_config_t), -1, -1, NULL, NULL, 0.0, 0.0, -1, 0 \
    }

/* Joins the job and returns the communicator of all its ranks. Identity comes from `config`, else from
 * GYRE_RANK / GYRE_SIZE / GYRE_ROOT, else from the launcher: PMIx, PMI-1, Open MPI's, Slurm's or torchrun's variables,
 * a Kubernetes Indexed Job (docs/launching.md), else this process is alone (rank 0 of 1). `config` may be NULL. Call it once per process; again only after
 * gyre_finalize. Errors: BOOTSTRAP, AUTH, TIMEOUT, INVALID. */
GYRE_API gyre_status_t gyre_init(const gyre_config_t *config, gyre_comm_t **world);

/* Waits until all ranks are done with `world`, then leaves the job. Every other communicator must have been
 * destroyed. After an error on `world` it does not wait. INVALID, and nothing happens, while requests were not waited for.
 * NULL is allowed. */
GYRE_API gyre_status_t gyre_finalize(gyre_comm_t *world);

/* Collective over `comm`: ranks with the same `color` form a new communicator, ordered by (key, rank). A
 * negative color gives *out = NULL. The new one takes no part of the old one's resources. */
GYRE_API gyre_status_t gyre_comm_split(gyre_comm_t *comm, int color, int key, gyre_comm_t **out);

/* Frees a communicator made by gyre_comm_split. Not collective. INVALID, and nothing is freed, while requests of it were
 * not waited for. If it has failed, buffers of its operations are no longer read or written afterwards; over UCX that may take
 * until peers call Gyre again, at most a quarter of an operation's deadline (docs/transports.md). */
GYRE_API gyre_status_t gyre_comm_destroy(gyre_comm_t *comm);

/* Ends every operation of `comm` on all its ranks with GYRE_ERR_ABORTED; `reason` travels with it. Does not
 * block. */
GYRE_API gyre_status_t gyre_comm_abort(gyre_comm_t *comm, const char *reason);

/* Goes on without the dead: collective over the ranks of the job that are left, each of which calls it once an operation has
 * failed (with PEER_DEAD, or with TIMEOUT for a rank that hangs). comm: the job's communicator: that of gyre_init, or the newest of
 * gyre_comm_shrink or gyre_comm_grow. They agree on who is left, even while more die, and *newcomm, of exactly these in the
 * order of their old ranks, becomes the job's communicator, for gyre_finalize in the end. All operations of `comm` have
 * failed then, on all ranks; it is to be destroyed with gyre_comm_destroy. Communicators made by gyre_comm_split stay as
 * they are: those without a dead rank work on.
 *
 * A rank that does not call it within the operation's deadline (timeout_s) is left behind and finds its communicators
 * aborted. Where ranks are merely silent, behind a cut network perhaps, the larger part goes on and the smaller gets
 * PEER_DEAD (GYRE_QUORUM). ABORTED: the others went on without this rank. TIMEOUT after three deadlines. docs/failures.md. */
GYRE_API gyre_status_t gyre_comm_shrink(gyre_comm_t *comm, gyre_comm_t **newcomm);

/* Lets new processes in: collective over all ranks of the job, with its communicator (as for gyre_comm_shrink), which must work.
 * `newcomers` processes, started by whatever means with GYRE_JOIN set to gyre_comm_address and with the job's GYRE_SECRET and
 * GYRE_JOB, call gyre_init, which lasts until they are let in here, and get the same communicator of all as *newcomm; they
 * come behind the old ranks in it. It becomes the job's communicator; `comm` works on and is to be destroyed with
 * gyre_comm_destroy some time. Waits for the newcomers until the deadline of an operation: TIMEOUT, and nothing has changed.
 * PEER_DEAD: a rank or a newcomer died meanwhile; gyre_comm_shrink goes on without it. */
GYRE_API gyre_status_t gyre_comm_grow(gyre_comm_t *comm, int newcomers, gyre_comm_t **newcomm);
/* Where newcomers to the job are let in, "host:port", for their GYRE_JOIN. The same on all ranks, in other words perhaps; another one
 * once the lowest rank has died. text: [bytes], 128 are enough. */
GYRE_API gyre_status_t gyre_comm_address(const gyre_comm_t *comm, char *text, size_t bytes);

/* The error that killed `comm`, or GYRE_OK. Cheap: one load. */
GYRE_API gyre_status_t gyre_comm_error(const gyre_comm_t *comm);

GYRE_API int gyre_comm_rank(const gyre_comm_t *comm);
GYRE_API int gyre_comm_size(const gyre_comm_t *comm);
/* Rank and number of ranks among those of `comm` that share this rank's host. */
GYRE_API int gyre_comm_local_rank(const gyre_comm_t *comm);
GYRE_API int gyre_comm_local_size(const gyre_comm_t *comm);

typedef struct {
    size_t size;         /* in: sizeof(gyre_comm_stats_t) */
    uint64_t operations; /* collectives and point-to-point calls finished */
    uint64_t bytes_sent; /* payload handed to transports */
    uint64_t bytes_received;
    uint64_t messages_sent;
    uint64_t plans_built;   /* schedules generated: constant once every shape was seen */
    uint64_t allocations;   /* heap allocations made on behalf of operations */
    uint64_t sleeps;        /* times that waiting went to sleep in the kernel */
    uint64_t shared_bytes;  /* shared memory reserved for this rank's local peer group */
    uint64_t private_bytes; /* other memory held by this communicator */
    uint64_t connections;   /* links to peers made so far */
    double wait_seconds;    /* time spent waiting for peers */
} gyre_comm_stats_t;
GYRE_API gyre_status_t gyre_comm_stats(const gyre_comm_t *comm, gyre_comm_stats_t *stats);

/* Memory that local peers can load and store directly: zero-copy for every transport that can. Page-aligned,
 * zeroed. Usable like any other memory; may be allocated before gyre_init. */
GYRE_API gyre_status_t gyre_mem_alloc(size_t bytes, void **ptr);
GYRE_API gyre_status_t gyre_mem_free(void *ptr);
/* Makes [ptr, ptr + bytes), say of malloc, as good as memory of gyre_mem_alloc until gyre_mem_deregister(ptr): its pages,
 * from 64 KiB on, are replaced by shared ones with the same contents at the same addresses. For buffers that live long; it costs a
 * copy. Never required. During both calls no other thread may use those pages (also beside the range: the first and
 * the last page count whole); in between the range must stay mapped: deregister before free. Children of fork share the pages.
 * INVALID: ptr is NULL, bytes is 0, or the range overlaps one that is registered. UNSUPPORTED, and nothing has changed:
 * memory that is not private, anonymous and writable (files, huge pages, a stack), or that is locked or kept from
 * children (as memory that an RDMA or CUDA library has pinned). */
GYRE_API gyre_status_t gyre_mem_register(void *ptr, size_t bytes);
GYRE_API gyre_status_t gyre_mem_deregister(void *ptr);

#ifdef __cplusplus
}
#endif
#endif
