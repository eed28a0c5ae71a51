/* tools/gyre-doctor/choices.c: what Gyre will make of what was found, with the settings as they are. */
#include "tools/gyre-doctor/report.h"

#include <string.h>

#include "base/settings.h"
#include "collectives/kernels.h"

static void same_host(report_t *report)
{
    const char *forced = base_setting_string(SET_TRANSPORT), *copy = base_setting_string(SET_SHM_COPY);
    if (strcmp(forced, "ucx") == 0)
        report_add(report, FOUND_OK, "ranks of one host", "", "UCX (GYRE_TRANSPORT=ucx)");
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

void look_at_choices(report_t *report)
{
    report->section = "Gyre will use";
    same_host(report);
    if (*report->facts.transports != '\0')
        report_add(report, FOUND_OK, "ranks of other hosts", "", "UCX over the best of: %s",
                   report->facts.transports);
    else
        report_add(report, FOUND_NOTE, "ranks of other hosts", "", "cannot be reached: UCX finds no network");
    report_add(report, FOUND_OK, "reduction kernels", "", "%s%s", coll_kernel_isa(),
               base_setting_is_default(SET_KERNELS) ? "" : " (GYRE_KERNELS)");
    report_add(report, FOUND_OK, "order of reductions", "", "%s", base_setting_string(SET_ORDER));
    report_add(report, FOUND_OK, "memory of devices", "", "%s",
               report->facts.gpus > 0 ? "host and CUDA" : "host only");
}
