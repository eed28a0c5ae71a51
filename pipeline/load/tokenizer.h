/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/load/tokenizer.h: which tokenizer the ids of a model are from, as checkpoints record it. */
#ifndef PIPELINE_LOAD_TOKENIZER_H
#define PIPELINE_LOAD_TOKENIZER_H

#include <jansson.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/network/config.h"
#include "model/tokenizer/tokenizer.h"

typedef struct {
    char name[152]; /* for messages */
    uint64_t hash;  /* model_tokenizer_hash; 0: unknown */
} pipe_tokenizer_t;

/* 1: `spec`, of --tokenizer, is "none": what the ids stand for is not known. */
int pipe_tokenizer_is_none(const char *spec);

pipe_tokenizer_t pipe_tokenizer_named(const char *name, uint64_t hash);
pipe_tokenizer_t pipe_tokenizer_of(const model_tokenizer_t *tokenizer);

/* Puts it into what a checkpoint says of its run, unless it is unknown. 0: no memory. */
int pipe_tokenizer_record(json_t *run, const pipe_tokenizer_t *tokenizer);
/* What `run` says; unknown: checkpoints of a Gyre before 0.2 did not say. */
pipe_tokenizer_t pipe_tokenizer_recorded(const json_t *run);

/* INVALID: `what`, an option or a file, is of `other`, and the model in `where` has learned the ids of
 * another tokenizer. An unknown one fits any. */
gyre_status_t pipe_tokenizer_compare(const pipe_tokenizer_t *learned, const char *where, const char *what,
                                     const pipe_tokenizer_t *other);

/* 1: `model` is a file, and the config.json next to it is of a model of another shape than the file's: what
 * else lies there is not the file's. why [room] says it, and nothing is logged. */
int pipe_tokenizer_foreign(const char *model, const model_config_t *shape, char *why, size_t room);
/* The tokenizer that lies with `model`, a folder or a file in one, of this shape: its file into path
 * [PATH_MAX], and *out. *out NULL: there is none. An error: it cannot be read, is of a kind that Gyre does
 * not compare, or is another model's; why [room] says it, and nothing is logged. */
gyre_status_t pipe_tokenizer_find(const char *model, const model_config_t *shape, char *path,
                                  model_tokenizer_t **out, char *why, size_t room);

/* 1: every id that both have stands for the same bytes, as text or as vocabularies have them. Two
 * tokenizers may cut text in different ways and still have the same ids, such as tokenizer.json and a
 * .tiktoken file. */
int pipe_tokenizer_same_ids(const model_tokenizer_t *a, const model_tokenizer_t *b);

#endif
