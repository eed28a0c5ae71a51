/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/machines.c: machines by name. Peaks, bandwidth and links are their makers' figures, without
 * sparsity; efficiency, overhead and the all-reduce's rates are what published runs come to (docs/planning.md
 * has how they were fitted, and the errors). Memory is what the driver says that there is (nvidia-smi,
 * memory.total): a part of the maker's GB is the memory's own. */
#include <string.h>

#include "pipeline/plan/estimate.h"

#define GIB 1073741824.0
#define MIB 1048576.0

const plan_machine_t plan_machines[] = {
    {.name = "V100-32",
     .peak = 125e12,
     .memory = 32510 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 120e9,
     .inter = 12.5e9,
     .bandwidth = 900e9,
     .efficiency = 0.55,
     .overhead = 2e-4,
     .per_node = 16,
     .source =
         "NVIDIA V100 and DGX-2 data sheets: 125 TFLOP/s, NVLink 150 GB/s each way, 8 x 100 Gb/s for 16 "
         "GPUs; rates and efficiency: estimates"},
    {.name = "A100-40",
     .peak = 312e12,
     .memory = 40536 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 254e9,
     .inter = 25e9,
     .bandwidth = 1555e9,
     .efficiency = 0.59,
     .overhead = 2.1e-4,
     .per_node = 8,
     .source = "NVIDIA A100 and DGX A100 data sheets: 312 TFLOP/s, NVLink 300 GB/s each way, 8 x 200 Gb/s; "
               "efficiency as A100-80"},
    {.name = "A100-80",
     .peak = 312e12,
     .memory = 81251 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 254e9,
     .inter = 25e9,
     .bandwidth = 2039e9,
     .efficiency = 0.59,
     .overhead = 2.1e-4,
     .per_node = 8,
     .source = "NVIDIA A100 and DGX A100 data sheets; rates and efficiency fitted to 4 rows of Narayanan et "
               "al. 2021, table 1"},
    {.name = "jean-zay",
     .peak = 312e12,
     .memory = 81251 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 227e9,
     .inter = 6.25e9,
     .bandwidth = 2039e9,
     .efficiency = 0.679,
     .overhead = 12.0e-3,
     .per_node = 8,
     .source =
         "A100-80, 4 x 100 Gb/s Omni-Path for 8 GPUs, kernels launched one by one "
         "(CUDA_LAUNCH_BLOCKING=1): BigScience, chronicles-prequel.md; rates and efficiency fitted to 5 "
         "of its rows"},
    {.name = "H100",
     .peak = 989.4e12,
     .peak8 = 1978.9e12,
     .memory = 81559 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 450e9,
     .inter = 50e9,
     .bandwidth = 3350e9,
     .efficiency = 0.70,
     .overhead = 1e-3,
     .overlap = 0.9,
     .per_node = 8,
     .source =
         "NVIDIA H100 SXM and DGX H100 data sheets: 989.4 TFLOP/s, 1,978.9 in fp8, NVLink 450 GB/s each "
         "way, 8 x 400 Gb/s; rates and efficiency: 3 rows of Megatron-Core r0.8, weak scaling"},
    {.name = "H200",
     .peak = 989.4e12,
     .peak8 = 1978.9e12,
     .memory = 143771 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 450e9,
     .inter = 50e9,
     .bandwidth = 4800e9,
     .efficiency = 0.70,
     .overhead = 1e-3,
     .overlap = 0.9,
     .per_node = 8,
     .source =
         "NVIDIA H200 SXM and DGX H200 data sheets: the H100's units and links, 4.8 TB/s; efficiency as "
         "H100, no run fitted"},
    {.name = "B200",
     .peak = 2250e12,
     .peak8 = 4500e12,
     .memory = 183359 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 900e9,
     .inter = 50e9,
     .bandwidth = 8000e9,
     .efficiency = 0.70,
     .overhead = 1e-3,
     .overlap = 0.9,
     .per_node = 8,
     .source =
         "NVIDIA DGX B200 data sheet, an eighth: 2.25 PFLOP/s, 4.5 in fp8, 8 TB/s, NVLink 900 GB/s each "
         "way, 8 x 400 Gb/s; efficiency as H100, no run fitted"},
    {.name = "GB200",
     .peak = 2500e12,
     .peak8 = 5000e12,
     .memory = 189471 * MIB,
     .reserve = 1.5 * GIB,
     .intra = 900e9,
     .inter = 50e9,
     .bandwidth = 8000e9,
     .efficiency = 0.70,
     .overhead = 1e-3,
     .overlap = 0.9,
     .per_node = 72,
     .source =
         "NVIDIA GB200 NVL72 data sheet, a 72nd: 2.5 PFLOP/s, 5 in fp8, 8 TB/s, NVLink 900 GB/s each way "
         "among 72, 400 Gb/s each; efficiency as H100, no run fitted"},
    {.name = "Ascend910",
     .peak = 256e12,
     .memory = 32 * GIB,
     .reserve = 1.5 * GIB,
     .intra = 30e9,
     .inter = 12.5e9,
     .bandwidth = 1200e9,
     .efficiency = 0.45,
     .overhead = 5e-4,
     .per_node = 8,
     .source = "Huawei, Ascend 910: 256 TFLOP/s, HCCS 30 GB/s each way, 100 Gb/s RoCE; efficiency: estimate"},
};
const size_t plan_machine_count = sizeof plan_machines / sizeof plan_machines[0];

const plan_machine_t *plan_machine_find(const char *name)
{
    for (size_t i = 0; i < plan_machine_count; i++)
        if (strcmp(plan_machines[i].name, name) == 0)
            return &plan_machines[i];
    return NULL;
}
