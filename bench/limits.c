/* SPDX-License-Identifier: Apache-2.0 */
/* bench/limits.c: what this machine itself can do, to compare with the figures of `make bench-peers`.
 *
 *   limits [MS]       each measurement takes about MS milliseconds (default 40); prints one JSON object
 *
 * Names end in the unit: _gbs 10^9 bytes per second, _us and _ns times. Every figure is a median. Rates of
 * copies and additions count the bytes of the result; "all" is the sum over one thread for each core that we
 * may use. Threads and processes are pinned: one to the first of our cores, one to the second. Where there is
 * only one core, what needs two is left out.
 *
 * The least traffic of an all_reduce. n ranks hold n inputs of S bytes and want n results of S bytes, out of
 * place. Nothing can be left out of this: every byte of every input is read by somebody at least once (n S),
 * and every byte of every result is written at least once (n S). 2 n S suffice: let rank r sum its share, [r
 * S / n, (r + 1) S / n), of all n inputs, reading each once, and store each sum n times, into all the
 * results, straight from the register. So for 2 ranks and S = 64 MiB it is 256 MiB, of which each core moves
 * half. Ordinary stores read a line before they write it, which adds n S; streaming stores do not, but leave
 * the cache: both are tried and the faster one counts. Measured with two pinned processes over shared memory
 * that do just that and never wait for each other within a measurement: what synchronisation costs is not
 * in the figure. */
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
/* The vectors of the machine that runs it, not of the compiler's baseline. */
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default"), noinline))
#else
#define WIDE __attribute__((noinline))
#endif

enum { MAX_CORES = 1024, MAX_SAMPLES = 4096, LINE = 64 };
static const size_t KI = 1024, MI = 1024 * 1024;

static int cores[MAX_CORES], core_count;
static double budget_ns = 40e6;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void find_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        die("sched_getaffinity");
    for (int c = 0; c < CPU_SETSIZE && core_count < MAX_CORES; c++)
        if (CPU_ISSET((size_t)c, &set))
            cores[core_count++] = c;
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("sched_setaffinity");
}

/* Shared with children that are forked later; pages are there. */
static void *shared(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    return memory;
}

static float *floats(size_t bytes)
{
    float *memory = malloc(bytes);
    if (!memory)
        die("malloc");
    for (size_t i = 0; i < bytes / sizeof *memory; i++)
        memory[i] = 1.0f;
    return memory;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

/* Median time of work(argument) in ns: at least three samples, for the budget. */
static double time_of(void (*work)(void *), void *argument)
{
    static _Thread_local double samples[MAX_SAMPLES];
    size_t count = 0;
    work(argument); /* warm */
    double end = now_ns() + budget_ns;
    while (count < MAX_SAMPLES && (count < 3 || now_ns() < end)) {
        double from = now_ns();
        work(argument);
        samples[count++] = now_ns() - from;
    }
    return median(samples, count);
}

static int first = 1;
static void print(const char *name, double value)
{
    printf("%s\n  \"%s\": %.4g", first ? "{" : ",", name, value);
    first = 0;
}

/* ---- memory: copies and additions ---------------------------------------------------------------------- */

typedef struct {
    float *c, *a, *b;
    size_t count, repeats;
    int kind; /* 0 c = a, 1 c = a + b, 2 c += a */
} stream_t;

WIDE static void add_to(float *restrict c, const float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        c[i] = a[i] + b[i];
}

WIDE static void add_on(float *restrict c, const float *restrict a, size_t count)
{
    for (size_t i = 0; i < count; i++)
        c[i] += a[i];
}

static void stream(void *argument)
{
    stream_t *s = argument;
    for (size_t i = 0; i < s->repeats; i++) {
        if (s->kind == 0)
            memcpy(s->c, s->a, s->count * sizeof(float));
        else if (s->kind == 1)
            add_to(s->c, s->a, s->b, s->count);
        else
            add_on(s->c, s->a, s->count);
        __asm__ volatile("" ::: "memory"); /* each pass counts */
    }
}

typedef struct {
    pthread_t thread;
    int core, kind;
    size_t bytes;
    double gbs;
    pthread_barrier_t *together;
} streamer_t;

static void *streamer(void *argument)
{
    streamer_t *me = argument;
    pin(me->core);
    stream_t s = {floats(me->bytes), floats(me->bytes), floats(me->bytes), me->bytes / sizeof(float), 1,
                  me->kind};
    if (me->bytes < MI)
        s.repeats = 4 * MI / me->bytes;
    pthread_barrier_wait(me->together);
    me->gbs = (double)(me->bytes * s.repeats) / time_of(stream, &s);
    pthread_barrier_wait(me->together); /* no measurement overlaps with another's emptying */
    free(s.c);
    free(s.a);
    free(s.b);
    return NULL;
}

static void memory_rates(const char *where, size_t bytes)
{
    static const char *const kinds[] = {"memcpy", "add_c_is_a_plus_b", "add_c_plus_is_a"};
    for (int kind = 0; kind < 3; kind++)
        for (int all = 0; all < 2; all++) {
            int threads = all ? core_count : 1;
            pthread_barrier_t together;
            streamer_t *list = calloc((size_t)threads, sizeof *list);
            char name[96];
            double sum = 0;
            if (!list || pthread_barrier_init(&together, NULL, (unsigned)threads) != 0)
                die("threads");
            for (int t = 0; t < threads; t++) {
                list[t] = (streamer_t){.core = cores[t], .kind = kind, .bytes = bytes, .together = &together};
                if (pthread_create(&list[t].thread, NULL, streamer, &list[t]) != 0)
                    die("pthread_create");
            }
            for (int t = 0; t < threads; t++) {
                pthread_join(list[t].thread, NULL);
                sum += list[t].gbs;
            }
            snprintf(name, sizeof name, "%s_%s_%s_gbs", kinds[kind], where, all ? "all" : "one");
            print(name, sum);
            pthread_barrier_destroy(&together);
            free(list);
        }
}

/* ---- between two threads: a line, a futex, a yield, TCP ------------------------------------------------ */

/* Two threads that pass a turn to and fro; `half` waits for its turn `mine` and gives it to the other. */
typedef struct pair pair_t;
struct pair {
    _Alignas(LINE) _Atomic uint32_t turn;
    _Alignas(LINE) _Atomic int stop;
    void (*half)(pair_t *pair, uint32_t mine);
    int sockets[2];
    int core;
};

static void line_half(pair_t *p, uint32_t mine)
{
    while (atomic_load_explicit(&p->turn, memory_order_acquire) != mine)
        ;
    atomic_store_explicit(&p->turn, !mine, memory_order_release);
}

static void futex_half(pair_t *p, uint32_t mine)
{
    while (atomic_load(&p->turn) != mine)
        syscall(SYS_futex, &p->turn, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
    atomic_store(&p->turn, !mine);
    syscall(SYS_futex, &p->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void yield_half(pair_t *p, uint32_t mine)
{
    while (atomic_load(&p->turn) != mine)
        sched_yield();
    atomic_store(&p->turn, !mine);
}

static void tcp_pass(pair_t *p, uint32_t mine, int flags)
{
    char message[8] = {0};
    size_t got = 0;
    /* Thread 0 speaks first: its message is there before it waits for the answer. */
    if (mine == 0 && send(p->sockets[0], message, sizeof message, MSG_NOSIGNAL) != sizeof message)
        die("send");
    while (got < sizeof message) {
        ssize_t n = recv(p->sockets[mine], message + got, sizeof message - got, flags);
        if (n == 0)
            return; /* the end of the measurement */
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            die("recv");
        got += n > 0 ? (size_t)n : 0;
    }
    if (mine == 1 && send(p->sockets[1], message, sizeof message, MSG_NOSIGNAL) != sizeof message)
        die("send");
}

static void tcp_block_half(pair_t *p, uint32_t mine)
{
    tcp_pass(p, mine, 0);
}

static void tcp_poll_half(pair_t *p, uint32_t mine)
{
    tcp_pass(p, mine, MSG_DONTWAIT);
}

enum { TURNS = 64 };
/* The last block is the one in which `stop` is seen after its first turn: main has set it by then, and not
 * before the block before was in its later turns. */
static void *other_thread(void *argument)
{
    pair_t *p = argument;
    int last = 0;
    pin(p->core);
    while (!last) {
        p->half(p, 1);
        last = atomic_load(&p->stop);
        for (int i = 1; i < TURNS; i++)
            p->half(p, 1);
    }
    return NULL;
}

static void turns(void *argument)
{
    pair_t *p = argument;
    for (int i = 0; i < TURNS; i++)
        p->half(p, 0);
}

/* One way of a round trip, in ns, between the first core and `core`. */
static double one_way(void (*half)(pair_t *, uint32_t), int core, int sockets[2])
{
    static pair_t p; /* static: aligned */
    pthread_t thread;
    atomic_store(&p.turn, 0);
    atomic_store(&p.stop, 0);
    p.half = half;
    p.core = core;
    if (sockets)
        memcpy(p.sockets, sockets, sizeof p.sockets);
    if (pthread_create(&thread, NULL, other_thread, &p) != 0)
        die("pthread_create");
    double ns = time_of(turns, &p) / TURNS / 2;
    atomic_store(&p.stop, 1);
    turns(&p);
    pthread_join(thread, NULL);
    return ns;
}

static void tcp_pair(int sockets[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || sockets[0] < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(sockets[0], (struct sockaddr *)&address, length) != 0)
        die("TCP on loopback");
    sockets[1] = accept(listener, NULL, NULL);
    if (sockets[1] < 0)
        die("accept");
    for (int i = 0; i < 2; i++)
        if (setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
            die("TCP_NODELAY");
    close(listener);
}

typedef struct {
    int socket, core;
    char *buffer;
} drain_t;

static void *drain(void *argument)
{
    drain_t *d = argument;
    pin(d->core);
    while (recv(d->socket, d->buffer, MI, 0) > 0)
        ;
    return NULL;
}

static void push(void *argument)
{
    drain_t *d = argument;
    for (size_t sent = 0; sent < 4 * MI;) {
        ssize_t n = send(d->socket, d->buffer, MI, MSG_NOSIGNAL);
        if (n <= 0)
            die("send");
        sent += (size_t)n;
    }
}

static void tcp_rates(int core)
{
    int sockets[2];
    tcp_pair(sockets);
    print("tcp_loopback_polling_us", one_way(tcp_poll_half, core, sockets) / 1000);
    print("tcp_loopback_blocking_us", one_way(tcp_block_half, core, sockets) / 1000);
    drain_t from = {sockets[0], cores[0], (char *)floats(MI)}, to = {sockets[1], core, (char *)floats(MI)};
    pthread_t thread;
    if (pthread_create(&thread, NULL, drain, &to) != 0)
        die("pthread_create");
    print("tcp_loopback_gbs", 4.0 * (double)MI / time_of(push, &from));
    shutdown(sockets[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    close(sockets[0]);
    close(sockets[1]);
    free(from.buffer);
    free(to.buffer);
}

/* ---- another process's memory -------------------------------------------------------------------------- */

typedef struct {
    pid_t pid;
    char *from, *to;
    size_t bytes;
} cma_t;

static void cma_read(void *argument)
{
    cma_t *c = argument;
    for (size_t at = 0; at < c->bytes;) {
        struct iovec to = {c->to + at, c->bytes - at}, from = {c->from + at, c->bytes - at};
        ssize_t n = process_vm_readv(c->pid, &to, 1, &from, 1, 0);
        if (n <= 0)
            die("process_vm_readv");
        at += (size_t)n;
    }
}

static void cma_rates(void)
{
    const size_t most = 64 * MI;
    _Atomic int *ready = shared(sizeof *ready);
    cma_t c = {.from = (char *)floats(most), .to = (char *)floats(most)};
    c.pid = fork();
    if (c.pid < 0)
        die("fork");
    if (c.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(c.from, 2, most); /* pages of its own */
        atomic_store(ready, 1);
        for (;;)
            pause();
    }
    while (!atomic_load(ready))
        usleep(1000);
    struct iovec to = {c.to, 8}, from = {c.from, 8};
    if (process_vm_readv(c.pid, &to, 1, &from, 1, 0) == 8) { /* else it is not allowed here: no figures */
        static const struct {
            const char *name;
            size_t bytes;
        } sizes[] = {{"cma_4K_gbs", 4096},
                     {"cma_64K_gbs", 65536},
                     {"cma_1M_gbs", 1u << 20},
                     {"cma_64M_gbs", 64u << 20}};
        double ns[4];
        c.bytes = 8;
        print("cma_call_us", time_of(cma_read, &c) / 1000);
        for (size_t i = 0; i < 4; i++) {
            c.bytes = sizes[i].bytes;
            ns[i] = time_of(cma_read, &c);
            print(sizes[i].name, (double)c.bytes / ns[i]);
        }
        print("cma_page_more_ns", (ns[1] - ns[0]) / 15); /* of 64 KiB over one page */
    }
    kill(c.pid, SIGKILL);
    waitpid(c.pid, NULL, 0);
    free(c.from);
    free(c.to);
    munmap(ready, sizeof *ready);
}

/* ---- the least traffic of an all_reduce between two ranks ---------------------------------------------- */

typedef struct {
    const float *a, *b; /* both inputs */
    float *c, *d;       /* both results */
    size_t count;       /* of this rank's half */
} half_t;

WIDE static void both_add(const float *restrict a, const float *restrict b, float *restrict c,
                          float *restrict d, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = a[i] + b[i];
        c[i] = sum;
        d[i] = sum;
    }
}

static void plain_half(void *argument)
{
    half_t *h = argument;
    both_add(h->a, h->b, h->c, h->d, h->count);
}

#if defined(__x86_64__)
/* Whole lines at a time, or the stores would not combine. */
static void streaming_half(void *argument)
{
    half_t *h = argument;
    for (size_t i = 0; i < h->count; i += LINE / sizeof(float)) {
        __m128 sum[4];
        for (size_t j = 0; j < 4; j++)
            sum[j] = _mm_add_ps(_mm_load_ps(h->a + i + 4 * j), _mm_load_ps(h->b + i + 4 * j));
        for (size_t j = 0; j < 4; j++)
            _mm_stream_ps(h->c + i + 4 * j, sum[j]);
        for (size_t j = 0; j < 4; j++)
            _mm_stream_ps(h->d + i + 4 * j, sum[j]);
    }
    _mm_sfence();
}
#endif

/* The time of the slower of two processes, each of which does its half over and over while the other does. */
static double two_halves(void (*work)(void *), float *const vectors[4], size_t bytes)
{
    struct {
        _Atomic int here;
        double ns[2];
    } *common = shared(sizeof *common);
    const size_t half = bytes / 2 / sizeof(float);
    pid_t pids[2];
    fflush(stdout);
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            die("fork");
        if (pids[r])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(cores[r]);
        size_t at = (size_t)r * half;
        half_t h = {vectors[0] + at, vectors[1] + at, vectors[2] + at, vectors[3] + at, half};
        work(&h); /* page tables */
        atomic_fetch_add(&common->here, 1);
        while (atomic_load(&common->here) < 2)
            ;
        common->ns[r] = time_of(work, &h);
        atomic_fetch_add(&common->here, 1);
        double end = now_ns() + 5e9;
        while (atomic_load(&common->here) < 4 && now_ns() < end)
            work(&h); /* the other one is to have company until it is done */
        _exit(0);
    }
    int failed = 0;
    for (int r = 0; r < 2; r++) {
        int status;
        failed |= waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    }
    double slower = common->ns[0] > common->ns[1] ? common->ns[0] : common->ns[1];
    munmap(common, sizeof *common);
    if (failed) {
        errno = ECHILD;
        die("a process of the least traffic");
    }
    return slower;
}

static void least_traffic(size_t bytes, const char *name)
{
    float *vectors[4];
    for (int i = 0; i < 4; i++) {
        vectors[i] = shared(bytes);
        memset(vectors[i], 0, bytes);
    }
    double ns = two_halves(plain_half, vectors, bytes);
#if defined(__x86_64__)
    double streaming = two_halves(streaming_half, vectors, bytes);
    ns = streaming < ns ? streaming : ns;
#endif
    print(name, ns / 1000);
    for (int i = 0; i < 4; i++)
        munmap(vectors[i], bytes);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        char *end;
        double ms = strtod(argv[1], &end);
        if (*end || ms < 1 || ms > 10000) {
            fprintf(stderr, "usage: limits [milliseconds per measurement, 1 to 10000]\n");
            return 2;
        }
        budget_ns = 1e6 * ms;
    }
    find_cores();
    pin(cores[0]);
    memory_rates("32K", 32 * KI);
    memory_rates("256K", 256 * KI);
    memory_rates("64M", 64 * MI);
    cma_rates();
    print("sched_yield_switch_us", one_way(yield_half, cores[0], NULL) / 1000);
    print("futex_wake_same_core_us", one_way(futex_half, cores[0], NULL) / 1000);
    if (core_count > 1) {
        print("cache_line_flight_ns", one_way(line_half, cores[1], NULL));
        print("futex_wake_other_core_us", one_way(futex_half, cores[1], NULL) / 1000);
        tcp_rates(cores[1]);
        least_traffic(1 * MI, "least_traffic_all_reduce_2_1M_us");
        least_traffic(16 * MI, "least_traffic_all_reduce_2_16M_us");
        least_traffic(64 * MI, "least_traffic_all_reduce_2_64M_us");
    }
    printf("\n}\n");
    return ferror(stdout) || fflush(stdout) != 0;
}
