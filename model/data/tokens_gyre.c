/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens_gyre.c: Gyre's own token files, read and written. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/hash.h"
#include "model/data/tokens_format.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

static int is_masked(const unsigned char *header)
{
    return tokens_u32(header + TOKENS_AT_VERSION) == TOKENS_GYRE_MASKED;
}

static uint64_t mask_bytes(uint64_t count)
{
    return count / 8 + (count % 8 > 0);
}

/* Where the tokenizer's name ends, with its zeros. */
static size_t name_end(const unsigned char *header)
{
    return is_masked(header) ? TOKENS_AT_MASK : TOKENS_AT_SIZE;
}

/* Checks the numbers of a header whose checksum is right against the size of the file: a writer may err,
 * too. */
static gyre_status_t check_extents(const model_tokens_file_t *file, uint64_t count, uint64_t documents,
                                   size_t width)
{
    const unsigned char *h = file->map;
    uint64_t data = tokens_u64(h + TOKENS_AT_DATA), table = tokens_u64(h + TOKENS_AT_TABLE);
    size_t bytes, entries, table_bytes;
    if (tokens_u64(h + TOKENS_AT_SIZE) != file->bytes)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s has %zu bytes, but its header speaks of %" PRIu64
                         ": it was cut off or added to; write it again with gyre-tokenize",
                         file->path, file->bytes, tokens_u64(h + TOKENS_AT_SIZE));
    if (!base_mul((size_t)count, width, &bytes) || !base_add((size_t)documents, 1, &entries) ||
        !base_mul(entries, 8, &table_bytes) || data < TOKENS_GYRE_HEADER || data > file->bytes ||
        bytes > file->bytes - data || table < TOKENS_GYRE_HEADER || table > file->bytes ||
        table_bytes > file->bytes - table)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: %" PRIu64 " tokens of %zu bytes at byte %" PRIu64 " and %" PRIu64
                         " documents at byte %" PRIu64 " do not fit in its %zu bytes",
                         file->path, count, width, data, documents, table, file->bytes);
    if (tokens_u64(h + table) != 0 || tokens_u64(h + table + 8 * documents) != count)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: its documents begin at token %" PRIu64 " and end at %" PRIu64
                         ", not at 0 and %" PRIu64,
                         file->path, tokens_u64(h + table), tokens_u64(h + table + 8 * documents), count);
    uint64_t mask = is_masked(h) ? tokens_u64(h + TOKENS_AT_MASK) : 0;
    if (is_masked(h) &&
        (mask < TOKENS_GYRE_HEADER || mask > file->bytes || mask_bytes(count) > file->bytes - mask))
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: a mask of %" PRIu64 " tokens at byte %" PRIu64 " does not fit in its %zu bytes",
                         file->path, count, mask, file->bytes);
    return GYRE_OK;
}

static gyre_status_t check_header(const model_tokens_file_t *file)
{
    const unsigned char *h = file->map;
    if (file->bytes < TOKENS_GYRE_HEADER || memcmp(h, TOKENS_GYRE_MAGIC, 8) != 0)
        return gyre_fail(
            GYRE_ERR_FORMAT,
            "%s is not a token file of Gyre: it does not begin with \\x89GYT and a header of %d bytes; "
            "gyre-tokenize writes one, --data-format names another format",
            file->path, TOKENS_GYRE_HEADER);
    if (tokens_u64(h + TOKENS_AT_HEADER_HASH) != base_hash64(h, TOKENS_AT_HEADER_HASH, 0))
        return gyre_fail(GYRE_ERR_FORMAT, "%s: the header's checksum is wrong: the file is damaged",
                         file->path);
    if (tokens_u32(h + TOKENS_AT_VERSION) != TOKENS_GYRE_VERSION && !is_masked(h))
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s is of version %" PRIu32 "; this program reads versions %d and %d", file->path,
                         tokens_u32(h + TOKENS_AT_VERSION), TOKENS_GYRE_VERSION, TOKENS_GYRE_MASKED);
    uint32_t bits = tokens_u32(h + TOKENS_AT_BITS);
    uint64_t vocab = tokens_u64(h + TOKENS_AT_VOCAB), eot = tokens_u64(h + TOKENS_AT_EOT);
    if ((bits != 16 && bits != 32) || vocab == 0 || vocab > TOKENS_VOCAB_MOST ||
        (bits == 16 && vocab > 65536) || (eot != UINT64_MAX && eot >= vocab) || h[name_end(h) - 1] != 0)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: the header is invalid: tokens of %" PRIu32 " bits, a vocabulary of %" PRIu64
                         " ids",
                         file->path, bits, vocab);
    return GYRE_OK;
}

/* Files of one stream must be of one tokenizer. */
static gyre_status_t take_header(model_tokens_t *tokens, const model_tokens_file_t *file)
{
    const unsigned char *h = file->map;
    const char *name = (const char *)h + TOKENS_AT_NAME;
    size_t vocab = (size_t)tokens_u64(h + TOKENS_AT_VOCAB);
    uint64_t hash = tokens_u64(h + TOKENS_AT_TOKENIZER_HASH), eot = tokens_u64(h + TOKENS_AT_EOT);
    if (tokens->maps > 1 && (vocab != tokens->vocab || hash != tokens->tokenizer_hash))
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s has %zu ids of tokenizer '%s' (%016" PRIx64
                         "), but %s has %zu of '%s' (%016" PRIx64
                         "): files of one stream must be of one tokenizer",
                         file->path, vocab, name, hash, tokens->file[0].path, tokens->vocab,
                         tokens->tokenizer, tokens->tokenizer_hash);
    tokens->vocab = vocab;
    tokens->tokenizer_hash = hash;
    tokens->eot = eot == UINT64_MAX ? -1 : (int64_t)eot;
    memset(tokens->tokenizer, 0, sizeof tokens->tokenizer);
    memcpy(tokens->tokenizer, name, name_end(h) - TOKENS_AT_NAME);
    tokens->masked |= is_masked(h);
    return GYRE_OK;
}

gyre_status_t tokens_open_gyre(model_tokens_t *tokens, const char *path)
{
    gyre_status_t status = tokens_map(tokens, path);
    if (status != GYRE_OK)
        return status;
    size_t number = tokens->maps - 1;
    model_tokens_file_t *file = &tokens->file[number];
    if ((status = check_header(file)) != GYRE_OK)
        return status;
    const unsigned char *h = file->map;
    uint64_t count = tokens_u64(h + TOKENS_AT_COUNT), documents = tokens_u64(h + TOKENS_AT_DOCUMENTS);
    file->type = tokens_u32(h + TOKENS_AT_BITS) == 16 ? MODEL_TOKENS_U16 : MODEL_TOKENS_U32;
    if ((status = check_extents(file, count, documents, model_tokens_width(file->type))) != GYRE_OK ||
        (status = take_header(tokens, file)) != GYRE_OK)
        return status;
    file->hash[0] = tokens_u64(h + TOKENS_AT_DATA_HASH);
    file->hash[1] = tokens_u64(h + TOKENS_AT_TABLE_HASH);
    file->documents = h + tokens_u64(h + TOKENS_AT_TABLE);
    file->document_count = documents;
    file->ids = h + tokens_u64(h + TOKENS_AT_DATA);
    file->mask = is_masked(h) ? h + tokens_u64(h + TOKENS_AT_MASK) : NULL;
    tokens->documents += documents;
    return tokens_append(tokens, number, file->ids, count);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

struct model_tokens_writer {
    base_file_t file;
    base_hash_t *hash; /* of the ids */
    unsigned char header[TOKENS_GYRE_HEADER];
    size_t vocab, width;
    uint64_t count;
    /* [documents], little-endian, owned: first id after each */
    uint64_t *end;
    uint64_t documents;
    size_t room;
    /* [mask_room], owned: bit i: id i is learned; NULL: all are so far */
    unsigned char *mask;
    size_t mask_room;
};

static void free_writer(model_tokens_writer_t *writer)
{
    base_hash_end(writer->hash);
    free(writer->end);
    free(writer->mask);
    free(writer);
}

gyre_status_t model_tokens_create(const char *path, const model_tokens_header_t *header,
                                  model_tokens_writer_t **out)
{
    if (header->vocab == 0 || header->vocab > TOKENS_VOCAB_MOST ||
        (header->eot >= 0 && (uint64_t)header->eot >= header->vocab))
        return gyre_fail(GYRE_ERR_INVALID,
                         "a token file needs a vocabulary of 1 to %zu ids, not %zu, and an end of text in "
                         "it, not %" PRId64,
                         (size_t)TOKENS_VOCAB_MOST, header->vocab, header->eot);
    model_tokens_writer_t *writer = calloc(1, sizeof *writer);
    if (writer)
        writer->hash = base_hash_begin();
    if (!writer || !writer->hash) {
        free(writer);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write %s", path);
    }
    unsigned char *h = writer->header;
    writer->vocab = header->vocab;
    writer->width = header->vocab <= 65536 ? 2 : 4;
    memcpy(h + TOKENS_AT_MAGIC, TOKENS_GYRE_MAGIC, 8);
    tokens_put_u32(h + TOKENS_AT_VERSION, TOKENS_GYRE_VERSION);
    tokens_put_u32(h + TOKENS_AT_BITS, (uint32_t)(8 * writer->width));
    tokens_put_u64(h + TOKENS_AT_VOCAB, header->vocab);
    tokens_put_u64(h + TOKENS_AT_TOKENIZER_HASH, header->tokenizer_hash);
    tokens_put_u64(h + TOKENS_AT_EOT, header->eot < 0 ? UINT64_MAX : (uint64_t)header->eot);
    if (header->tokenizer)
        strncpy((char *)h + TOKENS_AT_NAME, header->tokenizer, MODEL_TOKENS_NAME - 1);
    gyre_status_t status = base_file_begin(path, &writer->file);
    if (status != GYRE_OK) {
        free_writer(writer);
        return status;
    }
    if (!writer->file.target) { /* the header is written last */
        base_file_abandon(&writer->file);
        free_writer(writer);
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s is not a file: a token file cannot be written to a pipe or device", path);
    }
    unsigned char zeros[TOKENS_GYRE_HEADER] = {0};
    fwrite(zeros, 1, sizeof zeros, writer->file.out); /* an error stays: finish returns it */
    *out = writer;
    return GYRE_OK;
}

static gyre_status_t written(const model_tokens_writer_t *writer)
{
    return ferror(writer->file.out)
               ? gyre_fail_errno(GYRE_ERR_IO, errno ? errno : EIO, "cannot write %s", writer->file.path)
               : GYRE_OK;
}

/* Bits of the next `count` ids. Before the first one that is not learned there is no mask. */
static gyre_status_t add_mask(model_tokens_writer_t *writer, const unsigned char *learned, size_t count)
{
    size_t need = (size_t)mask_bytes(writer->count + count);
    if (!writer->mask && (!learned || !memchr(learned, 0, count)))
        return GYRE_OK;
    if (!writer->mask || need > writer->mask_room) {
        size_t room = need + need / 2 + 1024;
        unsigned char *grown = realloc(writer->mask, room);
        if (!grown)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the mask of %" PRIu64 " tokens",
                             writer->count + count);
        memset(grown + writer->mask_room, 0xff, room - writer->mask_room);
        writer->mask = grown;
        writer->mask_room = room;
    }
    for (size_t i = 0; learned && i < count; i++)
        if (!learned[i])
            writer->mask[(writer->count + i) / 8] &= (unsigned char)~(1u << (writer->count + i) % 8);
    return GYRE_OK;
}

gyre_status_t model_tokens_add(model_tokens_writer_t *writer, const model_token_t *ids,
                               const unsigned char *learned, size_t count)
{
    gyre_status_t status = add_mask(writer, learned, count);
    if (status != GYRE_OK)
        return status;
    unsigned char piece[8192];
    if (!base_grow(&writer->end, &writer->room, writer->documents, 1, sizeof *writer->end))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the table of %" PRIu64 " documents",
                         writer->documents + 1);
    for (size_t i = 0; i < count;) {
        size_t used = 0;
        for (; i < count && used < sizeof piece; i++, used += writer->width) {
            if (ids[i] < 0 || (size_t)ids[i] >= writer->vocab)
                return gyre_fail(GYRE_ERR_INVALID, "%s: id %d is not below the vocabulary of %zu",
                                 writer->file.path, (int)ids[i], writer->vocab);
            uint16_t narrow = htole16((uint16_t)ids[i]);
            uint32_t wide = htole32((uint32_t)ids[i]);
            memcpy(piece + used, writer->width == 2 ? (const void *)&narrow : (const void *)&wide,
                   writer->width);
        }
        base_hash_add(writer->hash, piece, used);
        fwrite(piece, 1, used, writer->file.out);
    }
    writer->count += count;
    writer->end[writer->documents++] = htole64(writer->count);
    return written(writer);
}

/* After the table of documents; its end is filled with zeros to a multiple of 8 bytes. */
static void write_mask(model_tokens_writer_t *writer, uint64_t at)
{
    unsigned char *h = writer->header, zeros[8] = {0};
    size_t bytes = (size_t)mask_bytes(writer->count);
    if (writer->count % 8 > 0)
        writer->mask[bytes - 1] &= (unsigned char)((1u << writer->count % 8) - 1);
    fwrite(writer->mask, 1, bytes, writer->file.out);
    fwrite(zeros, 1, -bytes & 7, writer->file.out);
    memset(h + TOKENS_AT_MASK - 1, 0, TOKENS_AT_SIZE - TOKENS_AT_MASK + 1); /* the name's end */
    tokens_put_u32(h + TOKENS_AT_VERSION, TOKENS_GYRE_MASKED);
    tokens_put_u64(h + TOKENS_AT_MASK, at);
    tokens_put_u64(h + TOKENS_AT_MASK_HASH, base_hash64(writer->mask, bytes, 0));
}

/* Padding, documents, mask, and then the header in the room left for it. */
static gyre_status_t write_rest(model_tokens_writer_t *writer)
{
    FILE *out = writer->file.out;
    unsigned char *h = writer->header, zeros[8] = {0};
    uint64_t table = (TOKENS_GYRE_HEADER + writer->count * writer->width + 7) & ~UINT64_C(7);
    base_hash_t *hash = base_hash_begin();
    if (!hash)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to write %s", writer->file.path);
    fwrite(zeros, 1, (size_t)(table - TOKENS_GYRE_HEADER - writer->count * writer->width), out);
    fwrite(zeros, 1, 8, out); /* the first document begins at 0 */
    base_hash_add(hash, zeros, 8);
    if (writer->documents > 0) {
        fwrite(writer->end, sizeof *writer->end, (size_t)writer->documents, out);
        base_hash_add(hash, writer->end, (size_t)writer->documents * sizeof *writer->end);
    }
    tokens_put_u64(h + TOKENS_AT_COUNT, writer->count);
    tokens_put_u64(h + TOKENS_AT_DOCUMENTS, writer->documents);
    tokens_put_u64(h + TOKENS_AT_DATA, TOKENS_GYRE_HEADER);
    tokens_put_u64(h + TOKENS_AT_TABLE, table);
    tokens_put_u64(h + TOKENS_AT_DATA_HASH, base_hash_end(writer->hash));
    writer->hash = NULL;
    tokens_put_u64(h + TOKENS_AT_TABLE_HASH, base_hash_end(hash));
    uint64_t end = table + 8 * (writer->documents + 1);
    if (writer->mask)
        write_mask(writer, end);
    tokens_put_u64(h + TOKENS_AT_SIZE, end + (writer->mask ? (mask_bytes(writer->count) + 7) / 8 * 8 : 0));
    tokens_put_u64(h + TOKENS_AT_HEADER_HASH, base_hash64(h, TOKENS_AT_HEADER_HASH, 0));
    if (fseeko(out, 0, SEEK_SET) != 0)
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write the header of %s", writer->file.path);
    fwrite(h, 1, TOKENS_GYRE_HEADER, out);
    return written(writer);
}

gyre_status_t model_tokens_finish(model_tokens_writer_t *writer)
{
    gyre_status_t status = write_rest(writer);
    if (status == GYRE_OK)
        status = base_file_commit(&writer->file);
    else
        base_file_abandon(&writer->file);
    free_writer(writer);
    return status;
}

void model_tokens_abandon(model_tokens_writer_t *writer)
{
    if (!writer)
        return;
    base_file_abandon(&writer->file);
    free_writer(writer);
}
