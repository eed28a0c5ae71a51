/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/unigram.c: pieces to tokens, by a unigram model: the tokens whose sum of scores is largest
 * (Kudo, "Subword regularization", ACL 2018), by Viterbi's algorithm. A character without a token of its own
 * is unknown, with a score below all others. */

#include "base/error.h"
#include "base/grow.h"
#include "model/tokenizer/internal.h"

/* The best way to the place: its last token begins at `from`, the next one on the best way ends at `next`. */
struct tokenizer_place {
    double score;
    uint32_t from, next, id; /* from: TOKENIZER_NONE: no way yet */
};
typedef struct tokenizer_place place_t;

static void reach(place_t *place, uint32_t from, uint32_t to, uint32_t id, double score)
{
    if (place[to].from == TOKENIZER_NONE || score > place[to].score) {
        place[to].score = score;
        place[to].from = from;
        place[to].id = id;
    }
}

static void find_best(place_t *place, const model_tokenizer_t *t, const unsigned char *piece, size_t bytes)
{
    for (size_t i = 0; i <= bytes; i++)
        place[i] = (place_t){.from = TOKENIZER_NONE};
    size_t length;
    uint32_t c;
    for (uint32_t at = 0; at < bytes; at += (uint32_t)length) {
        length = base_utf8_decode(piece + at, bytes - at, &c);
        int alone = 0;
        const tokenizer_word_t *word;
        tokenizer_walk_t walk = tokenizer_walk(&t->pieces, piece[at]);
        while ((word = tokenizer_walk_next(&t->pieces, &walk, piece + at, bytes - at))) {
            reach(place, at, at + word->count, word->value, t->score[word->value] + place[at].score);
            alone |= word->count == length;
        }
        if (!alone)
            reach(place, at, at + (uint32_t)length, t->unknown, t->unknown_score + place[at].score);
    }
    for (uint32_t at = (uint32_t)bytes; at > 0; at = place[at].from)
        place[place[at].from].next = at;
}

/* The tokens of an unknown part: a token with its bytes, byte tokens, or the unknown token. */
static size_t unknown_part(const model_tokenizer_t *t, const unsigned char *part, size_t bytes,
                           model_token_t *id)
{
    uint32_t known = tokenizer_lookup(t, part, bytes);
    if (known != TOKENIZER_NONE && !t->token[known].special) {
        id[0] = (model_token_t)known;
        return 1;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (t->byte_id[part[i]] == TOKENIZER_NONE) {
            id[0] = (model_token_t)t->unknown;
            return 1;
        }
        id[i] = (model_token_t)t->byte_id[part[i]];
    }
    return bytes;
}

gyre_status_t tokenizer_unigram_piece(tokenizer_unigram_t *unigram, const model_tokenizer_t *t,
                                      const unsigned char *piece, size_t bytes, model_token_t *id,
                                      size_t *count)
{
    if (bytes >= TOKENIZER_NONE)
        return gyre_fail(GYRE_ERR_INVALID, "a piece of %zu bytes without a place to cut it is too long",
                         bytes);
    if (!base_grow(&unigram->place, &unigram->room, bytes, 1, sizeof *unigram->place))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a piece of %zu bytes", bytes);
    place_t *place = unigram->place;
    find_best(place, t, piece, bytes);
    *count = 0;
    for (uint32_t at = 0, end; at < bytes; at = end) {
        end = place[at].next;
        if (place[end].id != t->unknown) {
            id[(*count)++] = (model_token_t)place[end].id;
            continue;
        }
        while (t->fuse_unknown && end < bytes && place[place[end].next].id == t->unknown)
            end = place[end].next;
        *count += unknown_part(t, piece + at, end - at, id + *count);
    }
    return GYRE_OK;
}
