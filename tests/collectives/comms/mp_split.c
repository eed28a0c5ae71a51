/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 4, over UCX: 2 */
/* takes: 2 */
/* tests/collectives/comms/mp_split.c: a communicator made of another one on this host costs two exchanges
 * over it, and once some were made and destroyed neither a page nor a mapping; and memory that one leaves to
 * the next does no harm, whatever was done in it and in whatever order the ranks leave it.
 *
 *     mp_split              these tests
 *     mp_split loop N       N times: split, a first call, destroy. For tests/collectives/comms/split.sh
 *     mp_split dead         until another rank dies, which is what the error says
 *     mp_split survive      two of three ranks split what they have left once the third is dead
 *     mp_split second       of four ranks three die one by one, and the fourth hears of the second
 *     mp_split half         one of two ranks makes it, and for the other one the parent fails before */
#include "tests/support/mp.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

static gyre_comm_t *world;
static int rank;

static void sum_is_right(gyre_comm_t *comm, size_t count)
{
    static int in[1 << 16], out[1 << 16];
    const int ranks = gyre_comm_size(comm), me = gyre_comm_rank(comm);
    for (size_t i = 0; i < count; i++)
        in[i] = me + (int)i;
    MP_OK(gyre_all_reduce(in, out, count, GYRE_INT32, GYRE_OP(GYRE_SUM), comm));
    for (size_t i = 0; i < count; i++)
        MP_CHECK(out[i] == ranks * (int)i + ranks * (ranks - 1) / 2, "%zu of %zu: %d", i, count, out[i]);
}

static void round_trip(int color, int key)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_split(world, color, key, &comm));
    if (comm)
        sum_is_right(comm, 1);
    MP_OK(gyre_comm_destroy(comm));
}

static void group_trip(void)
{
    static const int ranks[] = {1, 0}; /* the others do other work */
    gyre_comm_t *comm;
    if (rank > 1)
        return;
    MP_OK(gyre_comm_create_group(world, ranks, 2, 5, &comm));
    sum_is_right(comm, 1);
    MP_OK(gyre_comm_destroy(comm));
}

/* ---- what it costs ------------------------------------------------------------------------------------- */

static uint64_t operations_of(const gyre_comm_t *comm)
{
    gyre_comm_stats_t stats = {.size = sizeof stats};
    MP_OK(gyre_comm_stats(comm, &stats));
    return stats.operations;
}

static uint64_t operations(void)
{
    return operations_of(world);
}

static long pages(void)
{
    struct rusage used;
    MP_CHECK(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
    return used.ru_minflt;
}

static int mappings(void)
{
    int lines = 0, c;
    FILE *f = fopen("/proc/self/maps", "r");
    MP_CHECK(f, "no /proc/self/maps");
    while ((c = fgetc(f)) != EOF)
        lines += c == '\n';
    fclose(f);
    return lines;
}

static void costs(void)
{
    enum { WARM = 70, TIMES = 200 }; /* more than the handles that are kept after their end */
    gyre_comm_t *comm;
    for (int i = 0; i < WARM; i++)
        round_trip(i % 2 ? 0 : rank % 2, 0);
    const uint64_t before = operations();
    MP_OK(gyre_comm_split(world, rank / 2, -rank, &comm));
    MP_CHECK(operations() == before + 2, "split: %d exchanges", (int)(operations() - before));
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_comm_dup(world, &comm));
    MP_CHECK(operations() == before + 4, "dup: %d exchanges", (int)(operations() - before) - 2);
    MP_OK(gyre_comm_destroy(comm));
    for (int i = 0; i < 3; i++)
        group_trip();
    const int mapped = mappings();
    const long touched = pages();
    for (int i = 0; i < TIMES; i++) {
        round_trip(i % 2 ? 0 : rank % 2, 0);
        group_trip();
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep what was freed */
    MP_CHECK(pages() - touched < TIMES / 2, "%ld pages in %d splits", pages() - touched, TIMES);
    MP_CHECK(mappings() - mapped < TIMES / 20, "%d mappings, %d before", mappings(), mapped);
#endif
    (void)touched;
    (void)mapped;
}

/* To all cores, or if it may use all already to one. 1: that is another set. */
static int bind_elsewhere(void)
{
    cpu_set_t before, other;
    size_t cpu = 0;
    MP_CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "sched_getaffinity");
    memset(&other, 0xff, sizeof other);
    if (sched_setaffinity(0, sizeof other, &other) == 0 && sched_getaffinity(0, sizeof other, &other) == 0 &&
        !CPU_EQUAL(&before, &other))
        return 1;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&other);
    CPU_SET(cpu, &other);
    return CPU_COUNT(&before) > 1 && sched_setaffinity(0, sizeof other, &other) == 0;
}

/* Of a thread that runs elsewhere than its parent communicator knows the others get to know that. */
static void bound_elsewhere(void)
{
    cpu_set_t before;
    gyre_comm_t *comm;
    MP_CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "sched_getaffinity");
    int bound = rank == 0 && bind_elsewhere();
    MP_OK(gyre_broadcast(&bound, &bound, 1, GYRE_INT32, 0, world));
    const uint64_t count = operations();
    MP_OK(gyre_comm_split(world, 0, 0, &comm));
    MP_CHECK(!bound || operations() > count + 2, "%d exchanges", (int)(operations() - count));
    sum_is_right(comm, 1);
    MP_CHECK(sched_setaffinity(0, sizeof before, &before) == 0, "sched_setaffinity");
    MP_OK(gyre_comm_destroy(comm));
}

/* Of a communicator that was aborted the others have no harm. */
static void after_an_abort(void)
{
    gyre_comm_t *comm;
    MP_OK(gyre_comm_dup(world, &comm));
    if (rank == 0)
        MP_OK(gyre_comm_abort(comm, "no more"));
    while (gyre_comm_error(comm) == GYRE_OK)
        usleep(100);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
    const uint64_t before = operations();
    MP_OK(gyre_comm_split(world, 0, 0, &comm));
    MP_CHECK(operations() == before + 2, "%d exchanges", (int)(operations() - before));
    sum_is_right(comm, 1);
    MP_OK(gyre_comm_destroy(comm));
}

/* GYRE_FAULT=2:3:kill: of the others each makes its memory known to the other one. */
static void after_a_death(void)
{
    gyre_comm_t *pair, *comm;
    MP_OK(gyre_comm_split(world, rank == 2, 0, &pair));
    MP_EXPECT(gyre_barrier(world), GYRE_ERR_PEER_DEAD, "died");
    const uint64_t before = operations_of(pair);
    MP_OK(gyre_comm_dup(pair, &comm));
    MP_CHECK(operations_of(pair) > before + 2, "%d exchanges", (int)(operations_of(pair) - before));
    sum_is_right(comm, 1000);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(pair));
    exit(0);
}

/* ---- what it leaves to the next ------------------------------------------------------------------------ */

static void message(gyre_comm_t *comm, size_t count)
{
    static char in[1 << 17], out[1 << 17];
    const int ranks = gyre_comm_size(comm), me = gyre_comm_rank(comm), from = (me + ranks - 1) % ranks;
    gyre_request_t *sent, *received;
    memset(out, me + 1, count);
    MP_OK(gyre_irecv(in, count, GYRE_INT8, from, comm, &received));
    MP_OK(gyre_isend(out, count, GYRE_INT8, (me + 1) % ranks, comm, &sent));
    MP_OK(gyre_wait(&sent));
    MP_OK(gyre_wait(&received));
    for (size_t i = 0; i < count; i++)
        MP_CHECK(in[i] == from + 1, "byte %zu of %zu from %d: %d", i, count, from, in[i]);
}

/* One of many things, on all ranks of `comm`. */
static void use(gyre_comm_t *comm, uint64_t *draw)
{
    static int data[1 << 12];
    const int ranks = gyre_comm_size(comm), root = (int)(random_next(draw) % (unsigned)ranks);
    switch (random_next(draw) % 7) {
    case 0:
        MP_OK(gyre_barrier(comm));
        break;
    case 1:
        sum_is_right(comm, 1 + random_next(draw) % 12);
        break;
    case 2:
        sum_is_right(comm, 1 + random_next(draw) % 1000);
        break;
    case 3:
        sum_is_right(comm, 1 << 16);
        break;
    case 4: /* the root goes on, and may leave before the others have it */
        for (int i = 0; i < 100; i++) {
            data[0] = gyre_comm_rank(comm) == root ? i + 1 : 0;
            MP_OK(gyre_broadcast(data, data, 1, GYRE_INT32, root, comm));
            MP_CHECK(data[0] == i + 1, "broadcast %d: %d", i, data[0]);
        }
        break;
    case 5:
        message(comm, 1 + random_next(draw) % 100);
        break;
    default:
        message(comm, (size_t)1 << (7 + random_next(draw) % 10));
    }
}

/* The same drawing on all ranks says what is made and used; each rank for itself destroys in an order of its
 * own, sooner or later. */
static void mixture(void)
{
    enum { MOST = 20, STEPS = 400 };
    gyre_comm_t *comm[MOST] = {NULL};
    uint64_t live[MOST];
    int count = 0;
    uint64_t same = 1, own = 100 + (uint64_t)rank;
    for (int step = 0; step < STEPS; step++) {
        if (count < MOST && random_next(&same) % 3 != 0) {
            const uint64_t colors = random_next(&same), keys = random_next(&same);
            const int color = (int)(colors >> 2 * rank & 3) - (colors >> 60 == 0);
            MP_OK(gyre_comm_split(world, color, (int)(keys >> 2 * rank & 3), &comm[count]));
            MP_CHECK((comm[count] != NULL) == (color >= 0), "color %d", color);
            live[count] = random_next(&same);
            count++;
        } else if (count > 0) {
            const int i = (int)(random_next(&same) % (unsigned)count);
            if (random_next(&own) % 4 == 0)
                usleep((unsigned)(random_next(&own) % 300));
            MP_OK(gyre_comm_destroy(comm[i]));
            comm[i] = comm[--count];
            live[i] = live[count];
        }
        const int used = count > 0 ? (int)(random_next(&same) % (unsigned)count) : 0;
        if (count > 0 && comm[used])
            use(comm[used], &live[used]);
    }
    while (count > 0)
        MP_OK(gyre_comm_destroy(comm[--count]));
    sum_is_right(world, 1);
}

static void until_one_dies(void)
{
    gyre_status_t st = GYRE_OK;
    for (gyre_comm_t *comm; st == GYRE_OK;)
        if ((st = gyre_comm_split(world, rank % 2, 0, &comm)) == GYRE_OK)
            st = gyre_comm_destroy(comm);
    MP_CHECK(st == GYRE_ERR_PEER_DEAD, "%s", gyre_last_error());
    puts(gyre_last_error());
    exit(0);
}

/* ---- one has it, one has not --------------------------------------------------------------------------- */

static pthread_t main_thread;
static int other; /* process of rank 0 */
static _Atomic int inside, may_go;

static void hold(int number)
{
    (void)number;
    atomic_store(&inside, 1);
    while (!atomic_load(&may_go))
        usleep(100);
}

static int is_stopped(int pid)
{
    char path[64], state = ' ';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    const int fields = f ? fscanf(f, "%*d (%*[^)]) %c", &state) : 0;
    if (f)
        fclose(f);
    return fields == 1 && state == 'T';
}

/* Once rank 0 has stopped and rank 1 waits for it, rank 1 is held, and rank 0 goes on. It has all it waits
 * for, and then aborts the parent. Only then rank 1 looks again. */
static void *hold_until_aborted(void *unused)
{
    (void)unused;
    while (!is_stopped(other))
        usleep(1000);
    usleep(100000);
    pthread_kill(main_thread, SIGUSR1);
    while (!atomic_load(&inside))
        usleep(100);
    kill(other, SIGCONT);
    while (gyre_comm_error(world) == GYRE_OK)
        usleep(1000);
    atomic_store(&may_go, 1);
    return NULL;
}

/* GYRE_FAULT=0:3:stop */
static void half(void)
{
    int pid = getpid(), pids[2];
    pthread_t thread;
    gyre_comm_t *comm = NULL;
    main_thread = pthread_self();
    signal(SIGUSR1, hold);
    MP_OK(gyre_all_gather(&pid, pids, 1, GYRE_INT32, world));
    other = pids[0];
    if (rank == 1)
        MP_CHECK(pthread_create(&thread, NULL, hold_until_aborted, NULL) == 0, "pthread_create");
    const gyre_status_t st = gyre_comm_split(world, 0, 0, &comm);
    if (rank == 1) {
        MP_CHECK(st == GYRE_ERR_ABORTED && !comm, "%s", gyre_last_error());
        pthread_join(thread, NULL);
        sleep(1); /* it is not this rank's end that ends rank 0's call */
        exit(0);
    }
    MP_OK(st);
    MP_OK(gyre_comm_abort(world, "no more"));
    MP_EXPECT(gyre_barrier(comm), GYRE_ERR_ABORTED, "no more");
    exit(0);
}

/* Rank 2 is rank 3's only neighbour in the tree of the watchers. */
static void second_death(void)
{
    gyre_comm_t *odd = NULL;
    int number = rank;
    MP_OK(gyre_comm_split(world, rank % 2, rank, &odd));
    /* Rank 2 leaves it once all have split. It may be dead before others leave it: they get an error. */
    while (gyre_barrier(world) == GYRE_OK)
        if (rank == 2)
            raise(SIGKILL);
    if (rank == 3) {
        MP_EXPECT(gyre_recv(&number, 1, GYRE_INT32, 0, odd), GYRE_ERR_PEER_DEAD, "(world rank 1) died");
        puts("heard");
        return;
    }
    _exit(1);
}

int main(int argc, char **argv)
{
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    if (argc == 3 && strcmp(argv[1], "loop") == 0) {
        for (int i = atoi(argv[2]); i > 0; i--)
            round_trip(0, 0);
    } else if (argc == 2 && strcmp(argv[1], "half") == 0) {
        half();
    } else if (argc == 2 && strcmp(argv[1], "survive") == 0) {
        after_a_death();
    } else if (argc == 2 && strcmp(argv[1], "second") == 0) {
        second_death();
    } else if (argc == 2) {
        until_one_dies();
    } else {
        if (!getenv("GYRE_TRANSPORT")) {
            costs();
            bound_elsewhere();
            after_an_abort();
        }
        mixture();
    }
    MP_OK(gyre_finalize(world));
    return 0;
}
