/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/nvml.c: errors of a GPU's memory, and what holds its clocks back, by NVIDIA's management
 * library (NVML), which comes with the driver and is opened here. Without it nothing is reported. */
#include "tools/gyre-doctor/report.h"

#include <string.h>

#include "base/device/rdma.h"
#include "base/machine/library.h"

/* Of nvml.h: results are 0, or why not. */
typedef void *nvml_device_t;
static struct {
    int open; /* 1: it is loaded and works */
    int (*init)(void);
    int (*by_bus)(const char *bus, nvml_device_t *device);
    int (*ecc)(nvml_device_t device, int *now, int *after_a_reset);
    int (*errors)(nvml_device_t device, int type, int counter, unsigned long long *count);
    int (*brakes)(nvml_device_t device, unsigned long long *reasons);
} nvml;

/* Bits of nvmlClocksThrottleReason*; the others are idleness and what a person has set. */
static const struct {
    unsigned long long bits;
    const char *what;
    int power; /* a GPU at work comes to its limit of power: it is sound */
} brakes[] = {
    {0x04, "power limit", 1}, {0x08, "hardware slowdown", 0}, {0x60, "heat", 0}, {0x80, "power brake", 0}};

static int opened(void)
{
    const base_symbol_t functions[] = {{"nvmlInit_v2", &nvml.init},
                                       {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_bus},
                                       {"nvmlDeviceGetEccMode", &nvml.ecc},
                                       {"nvmlDeviceGetTotalEccErrors", &nvml.errors},
                                       {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.brakes}};
    char why[256];
    if (!nvml.open)
        nvml.open = base_library_load("libnvidia-ml.so.1", functions, sizeof functions / sizeof *functions,
                                      why, sizeof why) &&
                    nvml.init() == 0;
    return nvml.open;
}

static void look_at_errors(report_t *report, nvml_device_t device, const char *label)
{
    enum { UNCORRECTED = 1, SINCE_DRIVER = 0 };
    int now = 0, later = 0;
    unsigned long long count = 0;
    if (nvml.ecc(device, &now, &later) != 0)
        return; /* a GPU without ECC */
    if (!now)
        report_add(report, FOUND_OK, label, "", "off");
    else if (nvml.errors(device, UNCORRECTED, SINCE_DRIVER, &count) != 0)
        report_add(report, FOUND_OK, label, "", "on");
    else
        report_add(report, count > 0 ? FOUND_WARNING : FOUND_OK, label,
                   count > 0 ? "jobs on it die, or did: nvidia-smi -q -d ECC; a reset, or another GPU" : "",
                   "on, %llu errors that could not be corrected", count);
}

static void look_at_brakes(report_t *report, nvml_device_t device, const char *label)
{
    unsigned long long reasons = 0;
    char text[128] = "";
    int unsound = 0;
    if (nvml.brakes(device, &reasons) != 0)
        return;
    for (size_t i = 0; i < sizeof brakes / sizeof *brakes; i++)
        if (reasons & brakes[i].bits) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? ", " : "",
                     brakes[i].what);
            unsound |= !brakes[i].power;
        }
    report_add(report, unsound ? FOUND_WARNING : FOUND_OK, label,
               unsound ? "all ranks wait for the slowest GPU: nvidia-smi -q -d PERFORMANCE" : "", "%s%s",
               *text ? "held back: " : "not held back", text);
}

void look_at_gpu_health(report_t *report, int index)
{
    char bus[32], label[40];
    nvml_device_t device = NULL;
    if (base_device_pci((base_device_t){BASE_CUDA, index}, bus, sizeof bus) != GYRE_OK || !opened() ||
        nvml.by_bus(bus, &device) != 0)
        return;
    snprintf(label, sizeof label, "CUDA %d, ECC", index);
    look_at_errors(report, device, label);
    snprintf(label, sizeof label, "CUDA %d, clocks", index);
    look_at_brakes(report, device, label);
}
