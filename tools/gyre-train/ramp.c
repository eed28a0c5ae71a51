/* tools/gyre-train/ramp.c: --batch-rampup START:INCREMENT:SEQUENCES, and whether each size that the batch then has can be trained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "tools/gyre-train/run.h"
#include "pipeline/schedules/kinds.h"

#define MOST_SEQUENCES 9007199254740992ull /* 2^53 */

/* A whole number up to `most`, behind which stands `end`. */
static int number(const char **text, char end, unsigned long long most, unsigned long long *out)
{
    char *behind;
    if (**text < '0' || **text > '9')
        return 0;
    *out = strtoull(*text, &behind, 10); /* what is too large is ULLONG_MAX, which is too large here, too */
    if (*behind != end || *out > most)
        return 0;
    *text = behind + 1;
    return 1;
}

gyre_status_t train_ramp_read(const train_options_t *options, optim_ramp_t *out)
{
    const char *text = options->batch_rampup;
    unsigned long long start, increment, over;
    *out = (optim_ramp_t){.batch = (size_t)options->batch};
    if (!text || strcmp(text, "none") == 0)
        return GYRE_OK;
    if (!number(&text, ':', options->batch, &start) || !number(&text, ':', options->batch, &increment) ||
        !number(&text, '\0', MOST_SEQUENCES, &over) || start < 1 || increment < 1)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "--batch-rampup %s is not START:INCREMENT:SEQUENCES, the first two from 1 to --batch "
            "(%llu), such as %llu:%llu:1000",
            options->batch_rampup, (unsigned long long)options->batch,
            (unsigned long long)(options->batch + 1) / 2,
            (unsigned long long)options->batch / 2 > 0 ? (unsigned long long)options->batch / 2 : 1);
    *out = (optim_ramp_t){.batch = (size_t)options->batch,
                          .leaf = (size_t)options->grad_sequences,
                          .start = (size_t)start,
                          .increment = (size_t)increment,
                          .over = over};
    return optim_ramp_check(out);
}

/* The first size, but the last one, that is no whole number of rounds of the pipeline's ranks in micro-batches of `micro` sequences
 * (0: by itself); *found: how many micro-batches. 0: there is none. */
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
    /* of the rules of layouts one only looks at a batch that may be smaller than its ranks: idle ones do no harm for a while */
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
