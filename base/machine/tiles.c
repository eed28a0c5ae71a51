/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/tiles.c: CPUID says what the processor has; Linux hands out the tiles' part of a thread's
 * state on request (its Documentation/arch/x86/xstate.rst), unless a filter of system calls denies it. */
#include "base/machine/tiles.h"

#include <errno.h>
#include <stddef.h>

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_STATE 0x1023
#define TILE_DATA     18
/* CPUID leaf 7, EDX. */
#define AMX_BF16 (1u << 22)
#define AMX_TILE (1u << 24)
/* Its subleaf 1, EAX. */
#define AVX512_BF16 (1u << 5)

static int processor_has_tiles(void)
{
    unsigned a, b, c, d, more;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) && a >= 1 &&
           __get_cpuid_count(7, 1, &more, &b, &c, &d) && (more & AVX512_BF16);
}

const char *base_tiles_missing(void)
{
    if (!processor_has_tiles())
        return "this processor has no bfloat16 tiles (amx_bf16 in /proc/cpuinfo)";
    if (syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0)
        return NULL;
    return errno == EPERM || errno == EACCES ? "the processor has bfloat16 tiles, but arch_prctl "
                                               "(ARCH_REQ_XCOMP_PERM) is denied by a filter "
                                               "of system calls, such as a container's (seccomp)"
                                             : "the processor has bfloat16 tiles, but this Linux does not "
                                               "hand them out (5.16 and newer do)";
}

#else

const char *base_tiles_missing(void)
{
    return "this processor has no bfloat16 tiles";
}

#endif
