#!/bin/bash
# tests/system/programs.sh: programs that end, fork and load Gyre in ways of their own: destructors of C++ statics,
# Python's __del__ and atexit, dlopen and dlclose, fork, signals, exit in one thread while another finalizes, closed
# standard descriptors, little address space. Nothing crashes or hangs, and what is refused says so.
# deadline: 180
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
export LD_LIBRARY_PATH=$B/lib
LINK=(-Iinclude -L"$B/lib" -lgyre -pthread)

# ---- C++ statics: in each order of destructors
cat >"$W/statics.cc" <<'END'
#include <gyre/gyre.h>
#include <cstdlib>
#include <cstring>
struct Job {
    gyre_comm_t *comm = nullptr;
    void join() { if (gyre_init(nullptr, &comm) != GYRE_OK) _Exit(10); }
    ~Job() { if (comm && gyre_finalize(comm) != GYRE_OK) _Exit(11); }
};
struct Part {
    gyre_comm_t *comm = nullptr;
    gyre_status_t expected = GYRE_OK;
    void split(Job &job) { if (gyre_comm_split(job.comm, 0, 0, &comm) != GYRE_OK) _Exit(12); }
    ~Part()
    {
        if (!comm)
            return;
        if (gyre_comm_destroy(comm) != expected)
            _Exit(13);
        if (gyre_barrier(comm) != GYRE_ERR_INVALID || !strstr(gyre_last_error(), "barrier"))
            _Exit(14);
    }
};
static Part outlives; // destroyed last
static Job job;
static Part goes_first;
static void leave() { if (gyre_finalize(job.comm) != GYRE_OK) _Exit(15); job.comm = nullptr; }
int main(int argc, char **argv)
{
    double one = 1, sum;
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "atexit") && atexit(leave) != 0)
        return 16;
    job.join();
    (strcmp(how, "before") ? outlives : goes_first).split(job);
    outlives.expected = GYRE_ERR_INVALID;
    if (gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), job.comm) != GYRE_OK)
        return 17;
    if (sum != gyre_comm_size(job.comm))
        return 18;
    exit(0);
}
END
run ${CXX:-g++} -Wall -Wextra -o "$W/statics" "$W/statics.cc" "${LINK[@]}"
want "statics.cc compiles" 0
for how in before after atexit; do
    for n in 1 3; do
        run "$UCX_RUN" -n $n --timeout 20 "$W/statics" $how
        want "C++ statics, split destroyed $how, $n ranks" 0
        check "nobody missed gyre_finalize ($how, $n ranks)" bash -c '! grep -q "without gyre_finalize" "$0"' "$W/err"
    done
done

# ---- Python: handlers of atexit finalize, and __del__ of globals comes after
cat >"$W/late.py" <<'END'
import atexit, ctypes, os, sys
gyre = ctypes.CDLL(sys.argv[1])
gyre.gyre_last_error.restype = ctypes.c_char_p
class Comm:
    def __init__(self, make, *args):
        self.handle = ctypes.c_void_p()
        assert make(*args, ctypes.byref(self.handle)) == 0, gyre.gyre_last_error()
class Part(Comm):
    def __del__(self, gyre=gyre, _exit=os._exit):
        if gyre.gyre_comm_destroy(self.handle) != 100 or b"gyre_finalize has ended" not in gyre.gyre_last_error():
            _exit(21)
world = Comm(gyre.gyre_init, None)
part = Part(lambda *a: gyre.gyre_comm_split(world.handle, 0, 0, a[0]))
def leave():
    if gyre.gyre_finalize(world.handle) != 0:
        os._exit(22)
atexit.register(leave)
END
run "$UCX_RUN" -n 2 --timeout 20 /usr/bin/python3 "$W/late.py" "$B/lib/libgyre.so.0"
want "Python: __del__ after atexit" 0

# program NAME: the C source on stdin
program() {
    cat - >"$W/$1.c"
    run ${CC:-gcc} -std=gnu17 -Wall -Wextra -o "$W/$1" "$W/$1.c" "${@:2}" -Iinclude -pthread
    want "$1.c compiles" 0
}

# ---- dlopen and dlclose
program loads -ldl <<'END'
#include <gyre/gyre.h>
#include <dlfcn.h>
#include <time.h>
#define GET(name) __typeof__(name) *p_##name = (__typeof__(name) *)dlsym(lib, #name)
int main(int argc, char **argv)
{
    for (int i = 0; i < 4; i++) {
        void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!lib || argc < 2)
            return 10;
        GET(gyre_init);
        GET(gyre_finalize);
        GET(gyre_all_reduce);
        gyre_comm_t *world;
        double one = 1, sum;
        if (p_gyre_init(NULL, &world) != GYRE_OK)
            return 11;
        if (p_gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
            return 12;
        if (i < 3 && p_gyre_finalize(world) != GYRE_OK)
            return 13;
        dlclose(lib); /* the last time with its threads running */
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    }
    return 0;
}
END
for n in 1 2; do
    run "$UCX_RUN" -n $n --timeout 20 "$W/loads" "$B/lib/libgyre.so.0"
    want "dlopen and dlclose, $n ranks" 0
done

# ---- fork
program forks "${LINK[@]}" <<'END'
#include <gyre/gyre.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static gyre_comm_t *world, *part;
static gyre_request_t *message, *grouped; /* under way, and of a group that has not ended */
static int refused(gyre_status_t st) { return st == GYRE_ERR_INVALID && strstr(gyre_last_error(), "fork"); }
static void child(void)
{
    double one = 1, sum;
    gyre_comm_t *other;
    gyre_request_t *both[2] = {NULL, message};
    ptrdiff_t at;
    if (!refused(gyre_wait_any(2, both, &at)) || at != 1 || !refused(gyre_test(&message)))
        _exit(35);
    if (gyre_group_end() || !refused(gyre_wait(&grouped)))
        _exit(36);
    if (!refused(gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world)))
        _exit(30);
    if (!refused(gyre_comm_abort(part, "child")) || !refused(gyre_comm_destroy(part)))
        _exit(31);
    if (!refused(gyre_finalize(world)) || !refused(gyre_init(NULL, &other)))
        _exit(32);
    exit(0); /* with the library's own exit handlers */
}
static int ended(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}
int main(void)
{
    double one = 1, sum, *shared;
    if (gyre_init(NULL, &world) || gyre_comm_split(world, 0, 0, &part) || gyre_mem_alloc(4096, (void **)&shared))
        return 10;
    const int rank = gyre_comm_rank(world), n = gyre_comm_size(world);
    for (int i = 0; i < 20; i++) {
        double got = 0, all = 0;
        if (gyre_irecv(&got, 1, GYRE_FLOAT64, (rank + 1) % n, part, &message) || gyre_group_start() ||
            gyre_iall_reduce(&one, &all, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world, &grouped))
            return 16;
        pid_t pid = fork();
        if (pid == 0)
            child();
        if (gyre_group_end())
            return 17;
        for (int k = 0; k < 50; k++)
            if (gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), k % 2 ? part : world) ||
                sum != gyre_comm_size(world))
                return 11;
        int rc = ended(pid);
        if (rc != 0)
            return rc < 1000 ? rc : 99;
        gyre_request_t *sent;
        if (gyre_isend(&one, 1, GYRE_FLOAT64, (rank + n - 1) % n, part, &sent) || gyre_wait(&message) ||
            gyre_wait(&sent) || got != 1 || gyre_wait(&grouped) || all != n)
            return 18;
    }
    if (system("exit 7") != 7 << 8)
        return 12;
    enum { LARGE = 1 << 19 };
    double *large, *own = malloc(LARGE * sizeof *own);
    if (gyre_mem_alloc(LARGE * sizeof *large, (void **)&large) || gyre_mem_register(own, LARGE * sizeof *own))
        return 13;
    *shared = large[LARGE - 1] = own[LARGE - 1] = 5;
    pid_t pid = fork();
    if (pid == 0) { /* memory of the parent's stays the parent's */
        if (gyre_mem_free(shared) || gyre_mem_free(large) || gyre_mem_deregister(own) || own[LARGE - 1] != 5)
            _exit(33);
        own[LARGE - 1] = 6;
        exit(0);
    }
    if (ended(pid) != 0 || *shared != 5 || large[LARGE - 1] != 5 || own[LARGE - 1] != 5)
        return 14;
    for (int i = 0; i < 3; i++)
        if (gyre_all_reduce(large, own, LARGE, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) ||
            own[LARGE - 1] != 5 * gyre_comm_size(world))
            return 15;
    if (gyre_all_reduce(shared, shared, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) || *shared != 5 * gyre_comm_size(world))
        return 16;
    return gyre_mem_free(shared) || gyre_mem_free(large) || gyre_mem_deregister(own) || gyre_comm_destroy(part) || gyre_finalize(world);
}
END
for transport in shm ucx; do
    run env GYRE_TRANSPORT=$transport "$UCX_RUN" -n 2 --timeout 30 "$W/forks"
    want "fork, $transport" 0
done
run "$W/forks"
want "fork, alone" 0

# ---- fork while another thread is in a call: its locks stay taken in the child
program forks_midway "${LINK[@]}" -DFORKS="$([ -n "${TEST_LONG:-}" ] && echo 1000 || echo 250)" <<'END'
#include <gyre/gyre.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>
static gyre_comm_t *world;
static _Atomic int stop;
static void *call(void *arg)
{
    gyre_comm_t *other;
    while (!stop)
        if (gyre_init(NULL, &other) == GYRE_OK) /* it was called before */
            _exit(20);
    return arg;
}
int main(void)
{
    gyre_comm_t *other;
    pthread_t threads[2];
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 10;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, call, NULL) != 0)
            return 11;
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10); /* ends a child that waits */
            _exit(gyre_init(NULL, &other) == GYRE_ERR_INVALID && gyre_barrier(world) == GYRE_ERR_INVALID ? 0 : 30);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0)
            return 12;
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return gyre_finalize(world) != GYRE_OK;
}
END
run env GYRE_LOG=none "$W/forks_midway"
want "fork while another thread is in a call" 0

# ---- signals: handlers run on top of every call
program signals "${LINK[@]}" <<'END'
#include <gyre/gyre.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
static gyre_comm_t *world;
static volatile sig_atomic_t bad, came;
static void handler(int number)
{
    came++;
    if (number != SIGALRM || gyre_comm_error(world) != GYRE_OK || gyre_comm_size(world) != 2)
        bad = 1;
}
int main(void)
{
    enum { COUNT = 200000 };
    double *data = malloc(COUNT * sizeof *data);
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 10;
    struct sigaction action = {.sa_handler = handler}; /* no SA_RESTART: system calls are interrupted */
    struct itimerval every = {.it_interval.tv_usec = 500, .it_value.tv_usec = 500};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < 400; i++) {
        size_t count = i % 40 == 0 ? COUNT : (size_t)i;
        for (size_t k = 0; k < count; k++)
            data[k] = 1;
        gyre_comm_t *part;
        if (gyre_all_reduce(data, data, count, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
            return 11;
        for (size_t k = 0; k < count; k++)
            if (data[k] != 2)
                return 12;
        if (i % 100 == 0 && (gyre_comm_split(world, 0, 0, &part) || gyre_barrier(part) || gyre_comm_destroy(part)))
            return 13;
    }
    double more = 1, stop = 0;
    while (more > 0) { /* quick machines: as long as one of the ranks wants */
        more = came < 20 && !bad;
        if (gyre_all_reduce(&more, &more, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
            return 14;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    if (gyre_all_reduce(&stop, &stop, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
        return 15;
    return bad ? 16 : gyre_finalize(world) != GYRE_OK;
}
END
for transport in shm ucx; do
    run env GYRE_TRANSPORT=$transport "$UCX_RUN" -n 2 --timeout 30 "$W/signals"
    want "signals, $transport" 0
done

# ---- exit in one thread while another works or finalizes
program exits "${LINK[@]}" <<'END'
#include <gyre/gyre.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static gyre_comm_t *world;
static void *work(void *how)
{
    double one = 1, sum;
    while (strcmp(how, "finalize") != 0 &&
           gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) == GYRE_OK)
        ;
    gyre_finalize(world);
    return NULL;
}
int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 3 || gyre_init(NULL, &world) != GYRE_OK || pthread_create(&thread, NULL, work, argv[1]) != 0)
        return 10;
    struct timespec pause = {.tv_nsec = atol(argv[2]) * 1000};
    nanosleep(&pause, NULL);
    exit(0);
}
END
for transport in shm ucx; do
    for how in finalize work; do
        for us in 0 20 100 200 300 500 800 1000 1500 2000 3000 5000; do
            run env GYRE_TRANSPORT=$transport GYRE_LOG=none GYRE_TIMEOUT=10 "$UCX_RUN" -n 2 --no-kill-on-bad-exit --timeout 20 "$W/exits" $how $us
            want "exit beside $how after $us us, $transport" 0
        done
    done
done

# ---- standard descriptors that are closed are never Gyre's
program closed "${LINK[@]}" <<'END'
#include <gyre/gyre.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static const char *closed;
static int ours(void)
{
    for (int fd = 0; fd < 3; fd++) {
        char path[32], at[256] = {0};
        if (!strchr(closed, '0' + fd))
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, at, sizeof at - 1) > 0 && strcmp(at, "/dev/null") != 0)
            return 1;
    }
    return 0;
}
int main(int argc, char **argv)
{
    gyre_comm_t *world;
    double one = 1, sum;
    void *memory;
    closed = argc > 1 ? argv[1] : "";
    for (int fd = 0; fd < 3; fd++)
        if (strchr(closed, '0' + fd))
            close(fd);
    if (gyre_mem_alloc(100, &memory) != GYRE_OK || ours())
        return 10;
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 11;
    for (int i = 0; i < 10; i++)
        if (gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world) != GYRE_OK || ours())
            return 12;
    for (int fd = 0; fd < 3 && strchr(closed, '0' + fd); fd++)
        (void)!write(fd, "noise", 5);
    if (gyre_barrier(world) != GYRE_OK)
        return 13;
    return gyre_finalize(world) != GYRE_OK;
}
END
for transport in shm ucx; do
    for which in 012 12 0; do
        run env GYRE_TRANSPORT=$transport "$UCX_RUN" -n 2 --timeout 20 "$W/closed" $which
        want "descriptors $which closed, $transport" 0
    done
done

# ---- little address space: it works or says why not
program small "${LINK[@]}" <<'END'
#include <gyre/gyre.h>
#include <stdlib.h>
#include <sys/resource.h>
int main(int argc, char **argv)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)atol(argv[argc - 1]) << 20, .rlim_max = RLIM_INFINITY};
    gyre_comm_t *world;
    double one = 1, sum;
    setrlimit(RLIMIT_AS, &limit);
    gyre_status_t st = gyre_init(NULL, &world);
    if (st != GYRE_OK)
        return *gyre_last_error() ? 3 : 10;
    st = gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world);
    gyre_finalize(world);
    return st == GYRE_OK ? sum != 1 && sum != 2 : 3;
}
END
worked=0
for transport in auto ucx; do
    for mib in 1 8 12 16 20 24 26 28 32 40 60 80 100 120 140 160 200 250 300 400 600 1000 4000; do
        for n in 1 2; do
            [ $transport$n != ucx1 ] || continue
            run env GYRE_TRANSPORT=$transport GYRE_TIMEOUT=5 GYRE_INIT_TIMEOUT=10 "$UCX_RUN" -n $n --timeout 25 "$W/small" $mib
            checks=$((checks + 1))
            [ "$rc" = 0 ] || { [ "$rc" = 3 ] && grep -q "error: .*ulimit -v" "$W/err"; } || {
                bad "$mib MiB of address space, $n ranks, $transport: code $rc"
                sed 's/^/    err: /' "$W/err" | head -20
            }
            checks=$((checks + 1))
            [ "$(sort "$W/err" | grep -c 'flight recorder')" -le "$n" ] || bad "$mib MiB, $n ranks: more than a line on the recorder"
            # UCX itself has nothing to say of it
            checks=$((checks + 1))
            ! grep -q "UCX  ERROR" "$W/err" || bad "$mib MiB, $n ranks, $transport: UCX ran out of memory"
            worked=$((worked + (rc == 0)))
        done
    done
done
# an operation that gets no memory on rank 0 is one line there
program scratch "${LINK[@]}" <<'END'
#include <gyre/gyre.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
int main(void)
{
    enum { COUNT = 1 << 20 };
    struct rlimit limit = {.rlim_max = RLIM_INFINITY};
    unsigned long pages = 0;
    gyre_comm_t *world;
    double *data = calloc(COUNT, sizeof *data);
    FILE *file = fopen("/proc/self/statm", "r");
    gyre_status_t st = gyre_init(NULL, &world);
    if (st != GYRE_OK || !data || !file || fscanf(file, "%lu", &pages) != 1)
        return 10;
    st = gyre_barrier(world);
    if (gyre_comm_rank(world) != 0) { /* it may hear of rank 0's error in the barrier */
        gyre_all_reduce(data, data, COUNT, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world);
        gyre_finalize(world);
        return 0;
    }
    if (st != GYRE_OK)
        return 12;
    limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
    setrlimit(RLIMIT_AS, &limit);
    st = gyre_all_reduce(data, data, COUNT, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world);
    gyre_finalize(world);
    return st == GYRE_OK ? 11 : 0;
}
END
run env GYRE_ALGO=ring GYRE_TRANSPORT=shm GYRE_TIMEOUT=10 "$UCX_RUN" -n 2 --no-kill-on-bad-exit --timeout 25 "$W/scratch"
want "no memory for scratch" 0
check "rank 0 says so once" [ "$(grep -c "^gyre\[0\] error: all_reduce #2 .*window of .*ulimit -v" "$W/err"):$(grep -c "^gyre\[0\] error" "$W/err")" = 1:1 ]
check "it works with enough" [ "$worked" -ge 12 ]
finish
