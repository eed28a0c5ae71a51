/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/create.h: what is made in steps, made at once. */
#ifndef TESTS_SUPPORT_CREATE_H
#define TESTS_SUPPORT_CREATE_H

#include "optim/store/zero.h"
#include "pipeline/train/train.h"

static inline gyre_status_t create_zero(const model_params_t *local, const optim_zero_groups_t *groups,
                                        const optim_zero_config_t *config, optim_zero_t **out)
{
    optim_zero_t *zero;
    gyre_status_t status = optim_zero_make(local, groups, config, &zero);
    if (status != GYRE_OK)
        return status;
    if ((status = optim_zero_join(zero)) != GYRE_OK) {
        optim_zero_destroy(zero);
        return status;
    }
    *out = zero;
    return GYRE_OK;
}

static inline gyre_status_t create_train(gyre_comm_t *world, const pipe_train_config_t *config,
                                         pipe_train_t **out)
{
    pipe_train_t *train;
    gyre_status_t status = pipe_train_begin(world, config, &train);
    if (status != GYRE_OK)
        return status;
    if ((status = pipe_train_plan(train)) == GYRE_OK)
        status = pipe_train_make(train);
    if (status == GYRE_OK)
        status = pipe_train_join(train);
    if (status != GYRE_OK) {
        pipe_train_destroy(train);
        return status;
    }
    *out = train;
    return GYRE_OK;
}

#endif
