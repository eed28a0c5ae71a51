/* SPDX-License-Identifier: Apache-2.0 */
/* model/formats/peft.h: adapters (model/network/lora.h) in the form of PEFT: a folder with
 * adapter_config.json and adapter_model.safetensors. A module's factors are lora_A.weight [R, in] and
 * lora_B.weight [out, R]. q, k, v, which share A here, have a copy each, as have gate and up. */
#ifndef MODEL_FORMATS_PEFT_H
#define MODEL_FORMATS_PEFT_H

#include "model/network/lora.h"
#include "model/network/names.h"

#define MODEL_PEFT_CONFIG  "adapter_config.json"
#define MODEL_PEFT_WEIGHTS "adapter_model.safetensors"
#define MODEL_PEFT_NAME    (MODEL_NAME_MAX + 40)

/* The name of factor 'A' or 'B' of the module that `tensor` is of: it ends in ".weight". */
void model_peft_factor(const model_tensor_t *tensor, char factor, char name[MODEL_PEFT_NAME]);

typedef struct model_peft_writer model_peft_writer_t;

/* Begins the export of all adapters of `params`, a whole table, in fp32. `base` is the model that they are
 * for, as adapter_config.json names it. The folder is exchanged by model_peft_finish, as model_hf_create
 * says. All but `folder` and `base` must outlive the writer. UNSUPPORTED: `transformers` has no such model;
 * IO, INVALID (base_folder_begin), NO_MEMORY. */
gyre_status_t model_peft_create(const char *folder, const model_params_t *params,
                                const model_adapters_t *adapters, const char *base,
                                model_peft_writer_t **out);
/* Writes the next adapter: its canonical factors. IO, NO_MEMORY. */
gyre_status_t model_peft_write(model_peft_writer_t *writer, const float *a, const float *b);
/* Ends the export, with success only if all adapters were written; frees. */
gyre_status_t model_peft_finish(model_peft_writer_t *writer);
/* Ends the export early: the folder is as it was. NULL is allowed. */
void model_peft_abandon(model_peft_writer_t *writer);

typedef struct model_peft model_peft_t;

/* Opens the adapters of a folder for the matrices of `params`, a whole table, which must outlive the object:
 * any that PEFT's LoRA has for these, of one rank. NOT_FOUND, IO; FORMAT: a factor is for no weight of the
 * model, or has another shape; UNSUPPORTED: DoRA, biases, modules that are saved whole, ranks by pattern, a
 * changed base, other methods; NO_MEMORY. */
gyre_status_t model_peft_open(const char *folder, const model_params_t *params, model_peft_t **out);
void model_peft_close(model_peft_t *peft);
/* A hash of all factors and their scale: the same for the same adapters in other files. IO, NO_MEMORY. */
gyre_status_t model_peft_hash(const model_peft_t *peft, uint64_t *hash);
/* 1: there is an adapter for the module that a tensor of the model's files is of. `peft` may be NULL. */
int model_peft_has(const model_peft_t *peft, const model_tensor_t *tensor);
/* Adds scale B A to the whole tensor, in the order of its file. Any thread. IO, NO_MEMORY. */
gyre_status_t model_peft_add(const model_peft_t *peft, const model_tensor_t *tensor, float *values);

#endif
