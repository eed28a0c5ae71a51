/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_recipe.c: recipes of published runs. One that was taken fits itself, and so does its tiny
 * version; estimates of both are figures. */
#include <math.h>

#include "pipeline/plan/estimate.h"
#include "tests/fuzz/fuzz.h"

static void estimates(const pipe_recipe_t *recipe)
{
    plan_base_t base;
    plan_memory_t memory;
    plan_time_t time;
    if (plan_base(recipe, &base) != GYRE_OK)
        return;
    FUZZ_CHECK(plan_memory_worst(recipe, &base, &plan_softwares[0], &memory) < recipe->layout.pp);
    plan_time(recipe, &base, &plan_machines[0], &plan_softwares[0], &time);
    FUZZ_CHECK(isfinite(time.step) && time.step > 0.0 && isfinite(time.mfu));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pipe_recipe_t recipe;
    if (pipe_recipe_load(fuzz_file(data, size), &recipe) != GYRE_OK)
        return 0;
    FUZZ_CHECK(pipe_recipe_check(&recipe) == GYRE_OK);
    FUZZ_CHECK(memchr(recipe.name, 0, sizeof(recipe.name)) != NULL &&
               memchr(recipe.accelerator, 0, sizeof(recipe.accelerator)) != NULL);
    estimates(&recipe);
    pipe_recipe_t tiny = pipe_recipe_tiny(&recipe);
    FUZZ_CHECK(pipe_recipe_check(&tiny) == GYRE_OK);
    FUZZ_CHECK(tiny.layout.tp * tiny.layout.pp * tiny.layout.dp <= 8);
    estimates(&tiny);
    return 0;
}
