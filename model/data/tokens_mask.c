/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens_mask.c: which ids of a stream are learned. */
#include "model/data/tokens_format.h"

/* Id `at` of the stream is bit *bit of its file's mask, with *count - 1 more after it. NULL: all are
 * learned. */
static const unsigned char *mask_at(const model_tokens_t *tokens, uint64_t at, uint64_t *bit, uint64_t *count)
{
    const model_tokens_part_t *part = &tokens->part[tokens_find_part(tokens, at)];
    const model_tokens_file_t *file = &tokens->file[part->file];
    uint64_t from = at - part->first;
    *count = part->count - from;
    if (!file->mask)
        return NULL;
    *bit = (uint64_t)(part->at - file->ids) / model_tokens_width(file->type) + from;
    return file->mask;
}

void model_tokens_learned(const model_tokens_t *tokens, uint64_t first, size_t count, unsigned char *out)
{
    for (size_t done = 0; done < count;) {
        uint64_t bit = 0, left;
        const unsigned char *mask = mask_at(tokens, first + done, &bit, &left);
        for (; done < count && left > 0; done++, bit++, left--)
            out[done] = (unsigned char)(mask ? mask[bit / 8] >> bit % 8 & 1 : 1);
    }
}

uint64_t model_tokens_next_learned(const model_tokens_t *tokens, uint64_t first, uint64_t end)
{
    while (first < end) {
        uint64_t bit = 0, left;
        const unsigned char *mask = mask_at(tokens, first, &bit, &left);
        if (!mask)
            return first;
        for (; first < end && left > 0; first++, bit++, left--)
            if (mask[bit / 8] >> bit % 8 & 1)
                return first;
    }
    return end;
}
