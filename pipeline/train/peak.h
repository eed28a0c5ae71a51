/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/peak.h: what the processors of all ranks can do at most, for MFU. */
#ifndef PIPELINE_TRAIN_PEAK_H
#define PIPELINE_TRAIN_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/gyre.h>

#include "base/device/device.h"
#include "model/network/config.h"

/* Floating-point operations per second that the cores of all ranks can do together, measured for a moment; at
 * rank 0, zero elsewhere. threads: of this rank. bf16: with model_matmul_bf16. Collective. */
gyre_status_t train_peak_measure(gyre_comm_t *comm, size_t threads, int bf16, double *flops);
/* The same of the GPUs that the ranks work on, each once, for products of the precision. Collective. */
gyre_status_t train_peak_measure_gpu(gyre_comm_t *comm, base_device_t device, model_precision_t precision,
                                     double *flops);
/* The same from what the ranks sent: [ranks] of {host, rate as the bits of a double, threads, 1,024 bits of
 * processors}. */
double train_peak_sum(const uint64_t *told, size_t ranks);

#endif
