/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/choices.c: what Gyre will use of the machine, with the present settings. */
#include "tools/gyre-doctor/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings/settings.h"
#include "collectives/kernels/kernels.h"
#include "collectives/choose/tune.h"
#include "comm/transport.h"

static void same_host(report_t *report)
{
    const char *forced = base_setting_string(SET_TRANSPORT), *copy = base_setting_string(SET_SHM_COPY);
    if (comm_transport_is_network(comm_transport_find(forced)))
        report_add(report, FOUND_OK, "ranks of one host", "", "%s (GYRE_TRANSPORT=%s)", forced, forced);
    else if (!report->facts.windows)
        report_add(report, FOUND_MISSING, "ranks of one host", "", "no shared memory");
    else if (strcmp(copy, "auto") != 0)
        report_add(report, FOUND_OK, "ranks of one host", "",
                   "shared memory; large messages: %s (GYRE_SHM_COPY)", copy);
    else
        report_add(report, FOUND_OK, "ranks of one host", "",
                   "shared memory; large messages: gyre_mem_alloc windows directly, other memory by %s",
                   report->facts.cma ? "CMA" : "copying in and out");
}

/* All costs of one unit, by the names that the tuning file has for them. */
static void costs(report_t *report, const coll_cost_t *cost, const char *unit, const char *name)
{
    char text[512];
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < coll_cost_field_count && at < sizeof text; i++) {
        const coll_cost_field_t *f = &coll_cost_fields[i];
        const double value = coll_cost_get(cost, f);
        if (strcmp(f->unit, unit) == 0 && value > 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %.*f", at ? ", " : "", f->name,
                                   f->kind == 'd' && value < 100 ? 1 : 0, value);
    }
    report_add(report, FOUND_OK, name, "", "%s", text);
}

/* errno's value if the file cannot be written, or made with the folders that it lies in. */
static int cannot_write(const char *path)
{
    char part[COLL_TUNE_PATH];
    struct stat info;
    if (stat(path, &info) == 0)
        return base_file_check(path);
    snprintf(part, sizeof part, "%s", path);
    for (char *slash; errno == ENOENT && (slash = strrchr(part, '/')) != NULL && slash > part;) {
        *slash = '\0';
        if (stat(part, &info) == 0)
            return !S_ISDIR(info.st_mode) ? ENOTDIR : access(part, W_OK | X_OK) != 0 ? errno : 0;
    }
    return errno;
}

static void cache(report_t *report)
{
    char path[COLL_TUNE_PATH];
    coll_tune_cache_path(path);
    const int err = path[0] ? cannot_write(path) : 0;
    if (err)
        report_add(report, FOUND_NOTE, "tuning cache",
                   "each job measures again, 0.1 s of its start: set XDG_CACHE_HOME to a folder that can be "
                   "written",
                   "%s cannot be written: %s", path, strerror(err));
}

static void tuning(report_t *report)
{
    static const char advice[] =
        "the first job of several ranks measures for 0.1 s; gyre-perf --tune does so now";
    static coll_tune_t tune; /* 40 KiB */
    char why[256];
    if (coll_tune_peek(&tune, why) != GYRE_OK) {
        report_add(report, FOUND_MISSING, "tuning", "mend the file that GYRE_TUNE names, or unset it", "%s",
                   gyre_last_error());
        return;
    }
    if (why[0] && tune.source == COLL_TUNE_BUILTIN)
        report_add(report, FOUND_NOTE, "tuning", advice, "%s%s%s; until then these numbers:", why,
                   tune.path[0] ? ": " : "", tune.path);
    else if (tune.source == COLL_TUNE_BUILTIN)
        report_add(report, FOUND_OK, "tuning", "", "built-in numbers (GYRE_TUNE=none)");
    else
        report_add(report, FOUND_OK, "tuning", "", "%s: %s, %d choose line%s", coll_tune_source_name(&tune),
                   tune.path, tune.nlines, tune.nlines == 1 ? "" : "s");
    if (tune.busy.stretch > 0)
        report_add(
            report, FOUND_NOTE, "tuning, busy", "a later job measures again; gyre-perf --tune does so now",
            "others had the cores: measured in %.1f times the time of the best samples", tune.busy.stretch);
    if (strcmp(base_setting_string(SET_TUNE), "none") != 0)
        cache(report);
    costs(report, &tune.cost, "ns", "costs in ns");
    costs(report, &tune.cost, "GB/s", "costs in GB/s");
    costs(report, &tune.cost, "bytes", "costs in bytes");
}

/* Collectives on device memory: what is known before ranks have met. */
static void devices(report_t *report)
{
    const char *path = base_setting_string(SET_CUDA_PATH);
    if (report->facts.gpus == 0)
        report_add(report, FOUND_OK, "memory of devices", "", "host only");
    else if (strcmp(path, "auto") != 0)
        report_add(report, FOUND_OK, "memory of devices", "", "host and CUDA: %s (GYRE_CUDA_PATH)",
                   strcmp(path, "direct") == 0 ? "ranks of one host in each other's memory, or an error"
                                               : "through pinned memory of the host");
    else
        report_add(report, FOUND_OK, "memory of devices", "",
                   "host and CUDA: ranks of one host that can map each other's memory work in it, %s%s; "
                   "others through pinned memory of the host",
                   base_setting_int(SET_CUDA_BLOCKS) ? base_setting_string(SET_CUDA_BLOCKS)
                                                     : "in as many blocks as the memory takes",
                   base_setting_int(SET_CUDA_BLOCKS) ? " blocks at most" : "");
}

void look_at_choices(report_t *report)
{
    report->section = "Gyre will use";
    same_host(report);
    if (report->facts.rails > 0 && strcmp(base_setting_string(SET_TRANSPORT), "ucx") != 0)
        report_add(report, FOUND_OK, "ranks of other hosts", "",
                   "verbs over %d rail%s where every rank has an RDMA device, else UCX", report->facts.rails,
                   report->facts.rails == 1 ? "" : "s");
    else if (*report->facts.transports != '\0')
        report_add(report, FOUND_OK, "ranks of other hosts", "", "UCX over the best of: %s",
                   report->facts.transports);
    else
        report_add(report, FOUND_NOTE, "ranks of other hosts", "",
                   "cannot be reached: UCX finds no network, or is not there");
    report_add(report, FOUND_OK, "reduction kernels", "", "%s%s", coll_kernel_isa(),
               base_setting_is_default(SET_KERNELS) ? "" : " (GYRE_KERNELS)");
    report_add(report, FOUND_OK, "order of reductions", "", "%s", base_setting_string(SET_ORDER));
    tuning(report);
    devices(report);
}
