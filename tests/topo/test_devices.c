/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_devices.c: GPUs and NICs of the 8-GPU fixture: their names, their places, their
 * neighbours. */
#include "fixture.h"

static int find(const topo_t *topo, const char *name)
{
    const topo_device_t *device;
    for (int i = 0; (device = topo_device(topo, i)); i++)
        if (strcmp(device->name, name) == 0)
            return i;
    fail_msg("no device %s", name);
    return -1;
}

static int number(const topo_t *topo, const char *stem, int unit)
{
    char name[64];
    snprintf(name, sizeof name, "%s%d", stem, unit);
    return find(topo, name);
}

static void one_device_per_card(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    topo_summary_t sum;
    topo_summary(topo, &sum);
    assert_int_equal(sum.devices,
                     17); /* nvml and ib names are no devices more, the console adapter is no GPU */
    int gpus = 0, rdma = 0;
    for (int i = 0; i < sum.devices; i++) {
        const topo_device_t *device = topo_device(topo, i);
        gpus += device->kind == TOPO_GPU;
        rdma += device->rdma;
        if (device->kind == TOPO_GPU)
            assert_int_equal(i, gpus - 1); /* GPUs first */
    }
    assert_int_equal(gpus, 8);
    assert_int_equal(rdma, 8);
    assert_null(topo_device(topo, 17));
    assert_null(topo_device(topo, -1));
    topo_free(topo);
}

static void places(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    for (int i = 0; i < 8; i++) {
        const topo_device_t *gpu = topo_device(topo, number(topo, "cuda", i));
        const topo_device_t *nic = topo_device(topo, number(topo, "mlx5_", i));
        assert_int_equal(gpu->numa, i / 2);
        assert_int_equal(gpu->package, i / 4);
        assert_int_equal(gpu->bridge, i / 2);
        assert_int_equal(nic->numa, i / 2);
        assert_int_equal(nic->bridge, i / 2);
    }
    assert_string_equal(topo_device(topo, find(topo, "cuda5"))->pci, "0000:5a:00.0");
    topo_free(topo);
}

static void nearest_nic_of_each_gpu(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    for (int i = 0; i < 8; i++) {
        int gpu = number(topo, "cuda", i), nic = number(topo, "mlx5_", i);
        assert_int_equal(topo_nearest_to_device(topo, gpu, TOPO_NIC), nic);
        assert_int_equal(topo_nearest_to_device(topo, nic, TOPO_GPU), gpu);
        assert_int_equal(topo_nearest_to_device(topo, gpu, TOPO_GPU), number(topo, "cuda", i ^ 1));
    }
    assert_int_equal(topo_nearest_to_device(topo, find(topo, "eth0"), TOPO_GPU), find(topo, "cuda0"));
    assert_int_equal(topo_nearest_to_device(topo, 99, TOPO_GPU), -1);
    topo_free(topo);
}

static void distances(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    int cuda0 = find(topo, "cuda0");
    assert_int_equal(topo_device_distance(topo, cuda0, cuda0), 0);
    assert_int_equal(topo_device_distance(topo, cuda0, find(topo, "mlx5_0")), 1);
    assert_int_equal(topo_device_distance(topo, cuda0, find(topo, "cuda1")), 2);
    assert_int_equal(topo_device_distance(topo, cuda0, find(topo, "eth0")), 2);
    assert_int_equal(topo_device_distance(topo, cuda0, find(topo, "cuda2")), 4);
    assert_int_equal(topo_device_distance(topo, cuda0, find(topo, "cuda7")), 4);
    assert_int_equal(topo_device_distance(topo, cuda0, 99), 4);
    for (int a = 0; a < 17; a++)
        for (int b = 0; b < 17; b++)
            assert_int_equal(topo_device_distance(topo, a, b), topo_device_distance(topo, b, a));
    topo_free(topo);
}

/* How near an RDMA device is to a GPU that CUDA knows by its PCI address. */
static void gpus_and_rdma_devices(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    const char *pci = topo_device(topo, find(topo, "cuda5"))->pci;
    for (int i = 0; i < 8; i++) {
        char rdma[64];
        snprintf(rdma, sizeof rdma, "mlx5_%d", i);
        assert_int_equal(topo_gpu_distance(topo, pci, rdma), i == 5 ? 1 : i == 4 ? 2 : 4);
        assert_int_equal(topo_gpu_distance(topo, pci, rdma),
                         topo_device_distance(topo, find(topo, "cuda5"), find(topo, rdma)));
    }
    assert_int_equal(topo_gpu_distance(topo, "0000:ff:00.0", "mlx5_0"), 4); /* no such function */
    assert_int_equal(topo_gpu_distance(topo, pci, "mlx5_99"), 4);
    topo_free(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_per_card),     cmocka_unit_test(places),
        cmocka_unit_test(nearest_nic_of_each_gpu), cmocka_unit_test(distances),
        cmocka_unit_test(gpus_and_rdma_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
