/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/words.c: a sorted list of words. A walk narrows the list byte by byte, by bisection. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/tokenizer/internal.h"

static int by_bytes(const void *a, const void *b)
{
    const tokenizer_word_t *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, base_min_size(x->count, y->count));
    if (order == 0)
        order = (x->count > y->count) - (x->count < y->count);
    return order != 0 ? order : (x->value > y->value) - (x->value < y->value);
}

void tokenizer_words_sort(tokenizer_words_t *words, tokenizer_word_t *word, size_t count)
{
    words->word = word;
    words->count = count;
    if (count > 0)
        qsort(word, count, sizeof *word, by_bytes);
    size_t at = 0;
    for (unsigned b = 0; b <= 256; b++) {
        while (at < count && word[at].bytes[0] < b)
            at++;
        words->first[b] = (uint32_t)at;
    }
}

/* The first word in [low, high) whose byte at `depth`, which all have, is not below `byte`. */
static uint32_t bisect(const tokenizer_words_t *words, uint32_t low, uint32_t high, uint32_t depth,
                       unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (words->word[middle].bytes[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const tokenizer_word_t *tokenizer_walk_next(const tokenizer_words_t *words, tokenizer_walk_t *walk,
                                            const unsigned char *text, size_t bytes)
{
    while (walk->low < walk->high) {
        const tokenizer_word_t *word = &words->word[walk->low];
        if (word->count == walk->depth) {
            walk->low++;
            return word;
        }
        if (walk->depth == bytes)
            break;
        uint32_t from = bisect(words, walk->low, walk->high, walk->depth, text[walk->depth]);
        walk->high = bisect(words, from, walk->high, walk->depth, text[walk->depth] + 1u);
        walk->low = from;
        walk->depth++;
    }
    walk->low = walk->high;
    return NULL;
}
