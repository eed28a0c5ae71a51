/* SPDX-License-Identifier: Apache-2.0 */
/* optim/checkpoint/index.h: index.json of a checkpoint, between index.c and snapshot.c. */
#ifndef OPTIM_CHECKPOINT_INDEX_H
#define OPTIM_CHECKPOINT_INDEX_H

#include <jansson.h>
#include <stdint.h>

#include <gyre/status.h>

#define CHECKPOINT_FORMAT  "gyre-training-checkpoint"
#define CHECKPOINT_VERSION 2
#define CHECKPOINT_INDEX   "index.json"
#define CHECKPOINT_SHARD   "shard-" /* shards begin so */

/* The hash of everything but the hash. 1, or 0: no memory. */
int checkpoint_index_hash(const json_t *index, uint64_t *hash);
/* Writes the file whole or not at all. IO, NO_MEMORY. */
gyre_status_t checkpoint_write_index(const char *path, const json_t *index);
/* The index in the folder `at`, which is to be of `step`; a new reference. NOT_FOUND, FORMAT, NO_MEMORY. */
gyre_status_t checkpoint_open_index(const char *at, uint64_t step, json_t **out);

#endif
