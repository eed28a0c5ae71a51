/* tools/gyre-train/ramp.c: --batch-rampup START:INCREMENT:SEQUENCES, and whether each size that the batch then has can be trained. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "tools/gyre-train/run.h"

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
            "--batch-rampup %s: wants START:INCREMENT:SEQUENCES, the first two from 1 to --batch "
            "(%llu), such as %llu:%llu:1000",
            options->batch_rampup, (unsigned long long)options->batch,
            (unsigned long long)(options->batch + 1) / 2,
            (unsigned long long)options->batch / 2 > 0 ? (unsigned long long)options->batch / 2 : 1);
    *out = (optim_ramp_t){.batch = (size_t)options->batch,
                          .start = (size_t)start,
                          .increment = (size_t)increment,
                          .over = over};
    return optim_ramp_check(out);
}

gyre_status_t train_ramp_check(const optim_ramp_t *ramp, const pipe_train_config_t *config, size_t ranks)
{
    size_t sizes = optim_ramp_sizes(ramp);
    /* of the rules of layouts one only looks at a batch that may be smaller than its ranks: idle ones do no harm for a while */
    for (size_t i = 0; i + 1 < sizes && config->layout.schedule == PIPE_INTERLEAVED; i++) {
        const optim_batch_t batch = optim_batch_sized(&config->batch, optim_ramp_size(ramp, i));
        const pipe_layout_t layout = pipe_layout_complete(&config->layout, ranks, &batch);
        for (size_t d = 0; d < layout.dp; d++) {
            size_t micro = pipe_layout_micro_batches(&layout, &batch, d);
            if (micro % layout.pp != 0)
                return gyre_fail(
                    GYRE_ERR_INVALID,
                    "--batch-rampup: with %zu of %zu sequences data-parallel rank %zu has %zu micro-batches, "
                    "and interleaved needs a multiple of pp %zu: take another --schedule, or a larger START "
                    "and INCREMENT",
                    batch.batch, ramp->batch, d, micro, layout.pp);
        }
    }
    return GYRE_OK;
}
