/* pipeline/config/ramp.c: --batch-rampup START:INCREMENT:SEQUENCES.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pipeline/config/config.h"

#define MOST_SEQUENCES 9007199254740992ull /* 2^53 */

/* A whole number up to `most`, followed by `end`. */
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

gyre_status_t train_ramp_read(const train_config_t *options, optim_ramp_t *out)
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
                          .round = (size_t)(options->lanes * options->grad_sequences),
                          .start = (size_t)start,
                          .increment = (size_t)increment,
                          .over = over};
    return optim_ramp_check(out);
}
