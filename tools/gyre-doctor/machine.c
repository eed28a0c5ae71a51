/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/machine.c: cores, memory, limits and GPUs of the machine, as this process may use
 * them. */
#include "tools/gyre-doctor/report.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <gyre/gyre.h>

#include "base/device/device.h"
#include "base/machine/cgroup.h"
#include "base/machine/tiles.h"
#include "base/settings/size.h"
#include "comm/transport.h"
#include "topo/topo.h"

static void built(report_t *report)
{
#ifdef GYRE_CUDA
    const char *cuda = "on";
#else
    const char *cuda = "off";
#endif
#ifdef GYRE_VERBS
    const char *verbs = "on";
#else
    const char *verbs = "off";
#endif
    report_add(report, FOUND_OK, "Gyre", "", "%s, CUDA %s, verbs %s, compiler %s", gyre_version(), cuda,
               verbs, __VERSION__);
}

/* The first line of a small file, such as those of /proc and /sys; 0 if it cannot be read. */
static int first_line(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    int good = fgets(text, (int)bytes, file) != NULL;
    fclose(file);
    if (good)
        text[strcspn(text, "\n")] = '\0';
    return good;
}

/* What others leave this process of the machine: the affinity of its launcher, a container. */
static void container(report_t *report, const topo_summary_t *sum)
{
    enum { LITTLE = 256 << 20 }; /* bytes: a rank takes 10 to 20 MiB and its program's memory */
    const base_cgroup_t limits = base_cgroup_limits("");
    char size[BASE_SIZE_TEXT];
    if (sum->cores < sum->machine_cores)
        report_add(
            report, FOUND_NOTE, "CPU set",
            "ranks of a host may have different ones; what counts is the cores that they have together",
            "this process may use %d of %d cores", sum->cores, sum->machine_cores);
    if (limits.cpus > 0 && limits.cpus < sum->pus)
        report_add(report, FOUND_WARNING, "CPU quota",
                   "ranks beyond the quota are stopped for milliseconds at a time: start no more than that",
                   "this container may use %.1f of %d hardware threads", limits.cpus, sum->pus);
    if (limits.memory != UINT64_MAX && (sum->memory_bytes == 0 || limits.memory < sum->memory_bytes))
        report_add(
            report, limits.memory < LITTLE ? FOUND_WARNING : FOUND_OK, "memory limit",
            limits.memory < LITTLE
                ? "what ranks share counts, too; beyond the limit the kernel ends one (signal 9): raise "
                  "it, or start fewer ranks"
                : "",
            "this container may use %s", base_size_about((double)limits.memory, size));
}

/* text: [BASE_SIZE_TEXT]. */
static const char *size_about(size_t bytes, char *text)
{
    return bytes > 0 ? base_size_about((double)bytes, text) : "unknown"; /* hwloc found none */
}

static void cores(report_t *report)
{
    topo_t *topo = NULL;
    topo_summary_t sum;
    if (topo_load(NULL, &topo) != GYRE_OK) {
        report_add(report, FOUND_MISSING, "topology", "hwloc cannot read this machine: is /sys mounted?",
                   "%s", gyre_last_error());
        return;
    }
    topo_summary(topo, &sum);
    topo_free(topo);
    report_add(report, FOUND_OK, "cores", "",
               "%d core%s (%d hardware threads) on %d package%s, %d NUMA node%s", sum.cores,
               sum.cores == 1 ? "" : "s", sum.pus, sum.packages, sum.packages == 1 ? "" : "s", sum.numa_nodes,
               sum.numa_nodes == 1 ? "" : "s");
    char size[3][BASE_SIZE_TEXT], number[16] = "";
    if (sum.l3_count > 0)
        snprintf(number, sizeof number, " x %d", sum.l3_count);
    report_add(report, FOUND_OK, "caches", "", "L1 %s, L2 %s, L3 %s%s", size_about(sum.l1_bytes, size[0]),
               size_about(sum.l2_bytes, size[1]), size_about(sum.l3_bytes, size[2]), number);
    report_add(report, FOUND_OK, "memory", "", "%s", size_about(sum.memory_bytes, size[0]));
    container(report, &sum);
}

static void instructions(report_t *report)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    report_add(report, avx2 ? FOUND_OK : FOUND_NOTE, "instruction set", "", "x86-64%s%s%s",
               avx2 ? " avx2 fma" : "", avx512 ? " avx512f avx512bw" : "",
               avx2 ? "" : ": scalar kernels only");
    const char *missing = base_tiles_missing();
    report_add(report, FOUND_OK, "bfloat16 tiles", "", "%s",
               missing ? missing : "yes: gyre-train --matmul-type bf16 multiplies with them");
#elif defined(__aarch64__)
    report_add(report, FOUND_OK, "instruction set", "", "aarch64 neon");
#else
    report_add(report, FOUND_NOTE, "instruction set", "", "neither x86-64 nor aarch64: scalar kernels only");
#endif
}

/* name: what is counted; NULL: bytes. */
static void limit_text(rlim_t value, const char *name, char *text, size_t bytes)
{
    char size[BASE_SIZE_TEXT];
    if (value == RLIM_INFINITY)
        snprintf(text, bytes, "unlimited");
    else if (name != NULL)
        snprintf(text, bytes, "%llu %s", (unsigned long long)value, name);
    else
        snprintf(text, bytes, "%s", base_size_about((double)value, size));
}

static void limits(report_t *report)
{
    struct rlimit limit;
    char soft[64], hard[64];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        limit_text(limit.rlim_cur, NULL, soft, sizeof(soft));
        limit_text(limit.rlim_max, NULL, hard, sizeof(hard));
        int low = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 1024UL * 1024 * 1024;
        /* Only RDMA pins memory: without a device a low limit costs nothing. */
        found_t state = !low ? FOUND_OK : report->facts.rdma_devices > 0 ? FOUND_WARNING : FOUND_NOTE;
        report_add(
            report, state, "locked memory",
            !low ? ""
                 : "RDMA devices need more: `ulimit -l unlimited`, in /etc/security/limits.conf `* - memlock "
                   "unlimited`, in a container --ulimit memlock=-1",
            "%s (hard %s)", soft, hard);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit_text(limit.rlim_cur, "descriptors", soft, sizeof(soft));
        limit_text(limit.rlim_max, "descriptors", hard, sizeof(hard));
        int low = limit.rlim_cur < 1024;
        report_add(report, low ? FOUND_WARNING : FOUND_OK, "open files",
                   low ? "enough for a few ranks per host; `ulimit -n 4096` for more" : "", "%s (hard %s)",
                   soft, hard);
    }
}

static void shared_memory_folder(report_t *report)
{
    struct statvfs info;
    if (statvfs("/dev/shm", &info) != 0) {
        report_add(report, FOUND_NOTE, "/dev/shm", "Gyre does not need it; other programs may", "absent: %s",
                   strerror(errno));
        return;
    }
    double size = (double)info.f_blocks * (double)info.f_frsize,
           left = (double)info.f_bavail * (double)info.f_frsize;
    char all[BASE_SIZE_TEXT], unused[BASE_SIZE_TEXT];
    report_add(report, FOUND_OK, "/dev/shm", "", "%s, %s free (Gyre does not use it%s)",
               base_size_about(size, all), base_size_about(left, unused),
               report->facts.memfd ? "" : " but where memfd_create is forbidden");
}

static void huge_pages(report_t *report)
{
    char all[32], unused[32];
    if (!first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", all, sizeof(all)) ||
        !first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", unused, sizeof(unused)))
        return;
    report_add(report, FOUND_OK, "huge pages", "", "%s of 2 MiB, %s free (Gyre does not use them)", all,
               unused);
}

void look_at_machine(report_t *report)
{
    struct utsname name;
    report->section = "Machine";
    built(report);
    if (uname(&name) == 0)
        report_add(report, FOUND_OK, "kernel", "", "%s %s, %s", name.sysname, name.release, name.machine);
    cores(report);
    instructions(report);
}

void look_at_limits(report_t *report)
{
    report->section = "Limits";
    limits(report);
    shared_memory_folder(report);
    huge_pages(report);
}

/* Whether adapters read and write its memory themselves, tried. */
static void gpu_rdma(report_t *report, int index)
{
    char label[32], text[500];
    snprintf(label, sizeof(label), "CUDA %d, verbs", index);
    const int works = comm_transport_try_device(comm_transport_find("verbs"),
                                                (base_device_t){BASE_CUDA, index}, text, sizeof(text));
    if (works < 0) /* not in this build */
        return;
    report_add(report, works || report->facts.rails == 0 ? FOUND_OK : FOUND_WARNING, label,
               works || report->facts.rails == 0 ? "" : "docs/gpu.md, Between hosts, says what it takes",
               "%s", text);
}

/* What the kernel's part of NVIDIA's driver says of itself. */
static void gpu_driver(report_t *report)
{
    char line[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (file == NULL)
        return;
    if (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        report_add(report, FOUND_OK, "driver", "", "%s", line);
    }
    fclose(file);
}

void look_at_gpus(report_t *report)
{
    report->section = "GPUs";
    gpu_driver(report);
    int count = base_device_count(BASE_CUDA);
    report->facts.gpus = count;
    if (count == 0) {
        report_add(report, FOUND_NOTE, "CUDA", "", "none: %s", base_device_why_not(BASE_CUDA));
        return;
    }
    for (int i = 0; i < count; i++) {
        char name[256], label[32];
        snprintf(label, sizeof(label), "CUDA %d", i);
        if (base_device_name((base_device_t){BASE_CUDA, i}, name, sizeof(name)) == GYRE_OK)
            report_add(report, FOUND_OK, label, "", "%s", name);
        else
            report_add(report, FOUND_WARNING, label, "nvidia-smi may say more", "%s", gyre_last_error());
        look_at_gpu_health(report, i);
        gpu_rdma(report, i);
    }
}
