/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/comm.h: joining a job, and communicators. A communicator is a group of ranks that call collectives
 * together. Also here: memory that ranks share, and what a program does after a failure.
 *
 * Threads. One thread at a time makes calls on a communicator. Different threads may use different
 * communicators at once. These calls may be made by a second thread at any time, also while the first one
 * waits in a call: gyre_comm_abort, gyre_comm_error, gyre_comm_stats, gyre_comm_place, gyre_comm_hosts,
 * gyre_progress, gyre_comm_rank, gyre_comm_size, gyre_comm_local_rank and gyre_comm_local_size.
 * docs/threads.md has the whole table. A signal handler may call gyre_comm_error, gyre_comm_rank,
 * gyre_comm_size and their like only.
 *
 * Order. Collectives of one communicator run in the order of their calls, which must be the same on all its
 * ranks.
 *
 * Ended communicators. A communicator that gyre_comm_destroy or gyre_finalize has ended is INVALID in every
 * call, and so is every communicator in a child of fork. This holds for the last 64 that ended; the handle
 * of an older one may be that of a new communicator.
 *
 * Short names of errors stand for GYRE_ERR_... of gyre/status.h. Outputs are set on success only. */
#ifndef GYRE_COMM_H
#define GYRE_COMM_H

#include <gyre/types.h>
#include <gyre/version.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_comm gyre_comm_t;
/* An operation under way. Made by gyre_ix(..., &request) and gyre_comm_ix(..., &request); freed by
 * gyre_wait, gyre_test and their siblings for several requests (gyre/collectives.h). */
typedef struct gyre_request gyre_request_t;

/* How the ranks' inputs are combined by sums and averages of floating-point numbers. docs/contract.md. */
typedef enum {
    GYRE_ORDER_DEFAULT = 0,   /* that of the setting GYRE_ORDER */
    GYRE_ORDER_CANONICAL = 1, /* one fixed tree over the ranks: the bits depend on the inputs and n */
    GYRE_ORDER_FAST = 2,      /* no promise about bits: the order that sends the least data */
    GYRE_ORDER_EXACT = 3      /* the exact sum, rounded once: the bits depend on the set of inputs only */
} gyre_order_t;

/* Options of a communicator's operations. Initialise it with GYRE_OPTIONS_INITIALIZER, then change fields. A
 * job's communicator gets its options when it is made (gyre_config_t, gyre_create_t). A communicator that is
 * made of another one inherits them. gyre_comm_set changes them later. */
typedef struct {
    size_t size;           /* sizeof(gyre_options_t) */
    gyre_order_t order;    /* the same on all ranks */
    int leaves;            /* of this rank, 0 to 1024; see gyre_comm_set */
    const char *algorithm; /* as GYRE_ALGO: "ring", "all_reduce:ring,broadcast:tree"; NULL: GYRE_ALGO */
    size_t chunk;          /* bytes of a pipeline's pieces; 0: GYRE_CHUNK */
    double timeout_s;      /* deadline of every operation; 0: that of the job */
    /* A number of the program's own, at most 2^32 - 1, for people and profilers: errors, warnings and
     * gyre-doctor show it with each call ("all_reduce #12 (count 4, float, sum, tag 7)"). It changes nothing
     * else, and ranks may have different ones. 0: none. */
    uint64_t tag;
} gyre_options_t;
#define GYRE_OPTIONS_INITIALIZER                                                               \
    {                                                                                          \
        sizeof(gyre_options_t), GYRE_ORDER_DEFAULT, 1, NULL, (size_t)0, (double)0, (uint64_t)0 \
    }

/* Options of gyre_init. Initialise it with GYRE_CONFIG_INITIALIZER, then change fields. `size` lets the
 * struct grow without breaking programs that were built with an older header (docs/abi.md). The strings are
 * read during gyre_init only. */
typedef struct {
    size_t size;           /* sizeof(gyre_config_t) */
    int rank;              /* -1: from the environment */
    int nranks;            /* -1: from the environment */
    const char *root;      /* "host:port" of rank 0's rendezvous; NULL: from the environment */
    const char *secret;    /* job secret, 64 hex digits; NULL: from the environment */
    double init_timeout_s; /* 0: GYRE_INIT_TIMEOUT */
    double timeout_s;      /* deadline of every operation; 0: GYRE_TIMEOUT */
    int progress_thread;   /* 1: a thread drives non-blocking operations; 0: no; -1: GYRE_PROGRESS_THREAD */
    int reserved;          /* ignored: programs that were built for 0.1 have garbage here */
    /* Options of the job's communicator, as for gyre_comm_set: the same on all ranks, except leaves and
     * timeout_s. NULL: defaults. A newcomer (GYRE_JOIN) passes those that the others have set; it has one
     * leaf. */
    const gyre_options_t *options;
} gyre_config_t;
#define GYRE_CONFIG_INITIALIZER                                          \
    {                                                                    \
        sizeof(gyre_config_t), -1, -1, NULL, NULL, 0.0, 0.0, -1, 0, NULL \
    }

/* Joins the job, and sets *world to the communicator of all its ranks, which gyre_finalize frees. Returns
 * when all ranks have joined. `config` may be NULL. Call it once per process; again only after
 * gyre_finalize.
 *
 * The rank comes from the first of: `config`; GYRE_RANK, GYRE_SIZE and GYRE_ROOT; the launcher (PMIx, PMI-1,
 * the variables of Open MPI, Slurm, torchrun or a Kubernetes Indexed Job; docs/launching.md). With none of
 * these the process is rank 0 of 1.
 *
 * Errors, after which the process is in no job: INVALID; BOOTSTRAP: rank 0 cannot be reached, or its port
 * is taken; AUTH: the secret is missing or wrong; TIMEOUT: the text names the ranks that are missing;
 * MISMATCH: ranks differ in options, GYRE_ORDER included, and the text shows both; NO_MEMORY. */
GYRE_API gyre_status_t gyre_init(const gyre_config_t *config, gyre_comm_t **world);

/* How a program makes a job without a launcher. Initialise it with GYRE_CREATE_INITIALIZER, then change
 * fields; it is read during the call only. */
typedef struct {
    size_t size; /* sizeof(gyre_create_t) */
    int rank;    /* this process's, 0 .. nranks - 1 */
    int nranks;
    /* Passes `bytes` bytes of every rank to every rank: all: [nranks][bytes], in the order of ranks. Called
     * by the calling thread, on all ranks: twice, or never if nranks is 1. The bytes contain the job's
     * secret: a process that reads them can join. A blocking call waits until it returns;
     * gyre_comm_icreate has a deadline for the case that it never returns. */
    gyre_status_t (*all_gather)(const void *mine, void *all, size_t bytes, void *user);
    void *user;                    /* for all_gather */
    double init_timeout_s;         /* to connect, once all_gather has returned; 0: GYRE_INIT_TIMEOUT */
    double timeout_s;              /* deadline of every operation; 0: GYRE_TIMEOUT */
    const char *name;              /* of the job, in messages; the same on all ranks; NULL: none */
    int progress_thread;           /* as in gyre_config_t */
    int reserved;                  /* 0 */
    const gyre_options_t *options; /* as in gyre_config_t */
} gyre_create_t;
#define GYRE_CREATE_INITIALIZER                                                \
    {                                                                          \
        sizeof(gyre_create_t), -1, -1, NULL, NULL, 0.0, 0.0, NULL, -1, 0, NULL \
    }

/* Makes a job of the ranks that call it, and returns the communicator of all of them, the job's;
 * gyre_finalize frees it, not gyre_comm_destroy. Rank 0 makes the secret and listens; config->all_gather
 * passes secret and address on to the others. Nothing comes from a launcher or from variables, except
 * settings such as GYRE_INTERFACE. gyre_init need not have been called.
 *
 * A process may be in several jobs at once (16 with that of gyre_init), with a rank of its own in each. They
 * share nothing but memory of gyre_mem_alloc and gyre_mem_register, which serves all of them. Different
 * threads may make and use different jobs at once. gyre_comm_grow does not work in a job that was made so.
 *
 * Errors; this process is then not in the job: INVALID: an argument is wrong; BOOTSTRAP: all_gather failed, a
 * rank could not go on, or rank 0 cannot be reached; MISMATCH: all_gather gave something else than what the
 * ranks passed, or they have different nranks, names or options; TIMEOUT: names ranks that did not come in
 * time; NO_MEMORY. */
GYRE_API gyre_status_t gyre_comm_create(const gyre_create_t *config, gyre_comm_t **out);

/* What ranks need to find each other, for programs that have a broadcast and no all-gather. Opaque bytes that
 * contain a secret: a process that reads them can join. */
typedef struct {
    unsigned char bytes[128];
} gyre_unique_id_t;

/* Fills *id, in the process that will be rank 0, which listens from here on. An id is for one communicator. A
 * process keeps the last 64 ids that it made or used, and those longest that wait for rank 0. BOOTSTRAP: no
 * address to listen at. */
GYRE_API gyre_status_t gyre_get_unique_id(gyre_unique_id_t *id);
/* gyre_comm_create by an id that rank 0 has made and passed to all ranks. config may be NULL; of it
 * init_timeout_s, timeout_s, name, progress_thread and options count. A process may be several of the ranks;
 * it makes this call, and other calls that wait for all ranks, in a thread for each.
 * Errors as gyre_comm_create; also INVALID: these are not the bytes of an id, this rank has used it before,
 * or rank 0 is not the process that made it. BOOTSTRAP also for a second process with the same rank, other
 * numbers of ranks, or an id whose job has formed. */
GYRE_API gyre_status_t gyre_comm_create_id(const gyre_unique_id_t *id, int rank, int nranks,
                                           const gyre_create_t *config, gyre_comm_t **out);

/* Waits until all ranks call it, then leaves the job and frees `world`. It ends all other communicators of
 * the job: to destroy one later, as a destructor or an exit handler may do, is INVALID and has no effect.
 * After an error of `world` it does not wait. INVALID, and nothing happens: `world` is not a job's
 * communicator, requests of a communicator were not waited for, or a group is open. NULL is allowed. */
GYRE_API gyre_status_t gyre_finalize(gyre_comm_t *world);

/* Collective over `comm`. Ranks with the same `color` form a new communicator, ordered by (key, rank); a
 * rank with a negative color gets *out = NULL. The new communicator works and fails apart from `comm`; the
 * caller frees it with gyre_comm_destroy. Errors: those of gyre_all_gather. ABORTED: another rank could
 * not make its part. */
GYRE_API gyre_status_t gyre_comm_split(gyre_comm_t *comm, int color, int key, gyre_comm_t **out);

/* Collective over `comm`: a communicator of the same ranks in the same order, with the same options
 * (gyre_comm_set). Traffic of the two is apart, so a library may use its own. Otherwise like
 * gyre_comm_split. */
GYRE_API gyre_status_t gyre_comm_dup(gyre_comm_t *comm, gyre_comm_t **out);

/* The place that the ranks of a new communicator share. */
typedef enum {
    GYRE_SPLIT_HOST = 0,  /* a host, as far as shared memory reaches */
    GYRE_SPLIT_NUMA = 1,  /* a host, and the NUMA nodes that the calling thread may run on */
    GYRE_SPLIT_DEVICE = 2 /* a host, and the CUDA device that is the calling thread's current one */
} gyre_split_t;

/* Collective over `comm`: gyre_comm_split by place. Ranks that are in the same place form a new communicator,
 * ordered by (key, rank); every rank is in one. A rank that is bound to one NUMA node is together with the
 * ranks that are bound to this node; ranks that may run on several nodes, as ranks that are not bound, are
 * together if these are the same nodes, or if their system does not say which. Devices are distinguished by
 * UUID. Errors, the same on all ranks, and `comm` is as before: MISMATCH: the ranks passed different types.
 * UNSUPPORTED: a rank has no CUDA device, or its build has no CUDA. Else as gyre_comm_split. */
GYRE_API gyre_status_t gyre_comm_split_type(gyre_comm_t *comm, gyre_split_t type, int key, gyre_comm_t **out);

/* Makes a communicator of some ranks of `comm`. Only these call it; the others may do anything meanwhile.
 * ranks: [nranks] the members by their ranks in `comm`, in the order of the new ranks, the same list on all
 * members. tag: calls of `comm` that may be under way at once and have a member in common need different
 * ones; it may be used again when the call has returned on all members. Several threads may call it at once,
 * with different tags, and another thread may make other calls on `comm` meanwhile, but gyre_comm_set and
 * what ends it. Options as `comm`.
 *
 * Errors, of all members that have called it, within the deadline of an operation; `comm` and its operations
 * are as before, and the tag cannot be used again with it: MISMATCH: members passed different lists, which
 * the text shows. TIMEOUT: members did not call it; the text names them. PEER_DEAD: one died, or a rank of
 * the job that passes on what members say to each other. ABORTED: a member could not make its part. INVALID,
 * and nothing has happened: an argument is wrong, a rank is in the list twice or this one is not in it. */
GYRE_API gyre_status_t gyre_comm_create_group(gyre_comm_t *comm, const int *ranks, int nranks, uint64_t tag,
                                              gyre_comm_t **out);

/* The calls above that make a communicator, without blocking. *out is set by the gyre_wait or gyre_test
 * that ends the request, and until then belongs to Gyre; a rank with a negative color gets NULL there.
 * Lists and configs are read during the call only. Ranks call gyre_comm_idup, gyre_comm_isplit and
 * gyre_comm_isplit_type of one communicator in the same order. Else nothing is ordered with them:
 * meanwhile the program may make any calls on `comm`, but gyre_comm_set and what ends `comm` are INVALID
 * until the request has ended.
 *
 * They need no progress of the program: for each, Gyre makes the blocking steps on a thread of its own,
 * which is there until the request has ended. The deadline is that of an operation of `comm` at the call
 * (gyre_comm_set), or init_timeout_s of `config`, and a wait returns when it has passed.
 *
 * Errors of the call, and there is no request: INVALID, also in a group; UNSUPPORTED as above;
 * NO_MEMORY; SYSTEM: no thread. Errors of the request, and nothing is made: those of
 * gyre_comm_create_group; for all but gyre_comm_icreate_group also MISMATCH: ranks made different ones of
 * these calls. `comm` and its operations are as before. gyre_comm_abort of `comm` ends the request, too.
 *
 * gyre_comm_icreate calls config->all_gather on a thread of its own. Its request, and that of
 * gyre_comm_icreate_id, is of no communicator, and has the errors of the calls that block. TIMEOUT also: the
 * function has not returned in time; config->user is the caller's again when it has. */
GYRE_API gyre_status_t gyre_comm_idup(gyre_comm_t *comm, gyre_comm_t **out, gyre_request_t **request);
GYRE_API gyre_status_t gyre_comm_isplit(gyre_comm_t *comm, int color, int key, gyre_comm_t **out,
                                        gyre_request_t **request);
GYRE_API gyre_status_t gyre_comm_isplit_type(gyre_comm_t *comm, gyre_split_t type, int key, gyre_comm_t **out,
                                             gyre_request_t **request);
GYRE_API gyre_status_t gyre_comm_icreate_group(gyre_comm_t *comm, const int *ranks, int nranks, uint64_t tag,
                                               gyre_comm_t **out, gyre_request_t **request);
GYRE_API gyre_status_t gyre_comm_icreate(const gyre_create_t *config, gyre_comm_t **out,
                                         gyre_request_t **request);
GYRE_API gyre_status_t gyre_comm_icreate_id(const gyre_unique_id_t *id, int rank, int nranks,
                                            const gyre_create_t *config, gyre_comm_t **out,
                                            gyre_request_t **request);

/* Sets the options of the operations of `comm` from now on; options NULL: all defaults. Collective over
 * `comm`, and no operation may be under way. Communicators that are made from it later have its order,
 * algorithm, chunk, timeout and tag, and one leaf per rank.
 *
 * INVALID: a field is out of range (returned without waiting for other ranks), a request of `comm` was not
 * waited for, the ranks' leaves add up to 0 (exact: to more than 1024). MISMATCH: ranks differ in order,
 * algorithm or chunk; the text shows both. After these errors nothing has changed, and `comm` stays usable.
 *
 * GYRE_ORDER_EXACT: products of floating-point numbers and operations of gyre_op_create are UNSUPPORTED. It
 * sends as much data as canonical order.
 *
 * Leaves: with another number than 1 on some rank, `send` of gyre_all_reduce, gyre_reduce and
 * gyre_reduce_scatter(v) has that many vectors of this rank, one after the other: [leaves][count], or
 * [leaves][n * count]. The result is the reduction of all ranks' leaves in rank order, by one canonical tree
 * over them (an average is divided by their number). So 8 leaves on 8, 3 or 1 ranks give the same bits. No
 * in-place form; scaled sums, scans and device memory: UNSUPPORTED. */
GYRE_API gyre_status_t gyre_comm_set(gyre_comm_t *comm, const gyre_options_t *options);

/* Frees a communicator that was made of another one (gyre_comm_split and its like) or by
 * gyre_cuda_comms_create, or one that gyre_comm_shrink or gyre_comm_grow replaced. NULL is allowed. Not
 * collective. INVALID, and nothing is freed: it is the job's communicator, it has ended before, requests of
 * it were not waited for, or a group is open. After it returns, no peer reads or writes buffers of failed
 * operations. For a communicator that failed over UCX, this may wait until peers call Gyre again, at most a
 * quarter of an operation's deadline (docs/transports.md). */
GYRE_API gyre_status_t gyre_comm_destroy(gyre_comm_t *comm);

/* Ends `comm` on all its ranks. One rank is enough, also while another thread of it waits in a call on
 * `comm`. Not collective, and it returns at once. Operations under way end with ABORTED, on all ranks
 * within milliseconds; `reason` (NULL is allowed) is part of their error texts. Every later call on `comm`
 * returns ABORTED, or the error that came first. Free `comm` with gyre_comm_destroy or gyre_finalize as
 * usual.
 *
 * A buffer is the caller's again when the call that uses it has returned, or gyre_wait for its request.
 * They wait while a peer still reads or writes it: usually for milliseconds, at most for
 * GYRE_HEARTBEAT (5 s) and some 3 s. */
GYRE_API gyre_status_t gyre_comm_abort(gyre_comm_t *comm, const char *reason);

/* Continues without dead ranks. Collective over the ranks of the job that are left; each calls it after an
 * operation has failed with PEER_DEAD, or with TIMEOUT for a rank that hangs. comm: the job's
 * communicator, which is that of gyre_init or the newest of gyre_comm_shrink and gyre_comm_grow.
 *
 * The ranks agree on who is left, even while more die. *newcomm has exactly these ranks in the order of
 * their old ranks. It becomes the job's communicator, the one for gyre_finalize. All operations of `comm`
 * have failed then, on all ranks; free it with gyre_comm_destroy. Communicators of gyre_comm_split that
 * have no dead rank still work.
 *
 * A rank that does not call it within the operation's deadline (timeout_s) is left out, and its
 * communicators are aborted. If ranks are silent but not known to be dead (a cut network), the larger part
 * continues, and the smaller gets PEER_DEAD (GYRE_QUORUM). ABORTED: the others continued without this rank.
 * TIMEOUT: no agreement within three deadlines. See docs/failures.md. */
GYRE_API gyre_status_t gyre_comm_shrink(gyre_comm_t *comm, gyre_comm_t **newcomm);

/* Lets new processes into the job. Collective over all ranks of the job, with the job's communicator (as
 * for gyre_comm_shrink), which must not have failed. Start `newcomers` processes by any means, with
 * GYRE_JOIN set to the text of gyre_comm_address and with the job's GYRE_SECRET and GYRE_JOB. Their
 * gyre_init waits for this call and returns the same communicator as *newcomm; the newcomers' ranks follow
 * the old ones.
 *
 * *newcomm becomes the job's communicator. `comm` still works; free it with gyre_comm_destroy. Nothing has
 * changed after INVALID: the number is not 1 to 4096; MISMATCH: ranks gave other numbers; and TIMEOUT: the
 * newcomers did not come within the deadline of an operation. PEER_DEAD: a rank or a newcomer died meanwhile;
 * gyre_comm_shrink goes on without it. */
GYRE_API gyre_status_t gyre_comm_grow(gyre_comm_t *comm, int newcomers, gyre_comm_t **newcomm);
/* Writes the address at which newcomers join, "host:port", the value of their GYRE_JOIN. text: [bytes];
 * 128 bytes are enough. All ranks give the same place, perhaps under different names. The address changes
 * when the lowest rank has died: ask again after gyre_comm_shrink. INVALID: an argument is NULL, or the
 * text is too small. SYSTEM: the name of this host cannot be read, or the lowest rank did not say where it
 * listens. */
GYRE_API gyre_status_t gyre_comm_address(const gyre_comm_t *comm, char *text, size_t bytes);

/* The error that killed `comm`, or OK. Any thread. It also knows of the death or abort of another rank that
 * no call on `comm` has returned yet. After an error, gyre_last_error of the calling thread has the text. It
 * costs two loads while there is no error. A signal handler may see OK until the next signal: the call never
 * waits for the thread that the signal interrupts. */
GYRE_API gyre_status_t gyre_comm_error(const gyre_comm_t *comm);

/* Calls function(comm, status, user) once when `comm` fails, with the status of gyre_comm_error and its
 * text in gyre_last_error: also while no thread of the program is in a call of Gyre. If `comm` has failed
 * before, it is called before this returns. gyre_comm_destroy and gyre_finalize are not failures. A
 * later call replaces the function; NULL removes it. Once that call, gyre_comm_destroy or gyre_finalize has
 * returned, the function does not run any more.
 *
 * It runs on the thread that learns of the failure first: one that is in a call of Gyre (gyre_comm_abort,
 * too), or one of Gyre's own, which serve the whole process. It must return soon. Of Gyre it may call
 * gyre_comm_error, gyre_comm_rank, gyre_comm_size and their siblings, gyre_last_error and gyre_status_string.
 * For anything else it must wake a thread of the program. For ranks of gyre_cuda_comms_create it runs when a
 * thread next calls Gyre on `comm`. */
typedef void (*gyre_failure_fn)(gyre_comm_t *comm, gyre_status_t status, void *user);
GYRE_API gyre_status_t gyre_comm_on_failure(gyre_comm_t *comm, gyre_failure_fn function, void *user);

/* For event loops: a descriptor that poll(2), select(2) or epoll(7) report as readable when the program
 * should call gyre_progress or gyre_test. Every call returns the same descriptor. It belongs to Gyre and ends
 * with `comm`: the program must not read, write or close it.
 *
 *     while (gyre_test(&request) == GYRE_IN_PROGRESS) {
 *         if (gyre_comm_arm(comm) == GYRE_OK) // before each poll
 *             poll(fds, nfds, -1);            // fd among them
 *     }
 *
 * gyre_comm_arm prepares the descriptor. OK: the program may sleep until it is readable: something came for
 * an operation under way, one has finished on another thread, `comm` has failed, or some milliseconds have
 * passed (5 with a network, 50 without, none if no operation is under way). It may also wake for no reason.
 * IN_PROGRESS: do not sleep, an operation has moved; test the requests, then arm again. Else the error that
 * killed `comm`. It covers operations of `comm` only: a loop over several communicators has the descriptor
 * of each.
 *
 * Both are calls on `comm`, by one thread at a time; another thread may sleep on the descriptor. Errors of
 * gyre_comm_fd: UNSUPPORTED for ranks of gyre_cuda_comms_create; NO_MEMORY; SYSTEM: no descriptor left.
 * INVALID: gyre_comm_arm before gyre_comm_fd. */
GYRE_API gyre_status_t gyre_comm_fd(gyre_comm_t *comm, int *fd);
GYRE_API gyre_status_t gyre_comm_arm(gyre_comm_t *comm);

/* This rank's number, 0 .. size - 1, and the number of ranks. -1 if `comm` is NULL. */
GYRE_API int gyre_comm_rank(const gyre_comm_t *comm);
GYRE_API int gyre_comm_size(const gyre_comm_t *comm);
/* The same among the ranks of `comm` on this rank's host. */
GYRE_API int gyre_comm_local_rank(const gyre_comm_t *comm);
GYRE_API int gyre_comm_local_size(const gyre_comm_t *comm);
/* The number of hosts that the ranks of `comm` are on. -1 if `comm` is NULL or has ended. */
GYRE_API int gyre_comm_hosts(const gyre_comm_t *comm);
/* The leaves of this rank, as gyre_comm_set has set them; 1 before. -1 if `comm` is NULL or has ended. Not
 * while another thread is in gyre_comm_set. */
GYRE_API int gyre_comm_leaves(const gyre_comm_t *comm);

/* Where a rank of a communicator is. Ranks are on one host as far as shared memory reaches. */
typedef struct {
    size_t size;   /* in: sizeof(gyre_place_t) */
    int host;      /* 0 .. gyre_comm_hosts - 1, in the order of the hosts' first ranks */
    int host_rank; /* its number among the ranks of the communicator on its host */
    int host_size; /* the number of ranks of the communicator on its host */
    /* the only NUMA node, by the system's number, on which its thread could run when it made the
     * communicator; -1: it could run on several nodes, or the node is not known */
    int numa;
    /* CUDA device on which it works in this communicator, by the number in its process (gyre/cuda.h); -1:
     * none before gyre_comm_prepare_cuda or the first operation on device memory */
    int device;
    int job_rank;        /* of its process in its job: the same in all communicators, as long as it lives */
    char device_bus[24]; /* PCI address of that device, such as "0000:17:00.0"; "": none */
    char host_name[64];  /* the host's name, cut to 31 characters; several hosts may have the same */
} gyre_place_t;
/* Fills *place, of rank `rank` of `comm`, up to the size that the caller set in place->size. Nothing is sent:
 * the ranks exchanged it when they made `comm`. Also when `comm` has failed, and of dead ranks. INVALID: an
 * argument is NULL, `rank` is not in 0 .. size - 1, or place->size is too small. */
GYRE_API gyre_status_t gyre_comm_place(const gyre_comm_t *comm, int rank, gyre_place_t *place);

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
    /* What the rank did in waits: yields of its core, seconds in these, and seconds asleep; in the rest of
     * wait_seconds it spun. Short waits, which spin, are not in wait_seconds. Pauses while another thread
     * drives the communicator, and waits for devices, are not counted. */
    uint64_t yields;
    double yield_seconds;
    double sleep_seconds;
} gyre_comm_stats_t;
/* Fills *stats up to the size that the caller set in stats->size. INVALID if that is too small. */
GYRE_API gyre_status_t gyre_comm_stats(const gyre_comm_t *comm, gyre_comm_stats_t *stats);

/* Memory that ranks on the same host read and write directly, so that collectives on it save a copy.
 * Page-aligned and zeroed. It is used like any other memory, may be allocated before gyre_init, and
 * belongs to the caller until gyre_mem_free(ptr), for which NULL is allowed. From 2 MiB on it is backed at
 * once, by huge pages of the caller's NUMA node, if the kernel can do that (Linux 6.1). Errors: INVALID, also
 * while a non-blocking operation uses the memory, and nothing is freed; OVERFLOW, NO_MEMORY. */
GYRE_API gyre_status_t gyre_mem_alloc(size_t bytes, void **ptr);
GYRE_API gyre_status_t gyre_mem_free(void *ptr);
/* Shared memory of the ranks of `comm`: ranks of the same host load and store in it directly, ranks of other
 * hosts use gyre_put and gyre_get. Collective over `comm`; each rank passes the number of bytes of its own
 * part, which may differ or be 0. *ptr: this rank's part, like memory of gyre_mem_alloc in all respects:
 * page-aligned and zeroed. A page lies on the NUMA node of the rank that touches it first. gyre_mem_peer
 * gives the parts of the others. Each part takes a descriptor of its owner.
 *
 * The program orders loads and stores: what a rank stores is seen by another one after a gyre_barrier of
 * both, after a message or a collective by which the second waits for the first, or by C11 atomics
 * (docs/threads.md).
 *
 * gyre_mem_free(ptr) is a call of this rank alone: it ends this rank's part and its view of all others.
 * They keep their view of this part, with its contents, until they have called gyre_mem_free. The same holds
 * if a rank dies. The memory outlives `comm` and the job. Ranks of other hosts have no such view: a part
 * that they use must not be freed, and `comm` not be destroyed, before they have flushed (gyre_barrier).
 *
 * Errors, the same on all ranks, and nothing is allocated: UNSUPPORTED: two ranks, which the text names, do
 * not share a host, and the transport between the hosts is not UCX; or `comm` is of gyre_cuda_comms_create.
 * OVERFLOW, NO_MEMORY: on some rank. Else as gyre_all_gather: MISMATCH: the ranks made different calls. On
 * this rank alone, and nothing has happened: INVALID, also in a group; NO_MEMORY for the list of ranks. */
GYRE_API gyre_status_t gyre_mem_alloc_shared(gyre_comm_t *comm, size_t bytes, void **ptr);
/* Sets *peer to the address in this process of the part of `rank` (its number in the communicator of
 * gyre_mem_alloc_shared), and *bytes to its length; bytes may be NULL. ptr: the pointer that
 * gyre_mem_alloc_shared returned here, not an address inside the part. Local; the result is the same until
 * gyre_mem_free(ptr), and for this rank it is ptr. INVALID: an argument is wrong. UNSUPPORTED: the rank is on
 * another host. */
GYRE_API gyre_status_t gyre_mem_peer(const void *ptr, int rank, void **peer, size_t *bytes);
/* Copy `bytes` bytes to, or from, the part of `rank`, at `offset` bytes from its start. ptr: the pointer of
 * gyre_mem_alloc_shared, as for gyre_mem_peer. `rank` makes no matching call. But if the hosts are connected
 * by TCP, its process must be in a call of Gyre on a communicator of several hosts, or have
 * GYRE_PROGRESS_THREAD=1.
 *
 * Until gyre_flush, `from` must not change, and the contents of `to` and of the part are undefined. Two such
 * calls on the same bytes of a part, without a flush between them, have no order.
 *
 * INVALID, and nothing happens: an argument is wrong, the bytes are not all in the part, or `comm` has
 * ended and the rank is on another host. Else as gyre_flush. */
GYRE_API gyre_status_t gyre_put(const void *from, size_t bytes, void *ptr, int rank, size_t offset);
GYRE_API gyre_status_t gyre_get(void *to, size_t bytes, void *ptr, int rank, size_t offset);
/* Waits until this rank's gyre_put and gyre_get calls with `rank`, on the communicator of `ptr`, have
 * completed; rank -1: with all ranks. Then `from` and `to` are the caller's again. The data of gyre_put is in
 * the memory of `rank`: a rank that gets a message from this rank after the flush, or meets it in a barrier,
 * sees the data.
 *
 * A call on the communicator of `ptr`, as gyre_put and gyre_get: by one thread at a time. TIMEOUT: not
 * within the deadline of an operation. PEER_DEAD, TRANSPORT: and as TIMEOUT they end that communicator.
 * Buffers are the caller's again once it is destroyed. INVALID: an argument is wrong. */
GYRE_API gyre_status_t gyre_flush(void *ptr, int rank);
/* Gives [ptr, ptr + bytes), memory of malloc or mmap, the properties of memory of gyre_mem_alloc, until
 * gyre_mem_deregister(ptr). It replaces the pages that lie entirely in the range, if they are 64 KiB or more,
 * by shared pages with the same contents at the same addresses. The parts of the range in an incomplete first
 * or last page are not changed, and are copied when they are sent. The call costs a copy and is never
 * required; use it for buffers that live long.
 *
 * During both calls no other thread may use the range; memory next to it may be used. The new pages are not
 * transparent huge pages, and a policy of mbind(2) for the range is lost. Between the calls the range must
 * stay mapped: deregister it before free(). Children of fork share the pages.
 *
 * INVALID: ptr is NULL, bytes is 0, or the range overlaps a registered one; from gyre_mem_deregister also
 * while a non-blocking operation uses the memory. UNSUPPORTED, and nothing has changed: the memory is not
 * private, anonymous and writable (files, huge pages, a stack), is locked, or is kept from children (as
 * memory that an RDMA or CUDA library has pinned). */
GYRE_API gyre_status_t gyre_mem_register(void *ptr, size_t bytes);
GYRE_API gyre_status_t gyre_mem_deregister(void *ptr);

#ifdef __cplusplus
}
#endif
#endif
