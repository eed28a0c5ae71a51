/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/worker.c: UCX for ranks that share no memory: one context and worker per process.
 *
 * UCX is loaded, and the worker made, when the first group needs it; the worker ends with the last group
 * (groups.c). */
#include "comm/ucx/ucx.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/settings/settings.h"

enum { LOOK_MS = 500 };
/* Of address space, next to the stack of its thread. UCX 1.13 takes some 20 MiB for ranks of one host, and
 * malloc 64 MiB for each thread, twice that for a moment. */
enum { ROOM_MIB = 192, STACK_MIB = 8 /* where no limit says so */ };

static struct {
    pthread_mutex_t lock;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int event_fd;
    uint32_t piece;        /* see ucx_configure; 0: no worker */
    uint64_t kinds;        /* of memory that it knows: bits by ucs_memory_type_t */
    base_time_t looked_at; /* its sockets, last */
    ucx_silences_t silences;
} ucx = {.lock = PTHREAD_MUTEX_INITIALIZER, .event_fd = -1};

/* exit() while other threads use UCX: they stop at the lock, since UCX's own destructors come next: those of
 * libraries that were loaded later. Not for long where exit was called in the middle of UCX. See at_exit in
 * collectives/api/world.c. If the program started UCX before it loaded libgyre, as mpi4py may, UCX's come
 * first, and such threads may crash: a handler of atexit would precede them, but also the program's own
 * handlers, which may still call gyre_finalize or wait for threads that use UCX. */
__attribute__((destructor(101))) static void stop_at_exit(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    (void)pthread_mutex_timedlock(&ucx.lock, &until);
}

void ucx_lock(void)
{
    pthread_mutex_lock(&ucx.lock);
}

void ucx_unlock(void)
{
    pthread_mutex_unlock(&ucx.lock);
}

void ucx_breathe(void)
{
    static const struct timespec moment = {0, 20000}; /* a mutex alone would hardly ever change hands */

    ucx_unlock();
    nanosleep(&moment, NULL);
    ucx_lock();
}

int ucx_sends_at_once(void)
{
    return (ucx.kinds & ~UCS_BIT(UCS_MEMORY_TYPE_HOST)) == 0;
}

uint64_t ucx_own_hash(void)
{
    return base_hash64(ucx.address, ucx.address_bytes, UCX_ADDRESS_SEED);
}

const ucp_address_t *ucx_address(size_t *bytes)
{
    *bytes = ucx.address_bytes;
    return ucx.address;
}

uint32_t ucx_piece(void)
{
    return ucx.piece;
}

int ucx_event_fd(void)
{
    return ucx.event_fd;
}

ucp_worker_h ucx_worker(void)
{
    return ucx.worker;
}

ucp_context_h ucx_context(void)
{
    return ucx.context;
}

int ucx_poll(const comm_group_t *mine)
{
    int moved = 0;

    while (ucx_lib.ucp_worker_progress(ucx.worker) != 0)
        moved = 1;
    moved |= ucx_greet();
    if (moved)
        ucx_wake_others(mine);
    return moved;
}

/* ---- the worker ---------------------------------------------------------------------------------------- */

static ucs_status_t make_context(uint32_t piece)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
                           .name = "gyre"};
    ucp_config_t *config;
    ucs_status_t status = ucx_lib.ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return status;
    ucx_configure(config, piece);
    status = ucx_lib.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &ucx.context);
    ucx_lib.ucp_config_release(config);
    return status;
}

/* The kinds of memory that it can send from and receive into. UCX knows CUDA's if it was built with CUDA and
 * its CUDA modules have found a driver. */
static uint64_t ask_kinds(ucp_context_h context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    return ucx_lib.ucp_context_query(context, &attr) == UCS_OK ? attr.memory_types : 0;
}

static ucs_status_t make_worker(void)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = UCX_AM_ID,
                                      .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
                                      .cb = ucx_on_message};
    ucs_status_t status = ucx_lib.ucp_worker_create(ucx.context, &params, &ucx.worker);

    if (status != UCS_OK)
        return status;
    status = ucx_lib.ucp_worker_set_am_recv_handler(ucx.worker, &handler);
    if (status == UCS_OK)
        status = ucx_lib.ucp_worker_get_efd(ucx.worker, &ucx.event_fd);
    if (status == UCS_OK)
        status = ucx_lib.ucp_worker_get_address(ucx.worker, &ucx.address, &ucx.address_bytes);
    return status;
}

void ucx_stop(void)
{
    if (ucx.address)
        ucx_lib.ucp_worker_release_address(ucx.worker, ucx.address);
    if (ucx.worker)
        ucx_lib.ucp_worker_destroy(ucx.worker);
    if (ucx.context)
        ucx_lib.ucp_cleanup(ucx.context);
    ucx_arrivals_end();
    ucx_greetings_end();
    ucx.address = NULL;
    ucx.worker = NULL;
    ucx.context = NULL;
    ucx.event_fd = -1;
    ucx.piece = 0;
}

/* UCX aborts the process if it gets no address space for its thread, and waits forever if it gets none for a
 * message. So it is not started where the process's limit leaves it too little. */
static gyre_status_t check_room(void)
{
    struct rlimit space, stack;
    unsigned long long pages = 0;
    FILE *file;

    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
        return GYRE_OK;
    file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur == RLIM_INFINITY)
        stack.rlim_cur = (rlim_t)STACK_MIB << 20;
    const unsigned long long limit = space.rlim_cur >> 20, need = ROOM_MIB + (stack.rlim_cur >> 20),
                             used = pages * (unsigned long long)sysconf(_SC_PAGESIZE) >> 20;
    if (need <= limit && used <= limit - need)
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_NO_MEMORY,
        "UCX is not started: it needs %llu MiB of address space, and this process uses %llu of the "
        "%llu MiB that ulimit -v allows: raise that limit, or set GYRE_TRANSPORT=shm if all ranks "
        "are on one host",
        need, used, limit);
}

gyre_status_t ucx_start(uint32_t piece)
{
    ucs_status_t status;

    if (ucx.worker && ucx.piece != piece) /* another thread was faster */
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "this process has just started UCX for another communicator, in pieces of %u bytes, while this "
            "one agreed on %u: make communicators that stripe TCP over several links first, or set "
            "UCX_NET_DEVICES alike",
            ucx.piece, piece);
    if (ucx.worker)
        return GYRE_OK;
    gyre_status_t room = check_room();
    if (room != GYRE_OK)
        return room;
    char why[256];
    if (!ucx_load(why, sizeof why))
        return gyre_fail(
            GYRE_ERR_UNSUPPORTED,
            "UCX, which joins ranks that share no memory, cannot be loaded: %s; install UCX (Debian: "
            "libucx0), or set GYRE_TRANSPORT=shm if all ranks are on one host, or verbs if all hosts have "
            "RDMA devices",
            why);
    ucx_sockets_t listening;
    ucx_sockets_before(&listening);
    /* An interface that goes away while UCX opens what it has listed spoils the whole start; the next look
     * does not see it. */
    for (int tries = 0;; tries++) {
        status = make_context(piece);
        if (status == UCS_OK)
            status = make_worker();
        if (status != UCS_ERR_NO_DEVICE || tries == 3)
            break;
        ucx_stop();
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    ucx_sockets_after(&listening);
    if (status == UCS_OK) {
        ucx.piece = piece;
        ucx.kinds = ask_kinds(ucx.context);
        return GYRE_OK;
    }
    ucx_stop();
    return gyre_fail(
        status == UCS_ERR_NO_MEMORY ? GYRE_ERR_NO_MEMORY : GYRE_ERR_SYSTEM,
        "UCX could not be started: %s; %s", ucx_lib.ucs_status_string(status),
        ucx_is_older(why, sizeof why)
            ? why
            : "look at UCX_TLS and UCX_NET_DEVICES, at ulimit -l (memory that RDMA may lock) and at "
              "ulimit -n, and run with UCX_LOG_LEVEL=info");
}

void ucx_progress(comm_group_t *group)
{
    ucx_lock();
    ucx_poll(group);
    ucx_unlock();
}

/* With TCP alone UCX leaves it to Gyre. */
void ucx_look_at_sockets(void)
{
    const base_time_t now = base_now();

    if (now - ucx.looked_at < LOOK_MS * BASE_MS)
        return;
    ucx.looked_at = now;
    if (ucx_peers_over_tcp() && ucx_sockets_look(&ucx.silences, ucx.event_fd) == 0)
        log_debug("ucx: none of its TCP connections was found; a link that is cut ends with the heartbeat or "
                  "the deadline");
}

int ucx_sleep_on(comm_group_t *group, struct pollfd *polls)
{
    int armed;

    ucx_lock();
    ucx_of(group)->slept = 1;
    polls[0] = (struct pollfd){.fd = ucx.event_fd, .events = POLLIN};
    /* BUSY: something came in meanwhile. */
    armed = ucx_lib.ucp_worker_arm(ucx.worker) == UCS_OK;
    if (!armed)
        ucx_poll(group);
    ucx_look_at_sockets();
    ucx_unlock();
    return armed;
}

/* ---- device memory ------------------------------------------------------------------------------------- */

static int knows_cuda(uint64_t kinds, char *text, size_t bytes)
{
    char release[32];

    ucx_name_release(release, sizeof release);
    if (kinds & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) {
        snprintf(text, bytes, "UCX %s knows CUDA memory", release);
        return 1;
    }
    snprintf(text, bytes,
             "this UCX (%s) knows no CUDA memory: it was built without it, or its modules for CUDA "
             "(libuct_cuda) are not there or not in UCX_TLS",
             release);
    return 0;
}

gyre_status_t ucx_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes, comm_lent_t *out)
{
    comm_ucx_group_t *ug = ucx_of(group);
    const comm_rdma_t want = (comm_rdma_t)base_setting_int(SET_CUDA_RDMA);

    (void)device;
    if (want == COMM_RDMA_DMABUF || want == COMM_RDMA_PEERMEM) {
        snprintf(out->why, sizeof out->why, "between hosts goes UCX, which chooses by itself (auto)");
        return GYRE_OK;
    }
    ucx_lock();
    out->works = knows_cuda(ucx.kinds, out->why, sizeof out->why);
    if (out->works) {
        ug->lent = base;
        ug->lent_bytes = bytes;
    }
    ucx_unlock();
    return GYRE_OK;
}

void ucx_reclaim(comm_group_t *group)
{
    ucx_lock();
    ucx_of(group)->lent = NULL;
    ucx_of(group)->lent_bytes = 0;
    ucx_unlock();
}

int ucx_try_device(base_device_t device, char *text, size_t bytes)
{
    ucs_status_t status = UCS_OK;
    int works = 0;

    (void)device; /* it knows all or none */
    ucx_lock();
    const int there = ucx_load(text, bytes), runs = ucx.context != NULL;
    if (there && !runs)
        status = make_context(64 << 10);
    if (there && status == UCS_OK)
        works = knows_cuda(runs ? ucx.kinds : ask_kinds(ucx.context), text, bytes);
    if (there && !runs)
        ucx_stop();
    ucx_unlock();
    if (status != UCS_OK)
        snprintf(text, bytes, "UCX does not start: %s", ucx_lib.ucs_status_string(status));
    return works;
}
