/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/report.c: GYRE_MPI_REPORT=1, what was taken, passed on and why; GYRE_MPI_CHECK=1, each
 * call is made by MPI, too, and the results are compared. */
#include "shim.h"
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reporting;
bool shim_checking;
static struct {
    atomic_ullong calls[WHY_COUNT];
    atomic_ullong bytes;
    atomic_ullong nanoseconds;
} counts[CALL_COUNT];
static atomic_ullong compared;
static atomic_ullong different;

#define SHIM_NAME(name) "MPI_" #name,
static const char *const names[] = {SHIM_CALLS(SHIM_NAME)};
static const char *const whys[WHY_COUNT] = {
    [WHY_NO_JOB] = "no job in Gyre",          [WHY_ALONE] = "communicator of 1 rank",
    [WHY_INTER] = "inter-communicator",       [WHY_FOREIGN] = "ranks of another MPI_COMM_WORLD",
    [WHY_FAILED] = "no communicator in Gyre", [WHY_TYPE] = "datatype or operation",
    [WHY_ARGUMENT] = "invalid argument",      [WHY_NEW] = "new communicator",
};

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;
}
void shim_report_init(void)
{
    reporting = is_set("GYRE_MPI_REPORT");
    shim_checking = is_set("GYRE_MPI_CHECK");
}
void shim_passed_on(shim_call_t id, shim_why_t why)
{
    if (reporting)
        atomic_fetch_add(&counts[id].calls[why], 1);
}

void shim_check_keep(shim_run_t *run, void *region, size_t length, size_t same, gyre_type_t type)
{
    run->region = region;
    run->length = length;
    run->compared = same;
    run->type = type;
    run->expected = length > 0 ? malloc(length) : NULL;
    if (run->expected != NULL)
        memcpy(run->expected, region, length);
}
void shim_check_swap(shim_run_t *run)
{
    for (size_t i = 0; run->expected != NULL && i < run->length; i++) {
        unsigned char byte = run->region[i];
        run->region[i] = run->expected[i];
        run->expected[i] = byte;
    }
}
static bool near(double a, double b, double tolerance)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * fmax(1, fmax(fabs(a), fabs(b)));
}
/* The first element that differs, or its count. Floating-point numbers may differ by what another order
 * of the operands makes. */
static size_t first_difference(const shim_run_t *run, size_t size)
{
    bool single = run->type == GYRE_FLOAT32 || run->type == GYRE_COMPLEX64;
    bool twice = run->type == GYRE_FLOAT64 || run->type == GYRE_COMPLEX128;
    size_t part = single ? sizeof(float) : twice ? sizeof(double) : size;
    for (size_t at = 0; at + part <= run->compared; at += part) {
        const void *mine = run->region + at;
        const void *other = run->expected + at;
        bool same;
        if (single) {
            float a;
            float b;
            memcpy(&a, mine, sizeof(a));
            memcpy(&b, other, sizeof(b));
            same = near((double)a, (double)b, 1e-4);
        } else if (twice) {
            double a;
            double b;
            memcpy(&a, mine, sizeof(a));
            memcpy(&b, other, sizeof(b));
            same = near(a, b, 1e-10);
        } else if (run->type == GYRE_FLOAT64_INT32) { /* followed by padding */
            same = memcmp(mine, other, 12) == 0;
        } else if (run->type == GYRE_INT64_INT32) {
            same = memcmp(mine, other, 12) == 0;
        } else if (run->type == GYRE_INT16_INT32) {
            same = memcmp(mine, other, 2) == 0 &&
                   memcmp((const char *)mine + 4, (const char *)other + 4, 4) == 0;
        } else {
            same = memcmp(mine, other, part) == 0;
        }
        if (!same)
            return at / size;
    }
    return SIZE_MAX;
}
static void compare(shim_run_t *run)
{
    if (run->expected == NULL)
        return;
    size_t size = run->type == GYRE_TYPE_NONE ? 1 : gyre_type_size(run->type);
    size_t at = first_difference(run, size);
    atomic_fetch_add(&compared, 1);
    if (at != SIZE_MAX) {
        int rank = 0;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        atomic_fetch_add(&different, 1);
        fprintf(
            stderr,
            "libgyre-mpi: GYRE_MPI_CHECK: %s: rank %d: element %zu of type %s differs from MPI's result\n",
            names[run->id], rank, at, run->type == GYRE_TYPE_NONE ? "byte" : gyre_type_name(run->type));
    }
    free(run->expected);
}

void shim_begin(shim_run_t *run)
{
    if (reporting)
        run->from = PMPI_Wtime();
}
int shim_end(shim_run_t *run, gyre_status_t status)
{
    if (reporting) {
        atomic_fetch_add(&counts[run->id].calls[WHY_TAKEN], 1);
        atomic_fetch_add(&counts[run->id].bytes, run->bytes);
        atomic_fetch_add(&counts[run->id].nanoseconds,
                         (unsigned long long)((PMPI_Wtime() - run->from) * 1e9));
    }
    if (shim_checking && status == GYRE_OK)
        compare(run);
    return shim_result(run->comm, status);
}

void shim_report_print(int rank)
{
    if (shim_checking) {
        unsigned long long mine[2] = {atomic_load(&compared), atomic_load(&different)};
        unsigned long long all[2] = {0, 0};
        REAL(Reduce)(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            fprintf(stderr, "libgyre-mpi: GYRE_MPI_CHECK: %llu results compared with MPI's, %llu differ\n",
                    all[0], all[1]);
    }
    if (!reporting || rank != 0)
        return;
    fprintf(stderr, "libgyre-mpi: collectives of rank 0\n%-26s %12s %12s %16s %12s\n", "call", "taken",
            "passed on", "bytes", "seconds");
    for (int c = 0; c < CALL_COUNT; c++) {
        unsigned long long passed = 0;
        unsigned long long taken = atomic_load(&counts[c].calls[WHY_TAKEN]);
        for (int w = WHY_TAKEN + 1; w < WHY_COUNT; w++)
            passed += atomic_load(&counts[c].calls[w]);
        if (taken + passed == 0)
            continue;
        fprintf(stderr, "%-26s %12llu %12llu %16llu %12.6f\n", names[c], taken, passed,
                atomic_load(&counts[c].bytes), (double)atomic_load(&counts[c].nanoseconds) / 1e9);
        for (int w = WHY_TAKEN + 1; w < WHY_COUNT; w++)
            if (atomic_load(&counts[c].calls[w]) > 0)
                fprintf(stderr, "    %llu passed on: %s\n", atomic_load(&counts[c].calls[w]), whys[w]);
    }
}
