/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/data.h: the sequences of tokens, from one source or a blend of them, that a model is trained and
 * validated on.
 *
 * Every sequence is a function of (options, seed, step, sequences of the steps before it, number of the
 * sequence in the global batch) only. It does not depend on the number of ranks, and no state is kept: a run
 * that is resumed needs nothing but its step and these sequences. docs/data.md. */
#ifndef MODEL_DATA_DATA_H
#define MODEL_DATA_DATA_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/data/order.h"
#include "model/data/tokens.h"

typedef enum {
    MODEL_SAMPLING_RANDOM, /* windows of seq + 1 tokens from uniform places, drawn with replacement */
    /* windows side by side, each once per epoch, in a new random order in each epoch */
    MODEL_SAMPLING_EPOCH,
    /* whole documents, several in a sequence or one, each once per epoch (model/data/packing.h) */
    MODEL_SAMPLING_PACKED,
    MODEL_SAMPLING_PADDED
} model_sampling_t;

/* What is learned of a sequence: each token from those before it; the same after a prefix that is seen as a
 * whole; blanks (model/data/infill.h). */
typedef enum { MODEL_OBJECTIVE_CAUSAL, MODEL_OBJECTIVE_PREFIX, MODEL_OBJECTIVE_INFILL } model_objective_t;

typedef struct {
    const char *path; /* PATH, or WEIGHT:PATH,WEIGHT:PATH...; paths as model_tokens_open takes them */
    /* the same for validation, or NAME=SOURCES,NAME=SOURCES...; NULL: the last part of each source of
     * `path` */
    const char *valid_path;
    double valid_fraction; /* which part that is; 0: nothing is for validation. Below 1 */
    model_tokens_format_t format;
    model_sampling_t sampling;
} model_data_config_t;

/* Parts of sources, and the source of each sample. */
typedef struct {
    size_t sources;
    model_tokens_t **tokens; /* [sources] */
    uint64_t *first, *count; /* [sources]: the part of each, in tokens */
    model_blend_t *blend;    /* NULL: there is one source */
    /* [sources], owned, of MODEL_SAMPLING_PACKED and _PADDED, by model_data_prepare; else NULL */
    struct model_packing **packing;
} model_mix_t;

/* At most so many sets for validation; bytes of the name of one. */
#define MODEL_DATA_SETS 16
#define MODEL_DATA_NAME 32

typedef struct {
    char name[MODEL_DATA_NAME]; /* "": it has none, and is the only one */
    model_mix_t mix;
    /* set by model_data_prepare */
    uint64_t sequences;
    uint64_t *share; /* [mix.sources], owned: sequences from each source */
} model_valid_t;

typedef struct {
    model_mix_t train;
    size_t sets;
    model_valid_t
        *set; /* [sets], owned, for validation; they borrow the tokens of train, but with valid_path */
    int own_valid;
    double valid_fraction; /* without own_valid: what of the sources is held out */
    model_sampling_t sampling;
    size_t files, skipped; /* of the sources for training */
    uint64_t tokens;       /* in the sources for training, what is held out included */
    uint64_t bytes;        /* of these tokens */
    int is_text;           /* 1: every source is text: a token is a byte */
    int masked;            /* 1: some source, of any part, says which tokens are learned */
    size_t vocab;          /* by the sources' headers; 0: no source has it */
    const char *tokenizer; /* borrowed; "": unknown */
    uint64_t tokenizer_hash;
    uint64_t hash; /* set by model_data_identify */
    /* set by model_data_prepare */
    size_t limit; /* ids are below */
    size_t seq;   /* tokens of a sequence */
    /* of the sources for training, nats per token that is learned: the loss of a model that knows frequencies
     * only; of 4 Mi tokens of each source at most, spread over it */
    double unigram_entropy;
} model_data_t;

/* NOT_FOUND, IO, NO_MEMORY, FORMAT, INVALID: the text names the file and what to do. Freed by
 * model_data_destroy. */
gyre_status_t model_data_open(const model_data_config_t *config, model_data_t **out);
void model_data_destroy(model_data_t *data);

/* The path of the file whose map holds address `at`; NULL: it is in none. Also for signal handlers. */
const char *model_data_mapped(const model_data_t *data, const void *at);

/* Computes data->hash, of all content (as model_tokens_hash does) and of the choices made from it; of one
 * text, model_tokens_hash of it. May read 64 MiB of each source. NO_MEMORY. */
gyre_status_t model_data_identify(model_data_t *data);

/* Prepares for a model of `vocab` ids and sequences of `seq` tokens. INVALID: the vocabulary is smaller than
 * the data's, a part does not hold a sequence and its targets, or no token of a part is learned. FORMAT: a
 * sampled id is not below the vocabulary. */
gyre_status_t model_data_prepare(model_data_t *data, size_t vocab, size_t seq);

/* What a model learns from a sequence; the caller's memory. */
typedef struct {
    model_token_t *tokens, *targets; /* [seq]; targets that are not learned are MODEL_IGNORED */
    int32_t *positions; /* [seq] as in model_sequence_t; NULL: not asked for, they are 0 .. seq - 1 */
    size_t prefix;      /* positions that see one another and are not learned */
    int32_t *documents; /* [seq] as in model_sequence_t; NULL: not asked for */
} model_example_t;

/* A step of a run. */
typedef struct {
    uint64_t seed, step; /* 0-based */
    uint64_t samples;    /* sequences of the steps before it: step * batch with a constant batch */
} model_data_step_t;

/* Sequence `index` of the step's global batch: tokens, targets and documents of *out; a target that the
 * data's mask hides is MODEL_IGNORED. FORMAT: an id of the file is not below
 * the vocabulary; all ids that were written are below it. */
gyre_status_t model_data_train(const model_data_t *data, const model_data_step_t *step, size_t index,
                               const model_example_t *out);
/* 1: its sequences have documents that do not see one another. */
int model_data_has_documents(const model_data_t *data);
/* Sequences of one epoch of source `source`. */
uint64_t model_data_epoch(const model_data_t *data, size_t source);

/* Sequences side by side in a set for validation; each source has a number of them in proportion to its
 * weight. */
size_t model_data_validation_count(const model_data_t *data, size_t set);
gyre_status_t model_data_validation(const model_data_t *data, size_t set, size_t index,
                                    const model_example_t *out);

#endif
