/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/ramp.c: whether each size of a batch that grows (--batch-rampup) can be trained. */
#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "pipeline/train/run.h"
#include "pipeline/schedules/kinds.h"

/* The first size, but the last one, that is no whole number of rounds of the pipeline's ranks in
 * micro-batches of `micro` sequences (0: by itself); *found: how many micro-batches. 0: there is none. */
static size_t uneven_size(const optim_ramp_t *ramp, const pipe_train_config_t *config, size_t ranks,
                          size_t micro, size_t *found)
{
    size_t sizes = optim_ramp_sizes(ramp);
    for (size_t i = 0; i + 1 < sizes; i++) {
        const pipe_load_t load = pipe_train_load(config, optim_ramp_size(ramp, i));
        pipe_layout_t layout = config->layout;
        layout.micro_batch = micro;
        layout = pipe_layout_complete(&layout, ranks, &load);
        *found = pipe_layout_rounds(&layout, &load.batch);
        if (*found % layout.pp != 0)
            return load.batch.batch;
    }
    return 0;
}

gyre_status_t train_ramp_check(const optim_ramp_t *ramp, const pipe_train_config_t *config, size_t ranks)
{
    /* of the rules of layouts one only looks at a batch that may be smaller than its ranks: idle ones do
     * no harm for a while */
    size_t found, asked = config->layout.micro_batch, other, leaf = base_max_size(1, config->batch.leaf),
                  micro = asked;
    size_t size =
        pipe_kind_row(config->layout.schedule)->grouped ? uneven_size(ramp, config, ranks, asked, &found) : 0;
    if (size == 0)
        return GYRE_OK;
    char way[128] = "--schedule 1f1b --chunks 1";
    do /* whole gradients, which pipe_layout_check asks for */
        micro = micro > leaf ? (micro - 1) / leaf * leaf : 0;
    while (micro > 0 && uneven_size(ramp, config, ranks, micro, &other) != 0);
    const pipe_load_t whole = pipe_train_load(config, ramp->batch);
    pipe_layout_t layout = config->layout;
    layout.micro_batch = micro;
    layout = pipe_layout_complete(&layout, ranks, &whole);
    if (micro > 0 && pipe_layout_rounds(&layout, &whole.batch) % layout.pp == 0)
        snprintf(way, sizeof way, "--micro-batch %zu, or --schedule 1f1b --chunks 1", micro);
    return gyre_fail(GYRE_ERR_INVALID,
                     "--batch-rampup: with %zu of %zu sequences the longest share has %zu micro-batch%s, and "
                     "%s needs a multiple of pp %zu: take %s",
                     size, ramp->batch, found, found == 1 ? "" : "es",
                     pipe_kind_name(config->layout.schedule), layout.pp, way);
}

size_t train_ramp_idle(const optim_batch_t *batch, size_t dp)
{
    size_t idle = 0;
    for (size_t d = 0; d < dp; d++) {
        size_t first, count;
        optim_batch_share(batch, dp, d, &first, &count);
        idle += count == 0;
    }
    return idle;
}

void train_ramp_tell(const optim_ramp_t *ramp, const optim_batch_t *batch, size_t dp)
{
    size_t sizes = optim_ramp_sizes(ramp), i = 0, last = train_ramp_idle(batch, dp), most = 0;
    for (; i + 1 < sizes; i++) {
        const optim_batch_t sized = optim_batch_sized(batch, optim_ramp_size(ramp, i));
        size_t idle = train_ramp_idle(&sized, dp);
        if (idle <= last)
            break;
        most = idle > most ? idle : most;
    }
    if (most == 0)
        return;
    log_warning(
        "--batch-rampup: up to %zu of %zu data-parallel ranks have no sequence until the batch is %zu", most,
        dp, optim_ramp_size(ramp, i));
}
