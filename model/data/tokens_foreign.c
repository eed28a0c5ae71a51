/* SPDX-License-Identifier: Apache-2.0 */
/* model/data/tokens_foreign.c: token files of other programs, read as they lie. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text/foreign.h"
#include "model/data/tokens_format.h"

/* ---- llm.c: 256 words of header {magic, version, tokens, ...}, then ids -------------------------------- */

#define LLMC_HEADER 1024
static const struct {
    uint32_t magic, version;
    model_tokens_type_t type;
    size_t vocab;
    const char *tokenizer;
} llmc[] = {{20240520, 1, MODEL_TOKENS_U16, 50257, "gpt2"},
            {20240801, 7, MODEL_TOKENS_U32, 128256, "llama3"}};
#define LLMC_KINDS (sizeof llmc / sizeof *llmc)

static int llmc_kind(const unsigned char *head)
{
    for (size_t i = 0; i < LLMC_KINDS; i++)
        if (tokens_u32(head) == llmc[i].magic && tokens_u32(head + 4) == llmc[i].version)
            return (int)i;
    return -1;
}

gyre_status_t tokens_open_llmc(model_tokens_t *tokens, const char *path)
{
    gyre_status_t status = tokens_map(tokens, path);
    if (status != GYRE_OK)
        return status;
    size_t number = tokens->maps - 1;
    model_tokens_file_t *file = &tokens->file[number];
    int kind = file->bytes >= LLMC_HEADER ? llmc_kind(file->map) : -1;
    if (kind < 0)
        return gyre_fail(
            GYRE_ERR_FORMAT,
            "%s is not a shard of llm.c: it does not begin with a header of %d bytes and 20240520 1 "
            "(GPT-2) or 20240801 7 (Llama 3); --data-format names another format",
            path, LLMC_HEADER);
    uint32_t count = tokens_u32(file->map + 8);
    size_t width = model_tokens_width(llmc[kind].type);
    if (count > INT32_MAX || (uint64_t)count * width != file->bytes - LLMC_HEADER)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: its header says %" PRIu32
                         " tokens of %zu bytes, which with the header is %" PRIu64
                         " bytes, but it has %zu: it was cut off, or written otherwise",
                         path, count, width, (uint64_t)count * width + LLMC_HEADER, file->bytes);
    if (number > 0 && tokens->vocab != llmc[kind].vocab)
        return gyre_fail(GYRE_ERR_INVALID, "%s holds ids of %s, %s those of %s: take shards of one kind",
                         path, llmc[kind].tokenizer, tokens->file[0].path, tokens->tokenizer);
    file->type = llmc[kind].type;
    tokens->vocab = llmc[kind].vocab;
    snprintf(tokens->tokenizer, sizeof tokens->tokenizer, "%s", llmc[kind].tokenizer);
    return tokens_append(tokens, number, file->map + LLMC_HEADER, count);
}

/* ---- nanoGPT: 16-bit ids and nothing else -------------------------------------------------------------- */

gyre_status_t tokens_open_nanogpt(model_tokens_t *tokens, const char *path)
{
    gyre_status_t status = tokens_map(tokens, path);
    if (status != GYRE_OK)
        return status;
    size_t number = tokens->maps - 1;
    model_tokens_file_t *file = &tokens->file[number];
    model_tokens_format_t other = tokens_sniff(file->map, file->bytes);
    if (other != MODEL_TOKENS_AUTO)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s begins with the header of a file of format %s: leave --data-format nanogpt out",
                         path, model_tokens_format_name(other));
    if (file->bytes >= 6 && memcmp(file->map, "\x93NUMPY", 6) == 0) /* of the others ids may begin so */
        return gyre_fail(GYRE_ERR_FORMAT, "%s %s", path, base_foreign(file->map, file->bytes));
    if (file->bytes % 2 != 0)
        return gyre_fail(GYRE_ERR_FORMAT, "%s has %zu bytes, which is not a whole number of 16-bit tokens",
                         path, file->bytes);
    file->type = MODEL_TOKENS_U16;
    return tokens_append(tokens, number, file->map, file->bytes / 2);
}

/* ---- Megatron: NAME.bin holds ids, NAME.idx has the positions of sequences and documents -------------- */

/* "MMIDIDX\0\0" | u64 version 1 | u8 type | u64 sequences | u64 documents + 1 | i32 length [sequences] |
 * i64 byte [sequences] | i64 document [documents + 1]: first sequence of each | optional i8 mode
 * [sequences]. */
#define MEGATRON_MAGIC  "MMIDIDX\0\0"
#define MEGATRON_HEADER 34
static const struct {
    int known;
    model_tokens_type_t type;
} megatron_type[] = {{0, 0},
                     {1, MODEL_TOKENS_U8},
                     {1, MODEL_TOKENS_I8},
                     {1, MODEL_TOKENS_I16},
                     {1, MODEL_TOKENS_I32},
                     {1, MODEL_TOKENS_I64},
                     {0, 0}, /* float64 */
                     {0, 0}, /* float32 */
                     {1, MODEL_TOKENS_U16}};
#define MEGATRON_TYPES (sizeof megatron_type / sizeof *megatron_type)

typedef struct {
    const unsigned char *length, *byte, *document;
    uint64_t sequences, documents; /* documents: entries of the table, one more than there are */
} index_t;

static gyre_status_t read_index(const model_tokens_file_t *file, index_t *index, model_tokens_type_t *type)
{
    const unsigned char *h = file->map;
    if (file->bytes < MEGATRON_HEADER || memcmp(h, MEGATRON_MAGIC, 9) != 0)
        return gyre_fail(
            GYRE_ERR_FORMAT,
            "%s is not an index of Megatron: it does not begin with MMIDIDX and a header of %d bytes",
            file->path, MEGATRON_HEADER);
    if (tokens_u64(h + 9) != 1)
        return gyre_fail(GYRE_ERR_FORMAT, "%s is of version %" PRIu64 "; this program reads version 1",
                         file->path, tokens_u64(h + 9));
    if (h[17] >= MEGATRON_TYPES || !megatron_type[h[17]].known)
        return gyre_fail(GYRE_ERR_FORMAT, "%s: byte 17 says type %u, which is not a type of tokens",
                         file->path, h[17]);
    uint64_t sequences = tokens_u64(h + 18), documents = tokens_u64(h + 26);
    uint64_t room = file->bytes - MEGATRON_HEADER;
    if (sequences > room / 12 || documents > (room - 12 * sequences) / 8 || documents == 0)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: %" PRIu64 " sequences and a table of %" PRIu64
                         " documents do not fit in its %zu bytes: it was cut off, or written otherwise",
                         file->path, sequences, documents, file->bytes);
    uint64_t rest = room - 12 * sequences - 8 * documents;
    if (rest != 0 && rest != sequences) /* modes */
        return gyre_fail(GYRE_ERR_FORMAT, "%s: %" PRIu64 " bytes are left after its tables", file->path,
                         rest);
    index->sequences = sequences;
    index->documents = documents;
    index->length = h + MEGATRON_HEADER;
    index->byte = index->length + 4 * sequences;
    index->document = index->byte + 8 * sequences;
    *type = megatron_type[h[17]].type;
    uint64_t first = tokens_u64(index->document), last = tokens_u64(index->document + 8 * (documents - 1));
    if (first != 0 || last != sequences)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s: its documents begin at sequence %" PRIu64 " and end at %" PRIu64
                         ", not at 0 and %" PRIu64,
                         file->path, first, last, sequences);
    return GYRE_OK;
}

/* Sequences in the index's order; what lies without gaps, which is what Megatron writes, becomes one part. */
static gyre_status_t take_sequences(model_tokens_t *tokens, size_t number, const char *index_path,
                                    const index_t *index)
{
    model_tokens_file_t *file = &tokens->file[number];
    size_t width = model_tokens_width(file->type);
    gyre_status_t status = GYRE_OK;
    for (uint64_t i = 0; status == GYRE_OK && i < index->sequences; i++) {
        uint32_t length = tokens_u32(index->length + 4 * i);
        uint64_t byte = tokens_u64(index->byte + 8 * i);
        if (length > INT32_MAX || byte > file->bytes || length * (uint64_t)width > file->bytes - byte)
            return gyre_fail(
                GYRE_ERR_FORMAT,
                "%s: sequence %" PRIu64 " is %" PRId32 " tokens of %zu bytes at byte %" PRId64
                ", which do not lie in the %zu bytes of %s: one of the two was cut off, or they do "
                "not belong together",
                index_path, i, (int32_t)length, width, (int64_t)byte, file->bytes, file->path);
        if (length > 0)
            status = tokens_append(tokens, number, file->map + byte, length);
    }
    return status;
}

/* path without its ending, with another; caller frees. */
static char *with_ending(const char *path, const char *ending)
{
    size_t length = strlen(path);
    if (length > 4 && (strcmp(path + length - 4, ".idx") == 0 || strcmp(path + length - 4, ".bin") == 0))
        length -= 4;
    char *made = malloc(length + strlen(ending) + 1);
    if (made) {
        memcpy(made, path, length);
        strcpy(made + length, ending);
    }
    return made;
}

gyre_status_t tokens_open_megatron(model_tokens_t *tokens, const char *path)
{
    char *index_path = with_ending(path, ".idx"), *bin_path = with_ending(path, ".bin");
    gyre_status_t status = GYRE_ERR_NO_MEMORY;
    model_tokens_t beside = {0}; /* only maps the index */
    index_t index = {0};
    model_tokens_type_t type = MODEL_TOKENS_U16;
    if (!index_path || !bin_path) {
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the names of %s", path);
        goto done;
    }
    if ((status = tokens_map(&beside, index_path)) != GYRE_OK ||
        (status = read_index(&beside.file[0], &index, &type)) != GYRE_OK ||
        (status = tokens_map(tokens, bin_path)) != GYRE_OK)
        goto done;
    size_t number = tokens->maps - 1;
    tokens->file[number].type = type;
    status = take_sequences(tokens, number, index_path, &index);
    tokens->documents += index.documents - 1;
done:
    tokens_unmap(&beside);
    free(index_path);
    free(bin_path);
    return status;
}

/* ---- which is it? -------------------------------------------------------------------------------------- */

model_tokens_format_t tokens_sniff(const unsigned char *head, size_t count)
{
    if (count >= 8 && memcmp(head, TOKENS_GYRE_MAGIC, 8) == 0)
        return MODEL_TOKENS_GYRE;
    if (count >= 9 && memcmp(head, MEGATRON_MAGIC, 9) == 0)
        return MODEL_TOKENS_MEGATRON;
    if (count >= 8 && llmc_kind(head) >= 0)
        return MODEL_TOKENS_LLMC;
    return MODEL_TOKENS_AUTO;
}
