/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/plan/software.c: what software makes of a machine, by name. The figures of a row are calibrated on
 * one half of the published runs that its source names (docs/planning.md has the errors on the other half).
 * Figures of memory are calibrated for nanotron alone; the others' are the papers' formulas. */
#include <string.h>

#include "pipeline/plan/estimate.h"

#define MIB 1048576u

const plan_software_t plan_softwares[] = {
    {.name = "megatron",
     .attention = 1,
     .overlap = -1,
     .keeps = 1,
     .bucket = 25 * MIB,
     .logit = 4,
     .kept = 1,
     .source = "the machine's, set from Megatron-LM at its best; memory by the papers' formulas"},
    {.name = "nanotron",
     .efficiency = 0.75,
     .attention = 0.55,
     .host = 4.5e-3,
     .latency = 95e-6,
     .step = 0.16,
     .overlap = 0.75,
     .traffic = 1,
     .bucket = 25 * MIB,
     .logit = 14,
     .kept = 1.4,
     .workspace = 512 * MIB,
     .reserve = (size_t)6656 * MIB,
     .source = "calibrated on docs/data/runs/ultrascale.txt"},
    {.name = "fsdp",
     .efficiency = 0.75,
     .attention = 0.70,
     .step = 0.07,
     .traffic = 1,
     .bucket = 25 * MIB,
     .logit = 4,
     .kept = 1,
     .source = "calibrated on docs/data/runs/llm-foundry.txt"},
    {.name = "megatron-deepspeed",
     .efficiency = 0.695,
     .attention = 0.68,
     .host = 2.6e-3,
     .latency = 115e-6,
     .step = 0.01,
     .traffic = 1,
     .keeps = 1,
     .moves = 1,
     .bucket = 25 * MIB,
     .logit = 4,
     .kept = 1,
     .source = "calibrated on docs/data/runs/vtrain-single.txt"},
    {.name = "internevo",
     .efficiency = 0.685,
     .attention = 1,
     .traffic = 1,
     .bucket = 25 * MIB,
     .logit = 4,
     .kept = 1,
     .source = "calibrated on docs/data/runs/internevo.txt"},
};
const size_t plan_software_count = sizeof plan_softwares / sizeof plan_softwares[0];

const plan_software_t *plan_software_find(const char *name)
{
    for (size_t i = 0; i < plan_software_count; i++)
        if (strcmp(plan_softwares[i].name, name) == 0)
            return &plan_softwares[i];
    return NULL;
}

void plan_software_on(const plan_software_t *s, plan_machine_t *m)
{
    m->efficiency = s->efficiency > 0.0 ? s->efficiency : m->efficiency;
    m->overlap = s->overlap >= 0.0 ? s->overlap : m->overlap;
    m->overhead = s->traffic ? 0.0 : m->overhead;
    m->reserve += (double)s->reserve;
}
