/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_rows.c: gyre-plan's tables of measured runs. Each row that was taken is a recipe that fits
 * itself, with figures that are numbers; a machine can be fitted to it. */
#include <math.h>

#include "tests/fuzz/fuzz.h"
#include "tools/gyre-plan/plan.h"
#include "tools/gyre-plan/time_rows.h"

static plan_question_t question;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char *words[] = {"time", "--machine", "A100-80", NULL};
    (void)argc;
    (void)argv;
    FUZZ_CHECK(plan_question(3, words, PLAN_FOR_TIME, "", &question) == PLAN_OK);
    return 0;
}

static void rows(const plan_rows_t *table)
{
    plan_machine_t machine = question.machine;
    const size_t first = 1;
    FUZZ_CHECK(table->rows > 0);
    for (size_t i = 0; i < table->rows; i++) {
        const plan_row_t *row = &table->row[i];
        FUZZ_CHECK(pipe_recipe_check(&row->recipe) == GYRE_OK);
        FUZZ_CHECK(isfinite(row->seconds) && isfinite(row->teraflops) && isfinite(row->memory) &&
                   isfinite(row->extra));
    }
    if (table->row[0].seconds > 0.0)
        plan_fit(table, &first, 1, &question.software, &machine);
    FUZZ_CHECK(machine.efficiency > 0.0 && machine.efficiency <= 1.0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FILE *everybodys = stderr, *nobodys = fopen("/dev/null", "w");
    plan_rows_t table;
    FUZZ_CHECK(nobodys != NULL);
    question.rows = fuzz_file(data, size);
    stderr = nobodys; /* where the tool reports; sanitizers write to the descriptor */
    int code = plan_rows_read(&question, &table);
    stderr = everybodys;
    fclose(nobodys);
    FUZZ_CHECK(code == PLAN_OK || code == PLAN_FAILED || code == PLAN_USAGE);
    if (code != PLAN_OK)
        return 0;
    rows(&table);
    plan_rows_free(&table);
    return 0;
}
