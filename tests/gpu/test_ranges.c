/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_ranges.c: a profiler sees collectives on device memory, messages and the parts of a training
 * step by name. This program is the profiler: NVTX finds InitializeInjectionNvtx2_fnptr in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/cuda.h>
#include <gyre/gyre.h>
#include <gyre/train.h>

#include "tests/gpu/gpu.h"

static char seen[4096]; /* "NAME PAYLOAD;" of each range, in order */
static int depth, deepest;

static nvtxDomainHandle_t create(const char *name)
{
    static int domain;
    assert_string_equal(name, "gyre");
    return (nvtxDomainHandle_t)(void *)&domain;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    const size_t used = strlen(seen);
    assert_non_null(domain);
    snprintf(seen + used, sizeof seen - used, "%s %llu;", range->message.ascii,
             (unsigned long long)range->payload.ullValue);
    deepest = ++depth > deepest ? depth : deepest;
    return depth;
}

static int pop(nvtxDomainHandle_t domain)
{
    assert_non_null(domain);
    return --depth;
}

static int attach(NvtxGetExportTableFunc_t get)
{
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

static void calls_have_names_and_bytes(void **state)
{
    enum { N = 2, COUNT = 1000 };
    static const int devices[N] = {0, 0};
    gyre_comm_t *comms[N];
    cudaStream_t streams[N];
    float *at[N];
    (void)state;
    assert_int_equal(gyre_cuda_comms_create(N, devices, comms), GYRE_OK);
    for (int r = 0; r < N; r++) {
        assert_int_equal(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking), cudaSuccess);
        assert_int_equal(cudaMalloc((void **)&at[r], COUNT * sizeof *at[r]), cudaSuccess);
    }
    for (int r = 0; r < N; r++)
        assert_int_equal(gyre_all_reduce_stream(at[r], at[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                                comms[r], streams[r]),
                         GYRE_OK);
    assert_int_equal(gyre_send_stream(at[0], 10, GYRE_FLOAT64, 1, comms[0], streams[0]), GYRE_OK);
    assert_int_equal(gyre_recv_stream(at[1], 10, GYRE_FLOAT64, 0, comms[1], streams[1]), GYRE_OK);
    for (int r = 0; r < N; r++)
        assert_int_equal(cudaStreamSynchronize(streams[r]), cudaSuccess);
    assert_string_equal(seen, "all_reduce 4000;all_reduce 4000;send_stream 80;recv_stream 80;");
    assert_int_equal(depth, 0);
    for (int r = 0; r < N; r++) {
        assert_int_equal(gyre_comm_destroy(comms[r]), GYRE_OK);
        assert_int_equal(cudaFree(at[r]), cudaSuccess);
        assert_int_equal(cudaStreamDestroy(streams[r]), cudaSuccess);
    }
}

static void a_training_step_has_its_parts(void **state)
{
    static const char step[] = "forward 0;backward 0;optimizer 0;";
    char path[] = "/tmp/ranges-XXXXXX", config[256];
    gyre_train_t *train = NULL;
    gyre_train_stats_t stats = {.size = sizeof stats};
    (void)state;
    FILE *text = fdopen(mkstemp(path), "w");
    assert_non_null(text);
    for (int i = 0; i < 100; i++)
        fputs("a text of no meaning\n", text);
    fclose(text);
    snprintf(config, sizeof config,
             "{\"data\": \"%s\", \"steps\": 2, \"seq\": 8, \"batch\": 1, \"eval-sequences\": 1, "
             "\"layers\": 1, \"hidden\": 16, \"heads\": 2}",
             path);
    assert_int_equal(gyre_train_create(NULL, config, &train), GYRE_OK);
    *seen = '\0';
    assert_int_equal(gyre_train_step(train, &stats), GYRE_OK);
    /* after an evaluation */
    assert_true(strlen(seen) > strlen(step));
    assert_string_equal(seen + strlen(seen) - strlen(step), step);
    assert_int_equal(depth, 0);
    assert_int_equal(deepest, 1);
    assert_int_equal(gyre_train_destroy(train), GYRE_OK);
    assert_int_equal(remove(path), 0);
}

int main(void)
{
    base_device_prepare_process();
    if (!gpu_here())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_have_names_and_bytes),
        cmocka_unit_test(a_training_step_has_its_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
