/* SPDX-License-Identifier: Apache-2.0 */
/* tests/failing/inject.c: see inject.h. The Makefile reads the names of the functions from the lines that
 * begin with FAILS. */
#include "tests/failing/inject.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <glob.h>
#include <ifaddrs.h>
#include <jansson.h>
#include <limits.h>
#include <netdb.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/hash.h"
#include "comm/ucx/ucx.h"

const char *const inject_names[INJECT_KINDS] = {"memory", "descriptor", "map",  "thread", "write",
                                                "ucx",    "json",       "cuda", "lost"};

/* tests/emulated/fail.cc, in the emulator's build only */
extern void emulated_fail(long k, int error, int sticky) __attribute__((weak));
extern long emulated_calls(void) __attribute__((weak));
extern const char *emulated_struck(void) __attribute__((weak));
extern long emulated_left(int memory) __attribute__((weak));
enum { CUDA_MEMORY = 2 /* cudaErrorMemoryAllocation */, CUDA_ECC = 214 /* cudaErrorECCUncorrectable */ };

static _Atomic int armed = INJECT_KINDS; /* INJECT_KINDS: nothing */
static _Atomic long left, count, seen[INJECT_KINDS];
static _Atomic int watching;               /* requests are counted in `seen` */
static _Atomic(const char *) only, struck; /* only: NULL, or the function that is counted */
static _Atomic(const void *) where;
static uint64_t *traced; /* NULL: none */
static long traced_most;
extern const char __executable_start[];

void inject_arm(inject_kind_t kind, long k)
{
    only = getenv("FAILING_ONLY");
    struck = NULL;
    where = NULL;
    count = 0;
    left = k;
    armed = (int)kind;
    if (kind == INJECT_CUDA || kind == INJECT_LOST)
        emulated_fail(k, kind == INJECT_LOST ? CUDA_ECC : CUDA_MEMORY, kind == INJECT_LOST);
}

void inject_disarm(void)
{
    if (armed == INJECT_CUDA || armed == INJECT_LOST) {
        emulated_fail(0, 0, 0);
        count = emulated_calls();
        struck = emulated_struck();
    }
    armed = INJECT_KINDS;
    watching = 0;
}

void inject_watch(void)
{
    for (int kind = 0; kind < INJECT_KINDS; kind++)
        seen[kind] = 0;
    watching = 1;
}

long inject_seen(inject_kind_t kind)
{
    return seen[kind];
}

void inject_trace(inject_kind_t kind, uint64_t *calls, long room)
{
    enum { WARM = 2 };
    void *frames[WARM];
    (void)backtrace(frames, WARM); /* the first one loads a library */
    traced = calls;
    traced_most = room;
    inject_arm(kind, LONG_MAX);
}

const char *inject_words(inject_kind_t kind)
{
    return kind == INJECT_CUDA ? "out of memory" : kind == INJECT_LOST ? "uncorrectable ECC error" : "";
}

long inject_left(int memory)
{
    return emulated_left ? emulated_left(memory) : 0;
}

long inject_count(void)
{
    return count;
}

const char *inject_struck(long *offset)
{
    const char *at = where;
    *offset = at ? at - __executable_start : 0;
    return struck;
}

static __attribute__((noinline)) void trace(long at)
{
    enum { OWN = 3 /* this, fails() and the wrapper */, CALLERS = 3 };
    void *frames[OWN + CALLERS];
    if (at >= traced_most)
        return;
    const int n = backtrace(frames, OWN + CALLERS);
    traced[at] = n > OWN ? base_hash64(frames + OWN, (size_t)(n - OWN) * sizeof *frames, 0) : 0;
}

static __attribute__((noinline)) int fails(inject_kind_t kind, const char *name, const void *from)
{
    const char *counted = only;
    if (watching)
        seen[kind]++;
    if (armed != (int)kind || (counted && strcmp(counted, name) != 0))
        return 0;
    const long before = count++;
    if (traced)
        trace(before);
    if (atomic_fetch_sub(&left, 1) != 1)
        return 0;
    struck = name;
    where = from;
    return 1;
}

void *__real_malloc(size_t n);
static void *json_memory(size_t n)
{
    if (fails(INJECT_JSON, "jansson", __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __real_malloc(n);
}

void inject_json(void)
{
    json_set_alloc_funcs(json_memory, free);
}

#define PASTE(a, b) a##b
/* A function that fails by returning `value` with errno `err`. */
#define FAILS(kind, type, name, parameters, arguments, value, err)      \
    type PASTE(__real_, name) parameters;                               \
    type PASTE(__wrap_, name) parameters;                               \
    type PASTE(__wrap_, name) parameters                                \
    {                                                                   \
        if (fails(INJECT_##kind, #name, __builtin_return_address(0))) { \
            errno = err;                                                \
            return value;                                               \
        }                                                               \
        return PASTE(__real_, name) arguments;                          \
    }
/* The same, with a mode after `flags` that is passed on whether it was given or not. */
#define FAILS_VA(kind, type, name, parameters, arguments, value, err)   \
    type PASTE(__real_, name)(const char *, int, ...);                  \
    type PASTE(__wrap_, name) parameters;                               \
    type PASTE(__wrap_, name) parameters                                \
    {                                                                   \
        va_list more;                                                   \
        va_start(more, flags);                                          \
        const unsigned mode = va_arg(more, unsigned);                   \
        va_end(more);                                                   \
        if (fails(INJECT_##kind, #name, __builtin_return_address(0))) { \
            errno = err;                                                \
            return value;                                               \
        }                                                               \
        return PASTE(__real_, name) arguments;                          \
    }

FAILS(MEMORY, void *, malloc, (size_t n), (n), NULL, ENOMEM)
FAILS(MEMORY, void *, calloc, (size_t n, size_t each), (n, each), NULL, ENOMEM)
FAILS(MEMORY, void *, realloc, (void *p, size_t n), (p, n), NULL, ENOMEM)
FAILS(MEMORY, void *, aligned_alloc, (size_t to, size_t n), (to, n), NULL, ENOMEM)
FAILS(MEMORY, char *, strdup, (const char *s), (s), NULL, ENOMEM)
FAILS(MEMORY, char *, strndup, (const char *s, size_t n), (s, n), NULL, ENOMEM)
FAILS(MEMORY, char *, realpath, (const char *path, char *to), (path, to), NULL, ENOMEM)
FAILS(MEMORY, FILE *, open_memstream, (char **to, size_t *n), (to, n), NULL, ENOMEM)
FAILS(MEMORY, int, getaddrinfo,
      (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **to),
      (node, service, hints, to), EAI_MEMORY, ENOMEM)
FAILS(MEMORY, XXH3_state_t *, XXH3_createState, (void), (), NULL, ENOMEM)
FAILS(MEMORY, int, getifaddrs, (struct ifaddrs * *to), (to), -1, ENOMEM)

/* Written out: for the Makefile. */
#define FAILS_OWN(kind, type, name, more)
FAILS_OWN(MEMORY, int, asprintf, )
int __wrap_asprintf(char **to, const char *format, ...);
int __wrap_asprintf(char **to, const char *format, ...)
{
    if (fails(INJECT_MEMORY, "asprintf", __builtin_return_address(0))) {
        errno = ENOMEM;
        return -1;
    }
    va_list more;
    va_start(more, format);
    const int n = vasprintf(to, format, more);
    va_end(more);
    return n;
}

FAILS(MEMORY, ssize_t, __getdelim, (char **to, size_t *room, int end, FILE *from), (to, room, end, from), -1,
      ENOMEM)
FAILS(MEMORY, int, glob, (const char *pattern, int flags, int (*error)(const char *, int), glob_t *to),
      (pattern, flags, error, to), GLOB_NOSPACE, ENOMEM)
FAILS(MEMORY, pcre2_match_data_8 *, pcre2_match_data_create_8, (uint32_t n, pcre2_general_context_8 *context),
      (n, context), NULL, ENOMEM)
FAILS_OWN(MEMORY, pcre2_code_8 *, pcre2_compile_8, )
pcre2_code_8 *__real_pcre2_compile_8(PCRE2_SPTR8 pattern, PCRE2_SIZE n, uint32_t options, int *error,
                                     PCRE2_SIZE *at, pcre2_compile_context_8 *context);
pcre2_code_8 *__wrap_pcre2_compile_8(PCRE2_SPTR8 pattern, PCRE2_SIZE n, uint32_t options, int *error,
                                     PCRE2_SIZE *at, pcre2_compile_context_8 *context);
pcre2_code_8 *__wrap_pcre2_compile_8(PCRE2_SPTR8 pattern, PCRE2_SIZE n, uint32_t options, int *error,
                                     PCRE2_SIZE *at, pcre2_compile_context_8 *context)
{
    if (!fails(INJECT_MEMORY, "pcre2_compile_8", __builtin_return_address(0)))
        return __real_pcre2_compile_8(pattern, n, options, error, at, context);
    *error = PCRE2_ERROR_HEAP_FAILED;
    *at = 0;
    return NULL;
}

FAILS_VA(DESCRIPTOR, int, open, (const char *path, int flags, ...), (path, flags, mode), -1, EMFILE)
/* without a mode: nothing makes a file by it */
FAILS(DESCRIPTOR, int, openat, (int at, const char *path, int flags), (at, path, flags), -1, EMFILE)
FAILS(DESCRIPTOR, FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
FAILS(DESCRIPTOR, FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL, ENOMEM)
FAILS(DESCRIPTOR, DIR *, opendir, (const char *path), (path), NULL, EMFILE)
FAILS(DESCRIPTOR, int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE)
FAILS(DESCRIPTOR, int, accept4, (int fd, __SOCKADDR_ARG to, socklen_t *n, int flags), (fd, to, n, flags), -1,
      EMFILE)
FAILS(DESCRIPTOR, int, epoll_create1, (int flags), (flags), -1, EMFILE)
FAILS(DESCRIPTOR, int, timerfd_create, (int clock, int flags), (clock, flags), -1, EMFILE)
FAILS(DESCRIPTOR, int, eventfd, (unsigned value, int flags), (value, flags), -1, EMFILE)
FAILS(DESCRIPTOR, int, mkostemp, (char *path, int flags), (path, flags), -1, EMFILE)
FAILS(DESCRIPTOR, int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)

FAILS(MAP, void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset),
      (at, n, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
FAILS(MAP, int, ftruncate, (int fd, off_t n), (fd, n), -1, ENOSPC)
FAILS(MAP, int, fallocate, (int fd, int mode, off_t offset, off_t n), (fd, mode, offset, n), -1, ENOSPC)
FAILS(MAP, int, posix_fallocate, (int fd, off_t offset, off_t n), (fd, offset, n), ENOSPC, 0)

FAILS(THREAD, int, pthread_create,
      (pthread_t * to, const pthread_attr_t *attr, void *(*body)(void *), void *arg), (to, attr, body, arg),
      EAGAIN, 0)

FAILS(WRITE, ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), -1, ENOSPC)
FAILS(WRITE, ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), -1, ENOSPC)
FAILS_OWN(WRITE, size_t, fwrite, )
size_t __real_fwrite(const void *from, size_t size, size_t n, FILE *to);
size_t __wrap_fwrite(const void *from, size_t size, size_t n, FILE *to);
size_t __wrap_fwrite(const void *from, size_t size, size_t n, FILE *to)
{
    if (!fails(INJECT_WRITE, "fwrite", __builtin_return_address(0)))
        return __real_fwrite(from, size, n, to);
    to->_flags |= 0x20; /* glibc's: ferror() is true from now on */
    errno = ENOSPC;
    return 0;
}
FAILS(WRITE, int, fflush, (FILE * to), (to), EOF, ENOSPC)
FAILS(WRITE, int, fsync, (int fd), (fd), -1, EIO)
FAILS(WRITE, int, fdatasync, (int fd), (fd), -1, EIO)
FAILS(WRITE, int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
FAILS(WRITE, int, rename, (const char *from, const char *to), (from, to), -1, ENOSPC)
FAILS(WRITE, int, renameat2, (int at, const char *from, int to_at, const char *to, unsigned flags),
      (at, from, to_at, to, flags), -1, ENOSPC)
FAILS(WRITE, ssize_t, sendto,
      (int fd, const void *from, size_t n, int flags, __CONST_SOCKADDR_ARG to, socklen_t bytes),
      (fd, from, n, flags, to, bytes), -1, ENOBUFS)
FAILS(WRITE, ssize_t, send, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags), -1,
      ENOBUFS)
FAILS(WRITE, ssize_t, sendmsg, (int fd, const struct msghdr *from, int flags), (fd, from, flags), -1, ENOBUFS)

/* Of UCX, which Gyre calls through ucx_lib: inject_ucx puts those there that are written out below. */
#define UCX_CALL(name) extern __typeof__(name) PASTE(fails_, name) __attribute__((weak));
#include "comm/ucx/calls.def"
#undef UCX_CALL
static ucx_calls_t real_ucx;

int inject_ucx(char *why, size_t room)
{
    ucx_lock();
    const int there = ucx_load(why, room);
    ucx_unlock();
    real_ucx = ucx_lib;
#define UCX_CALL(name)       \
    if (PASTE(fails_, name)) \
        ucx_lib.name = PASTE(fails_, name);
#include "comm/ucx/calls.def"
#undef UCX_CALL
    return there;
}

#define UCX_FAILS(type, name, parameters, arguments, value, err)     \
    type PASTE(fails_, name) parameters                              \
    {                                                                \
        if (fails(INJECT_UCX, #name, __builtin_return_address(0))) { \
            errno = err;                                             \
            return value;                                            \
        }                                                            \
        return real_ucx.name arguments;                              \
    }
UCX_FAILS(ucs_status_t, ucp_init_version,
          (unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config,
           ucp_context_h *to),
          (major, minor, params, config, to), UCS_ERR_NO_MEMORY, ENOMEM)
UCX_FAILS(ucs_status_t, ucp_worker_create,
          (ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *to), (context, params, to),
          UCS_ERR_NO_MEMORY, ENOMEM)
UCX_FAILS(ucs_status_t, ucp_worker_get_address, (ucp_worker_h worker, ucp_address_t **to, size_t *n),
          (worker, to, n), UCS_ERR_NO_MEMORY, ENOMEM)
UCX_FAILS(ucs_status_t, ucp_worker_get_efd, (ucp_worker_h worker, int *to), (worker, to), UCS_ERR_IO_ERROR,
          EMFILE)
UCX_FAILS(ucs_status_t, ucp_worker_set_am_recv_handler,
          (ucp_worker_h worker, const ucp_am_handler_param_t *param), (worker, param), UCS_ERR_NO_MEMORY,
          ENOMEM)
UCX_FAILS(ucs_status_t, ucp_ep_create, (ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *to),
          (worker, params, to), UCS_ERR_NO_MEMORY, ENOMEM)
UCX_FAILS(ucs_status_ptr_t, ucp_am_send_nbx,
          (ucp_ep_h ep, unsigned id, const void *header, size_t header_n, const void *from, size_t n,
           const ucp_request_param_t *param),
          (ep, id, header, header_n, from, n, param), UCS_STATUS_PTR(UCS_ERR_NO_MEMORY), ENOMEM)
/* Not ucp_am_recv_data_nbx: UCX 1.13 aborts (tcp_ep.c:939) if a message that was announced is not taken. */
UCX_FAILS(ucs_status_ptr_t, ucp_ep_flush_nbx, (ucp_ep_h ep, const ucp_request_param_t *param), (ep, param),
          UCS_STATUS_PTR(UCS_ERR_NO_MEMORY), ENOMEM)
UCX_FAILS(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h ep, const ucp_request_param_t *param), (ep, param),
          UCS_STATUS_PTR(UCS_ERR_NO_MEMORY), ENOMEM)
UCX_FAILS(ucs_status_ptr_t, ucp_put_nbx,
          (ucp_ep_h ep, const void *from, size_t n, uint64_t to, ucp_rkey_h key,
           const ucp_request_param_t *param),
          (ep, from, n, to, key, param), UCS_STATUS_PTR(UCS_ERR_NO_MEMORY), ENOMEM)
UCX_FAILS(ucs_status_ptr_t, ucp_get_nbx,
          (ucp_ep_h ep, void *to, size_t n, uint64_t from, ucp_rkey_h key, const ucp_request_param_t *param),
          (ep, to, n, from, key, param), UCS_STATUS_PTR(UCS_ERR_NO_MEMORY), ENOMEM)
UCX_FAILS(ucs_status_t, ucp_mem_map,
          (ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *to), (context, params, to),
          UCS_ERR_NO_MEMORY, ENOMEM)
UCX_FAILS(ucs_status_t, ucp_rkey_pack, (ucp_context_h context, ucp_mem_h memory, void **to, size_t *n),
          (context, memory, to, n), UCS_ERR_NO_MEMORY, ENOMEM)
UCX_FAILS(ucs_status_t, ucp_ep_rkey_unpack, (ucp_ep_h ep, const void *from, ucp_rkey_h *to), (ep, from, to),
          UCS_ERR_NO_MEMORY, ENOMEM)
