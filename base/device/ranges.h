/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/ranges.h: names what a thread does, for profilers (NVTX, domain "gyre"). Nsight Systems shows
 * such a range with the kernels that were launched in it. Without a profiler, or in a build without CUDA, a
 * range costs a look at a variable. */
#ifndef BASE_DEVICE_RANGES_H
#define BASE_DEVICE_RANGES_H

#include <stdint.h>

/* Ranges of a thread are nested. name: text of any lifetime; payload: a number that is shown with it, such as
 * bytes. */
void base_range_begin(const char *name, uint64_t payload);
void base_range_end(void);

#endif
