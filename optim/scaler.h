/* SPDX-License-Identifier: Apache-2.0 */
/* optim/scaler.h: dynamic loss scaling for fp16 (Micikevicius et al. 2018, section 3.2).
 *
 * The loss is multiplied by a power of two, so that small gradients survive 16 bits. A step whose gradients
 * overflowed is skipped; `hysteresis` of them lower the scale, `interval` good ones in a row raise it. Powers
 * of two change no bits of what neither overflows nor underflows. */
#ifndef OPTIM_SCALER_H
#define OPTIM_SCALER_H

#include <stdint.h>

#include <gyre/status.h>

typedef struct {
    double start;      /* 0: 65536 */
    double growth;     /* 0: 2 */
    double backoff;    /* 0: 0.5 */
    double min, max;   /* 0: 1; 0: 2^24 */
    uint64_t interval; /* good steps before it grows; 0: 1000 */
    uint64_t
        /* that many overflows are needed to shrink it, one by one after that, anew once it has grown; 0: 2 */
        hysteresis;
} optim_scaler_config_t;

/* Everything that a checkpoint must hold. */
typedef struct {
    double scale;
    uint64_t good;    /* steps since the last overflow or change */
    uint64_t left;    /* overflows until it shrinks, >= 1 */
    uint64_t skipped; /* steps in all */
} optim_scaler_t;

/* No run begins or ends with a scale beyond these. */
#define OPTIM_SCALE_LEAST 0x1p-64
#define OPTIM_SCALE_MOST  0x1p64

/* `config` with zeros replaced by what they mean. */
optim_scaler_config_t optim_scaler_complete(const optim_scaler_config_t *config);
/* INVALID: a value that is no power of two, or out of range; the text names it. `config` is complete. */
gyre_status_t optim_scaler_check(const optim_scaler_config_t *config);
/* 1: its scale can be that of a run, as read from a checkpoint: a finite power of two in range. */
int optim_scaler_valid(const optim_scaler_t *scaler);
void optim_scaler_begin(optim_scaler_t *scaler, const optim_scaler_config_t *config);
/* After a step: overflowed 1: some gradient of some rank was not finite. `config` is complete. */
void optim_scaler_update(optim_scaler_t *scaler, const optim_scaler_config_t *config, int overflowed);

#endif
