/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/export.h: the model of a checkpoint as a folder that other programs load. */
#ifndef PIPELINE_LOAD_EXPORT_H
#define PIPELINE_LOAD_EXPORT_H

#include "model/formats/hf.h"
#include "pipeline/load/source.h"

/* What training does not change of the model that the checkpoint's run began with: keys of config.json, files
 * of tokenizer and generation, learned positions beyond its sequences, the type of files. `named`: where that
 * model is; NULL: where the checkpoint says that it was. `whole` must outlive *out. *out NULL: the run began
 * with random weights, or, after a warning, that model is not there any more. INVALID: `named` is another
 * model; errors of reading it. */
gyre_status_t pipe_source_origin(const pipe_source_t *source, const char *named, const model_params_t *whole,
                                 model_hf_origin_t **out);

typedef struct {
    const char *checkpoint;      /* one, or a folder of them: the newest whole one */
    const char *folder;          /* to be written; what was there is replaced as a whole or not at all */
    const char *origin;          /* `named` of pipe_source_origin */
    const model_hf_type_t *type; /* of the weights; NULL: that of the origin, else fp32 */
} pipe_export_t;

/* Writes what gyre-train's --save DIR/ would have written after the checkpoint's step, which it returns in
 * *step. One process does it; it needs memory for one row of the table. INVALID: it is not a checkpoint, or
 * the folder holds it; errors of reading and writing. */
gyre_status_t pipe_export(const pipe_export_t *config, uint64_t *step);

#endif
