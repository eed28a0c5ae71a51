/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/model_flags.h: rows of options (tools/shared/flags.h) of the tools that load a model: which
 * one, and on which ranks. */
#ifndef GYRE_SHARED_MODEL_FLAGS_H
#define GYRE_SHARED_MODEL_FLAGS_H

#include "base/thread/team.h"

/* source: a pipe_source_config_t *; tokenizer_: a const char **; none_: what --tokenizer none is; " " */
#define MODEL_FLAGS(source, tokenizer_, none_)                                                               \
    {FLAG(0, "load", TEXT, &(source)->path, "MODEL",                                                         \
          "a Hugging Face folder, a folder of gyre-train's checkpoints (the newest is used),\n"              \
          "one checkpoint, or a file of weights (gyre-train --save)")},                                      \
        {FLAG(0, "tokenizer", TEXT, tokenizer_, "TOKENIZER",                                                 \
              "as for gyre-tokenize" none_ "(the folder's; bytes, if the model has 256 ids)")},              \
        {FLAG(0, "seq", SIZE, &(source)->seq, "N", "positions, as for gyre-train (the model's)"), .low = 1}, \
        {FLAG(0, "leaves", SIZE, &(source)->leaves, "N", "fixed leaves, as for gyre-train (the model's)"),   \
         .low = 1},                                                                                          \
        {FLAG(0, "heads", SIZE, &(source)->heads, "N", "attention heads, for a file of weights"), .low = 1}, \
    {                                                                                                        \
        FLAG(0, "precision", CHOICE, &(source)->precision, "fp32|bf16|fp16",                                 \
             "type of weights and activations (the checkpoint's; else fp32)")                                \
    }

/* part: a pipe_part_config_t *; order: an int *, 1 for fast */
#define RANK_FLAGS(part, order)                                                                  \
    {FLAG(0, "tp", SIZE, &(part)->tp, "N", "tensor-parallel ranks (all of a stage)"), .low = 1}, \
        {FLAG(0, "pp", SIZE, &(part)->pp, "N", "stages of a pipeline (1)"), .low = 1},           \
        {FLAG(0, "threads", SIZE, &(part)->threads, "N",                                         \
              "threads of each rank; the result does not depend on them (its share of the\n"     \
              "processors)"),                                                                    \
         .low = 1, .high = BASE_TEAM_MOST},                                                      \
    {                                                                                            \
        FLAG(0, "order", CHOICE, order, "canonical|fast",                                        \
             "fast: do not test the BLAS's order of additions at the start; the last bits may\n" \
             "differ from the trainer's (canonical)")                                            \
    }

#endif
