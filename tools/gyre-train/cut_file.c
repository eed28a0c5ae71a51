/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/cut_file.c: names the file that was cut. A handler may only call what is
 * async-signal-safe (signal-safety(7)): write and sigaction here. */
#include "tools/gyre-train/cut_file.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const train_run_t *volatile watched;
static struct sigaction before;

static void put(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

/* Returns to the load, which raises the signal again. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const train_run_t *run = watched;
    const char *path =
        run && run->data && info->si_code == BUS_ADRERR ? model_data_mapped(run->data, info->si_addr) : NULL;
    (void)context;
    if (path) {
        put("gyre-train: ");
        put(path);
        put(" got shorter while it was read: files of the data must not be cut during a run; to replace one, "
            "rename another over it\n");
        before = (struct sigaction){.sa_handler = SIG_DFL};
    }
    (void)sigaction(number, &before, NULL);
    if (info->si_code <= 0) /* a process sent it */
        (void)raise(number);
}

void train_watch_files(const train_run_t *run)
{
    const struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    if (run && !watched)
        (void)sigaction(SIGBUS, &action, &before);
    watched = run;
}
