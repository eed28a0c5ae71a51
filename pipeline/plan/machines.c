/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/machines.c: machines by name. Peak, memory and links are their makers' figures; efficiency,
 * overhead and the all-reduce's rates are what published runs come to (docs/planning.md has how they were
 * fitted, and the errors). */
#include <string.h>

#include "pipeline/plan/estimate.h"

#define GIB 1073741824.0

const plan_machine_t plan_machines[] = {
    {"V100-32", 125e12, 32 * GIB, 1.5 * GIB, 120e9, 12.5e9, 900e9, 0.55, 2e-4, 0.0, 16,
     "NVIDIA V100 and DGX-2 data sheets: 125 TFLOP/s, NVLink 150 GB/s each way, 8 x 100 Gb/s for 16 GPUs; "
     "rates and "
     "efficiency: estimates"},
    {"A100-40", 312e12, 40 * GIB, 1.5 * GIB, 254e9, 25e9, 1555e9, 0.59, 2.1e-4, 0.0, 8,
     "NVIDIA A100 and DGX A100 data sheets: 312 TFLOP/s, NVLink 300 GB/s each way, 8 x 200 Gb/s; efficiency "
     "as A100-80"},
    {"A100-80", 312e12, 80 * GIB, 1.5 * GIB, 254e9, 25e9, 2039e9, 0.59, 2.1e-4, 0.0, 8,
     "NVIDIA A100 and DGX A100 data sheets; rates and efficiency fitted to 4 rows of Narayanan et al. 2021, "
     "table 1"},
    {"jean-zay", 312e12, 80 * GIB, 1.5 * GIB, 227e9, 6.25e9, 2039e9, 0.679, 12.0e-3, 0.0, 8,
     "A100-80, 4 x 100 Gb/s Omni-Path for 8 GPUs, kernels launched one by one (CUDA_LAUNCH_BLOCKING=1): "
     "BigScience, "
     "chronicles-prequel.md; rates and efficiency fitted to 5 of its rows"},
    {"H100", 989.4e12, 80 * GIB, 1.5 * GIB, 450e9, 50e9, 3350e9, 0.70, 1e-3, 0.9, 8,
     "NVIDIA H100 SXM and DGX H100 data sheets: 989.4 TFLOP/s, NVLink 450 GB/s each way, 8 x 400 Gb/s; "
     "rates and "
     "efficiency: 3 rows of Megatron-Core r0.8, weak scaling"},
    {"Ascend910", 256e12, 32 * GIB, 1.5 * GIB, 30e9, 12.5e9, 1200e9, 0.45, 5e-4, 0.0, 8,
     "Huawei, Ascend 910: 256 TFLOP/s, HCCS 30 GB/s each way, 100 Gb/s RoCE; efficiency: estimate"},
};
const size_t plan_machine_count = sizeof plan_machines / sizeof plan_machines[0];

const plan_machine_t *plan_machine_find(const char *name)
{
    for (size_t i = 0; i < plan_machine_count; i++)
        if (strcmp(plan_machines[i].name, name) == 0)
            return &plan_machines[i];
    return NULL;
}
