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
#include <strings.h>
#include <sys/mman.h>

static bool reporting;
bool shim_checking;
static struct {
    atomic_ullong calls[WHY_COUNT];
    atomic_ullong bytes;
    atomic_ullong nanoseconds;
} counts[2 * CALL_COUNT];
static atomic_ullong compared;
static atomic_ullong different;

#define SHIM_NAME(name, lower)  "MPI_" #name,
#define SHIM_INAME(name, lower) "MPI_I" #lower,
static const char *const names[] = {SHIM_CALLS(SHIM_NAME) SHIM_CALLS(SHIM_INAME)};
static const char *const whys[WHY_COUNT] = {
    [WHY_NO_JOB] = "no job in Gyre",
    [WHY_ALONE] = "communicator of 1 rank",
    [WHY_INTER] = "inter-communicator",
    [WHY_FOREIGN] = "ranks of another MPI_COMM_WORLD",
    [WHY_FAILED] = "no communicator in Gyre",
    [WHY_TYPE] = "datatype or operation",
    [WHY_ARGUMENT] = "invalid argument",
    [WHY_NEW] = "communicator not in Gyre yet",
    [WHY_NOT_BLOCKING] = "no blocking collective on it since it was due",
};

static bool is_on(const char *name)
{
    static const char *const off[] = {"", "0", "off", "no", "false"};
    const char *text = getenv(name);
    bool on = text != NULL;
    for (size_t i = 0; on && i < sizeof(off) / sizeof(off[0]); i++)
        on = strcasecmp(text, off[i]) != 0;
    return on;
}
void shim_report_init(void)
{
    reporting = is_on("GYRE_MPI_REPORT");
    shim_checking = is_on("GYRE_MPI_CHECK");
}
void shim_passed_on(shim_call_t id, shim_why_t why)
{
    if (reporting)
        atomic_fetch_add(&counts[id].calls[why], 1);
}

const char *shim_name(shim_call_t id)
{
    return names[id];
}

void shim_own_call(const shim_op_t *o, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (rc == MPI_SUCCESS)
        return;
    PMPI_Error_string(rc, text, &length);
    shim_end_job("GYRE_MPI_CHECK: %s: rank %d: MPI's own call failed: %s", names[o->id], o->on->rank, text);
}
void *shim_shadow(shim_op_t *o, const void *user, uintptr_t low, size_t length)
{
    static char nothing; /* MPICH refuses two buffers at NULL */
    if (length == 0)
        return user != NULL ? (void *)(uintptr_t)user : &nothing;
    /* Of a datatype over the stack and the heap the program's memory has terabytes, few of which are used. */
    o->shadow =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (o->shadow == MAP_FAILED)
        shim_no_memory("GYRE_MPI_CHECK");
    o->shadow_length = length;
    if (o->recvs)
        shim_copy_blocks(&o->recv, o->shadow);
    else if (user != NULL)
        memcpy(o->shadow, user, length);
    return o->shadow + (ptrdiff_t)((uintptr_t)user - low);
}
static bool near(double a, double b, double tolerance)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * fmax(1, fmax(fabs(a), fabs(b)));
}
typedef struct {
    gyre_type_t type;
    bool logical; /* truth values: of one operand MPI returns its value, and Gyre 1 */
    size_t at;    /* the first element that differs, or SIZE_MAX */
    size_t before;
} difference_t;
static bool is_true(const char *value, size_t size)
{
    static const char zero[8];
    return memcmp(value, zero, size) != 0;
}
/* Floating-point numbers may differ by what another order of the operands makes. False: they differ. */
static bool same(void *user, const void *mine, const void *other, size_t bytes)
{
    difference_t *d = user;
    bool single = d->type == GYRE_FLOAT32 || d->type == GYRE_COMPLEX64;
    bool twice = d->type == GYRE_FLOAT64 || d->type == GYRE_COMPLEX128;
    size_t size = d->type == GYRE_TYPE_NONE ? 1 : GYRE(type_size)(d->type);
    size_t part = single ? sizeof(float) : twice ? sizeof(double) : size;
    for (size_t at = 0; at + part <= bytes; at += part) {
        const char *a = (const char *)mine + at;
        const char *b = (const char *)other + at;
        bool equal;
        if (d->logical) {
            equal = is_true(a, part) == is_true(b, part);
        } else if (single) {
            float x;
            float y;
            memcpy(&x, a, sizeof(x));
            memcpy(&y, b, sizeof(y));
            equal = near((double)x, (double)y, 1e-4);
        } else if (twice) {
            double x;
            double y;
            memcpy(&x, a, sizeof(x));
            memcpy(&y, b, sizeof(y));
            equal = near(x, y, 1e-10);
        } else if (d->type == GYRE_FLOAT64_INT32 || d->type == GYRE_INT64_INT32) { /* then padding */
            equal = memcmp(a, b, 12) == 0;
        } else if (d->type == GYRE_INT16_INT32) {
            equal = memcmp(a, b, 2) == 0 && memcmp(a + 4, b + 4, 4) == 0;
        } else {
            equal = memcmp(a, b, part) == 0;
        }
        if (!equal) {
            d->at = (d->before + at) / size;
            return false;
        }
    }
    d->before += bytes;
    return true;
}
static void compare(shim_op_t *o)
{
    difference_t d = {.type = o->type, .logical = o->logical, .at = SIZE_MAX};
    if (o->recvs)
        shim_compare_blocks(&o->recv, o->shadow, same, &d);
    else
        same(&d, o->result, o->shadow, o->length);
    atomic_fetch_add(&compared, 1);
    if (d.at != SIZE_MAX) {
        int rank = 0;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        atomic_fetch_add(&different, 1);
        fprintf(
            stderr,
            "libgyre-mpi: GYRE_MPI_CHECK: %s: rank %d: element %zu of type %s differs from MPI's result\n",
            names[o->id], rank, d.at, o->type == GYRE_TYPE_NONE ? "byte" : GYRE(type_name)(o->type));
    }
}

void shim_begin(shim_op_t *o)
{
    if (reporting)
        o->from = PMPI_Wtime();
}
void shim_end(shim_op_t *o)
{
    if (reporting) {
        atomic_fetch_add(&counts[o->id].calls[WHY_TAKEN], 1);
        atomic_fetch_add(&counts[o->id].bytes, o->bytes);
        atomic_fetch_add(&counts[o->id].nanoseconds, (unsigned long long)((PMPI_Wtime() - o->from) * 1e9));
    }
    if (o->shadow != NULL && o->status == GYRE_OK) {
        compare(o);
        munmap(o->shadow, o->shadow_length); /* after an error MPI's call may still write there */
    }
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
    for (int c = 0; c < 2 * CALL_COUNT; c++) {
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
