/* SPDX-License-Identifier: Apache-2.0 */
/* base/device/cuda_error.h: errors of the CUDA runtime as ours; for the cuda*.c files. */
#ifndef BASE_DEVICE_CUDA_ERROR_H
#define BASE_DEVICE_CUDA_ERROR_H

#include <cuda_runtime_api.h>

#include <gyre/status.h>

/* Fails with the text of `rc`, the answer of the call that the format shows. */
gyre_status_t __attribute__((format(printf, 3, 4)))
base_cuda_failed(cudaError_t rc, int index, const char *format, ...);
/* The same for what is tried, and done otherwise where it fails: recorded, not logged. */
gyre_status_t __attribute__((format(printf, 3, 4)))
base_cuda_cannot(cudaError_t rc, int index, const char *format, ...);
/* The end of a function that has called base_cuda_enter: leaves the device; OK, or base_cuda_failed's. */
gyre_status_t __attribute__((format(printf, 4, 5)))
base_cuda_end(cudaError_t rc, int index, int before, const char *format, ...);

#endif
