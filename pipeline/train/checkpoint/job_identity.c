/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/checkpoint/job_identity.c: whose checkpoints are in the folder, and whether this run may
 * go on with them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "optim/checkpoint/snapshot.h"
#include "pipeline/train/checkpoint/checkpoint.h"

/* A launcher that starts a job anew means it to go on, but only with what that job itself has left: the
 * folder may hold another run, which the first start was refused. So the folder says which launches wrote
 * there. */
static const struct launcher {
    const char *name, *count,
        *id; /* variables: how often the job was started before; what stays the same then */
} launchers[] = {{"ucx-run", "GYRE_RESTART", "GYRE_LAUNCH"},
                 {"torchrun", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"},
                 {"slurm", "SLURM_RESTART_COUNT", "SLURM_JOB_ID"}};
#define LAUNCHERS (sizeof launchers / sizeof *launchers)
#define NOTE      "launch" /* a line "NAME ID" for each launcher around the run */
/* How long a run that was started anew waits for the one before it: one that a network has cut off ends by
 * itself, and of a host that is lost a file system knows after some time (NFS 4: 90 s). */
#define LOCK_S 120.0

/* Other ranks wait for this one meanwhile, at most for GYRE_TIMEOUT. */
static double lock_patience(void)
{
    const double timeout = base_setting_seconds(SET_TIMEOUT);
    return timeout > 0.0 ? fmin(LOCK_S, timeout / 2.0) : LOCK_S;
}

/* "NAME ID" of this launch; 0: there is no such launcher here, or it does not say (torchrun's default is
 * "none"). */
static int launch_line(const struct launcher *launcher, char *line, size_t bytes)
{
    const char *id = base_env(launcher->id);
    int known = id && *id && strcmp(id, "none") != 0 && !strpbrk(id, "\r\n");
    int n = known ? snprintf(line, bytes, "%s %s", launcher->name, id) : 0;
    return n > 0 && (size_t)n < bytes;
}

static int note_has(const char *folder, const char *line)
{
    char path[4096], text[600];
    int found = 0, n = snprintf(path, sizeof path, "%s/" NOTE, folder);
    FILE *in = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    while (in && !found && fgets(text, sizeof text, in)) {
        text[strcspn(text, "\n")] = 0;
        found = strcmp(text, line) == 0;
    }
    if (in)
        fclose(in);
    return found;
}

void train_resume_note(const char *folder)
{
    char path[4096], lines[LAUNCHERS * 512] = "";
    size_t used = 0;
    base_file_t file;
    int n = snprintf(path, sizeof path, "%s/" NOTE, folder);
    if (n <= 0 || (size_t)n >= sizeof path)
        return; /* nor has a checkpoint a name then, which is an error */
    for (size_t i = 0; i < LAUNCHERS; i++)
        if (launch_line(&launchers[i], lines + used, 511)) {
            used += strlen(lines + used);
            lines[used++] = '\n';
            lines[used] = 0;
        } else
            lines[used] = 0;
    if (used == 0) {
        (void)unlink(path); /* the launch before is not the last that wrote */
        return;
    }
    gyre_status_t status = base_file_begin(path, &file);
    if (status == GYRE_OK) {
        fputs(lines, file.out);
        status = base_file_commit(&file);
    }
    if (status != GYRE_OK)
        log_warning("%s is not written: a launcher that restarts this run must be given --resume", path);
}

/* 1: a launcher has started anew what wrote to the folder. *counted: one has started something anew. */
static int started_anew(const char *folder, int *counted)
{
    char line[512];
    int own = 0;
    for (size_t i = 0; i < LAUNCHERS; i++) {
        const char *count = base_env(launchers[i].count);
        if (!count || strtol(count, NULL, 10) <= 0)
            continue;
        *counted = 1;
        own = own || (launch_line(&launchers[i], line, sizeof line) && note_has(folder, line));
    }
    return own;
}

static gyre_status_t refuse(const char *folder, int anew)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    gyre_status_t status = optim_snapshot_list(folder, &steps, &count);
    if (status == GYRE_OK && count > 0)
        status = gyre_fail(GYRE_ERR_INVALID,
                           "%s holds the checkpoints of a run (the newest of step %" PRIu64
                           ")%s: give --resume to go on with it, or another folder with --checkpoint",
                           folder, steps[0], anew ? ", and this launch has not written them" : "");
    free(steps);
    return status;
}

gyre_status_t train_resume_open(const train_config_t *options, int *resuming, optim_lock_t **lock)
{
    const char *folder = options->checkpoint;
    int anew = 0;
    *resuming = started_anew(folder, &anew) || options->resume;
    gyre_status_t status = *resuming ? GYRE_OK : refuse(folder, anew); /* before anything in it is touched */
    if (status == GYRE_OK)
        status = optim_lock_take(folder, anew ? lock_patience() : 0.0, lock);
    if (status == GYRE_OK)
        status = optim_snapshot_prepare(folder);
    if (status == GYRE_OK && !*resuming)
        status = refuse(folder, anew); /* that may have brought one back */
    if (status == GYRE_OK && anew)
        *resuming = 1; /* nothing is here: perhaps others see what a lost rank 0 has written elsewhere */
    return status;
}
