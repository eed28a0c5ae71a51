/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/fpmode.h: the thread's floating-point modes and flags, for exact sums.
 *
 * The flags prove sums exact: IEEE 754 raises "inexact" for every result that was rounded. On x86 this is
 * the register of SSE, which is all that these files' arithmetic uses; <fenv.h> would also set the x87's,
 * which takes ten times as long. The compiler must not move arithmetic across these calls: it stands in
 * other functions, called through pointers. */
#ifndef COLLECTIVES_KERNELS_FPMODE_H
#define COLLECTIVES_KERNELS_FPMODE_H

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#if defined(__x86_64__)
typedef unsigned fpmode_t;
enum {
    FPMODE_DEFAULT = 0x1f80, /* to nearest even, no flushing, all exceptions masked, no flag raised */
    FPMODE_INEXACT = 0x20,
    FPMODE_RANGE = 0x19 /* overflow, invalid, and underflow: a subnormal result that was rounded */
};

/* Default modes, all flags clear; returns what was there. */
static inline fpmode_t fpmode_enter(void)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(FPMODE_DEFAULT);
    return before;
}
static inline void fpmode_leave(fpmode_t before)
{
    _mm_setcsr(before);
}
static inline void fpmode_clear(void)
{
    _mm_setcsr(FPMODE_DEFAULT);
}
static inline unsigned fpmode_raised(unsigned flags)
{
    return _mm_getcsr() & flags;
}
#else
typedef fenv_t fpmode_t;
enum { FPMODE_INEXACT = FE_INEXACT, FPMODE_RANGE = FE_OVERFLOW | FE_INVALID | FE_UNDERFLOW };

static inline fpmode_t fpmode_enter(void)
{
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}
static inline void fpmode_leave(fpmode_t before)
{
    fesetenv(&before);
}
static inline void fpmode_clear(void)
{
    feclearexcept(FE_ALL_EXCEPT);
}
static inline unsigned fpmode_raised(unsigned flags)
{
    return (unsigned)fetestexcept((int)flags);
}
#endif

/* 1 if the flags work: some emulators (Valgrind's) raise none. Clears them. */
static inline int fpmode_tells(void)
{
    volatile double one = 1.0, little = 0x1p-60;
    volatile double sum = one + little;
    (void)sum;
    int tells = fpmode_raised(FPMODE_INEXACT) != 0;
    fpmode_clear();
    return tells;
}

#endif
