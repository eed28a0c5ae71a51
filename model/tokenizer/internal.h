/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/internal.h: what the parts of the tokenizer share (this folder only).
 *
 *   open.c         kinds of files, the hash        vocabulary.c  ids, their bytes, maps
 *   files.c        merges.txt and .tiktoken        json.c, json_text.c, added.c  tokenizer.json
 *   encode.c       text to ids, around added tokens, each part by
 *     normalize.c, charsmap.c   its normalizers
 *     split.c, pattern.c        its pieces
 *     bpe.c, unigram.c, wordpiece.c  their ids
 *   decode.c       ids to text                     words.c, utf8.c  tables and characters
 *   sentencepiece.h  .model files, by a library */
#ifndef MODEL_TOKENIZER_INTERNAL_H
#define MODEL_TOKENIZER_INTERNAL_H

#include "base/utf8.h"
#include "model/tokenizer/tokenizer.h"

#define TOKENIZER_IDS    ((size_t)1 << 22) /* a larger id is an error */
#define TOKENIZER_MERGES ((size_t)1 << 23)
#define TOKENIZER_NONE   UINT32_MAX

/* BYTES: BPE on bytes, of which each has a token. CHARS: BPE on characters; what has no token becomes byte
 * tokens or the unknown token. UNIGRAM: the most likely tokens. PIECES, WORDS: WordPiece, WordLevel.
 * MODEL: the library of SentencePiece encodes. All but BYTES take valid UTF-8 only. */
typedef enum {
    TOKENIZER_BYTES,
    TOKENIZER_CHARS,
    TOKENIZER_UNIGRAM,
    TOKENIZER_PIECES,
    TOKENIZER_WORDS,
    TOKENIZER_MODEL
} tokenizer_kind_t;

typedef struct {
    uint32_t at, count; /* bytes in the blob, as the vocabulary has them */
    /* what decoding writes, in the blob; the same where there is no decoder */
    uint32_t text_at, text_count;
    int there;   /* it exists */
    int special; /* never made from text */
} tokenizer_token_t;

/* ---- words.c: a sorted list of words, for all that begin a text ---------------------------------------- */

typedef struct {
    const unsigned char *bytes; /* borrowed */
    uint32_t count, value;
} tokenizer_word_t;
typedef struct {
    tokenizer_word_t *word; /* [count] */
    size_t count;
    uint32_t first[257]; /* words that begin with byte b: [first[b], first[b + 1]) */
} tokenizer_words_t;
/* Takes `word` [count], from malloc, and sorts it. Empty words are not allowed. */
void tokenizer_words_sort(tokenizer_words_t *words, tokenizer_word_t *word, size_t count);
/* A walk through the words that begin `text`, shorter ones first. */
typedef struct {
    uint32_t low, high, depth;
} tokenizer_walk_t;
static inline tokenizer_walk_t tokenizer_walk(const tokenizer_words_t *words, unsigned char first)
{
    if (words->count == 0)
        return (tokenizer_walk_t){0};
    return (tokenizer_walk_t){words->first[first], words->first[first + 1], 1};
}
/* The next one; NULL: there are no more. */
const tokenizer_word_t *tokenizer_walk_next(const tokenizer_words_t *words, tokenizer_walk_t *walk,
                                            const unsigned char *text, size_t bytes);

/* ---- utf8.c: buffers and characters -------------------------------------------------------------------- */

typedef struct {
    unsigned char *bytes; /* [room], of which [count] */
    size_t count, room;
} tokenizer_buffer_t;
gyre_status_t tokenizer_append(tokenizer_buffer_t *buffer, const void *bytes, size_t count);
/* Length of the run of UTF-8 that begins the text, or, if there is none, *bad of bytes that are not. */
size_t tokenizer_valid_run(const unsigned char *text, size_t bytes, size_t *bad);
/* Appends the text with U+FFFD for what is not UTF-8, see base_utf8_bad. */
gyre_status_t tokenizer_replace_bad(tokenizer_buffer_t *out, const unsigned char *text, size_t bytes);
int tokenizer_is_word(uint32_t c); /* \w of Unicode's UTS 18 */
/* The character before text[at], at > 0, of valid UTF-8; returns its length. */
size_t tokenizer_before(const unsigned char *text, size_t at, uint32_t *c);
/* UTF-8 of a code point; its length. */
size_t tokenizer_put_utf8(unsigned char *out, uint32_t c);

/* ---- added tokens -------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t id;
    int special;                     /* taken from text only where the encoder is asked to */
    int lstrip, rstrip, single_word; /* it takes spaces with it; no letters next to it */
    int normalized;                  /* looked for after normalizers */
    unsigned char *content;          /* [count]; own */
    size_t count;
} tokenizer_added_t;

/* Fills `raw` and `normal`, after the normalizer and `added`. */
gyre_status_t tokenizer_finish_added(model_tokenizer_t *tokenizer);

typedef struct tokenizer_split tokenizer_split_t;
typedef struct tokenizer_normalizer tokenizer_normalizer_t;
typedef struct tokenizer_library tokenizer_library_t; /* sentencepiece.h */

struct model_tokenizer {
    char name[128];
    char *folder; /* of its file, with a slash at its end, or ""; NULL: it has no file */
    tokenizer_kind_t kind;
    size_t vocab;             /* one above the largest id */
    tokenizer_token_t *token; /* [room], of which [vocab] */
    size_t room;
    unsigned char *blob; /* [blob_bytes] */
    size_t blob_bytes, blob_room;
    int64_t eot;
    model_specials_t begin; /* that its file puts in front of a text */
    uint64_t hash;
    uint64_t more;         /* hash of what byte-level BPE without normalizers lacks; 0: nothing */
    uint32_t byte_id[256]; /* of CHARS and UNIGRAM: the tokens of byte fallback; TOKENIZER_NONE */
    /* bytes -> id, of tokens that text may give: open addressing, TOKENIZER_NONE is empty */
    uint32_t *by_bytes; /* [slots] */
    size_t slots, longest;
    /* Merges of a list: pair -> rank, which is its number. Without a list any neighbours merge whose joined
     * bytes are a token, and the rank is that token's id. */
    size_t merges;
    uint32_t *merged;    /* [merges]: id of the result */
    uint64_t *pair;      /* [pair_slots]: left id << 32 | right id */
    uint32_t *pair_rank; /* [pair_slots]; TOKENIZER_NONE: empty */
    size_t pair_slots;
    int whole_first; /* a piece that is a token is not taken apart */
    /* of CHARS and UNIGRAM: the unknown token, or TOKENIZER_NONE; neighbours become one */
    uint32_t unknown;
    int fuse_unknown;
    /* PIECES: what stands before a token that does not begin a word; longer words are unknown */
    char prefix[16];
    size_t prefix_bytes, most_characters;
    double *score, unknown_score; /* [vocab], natural logarithms; UNIGRAM */
    tokenizer_words_t pieces;     /* UNIGRAM */
    /* tokens that are taken from text as they stand, before normalizers (raw) and after (normal); values are
     * places in `added` */
    tokenizer_added_t *added; /* [added_count] */
    size_t added_count;
    tokenizer_words_t raw, normal;
    tokenizer_normalizer_t *normalizer; /* NULL: there are none */
    tokenizer_split_t *split;           /* NULL: text is one piece */
    unsigned char mark[8];              /* what stands for a space, such as U+2581 */
    size_t mark_bytes;
    int cut_marks; /* CHARS: no token has the mark after another character, so text may be cut there */
    /* decoding: bytes at the beginning of a text that are left out, `strip` times `stripped`; or, if
     * `drop_marks`, all marks of the first token; if `raw_first`, that is written as the vocabulary has it */
    unsigned char stripped[8];
    size_t stripped_bytes, strip;
    int drop_marks, raw_first;
    tokenizer_library_t *library; /* MODEL */
};

/* ---- vocabulary.c -------------------------------------------------------------------------------------- */

/* The alphabet in which GPT-2's files write bytes: a byte is this code point (below 0x144), and back; -1:
 * none. */
uint32_t tokenizer_letter(unsigned byte);
int tokenizer_unletter(uint32_t letter);

/* Gives token `id` these bytes. FORMAT: it has others, or is out of range; `path` is for the message. */
gyre_status_t tokenizer_add(model_tokenizer_t *tokenizer, const char *path, size_t id, const void *bytes,
                            size_t count, int special);
/* What decoding writes for a token. */
gyre_status_t tokenizer_set_text(model_tokenizer_t *tokenizer, size_t id, const void *bytes, size_t count);
/* The byte of a token of byte fallback, "<0x0A>"; -1: it is not one. */
int tokenizer_fallback_byte(const unsigned char *bytes, size_t count);
/* Builds the map of bytes when all tokens are there. FORMAT: a byte has no token (of BYTES), or two ids that
 * text may give have the same bytes. */
gyre_status_t tokenizer_index(model_tokenizer_t *tokenizer, const char *path);
/* The id of a token that text may give; TOKENIZER_NONE. */
uint32_t tokenizer_lookup(const model_tokenizer_t *tokenizer, const unsigned char *bytes, size_t count);
/* Room for merges 0 .. most - 1, after tokenizer_index; then each in turn. FORMAT: the pair has come
 * before. */
gyre_status_t tokenizer_merges(model_tokenizer_t *tokenizer, size_t most);
gyre_status_t tokenizer_merge(model_tokenizer_t *tokenizer, const char *path, uint32_t left, uint32_t right);
/* Rank of a pair in the list; TOKENIZER_NONE. */
uint32_t tokenizer_rank(const model_tokenizer_t *tokenizer, uint32_t left, uint32_t right);

/* ---- files --------------------------------------------------------------------------------------------- */

/* Sets the token between documents, by the names that it has in published vocabularies. */
void tokenizer_find_eot(model_tokenizer_t *tokenizer);

gyre_status_t tokenizer_read_merges(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                    size_t bytes);
gyre_status_t tokenizer_read_tiktoken(model_tokenizer_t *tokenizer, const char *path, const char *text,
                                      size_t bytes, const char *pattern);
gyre_status_t tokenizer_read_json(model_tokenizer_t *tokenizer, const char *path);

/* ---- normalizers --------------------------------------------------------------------------------------- */

typedef enum {
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_PREPEND, /* content, unless the text is empty or goes on */
    NORMALIZE_REPLACE, /* matches of the pattern by content */
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP_LEFT,
    NORMALIZE_STRIP_RIGHT,
    NORMALIZE_STRIP_ACCENTS,
    NORMALIZE_NMT,
    NORMALIZE_BERT_CLEAN,   /* without control characters, and with plain spaces */
    NORMALIZE_BERT_CHINESE, /* spaces around Chinese characters */
    NORMALIZE_BERT_ACCENTS, /* without marks that take no space */
    NORMALIZE_CHARSMAP      /* content: SentencePiece's table (charsmap.c) */
} normalize_kind_t;

/* Appends a step. `pattern` (text that stands for itself, if `literal`) is REPLACE's. */
gyre_status_t tokenizer_normalizer_add(tokenizer_normalizer_t **normalizer, const char *path,
                                       normalize_kind_t kind, const char *pattern, int literal,
                                       const void *content, size_t bytes);
void tokenizer_normalizer_destroy(tokenizer_normalizer_t *normalizer);
typedef struct tokenizer_normal tokenizer_normal_t; /* one thread's buffers */
gyre_status_t tokenizer_normal_create(const tokenizer_normalizer_t *normalizer, tokenizer_normal_t **out);
void tokenizer_normal_destroy(tokenizer_normal_t *normal);
/* *out [*out_bytes] is `normal`'s until the next call, or the text itself. `text` is valid UTF-8. After text
 * PREPEND does nothing. */
gyre_status_t tokenizer_normalize(tokenizer_normal_t *normal, model_after_t after, const unsigned char *text,
                                  size_t bytes, const unsigned char **out, size_t *out_bytes);

/* SentencePiece's table of replacements: u32 bytes of a double-array trie (darts-clone), the trie, then the
 * replacements, each with a NUL at its end. FORMAT: it is cut short. */
gyre_status_t tokenizer_charsmap_check(const char *path, const unsigned char *map, size_t bytes);
gyre_status_t tokenizer_charsmap_apply(const unsigned char *map, size_t map_bytes, const unsigned char *text,
                                       size_t bytes, tokenizer_buffer_t *out);

/* ---- pieces -------------------------------------------------------------------------------------------- */

/* What becomes of the parts that a pattern matches, by Hugging Face's names. */
typedef enum {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior_t;

/* Names of patterns: gpt2, cl100k, o200k. NULL: unknown. */
const char *tokenizer_pattern(const char *name);
/* Appends a step: text is cut at the matches of the pattern, or, if `invert`, at what it does not match.
 * FORMAT: PCRE2 does not accept the pattern. `path` is for the message. */
gyre_status_t tokenizer_split_add(tokenizer_split_t **split, const char *path, const char *pattern,
                                  int literal, split_behavior_t behavior, int invert);
/* Appends a step: `mark` goes in front of a piece that does not begin with it: of each, but for the first one
 * after text, or only of the first one after nothing; spaces become marks and text is cut before each mark,
 * if asked for. */
typedef enum { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } split_prepend_t;
gyre_status_t tokenizer_split_add_mark(tokenizer_split_t **split, const char *path, const char *mark,
                                       split_prepend_t prepend, int replace, int cut);
void tokenizer_split_destroy(tokenizer_split_t *split);
uint64_t tokenizer_split_hash(const tokenizer_split_t *split, uint64_t hash);

typedef struct tokenizer_cutter tokenizer_cutter_t; /* one thread's */
gyre_status_t tokenizer_cutter_create(const tokenizer_split_t *split, tokenizer_cutter_t **out);
void tokenizer_cutter_destroy(tokenizer_cutter_t *cutter);
/* Calls take(user, piece, bytes) for each piece of the text, valid UTF-8, in order, until one fails. */
typedef gyre_status_t (*tokenizer_take_fn)(void *user, const unsigned char *piece, size_t bytes);
gyre_status_t tokenizer_cut(tokenizer_cutter_t *cutter, model_after_t after, const unsigned char *text,
                            size_t bytes, tokenizer_take_fn take, void *user);

/* ---- ids of a piece ------------------------------------------------------------------------------------ */

typedef struct tokenizer_bpe tokenizer_bpe_t; /* one thread's */
gyre_status_t tokenizer_bpe_create(tokenizer_bpe_t **out);
void tokenizer_bpe_destroy(tokenizer_bpe_t *bpe);
/* Writes at most `bytes` ids; *count is how many. */
gyre_status_t tokenizer_bpe_piece(tokenizer_bpe_t *bpe, const model_tokenizer_t *tokenizer,
                                  const unsigned char *piece, size_t bytes, model_token_t *id, size_t *count);

typedef struct {
    struct tokenizer_place *place; /* [room] */
    size_t room;
} tokenizer_unigram_t; /* one thread's; zeros at first */
gyre_status_t tokenizer_unigram_piece(tokenizer_unigram_t *unigram, const model_tokenizer_t *tokenizer,
                                      const unsigned char *piece, size_t bytes, model_token_t *id,
                                      size_t *count);

/* Of PIECES and WORDS; the buffer is the thread's. */
gyre_status_t tokenizer_word_piece(tokenizer_buffer_t *buffer, const model_tokenizer_t *tokenizer,
                                   const unsigned char *piece, size_t bytes, model_token_t *id,
                                   size_t *count);

#endif
