/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/fake_nvml.c: passes for NVIDIA's management library (libnvidia-ml.so.1), of one GPU. FAKE_ERRORS:
 * its errors that could not be corrected; FAKE_BRAKES: what holds its clocks back, as bits. */
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetEccMode(void *device, int *now, int *later);
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);

static unsigned long long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : 0;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    static int only;
    *device = &only;
    return strcmp(bus, "0000:00:00.0") != 0;
}

int nvmlDeviceGetEccMode(void *device, int *now, int *later)
{
    (void)device;
    *now = *later = 1;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count)
{
    (void)device;
    *count = type == 1 && counter == 0 ? number("FAKE_ERRORS") : 99;
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    (void)device;
    *reasons = number("FAKE_BRAKES");
    return 0;
}
