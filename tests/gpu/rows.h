/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/rows.h: for programs that print a figure per row (gpu_kernels, gpu_facts). A row that fails is a
 * line "failed: ROW; why", and the others go on, unless the device takes no more work. */
#ifndef TESTS_GPU_ROWS_H
#define TESTS_GPU_ROWS_H

#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "tests/gpu/spread.h"

/* The row that is being made. A jump out of it leaves what it has not freed, but for its memory. */
enum { ROW_MEMORIES = 16 };
static struct {
    jmp_buf end;
    int open, failures, memories;
    void *memory[ROW_MEMORIES];
    char name[160];
} row;

static inline void failed(const char *what, const char *why)
{
    if (!row.open) {
        fprintf(stderr, "%s: %s\n", what, why);
        exit(1);
    }
    printf("failed: %s; %s: %s\n", row.name, what, why);
    fflush(stdout);
    row.failures++;
    longjmp(row.end, 1);
}

static inline void row_cuda(cudaError_t rc, const char *call)
{
    if (rc != cudaSuccess)
        failed(call, cudaGetErrorString(rc));
}
#define CUDA(call) row_cuda(call, #call)

static inline void ours(gyre_status_t status, const char *what)
{
    if (status != GYRE_OK)
        failed(what, gyre_last_error());
}

/* Device memory of the row. */
static inline void *device_memory(size_t bytes)
{
    void *memory = NULL;
    if (row.memories == ROW_MEMORIES)
        failed("device_memory", "more pieces than ROW_MEMORIES");
    CUDA(cudaMalloc(&memory, bytes));
    return row.memory[row.memories++] = memory;
}

/* Frees the row's memory, which waits for the device. An error that stays ends all that would follow. */
static inline void end_row(void)
{
    row.open = 0;
    while (row.memories > 0)
        (void)cudaFree(row.memory[--row.memories]);
    (void)cudaGetLastError();
    cudaError_t rc = cudaDeviceSynchronize();
    if (rc != cudaSuccess) {
        printf("failed: all further rows; the device takes no more work: %s\n", cudaGetErrorString(rc));
        exit(1);
    }
}
#define ROW(...)                  \
    do {                          \
        row.open = 1;             \
        if (setjmp(row.end) == 0) \
            __VA_ARGS__;          \
        end_row();                \
    } while (0)

#endif
