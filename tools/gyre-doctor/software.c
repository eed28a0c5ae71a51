/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-doctor/software.c: libraries as they are at run time, and launchers. */
#include "tools/gyre-doctor/report.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/settings/settings.h"
#include "comm/transport.h"

static void required(report_t *report)
{
    unsigned api = hwloc_get_api_version();
    int good = api >> 16 == HWLOC_API_VERSION >> 16;
    report_add(report, good ? FOUND_OK : FOUND_MISSING, "hwloc",
               good ? "" : "install the libhwloc that Gyre was built against, or build Gyre anew",
               "API %u.%u.%u, built against %s", api >> 16, api >> 8 & 0xff, api & 0xff, HWLOC_VERSION);

    report_add(report, FOUND_OK, "jansson", "", "%s", jansson_version_str());
    good = sodium_init() >= 0;
    report_add(report, good ? FOUND_OK : FOUND_MISSING, "libsodium",
               good ? "" : "it finds no source of randomness: is /dev/urandom there?", "%s",
               sodium_version_string());
    unsigned xx = XXH_versionNumber();
    report_add(report, FOUND_OK, "xxHash", "", "%u.%u.%u", xx / 10000, xx / 100 % 100, xx % 100);
}

static void ucx(report_t *report)
{
    char text[300];
    const int number = comm_transport_find("ucx");
    const int needed = comm_transport_find(base_setting_string(SET_TRANSPORT)) == number;

    if (comm_transport_describe(number, 0, text, sizeof(text)) == GYRE_OK)
        report_add(report, FOUND_OK, "UCX", "", "%s", text);
    else if (needed)
        report_add(report, FOUND_MISSING, "UCX", "GYRE_TRANSPORT=ucx needs it: apt install libucx0", "%s",
                   text);
    else
        report_add(report, FOUND_NOTE, "UCX", "only jobs on several hosts need it: apt install libucx0", "%s",
                   text);
}

/* Looks for a library that Gyre's core does not link; calls its `function`, of type const char *(void). */
static void optional(report_t *report, const char *name, const char *library, const char *function,
                     const char *advice)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    if (handle == NULL) {
        report_add(report, FOUND_NOTE, name, advice, "%s not found", library);
        return;
    }
    const char *(*version)(void);
    void *symbol = dlsym(handle, function);
    memcpy(&version, &symbol,
           sizeof(version)); /* ISO C has no cast from data to function pointers; POSIX does */
    const char *text = symbol != NULL ? version() : "version unknown";
    report_add(report, FOUND_OK, name, "", "%.200s", text);
    dlclose(handle);
}

/* Finds an executable in PATH. */
static int in_path(const char *program, char *path, size_t bytes)
{
    const char *list = base_env("PATH");
    for (const char *at = list; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ":");
        int n = snprintf(path, bytes, "%.*s/%s", (int)length, at, program);
        if (length > 0 && n > 0 && (size_t)n < bytes && access(path, X_OK) == 0)
            return 1;
        at += length;
        at += *at == ':';
    }
    return 0;
}

static void launchers(report_t *report)
{
    static const char *const names[] = {"srun", "torchrun", "mpirun", "mpiexec", "prterun", "flux"};
    char found[1024] = "", path[512];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (in_path(names[i], path, sizeof(path)))
            report_word(found, sizeof(found), path);
    report_add(report, *found != '\0' ? FOUND_OK : FOUND_NOTE, "other launchers", "", "%s",
               *found != '\0' ? found : "none in PATH; ucx-run needs none");
}

void look_at_software(report_t *report)
{
    report->section = "Software";
    required(report);
    ucx(report);
    optional(report, "OpenBLAS", "libopenblas.so.0", "openblas_get_config",
             "only training needs it: apt install libopenblas-dev");
    optional(report, "PMIx", "libpmix.so.2", "PMIx_Get_version",
             "only `srun --mpi=pmix` and PRRTE need it: apt install libpmix-dev");
    launchers(report);
}
