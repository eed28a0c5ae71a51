/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/load.c: loads UCX. Nothing of Gyre is linked with it: most jobs run on one host and need none of
 * it, it may not be there, and its libraries and what they do when they are loaded took half of the time that
 * libgyre took. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/machine/library.h"
#include "comm/ucx/ucx.h"

ucx_calls_t ucx_lib;

enum { SIGNALS = 65 }; /* numbers from 1 on */

static void read_actions(struct sigaction *actions)
{
    memset(actions, 0, SIGNALS * sizeof *actions);
    for (int i = 1; i < SIGNALS; i++)
        (void)sigaction(i, NULL, &actions[i]); /* some are not to be read */
}

/* When libucs is loaded it handles the signals of crashes (UCX_ERROR_SIGNALS) and one more (UCX_DEBUG_SIGNO).
 * Those that the program handles or ignores stay the program's: a JVM, for example, lives by its SIGSEGV. */
static void put_back_actions(const struct sigaction *actions)
{
    struct sigaction now;

    for (int i = 1; i < SIGNALS; i++) {
        if (actions[i].sa_handler != SIG_DFL && sigaction(i, NULL, &now) == 0 &&
            now.sa_handler != actions[i].sa_handler)
            (void)sigaction(i, &actions[i], NULL);
    }
}

int ucx_load(char *why, size_t room)
{
    struct sigaction actions[SIGNALS];
    ucx_calls_t found;
    const base_symbol_t symbols[] = {
#define UCX_CALL(name) {#name, &found.name},
#include "comm/ucx/calls.def"
#undef UCX_CALL
    };

    if (ucx_is_loaded())
        return 1;
    read_actions(actions);
    /* Its libucs, too, where the loader looks for what a library needs. */
    const int there = base_library_load("libucp.so.0", symbols, sizeof symbols / sizeof *symbols, why, room);
    put_back_actions(actions);
    if (!there)
        return 0;
    ucx_lib = found;
    return 1;
}

void ucx_name_release(char *text, size_t bytes)
{
    unsigned major, minor, release;

    ucx_lib.ucp_get_version(&major, &minor, &release);
    snprintf(text, bytes, "%u.%u.%u", major, minor, release);
}

int ucx_is_older(char *text, size_t bytes)
{
    unsigned major, minor, release;

    ucx_lib.ucp_get_version(&major, &minor, &release);
    if (major > UCP_API_MAJOR || (major == UCP_API_MAJOR && minor >= UCP_API_MINOR))
        return 0;
    snprintf(text, bytes, "UCX %u.%u.%u is older than the %u.%u that Gyre was built with", major, minor,
             release, UCP_API_MAJOR, UCP_API_MINOR);
    return 1;
}

gyre_status_t ucx_describe(int part, char *text, size_t bytes)
{
    char why[256];
    int good = 0;

    if (part > 0)
        return gyre_fail_quiet(GYRE_ERR_INVALID, "UCX has one part");
    ucx_lock();
    if (!ucx_load(why, sizeof why)) {
        snprintf(text, bytes, "cannot be loaded: %s", why);
    } else if (!ucx_is_older(text, bytes)) {
        ucx_name_release(text, bytes);
        good = 1;
    }
    ucx_unlock();
    return good ? GYRE_OK : gyre_fail_quiet(GYRE_ERR_UNSUPPORTED, "UCX: %s", text);
}
