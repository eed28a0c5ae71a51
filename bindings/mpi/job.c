/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/job.c: MPI_Init and MPI_Finalize, and the job of Gyre with the ranks of MPI_COMM_WORLD. Many
 * programs have few collectives: libgyre is loaded, and the ranks are joined, when a communicator of all of
 * them needs it. */
#include "shim.h"
#include <dlfcn.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHIM_POINTER(name)         __typeof__(&PMPI_##name) shim_real_##name;
#define SHIM_POINTERS(name, lower) SHIM_POINTER(name) SHIM_POINTER(I##lower)
SHIM_CALLS(SHIM_POINTERS)
SHIM_WAITS(SHIM_POINTER)
SHIM_MAKERS(SHIM_POINTER)
static __typeof__(&PMPI_Init) real_Init;
static __typeof__(&PMPI_Init_thread) real_Init_thread;
static __typeof__(&PMPI_Finalize) real_Finalize;
shim_gyre_t shim_gyre;

shim_job_t shim_job;
static bool crowded;                  /* the ranks of this host outnumber their cores */
static MPI_Comm idle = MPI_COMM_NULL; /* no message is ever sent on it */
static bool ends_with_self;           /* the job, with MPI_COMM_SELF */

/* What dlsym finds after this library: a program that has no MPI gets NULL, and calls none of it. */
static void find(void *pointer, const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(pointer, &symbol, sizeof(symbol));
}
__attribute__((constructor)) static void load(void)
{
#define SHIM_LOAD(name)         find(&shim_real_##name, "PMPI_" #name);
#define SHIM_LOADS(name, lower) SHIM_LOAD(name) SHIM_LOAD(I##lower)
    SHIM_CALLS(SHIM_LOADS)
    SHIM_WAITS(SHIM_LOAD)
    SHIM_MAKERS(SHIM_LOAD)
    find(&real_Init, "PMPI_Init");
    find(&real_Init_thread, "PMPI_Init_thread");
    find(&real_Finalize, "PMPI_Finalize");
    shim_order_init();
    /* libgyre needs these. They take 20 ms once the process has threads, as those of MPI, and nothing now. */
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}
/* False: a line on stderr has said why. */
static bool load_gyre(void)
{
    bool whole = true;
    void *gyre = dlopen(GYRE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (gyre == NULL) {
        fprintf(stderr, "libgyre-mpi: libgyre cannot be loaded: %s\n", dlerror());
        return false;
    }
#define SHIM_SYMBOL(name)                                 \
    {                                                     \
        void *symbol = dlsym(gyre, "gyre_" #name);        \
        memcpy(&shim_gyre.name, &symbol, sizeof(symbol)); \
        whole = whole && symbol != NULL;                  \
    }
    SHIM_GYRE(SHIM_SYMBOL)
    if (!whole)
        fprintf(stderr, "libgyre-mpi: " GYRE_LIBRARY
                        " is of another release: install libgyre and libgyre-mpi together\n");
    return whole;
}

enum { TESTS = 64 }; /* of Gyre for each turn of MPI, which costs as much as some of them */
/* Ranks that have cores spin, as in the C API (comm/wait.c) and in both MPI libraries: among other processes
 * a rank that yields gets its core back some time slices later. A wait of more than 10 ms does yield. Where
 * that takes long, others want the core, and the rank naps instead for a while: after a nap the kernel runs
 * it first. */
static void give_way(double now)
{
    enum { NAPS = 1000 };
    const double long_s = 1e-3;
    const struct timespec nap = {.tv_nsec = 50 * 1000};
    static _Thread_local unsigned naps;
    if (naps > 0) {
        naps--;
        nanosleep(&nap, NULL);
        return;
    }
    sched_yield();
    if (PMPI_Wtime() - now > long_s)
        naps = NAPS;
}
void shim_yield(unsigned turn)
{
    static _Thread_local double since; /* when this wait had made its first turns */
    const double spin_s = 10e-3;
    /* Where ranks share cores, the one that is waited for needs this one at once. */
    if (crowded) {
        sched_yield();
        return;
    }
    if (turn % TESTS != 0)
        return;
    const double now = PMPI_Wtime();
    if (turn == TESTS)
        since = now;
    if (turn == 0 || now - since > spin_s)
        give_way(now);
}
void shim_rest(unsigned turn, bool ended)
{
    /* At least once in each call, as in MPI's own. */
    if (ended || turn % TESTS == 0) {
        int flag = 0;
        PMPI_Iprobe(MPI_ANY_SOURCE, 0, idle, &flag, MPI_STATUS_IGNORE);
    }
    if (!ended)
        shim_yield(turn);
}
/* The handles of another MPI's programs are not those that this library was compiled with. */
static void refuse_other_mpi(void)
{
    static char text[1 << 14]; /* MPICH's constant is 8192, Open MPI's 256 */
    int length = 0;
    __typeof__(&PMPI_Get_library_version) version = NULL;
#ifdef OPEN_MPI
    const bool for_open_mpi = true;
#else
    const bool for_open_mpi = false;
#endif
    find(&version, "PMPI_Get_library_version");
    if (version == NULL || version(text, &length) != MPI_SUCCESS)
        return;
    text[strcspn(text, "\n")] = '\0';
    if ((strncmp(text, "Open MPI", 8) == 0) == for_open_mpi)
        return;
    /* By hand, or by a gyre-mpi that saw a script, or Python, and the launcher of the other MPI. */
    fprintf(stderr,
            "libgyre-mpi: MPI_Init: this library is built for %s, and the program runs with %.40s: use the "
            "mpirun of %s, and in a script, write gyre-mpi before the program itself\n",
            for_open_mpi ? "Open MPI" : "MPICH", text, for_open_mpi ? "MPICH" : "Open MPI");
    _exit(1);
}

gyre_status_t shim_wait(gyre_status_t started, gyre_request_t **request)
{
    if (started != GYRE_OK)
        return started;
    for (unsigned turn = 1;; turn++) {
        gyre_status_t status = GYRE(test)(request);
        shim_rest(turn, status != GYRE_IN_PROGRESS);
        if (status != GYRE_IN_PROGRESS)
            return status;
    }
}

int shim_class(gyre_status_t status)
{
    return status == GYRE_OK              ? MPI_SUCCESS
           : status == GYRE_ERR_NO_MEMORY ? MPI_ERR_NO_MEM
           : status == GYRE_ERR_MISMATCH  ? MPI_ERR_TRUNCATE
           : status == GYRE_ERR_OVERLAP   ? MPI_ERR_BUFFER
           : status == GYRE_ERR_INVALID   ? MPI_ERR_ARG
           : status == GYRE_ERR_TYPE      ? MPI_ERR_TYPE
           : status == GYRE_ERR_OVERFLOW  ? MPI_ERR_COUNT
                                          : MPI_ERR_OTHER;
}
int shim_result(MPI_Comm comm, gyre_status_t status)
{
    if (status != GYRE_OK)
        PMPI_Comm_call_errhandler(comm, shim_class(status));
    return shim_class(status);
}
/* Ends the job after a message. MPICH's launcher drops what it has not read of a rank that aborts. */
static _Noreturn void end_job(void)
{
    enum { LAUNCHER_READS_US = 200000 };
    usleep(LAUNCHER_READS_US);
    PMPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}
void shim_end_job(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("libgyre-mpi: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    end_job();
}
void shim_need_order(MPI_Comm comm, int rank, const char *what)
{
    if (shim_order() == NULL)
        return;
    if (rank == 0)
        fprintf(stderr,
                "libgyre-mpi: %s, and GYRE_ORDER=%s is not the order of the MPI library: the job ends\n",
                what, shim_order());
    REAL(Barrier)(comm); /* the line is there before a rank ends the job */
    end_job();
}
void shim_no_memory(const char *what)
{
    shim_end_job("no memory for %s", what);
}

/* Seconds to wait for other ranks in MPI_Init. */
static double init_timeout(void)
{
    const char *text = getenv("GYRE_INIT_TIMEOUT");
    double seconds = text != NULL ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : 60;
}

/* A rank without this library would make MPI's collectives where this one makes others, and all would wait.
 * So each rank sends one message to the next one, which only this library receives. */
static void ask_neighbor(int rank, int size)
{
    enum { TAG = 32767 }; /* the highest that every MPI has */
    int before = (rank + size - 1) % size;
    int done = 0;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    PMPI_Irecv(NULL, 0, MPI_BYTE, before, TAG, MPI_COMM_WORLD, &requests[0]);
    PMPI_Isend(NULL, 0, MPI_BYTE, (rank + 1) % size, TAG, MPI_COMM_WORLD, &requests[1]);
    double deadline = PMPI_Wtime() + init_timeout();
    while (!done && PMPI_Wtime() < deadline) {
        PMPI_Testall(2, requests, &done, statuses);
        if (!done)
            usleep(100);
    }
    if (!done)
        shim_end_job(
            "MPI_Init: rank %d waited %.0f s for rank %d, which does not load libgyre-mpi: start all "
            "ranks with gyre-mpi, or none (GYRE_INIT_TIMEOUT sets the seconds)",
            rank, init_timeout(), before);
}

/* Whether `well` holds on all ranks. */
bool shim_all_well(MPI_Comm comm, bool well)
{
    int mine = well;
    int all = 0;
    REAL(Allreduce)(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
    return all;
}
/* To make a communicator of Gyre takes about as long as 64 small collectives, and programs make many that
 * have few. To join the ranks takes 10 ms, which so many small ones save. With GYRE_ORDER the program wants
 * all its sums in that order. */
static void choose_begins(void)
{
    enum { MOST = 1000000000, USUAL = 64, JOINS = 32768 };
    const char *text = getenv("GYRE_MPI_AFTER");
    const bool ordered = shim_order() != NULL;
    char *end = NULL;
    shim_job.begins = ordered ? 0 : USUAL;
    shim_job.joins = ordered ? 0 : JOINS;
    if (text == NULL || text[0] == '\0')
        return;
    const long given = strtol(text, &end, 10);
    if (ordered && given > 0) {
        fprintf(stderr, "libgyre-mpi: GYRE_MPI_AFTER=%s is ignored: GYRE_ORDER is for all collectives\n",
                text);
        return;
    }
    if (end != text && *end == '\0' && given >= 0 && given <= MOST) {
        shim_job.begins = (int)given;
        shim_job.joins = 0;
        return;
    }
    fprintf(stderr, "libgyre-mpi: GYRE_MPI_AFTER=%s is not a number from 0 to %d: it is ignored\n", text,
            (int)MOST);
}

/* Whether the ranks of this host outnumber the cores that they may use. */
static bool cores_are_scarce(MPI_Comm comm)
{
    MPI_Comm local = MPI_COMM_NULL;
    int ranks = 1;
    cpu_set_t mine;
    cpu_set_t all;
    CPU_ZERO(&mine); /* with more than 1024 cores: none is known */
    (void)sched_getaffinity(0, sizeof(mine), &mine);
    REAL(Comm_split_type)(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
    PMPI_Comm_size(local, &ranks);
    REAL(Allreduce)(&mine, &all, (int)sizeof(mine), MPI_BYTE, MPI_BOR, local);
    PMPI_Comm_free(&local);
    return CPU_COUNT(&all) > 0 && ranks > CPU_COUNT(&all);
}

bool shim_join(MPI_Comm comm, int root)
{
    gyre_unique_id_t id = {{0}};
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    gyre_comm_t *gyre = NULL;
    gyre_request_t *request = NULL;
    /* A rank of an MPI program may compute for hours while others wait; one that died is found all the
     * same. */
    config.timeout_s = getenv("GYRE_TIMEOUT") != NULL ? 0 : 86400.0 * 365;
    config.name = "mpi";
    /* MPI_COMM_SELF would not do: for that MPICH looks at nothing else. */
    REAL(Comm_split)(comm, 0, 0, &idle);
    crowded = cores_are_scarce(comm);
    bool well = load_gyre() && (shim_job.rank != 0 || GYRE(get_unique_id)(&id) == GYRE_OK);
    if (shim_all_well(comm, well)) {
        REAL(Bcast)(&id, (int)sizeof(id), MPI_BYTE, root, comm);
        well = shim_wait(GYRE(comm_icreate_id)(&id, shim_job.rank, shim_job.size, &config, &gyre, &request),
                         &request) == GYRE_OK;
    }
    if (shim_all_well(comm, well && gyre != NULL)) {
        if (GYRE(comm_hosts)(gyre) > 1)
            shim_requests_between_hosts();
        atomic_store(&shim_job.gyre, gyre);
        return true;
    }
    if (gyre != NULL) { /* other ranks have none */
        GYRE(comm_abort)(gyre, "other ranks cannot be joined");
        GYRE(finalize)(gyre);
    }
    atomic_store(&shim_job.failed, true);
    shim_need_order(comm, shim_job.rank, "the ranks cannot be joined in Gyre");
    if (shim_job.rank == 0)
        fprintf(stderr, "libgyre-mpi: the ranks cannot be joined in Gyre: all collectives go to MPI\n");
    return false;
}

/* MPI knows of one rank. If a launcher that this MPI does not understand started several, each is alone. */
static void warn_of_launcher(void)
{
    static const struct {
        const char *name, *rank, *size;
    } launchers[] = {{"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                     {"MPICH's mpirun", "PMI_RANK", "PMI_SIZE"},
                     {"ucx-run", "GYRE_RANK", "GYRE_SIZE"}};
#ifdef OPEN_MPI
    enum { OWN = 0 };
    const char *own = "Open MPI";
#else
    enum { OWN = 1 };
    const char *own = "MPICH";
#endif
    if (getenv(launchers[OWN].size) != NULL)
        return;
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const char *rank = getenv(launchers[i].rank);
        const char *size = getenv(launchers[i].size);
        if (rank == NULL || size == NULL || strtol(size, NULL, 10) < 2)
            continue;
        if (strtol(rank, NULL, 10) == 0)
            fprintf(
                stderr,
                "libgyre-mpi: MPI_Init: this program is linked with %s, but %s started it: each of the %s "
                "ranks is alone: use %s's mpirun\n",
                own, launchers[i].name, size, own);
        return;
    }
}

/* The job ends. All ranks call it. */
static void end(void)
{
    gyre_comm_t *gyre = atomic_load(&shim_job.gyre);
    shim_requests_end(shim_job.rank);
    shim_report_print(shim_job.rank);
    /* All messages that need this rank's progress are delivered before Gyre waits for the ranks. */
    if (gyre != NULL)
        REAL(Barrier)(MPI_COMM_WORLD);
    shim_helper_end();
    shim_job.open = false;
    shim_comms_end();
    shim_types_end();
    if (gyre != NULL)
        GYRE(finalize)(gyre);
    if (idle != MPI_COMM_NULL)
        PMPI_Comm_free(&idle);
}
/* MPI_Finalize deletes the attributes of MPI_COMM_SELF before all else, the newest one first (MPI-3.1,
 * 8.7.1): this one, which MPI_Init sets, after those of the program, whose callbacks may make collectives. */
static int last_of_self(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    end();
    return MPI_SUCCESS;
}
static void start(void)
{
    PMPI_Comm_rank(MPI_COMM_WORLD, &shim_job.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &shim_job.size);
    shim_report_init();
    shim_order_init();
    if (shim_job.size == 1) {
        warn_of_launcher();
        return;
    }
    ask_neighbor(shim_job.rank, shim_job.size);
    if (shim_job.rank == 0)
        choose_begins();
    struct {
        int begins, joins, checking;
        char order[SHIM_ORDER_MOST];
    } alike = {shim_job.begins, shim_job.joins, shim_checking, ""};
    if (shim_order() != NULL)
        snprintf(alike.order, sizeof(alike.order), "%s", shim_order());
    REAL(Bcast)(&alike, (int)sizeof(alike), MPI_BYTE, 0, MPI_COMM_WORLD);
    shim_job.begins = alike.begins;
    shim_job.joins = alike.joins;
    shim_checking = alike.checking;
    shim_share_order(alike.order, shim_job.rank);
    shim_types_init();
    shim_requests_init();
    shim_comms_init();
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_of_self, &key, NULL);
    ends_with_self = PMPI_Comm_set_attr(MPI_COMM_SELF, key, NULL) == MPI_SUCCESS;
    shim_job.open = true;
    if (shim_job.begins == 0 && shim_join(MPI_COMM_WORLD, 0))
        shim_comms_take_world();
}

int MPI_Init(int *argc, char ***argv)
{
    refuse_other_mpi();
    int rc = real_Init(argc, argv);
    if (rc == MPI_SUCCESS)
        start();
    return rc;
}
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    refuse_other_mpi();
    int rc = real_Init_thread(argc, argv, required, provided);
    if (rc == MPI_SUCCESS)
        start();
    return rc;
}
int MPI_Finalize(void)
{
    int finalized = 0;
    PMPI_Finalized(&finalized);
    if (shim_job.open && !finalized && !ends_with_self)
        end();
    if (shim_job.size == 1 && !finalized)
        shim_report_print(0);
    return real_Finalize();
}
/* Fortran calls these in both MPI libraries, or may. */
SHIM_ALIAS(Init)
SHIM_ALIAS(Init_thread)
SHIM_ALIAS(Finalize)
