/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train/export.c: --export: the model of a checkpoint as a folder, without a run. */
#include "tools/gyre-train/export.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "base/settings/settings.h"
#include "pipeline/load/export.h"
#include "tools/shared/job.h"

int export_checkpoint(const train_config_t *options, const export_options_t *export)
{
    const model_hf_type_t type = options->save_type == TRAIN_SAVE_BF16 ? MODEL_HF_BF16 : MODEL_HF_F32;
    const pipe_export_t config = {.checkpoint = export->checkpoint,
                                  .folder = export->folder,
                                  .origin = options->load,
                                  .type = options->save_type == TRAIN_SAVE_AUTO ? NULL : &type};
    uint64_t step;
    base_settings_load();
    gyre_status_t status = pipe_export(&config, &step);
    if (status == GYRE_OK) {
        printf("%-16s %s, of the checkpoint of step %llu\n", "weights", export->folder,
               (unsigned long long)step);
        if (fflush(stdout) != 0)
            status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to standard output");
    }
    return job_exit(status);
}
