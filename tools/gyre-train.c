/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-train.c: trains a GPT on a text, on one rank or many. See gyre-train(1). */
#include <stdio.h>

#include "base/device/device.h"
#include "base/log.h"
#include "comm/boot/bootstrap.h"
#include "tools/gyre-train/export.h"
#include "tools/gyre-train/options.h"
#include "tools/gyre-train/session.h"
#include "tools/shared/blas.h"

int main(int argc, char **argv)
{
    blas_leave_out_threads(argv);
    base_device_prepare_process();
    train_config_t options;
    export_options_t export = {0};
    int speak = comm_identity_rank_hint() == 0;
    int muted = base_log_mute(!speak); /* all ranks get the same command line: rank 0 logs its errors */
    int status = train_options_parse(argc, argv, &options, &export, speak);
    base_log_mute(muted);
    if (status < 0 && export.checkpoint)
        status = speak ? export_checkpoint(&options, &export) : TRAIN_OK; /* one process does it */
    if (status < 0 && options.device && base_device_count(BASE_CUDA) == 0) {
        if (speak)
            fprintf(stderr, "gyre-train: --device cuda: %s\n", base_device_why_not(BASE_CUDA));
        status = 2;
    }
    if (status < 0)
        status = train_session(&options);
    train_config_free(&options);
    return status;
}
