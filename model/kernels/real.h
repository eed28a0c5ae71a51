/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/real.h: one source for float and double.
 *
 * `real` is the element type and REAL(name) the name of its instance (name_f32, name_f64). The library is
 * compiled for float; gradient checks (tests/model/f64) compile the same lines for double and define
 * MODEL_REAL_BITS as 64. No guard: it may be included again after MODEL_REAL_BITS has changed. */
#ifndef MODEL_REAL_BITS
#define MODEL_REAL_BITS 32
#endif
#undef real
#undef real_bits_t
#undef REAL
#undef REAL_TYPE
#if MODEL_REAL_BITS == 32
#define real        float
#define real_bits_t uint32_t
#define REAL(name)  name##_f32
#define REAL_TYPE   GYRE_FLOAT32
#elif MODEL_REAL_BITS == 64
#define real        double
#define real_bits_t uint64_t
#define REAL(name)  name##_f64
#define REAL_TYPE   GYRE_FLOAT64
#else
#error "MODEL_REAL_BITS must be 32 or 64"
#endif
