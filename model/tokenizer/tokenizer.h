/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/tokenizer.h: text to token ids and back.
 *
 *   bytes           256 ids, one per byte
 *   gpt2:FILE       GPT-2: FILE is merges.txt (vocab.bpe), or r50k_base.tiktoken. A vocab.json next to
 *                   merges.txt has the ids
 *   cl100k:FILE, o200k:FILE    a .tiktoken file with the patterns of those names
 *   FILE            tokenizer.json of Hugging Face (BPE, Unigram, WordPiece, WordLevel), or a .model file
 *                   of SentencePiece, where the build has its library, or merges.txt, or a .tiktoken file
 *                   whose name includes the pattern's
 *
 * A text is normalized, where tokenizer.json says so, and cut into pieces by patterns (PCRE2, Unicode). Each
 * piece becomes tokens by byte-pair encoding, or by a unigram model (unigram.c). Byte-pair encoding: among
 * all neighbours that may be merged, those of the lowest rank are merged, the leftmost first, until there are
 * no more (Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016).
 * O(n log n) for a piece of n bytes. Decoding gives back the bytes of every text, valid UTF-8 or not, unless
 * a tokenizer.json changes text, or it is a model. docs/data.md lists what is refused in tokenizer.json, and
 * the tokens of bytes that are not UTF-8. */
#ifndef MODEL_TOKENIZER_TOKENIZER_H
#define MODEL_TOKENIZER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "model/types.h"

typedef struct model_tokenizer model_tokenizer_t;

/* NOT_FOUND, IO, FORMAT, INVALID (a kind that is not supported), NO_MEMORY: the text names the file and
 * the place. */
gyre_status_t model_tokenizer_open(const char *spec, model_tokenizer_t **out);
void model_tokenizer_destroy(model_tokenizer_t *tokenizer);
/* The folder of a model into folder [PATH_MAX], with a slash at its end; "": the working one. 0: `model` is a
 * file, and its folder is no model's: there is no config.json. */
int model_tokenizer_folder(const char *model, char *folder);
/* The file of the tokenizer there into path [PATH_MAX]. 1: its ids are those of model_tokenizer_open; -1: it
 * is of another kind; 0: there is none. */
int model_tokenizer_file(const char *model, char *path);
/* 1: a file of that name in a model's folder is its tokenizer, or a part of one. */
int model_tokenizer_is_file(const char *name);

const char *model_tokenizer_name(const model_tokenizer_t *tokenizer); /* "bytes", "gpt2", a file's name */
size_t model_tokenizer_vocab(const model_tokenizer_t *tokenizer);     /* ids are below */
/* between documents; -1: no such token */
int64_t model_tokenizer_eot(const model_tokenizer_t *tokenizer);
/* Special tokens around a text. */
enum { MODEL_SPECIALS = 32 };
typedef struct {
    model_token_t id[MODEL_SPECIALS]; /* [count] */
    size_t count;
} model_specials_t;
/* Tokens that stand in front of a text where a model reads it (BOS), in their order: `bos_token` of
 * tokenizer_config.json next to the tokenizer's file, if `add_bos_token` is true there; none, if it is false;
 * else what tokenizer.json's post-processor puts there, or the token of a .model file in a model's folder.
 * The hash does not count them. IO, FORMAT, NO_MEMORY: such a file cannot be read. */
gyre_status_t model_tokenizer_begin(const model_tokenizer_t *tokenizer, model_specials_t *out);
/* Tokens of which each ends what a model says: `eos_token_id` of generation_config.json, else of config.json,
 * in the folder of `model` (a path; NULL: not known), else in that of the tokenizer's file; else `eos_token`
 * of tokenizer_config.json there; else model_tokenizer_eot. IO, FORMAT, NO_MEMORY: such a file cannot be
 * read. */
gyre_status_t model_tokenizer_ends(const model_tokenizer_t *tokenizer, const char *model,
                                   model_specials_t *out);
/* A hash of everything that decides which tokens a text becomes: the bytes of all ids, the pattern,
 * merges in their order, added tokens that text may give; normalizers and scores, where there are some. A
 * list of merges and the same list in a tokenizer.json are one tokenizer. A .tiktoken file, which takes a
 * piece that is a token whole and merges by ids, is another. */
uint64_t model_tokenizer_hash(const model_tokenizer_t *tokenizer);
/* What `id` is in a text, borrowed; *count bytes. NULL: no such id. */
const unsigned char *model_tokenizer_bytes(const model_tokenizer_t *tokenizer, model_token_t id,
                                           size_t *count);
/* The same as the vocabulary has it: with U+2581 for spaces, and "<0x0A>" for a byte, where it has those. */
const unsigned char *model_tokenizer_piece(const model_tokenizer_t *tokenizer, model_token_t id,
                                           size_t *count);
/* 1: `id` is a special token, such as <s>, and stands for no text. */
int model_tokenizer_special(const model_tokenizer_t *tokenizer, model_token_t id);
/* The id of a token with just these bytes, special ones included; -1: no such token. */
int64_t model_tokenizer_find(const model_tokenizer_t *tokenizer, const void *bytes, size_t count);

/* Tokens that a text gives whole: added tokens and special ones; of a .model file also those in angle
 * brackets. */
typedef struct {
    model_token_t id;
    const unsigned char *bytes; /* [count], the tokenizer's; not 0 */
    size_t count;
    int lstrip, rstrip; /* white space before and after it goes with it */
} model_symbol_t;
/* *out [*count] is the caller's to free. NO_MEMORY. */
gyre_status_t model_tokenizer_symbols(const model_tokenizer_t *tokenizer, model_symbol_t **out,
                                      size_t *count);

/* The state of one thread's encoding; the tokenizer must outlive it and may be shared. */
typedef struct model_encoder model_encoder_t;
gyre_status_t model_encoder_create(const model_tokenizer_t *tokenizer, model_encoder_t **out);
void model_encoder_destroy(model_encoder_t *encoder);

/* Whether special tokens are taken from text (1), or text never gives them (0, at first): <|endoftext|> in a
 * document is thirteen characters. Other added tokens always are. Of tokenizer.json only. */
void model_encoder_specials(model_encoder_t *encoder, int taken);
/* Text never gives these added tokens, or symbols of a .model file, special or not. ids [count] is borrowed
 * until the next call of this; count 0: there are none. */
void model_encoder_refuse(model_encoder_t *encoder, const model_token_t *ids, size_t count);

/* Ids that stand in front of those of every text (none at first); copied. */
void model_encoder_begin(model_encoder_t *encoder, const model_specials_t *begin);

/* *ids [*count] belong to the encoder until its next call. NO_MEMORY, INVALID (a pattern from a file gives
 * up). */
gyre_status_t model_encode(model_encoder_t *encoder, const void *text, size_t bytes,
                           const model_token_t **ids, size_t *count);

/* What stands before a text: nothing; a token; or text, of which it is the continuation. Some tokenizers put
 * a space before a text: a Metaspace of the scheme "first" only after nothing, others also after a token,
 * none within a text. */
typedef enum { MODEL_AFTER_NOTHING, MODEL_AFTER_TOKEN, MODEL_AFTER_TEXT } model_after_t;

/* As model_encode, which encodes after nothing. */
gyre_status_t model_encode_after(model_encoder_t *encoder, model_after_t after, const void *text,
                                 size_t bytes, const model_token_t **ids, size_t *count);

/* The text of ids that begin a text: the bytes of all, joined, without the space that encoding may have
 * put in front, and with a NUL after them that is not counted; caller frees. FORMAT: an id does not
 * exist. */
gyre_status_t model_decode(const model_tokenizer_t *tokenizer, const model_token_t *ids, size_t count,
                           unsigned char **bytes, size_t *length);

#endif
