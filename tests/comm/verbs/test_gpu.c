/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/verbs/test_gpu.c: how a GPU's memory is registered: which ways are tried, in which order, the
 * text, that nothing stays of a failed way; and the rails of the memory. Driver and adapters are fakes. */
#include "tests/topo/fixture.h"

#include <errno.h>

#include "base/error.h"
#include "comm/verbs/gpu.h"

enum { RAILS = 3, FD = 77, BYTES = 8 << 20, OFFSET = 4096 };

static char memory[16];                                                  /* stands for the GPU's */
static int driver_has_dmabuf, takes_dmabuf[RAILS], takes_address[RAILS]; /* 1, or -errno */
static int live, open_fds, asked_dmabuf, asked_address;
static int mr[RAILS];

static gyre_status_t dmabuf(const void *ptr, size_t bytes, int *fd, size_t *offset)
{
    assert_ptr_equal(ptr, memory);
    assert_int_equal(bytes, BYTES);
    if (!driver_has_dmabuf)
        return gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "the driver has none");
    open_fds++;
    *fd = FD;
    *offset = OFFSET;
    return GYRE_OK;
}

static void close_fd(int fd)
{
    assert_int_equal(fd, FD);
    open_fds--;
}

static void *answer(const int *rail, int takes)
{
    if (takes <= 0) {
        errno = -takes;
        return NULL;
    }
    live++;
    return &mr[*rail];
}

static void *reg_dmabuf(void *rail, int fd, size_t offset, void *ptr, size_t bytes)
{
    assert_int_equal(fd, FD);
    assert_int_equal(offset, OFFSET);
    assert_ptr_equal(ptr, memory);
    assert_int_equal(bytes, BYTES);
    assert_int_equal(open_fds, 1); /* not closed before the last rail has it */
    asked_dmabuf++;
    return answer(rail, takes_dmabuf[*(int *)rail]);
}

static void *reg(void *rail, void *ptr, size_t bytes)
{
    assert_ptr_equal(ptr, memory);
    assert_int_equal(bytes, BYTES);
    asked_address++;
    return answer(rail, takes_address[*(int *)rail]);
}

static void dereg(void *registration)
{
    assert_true((int *)registration >= mr && (int *)registration < mr + RAILS);
    live--;
}

static const verbs_gpu_calls_t fakes = {dmabuf, close_fd, reg_dmabuf, reg, dereg};

static char text[400];
static void *made[RAILS];

static int attempt(comm_rdma_t want)
{
    static int numbers[RAILS] = {0, 1, 2};
    void *rails[RAILS] = {&numbers[0], &numbers[1], &numbers[2]};
    static const char *const names[RAILS] = {"mlx5_0", "mlx5_1", "mlx5_2"};
    live = asked_dmabuf = asked_address = 0;
    int works = verbs_gpu_register(&fakes, want, rails, names, RAILS, memory, BYTES, made, text, sizeof text);
    assert_int_equal(open_fds, 0);
    assert_int_equal(live, works ? RAILS : 0);
    for (int r = 0; r < RAILS; r++)
        assert_ptr_equal(made[r], works ? &mr[r] : NULL);
    return works;
}

static void machine(int has_dmabuf, int dmabuf_answer, int address_answer)
{
    driver_has_dmabuf = has_dmabuf;
    for (int r = 0; r < RAILS; r++) {
        takes_dmabuf[r] = dmabuf_answer;
        takes_address[r] = address_answer;
    }
}

static void has(const char *words)
{
    if (!strstr(text, words))
        fail_msg("\"%s\" lacks \"%s\"", text, words);
}

static void dmabuf_first(void **state)
{
    (void)state;
    machine(1, 1, 1);
    assert_true(attempt(COMM_RDMA_AUTO));
    assert_string_equal(text, "GPUDirect RDMA by dma-buf");
    assert_int_equal(asked_address, 0);
    assert_true(attempt(COMM_RDMA_DMABUF));
    assert_true(attempt(COMM_RDMA_PEERMEM));
    assert_string_equal(text, "GPUDirect RDMA by nvidia-peermem");
    assert_int_equal(asked_dmabuf, 0);
}

static void peermem_next(void **state)
{
    (void)state;
    machine(0, 1, 1);
    assert_true(attempt(COMM_RDMA_AUTO));
    has("by nvidia-peermem (the driver has none)");
    assert_int_equal(asked_dmabuf, 0);
    machine(1, 1, 1);
    takes_dmabuf[2] = -EOPNOTSUPP; /* the last of the rails: those before it are undone */
    assert_true(attempt(COMM_RDMA_AUTO));
    has("by nvidia-peermem (mlx5_2 takes no dma-buf: Operation not supported)");
    assert_int_equal(asked_dmabuf, 3);
}

static void neither(void **state)
{
    (void)state;
    machine(1, -EOPNOTSUPP, -EFAULT);
    assert_false(attempt(COMM_RDMA_AUTO));
    has("mlx5_0 takes no dma-buf: Operation not supported; mlx5_0 does not register a GPU's addresses: Bad "
        "address; is "
        "nvidia-peermem loaded?");
    machine(1, 1, 1);
    takes_dmabuf[1] = takes_address[2] = -EFAULT;
    assert_false(attempt(COMM_RDMA_AUTO));
    has("mlx5_1 takes no dma-buf");
    has("mlx5_2 does not register");
}

/* What was named is tried and nothing else. */
static void named(void **state)
{
    (void)state;
    machine(0, 1, 1);
    assert_false(attempt(COMM_RDMA_DMABUF));
    assert_string_equal(text, "the driver has none");
    assert_int_equal(asked_address, 0);
    machine(1, 1, -EFAULT);
    assert_false(attempt(COMM_RDMA_PEERMEM));
    assert_int_equal(asked_dmabuf, 0);
    assert_false(attempt(COMM_RDMA_OFF));
    assert_string_equal(text, "GYRE_CUDA_RDMA=off");
    assert_int_equal(asked_dmabuf + asked_address, 0);
}

static void nearest_rails(void **state)
{
    (void)state;
    assert_int_equal(verbs_gpu_near((const int[]){4}, 1), 1);
    assert_int_equal(verbs_gpu_near((const int[]){4, 4, 4, 4}, 4), 15); /* nothing is known: all */
    assert_int_equal(verbs_gpu_near((const int[]){4, 1, 2, 4}, 4), 2);
    assert_int_equal(verbs_gpu_near((const int[]){2, 4, 2, 3}, 4), 5);
}

/* GPU i of the 8-GPU node goes over mlx5_i; where the process opened the four of one package only, a GPU of
 * the other one over all of them. */
static void rails_of_a_node(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    for (int gpu = 0; gpu < 8; gpu++) {
        char name[64];
        int distance[4];
        const topo_device_t *device;
        snprintf(name, sizeof name, "cuda%d", gpu);
        int at = 0;
        while ((device = topo_device(topo, at)) && strcmp(device->name, name) != 0)
            at++;
        assert_non_null(device);
        for (int r = 0; r < 4; r++) {
            snprintf(name, sizeof name, "mlx5_%d", r);
            distance[r] = topo_gpu_distance(topo, device->pci, name);
        }
        assert_int_equal(verbs_gpu_near(distance, 4), gpu < 4 ? 1 << gpu : 15);
    }
    topo_free(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dmabuf_first), cmocka_unit_test(peermem_next),  cmocka_unit_test(neither),
        cmocka_unit_test(named),        cmocka_unit_test(nearest_rails), cmocka_unit_test(rails_of_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
