/* SPDX-License-Identifier: Apache-2.0 */
/* Token files: Gyre's own written and read, those of other programs read, and every way they can be
 * damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "model/data/tokens.h"

static char folder[] = "/tmp/gyre-tokens-XXXXXX";
#include "tests/support/files.h"

static void put(const char *name, const void *content, size_t bytes)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static size_t get(const char *name, unsigned char *content, size_t room)
{
    FILE *file = fopen(at(name), "rb");
    assert_non_null(file);
    size_t bytes = fread(content, 1, room, file);
    fclose(file);
    return bytes;
}

static gyre_status_t open_as(const char *name, model_tokens_format_t format, model_tokens_t **out)
{
    return model_tokens_open(at(name), format, out);
}

/* Opens what must be refused, with a message that holds `word` and the name. */
static void refuse(const char *name, model_tokens_format_t format, gyre_status_t status, const char *word)
{
    model_tokens_t *tokens = NULL;
    assert_int_equal(open_as(name, format, &tokens), status);
    assert_null(tokens);
    if (!strstr(gyre_last_error(), word) || !strstr(gyre_last_error(), folder))
        fail_msg("'%s' does not speak of '%s'", gyre_last_error(), word);
}

static void expect(const model_tokens_t *tokens, uint64_t first, const model_token_t *ids, size_t count)
{
    model_token_t got[64];
    assert_true(count <= 64 && first + count <= tokens->count);
    assert_int_equal(model_tokens_read(tokens, first, count, 0, got), GYRE_OK);
    assert_memory_equal(got, ids, count * sizeof *ids);
}

static int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    return mkdtemp(folder) == NULL;
}

/* ---- Gyre's -------------------------------------------------------------------------------------------- */

static const model_token_t sample[] = {5, 0, 65535, 7, 300, 12, 9};

static void write_sample(const char *name, size_t vocab)
{
    model_tokens_writer_t *writer = NULL;
    const model_tokens_header_t header = {
        .vocab = vocab, .tokenizer = "test", .tokenizer_hash = 0x1234, .eot = 7};
    assert_int_equal(model_tokens_create(at(name), &header, &writer), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, sample, NULL, 4), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, sample, NULL, 0), GYRE_OK); /* an empty document is one */
    assert_int_equal(model_tokens_add(writer, sample + 4, NULL, 3), GYRE_OK);
    assert_int_not_equal(access(at(name), F_OK), 0); /* not before it is whole */
    assert_int_equal(model_tokens_finish(writer), GYRE_OK);
}

/* Small files take none of the maps that the kernel allows a process. */
static void in_memory(const model_tokens_t *tokens)
{
    assert_true(tokens->maps > 0);
    for (size_t i = 0; i < tokens->maps; i++)
        assert_ptr_equal(tokens->file[i].map, tokens->file[i].copy);
}

/* A folder of many such files, and a large one that is mapped. */
static void many_files(void **state)
{
    (void)state;
    enum { FILES = 200, LARGE = 40000 };
    model_tokens_t *tokens = NULL;
    char name[32], line[600];
    static model_token_t ids[LARGE];
    int maps = 0;
    assert_int_equal(mkdir(at("many"), 0700), 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "many/%03d.gyt", i);
        write_sample(name, 65536);
    }
    const model_tokens_header_t header = {
        .vocab = 65536, .tokenizer = "test", .tokenizer_hash = 0x1234, .eot = 7};
    model_tokens_writer_t *writer;
    assert_int_equal(model_tokens_create(at("many/large.gyt"), &header, &writer), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, ids, NULL, LARGE), GYRE_OK);
    assert_int_equal(model_tokens_finish(writer), GYRE_OK);
    assert_int_equal(open_as("many", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_int_equal(tokens->count, 7 * FILES + LARGE);
    expect(tokens, 7 * (FILES - 1), sample, 7);
    FILE *in = fopen("/proc/self/maps", "re");
    assert_non_null(in);
    while (fgets(line, sizeof line, in))
        maps += strstr(line, at("many/")) != NULL;
    fclose(in);
    assert_int_equal(maps, 1);
    model_tokens_close(tokens);
}

static void own(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        model_tokens_t *tokens = NULL;
        model_token_t most;
        write_sample("a.gyt", wide ? 65537 : 65536);
        assert_int_equal(open_as("a.gyt", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
        assert_int_equal(tokens->format, MODEL_TOKENS_GYRE);
        assert_int_equal(tokens->file[0].type, wide ? MODEL_TOKENS_U32 : MODEL_TOKENS_U16);
        assert_int_equal(tokens->count, 7);
        assert_int_equal(tokens->documents, 3);
        assert_int_equal(tokens->vocab, wide ? 65537 : 65536);
        assert_int_equal(tokens->eot, 7);
        assert_int_equal(tokens->tokenizer_hash, 0x1234);
        assert_string_equal(tokens->tokenizer, "test");
        in_memory(tokens);
        expect(tokens, 0, sample, 7);
        expect(tokens, 3, sample + 3, 4);
        assert_int_equal(model_tokens_verify(tokens, tokens->vocab, &most), GYRE_OK);
        assert_int_equal(most, 65535);
        model_tokens_close(tokens);
        assert_int_equal(unlink(at("a.gyt")), 0);
    }
}

/* Byte for byte what docs/data.md says. */
static void own_layout(void **state)
{
    (void)state;
    unsigned char bytes[512];
    write_sample("a.gyt", 65536);
    assert_int_equal(get("a.gyt", bytes, sizeof bytes), 256 + 16 + 32);
    assert_memory_equal(bytes, "\x89GYT\r\n\x1a\n\1\0\0\0\x10\0\0\0\7\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 32);
    assert_memory_equal(bytes + 32, "\0\0\1\0\0\0\0\0\0\1\0\0\0\0\0\0\x10\1\0\0\0\0\0\0", 24);
    assert_memory_equal(bytes + 72, "\x34\x12\0\0\0\0\0\0\7\0\0\0\0\0\0\0test\0", 21);
    assert_memory_equal(bytes + 240, "\x30\1\0\0\0\0\0\0", 8);
    assert_memory_equal(bytes + 256, "\5\0\0\0\xff\xff\7\0\x2c\1\x0c\0\x09\0\0\0", 16);
    assert_memory_equal(bytes + 272, "\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0", 32);
    uint64_t hash = base_hash64(bytes + 256, 14, 0);
    assert_memory_equal(bytes + 56, &hash, 8);
    assert_int_equal(unlink(at("a.gyt")), 0);
}

static void write_masked(const char *name, const unsigned char *learned)
{
    model_tokens_writer_t *writer = NULL;
    model_token_t ids[20];
    const model_tokens_header_t header = {.vocab = 65536, .tokenizer = "test", .eot = -1};
    assert_int_equal(model_tokens_create(at(name), &header, &writer), GYRE_OK);
    for (int i = 0; i < 20; i++)
        ids[i] = i;
    assert_int_equal(model_tokens_add(writer, ids, NULL, 5), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, ids + 5, learned, 8), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, ids + 13, NULL, 7), GYRE_OK);
    assert_int_equal(model_tokens_finish(writer), GYRE_OK);
}

/* Which ids are learned: of one file, of a stream of files with a mask and without, and byte for byte. */
static void own_mask(void **state)
{
    (void)state;
    static const unsigned char some[8] = {0, 1, 0, 0, 1, 1, 0, 1}, all[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    unsigned char bytes[512], got[40], want[40];
    model_tokens_t *tokens = NULL;
    model_token_t most;
    write_masked("a.gyt", all);
    assert_int_equal(get("a.gyt", bytes, sizeof bytes), 256 + 40 + 32); /* as without a mask */
    assert_int_equal(bytes[8], 1);
    write_masked("b.gyt", some);
    assert_int_equal(get("b.gyt", bytes, sizeof bytes), 256 + 40 + 32 + 8);
    assert_int_equal(bytes[8], 2);
    assert_memory_equal(bytes + 224, "\x48\1\0\0\0\0\0\0", 8);
    assert_memory_equal(bytes + 328, "\x5f\xf6\x0f\0\0\0\0\0", 8); /* ids 5, 7, 8 and 11 are not learned */
    uint64_t hash = base_hash64(bytes + 328, 3, 0);
    assert_memory_equal(bytes + 232, &hash, 8);
    assert_int_equal(open_as("*.gyt", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_true(tokens->masked);
    assert_int_equal(tokens->count, 40);
    memset(want, 1, sizeof want);
    memcpy(want + 25, some, sizeof some);
    model_tokens_learned(tokens, 0, 40, got);
    assert_memory_equal(got, want, 40);
    model_tokens_learned(tokens, 24, 9, got);
    assert_memory_equal(got, want + 24, 9);
    assert_int_equal(model_tokens_next_learned(tokens, 18, 40), 18);
    assert_int_equal(model_tokens_next_learned(tokens, 27, 40), 29);
    assert_int_equal(model_tokens_next_learned(tokens, 27, 29), 29);
    assert_int_equal(model_tokens_verify(tokens, 65536, &most), GYRE_OK);
    model_tokens_close(tokens);
    bytes[329] ^= 1;
    put("b.gyt", bytes, 336);
    assert_int_equal(open_as("b.gyt", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_int_equal(model_tokens_verify(tokens, 65536, &most), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "the checksum of its mask"));
    model_tokens_close(tokens);
    unlink(at("a.gyt"));
    unlink(at("b.gyt"));
}

/* Any changed bit is noticed, in the header and the ends at once, elsewhere by verify; so is any missing
 * byte. */
static void own_damaged(void **state)
{
    (void)state;
    unsigned char bytes[512];
    write_sample("a.gyt", 65536);
    size_t size = get("a.gyt", bytes, sizeof bytes);
    for (size_t i = 0; i < size; i++) {
        model_tokens_t *tokens = NULL;
        model_token_t most;
        bytes[i] ^= 0x10;
        put("b.gyt", bytes, size);
        bytes[i] ^= 0x10;
        gyre_status_t status = open_as("b.gyt", MODEL_TOKENS_GYRE, &tokens);
        assert_true(status == GYRE_OK || status == GYRE_ERR_FORMAT);
        if (i < 256)
            assert_int_equal(status, GYRE_ERR_FORMAT);
        if (status == GYRE_OK && (i < 270 || i >= 272)) /* but for the padding */
            assert_int_equal(model_tokens_verify(tokens, 65536, &most), GYRE_ERR_FORMAT);
        model_tokens_close(tokens);
    }
    for (size_t cut = 1; cut < size; cut += 7) {
        put("b.gyt", bytes, size - cut);
        refuse("b.gyt", MODEL_TOKENS_GYRE, GYRE_ERR_FORMAT,
               size - cut < 256 ? "not a token file" : "cut off");
    }
    put("b.gyt", "", 0);
    refuse("b.gyt", MODEL_TOKENS_GYRE, GYRE_ERR_FORMAT, "empty");
    /* a header that is whole, and lies */
    const struct {
        size_t at;
        uint64_t value;
        const char *word;
    } lie[] = {{16, UINT64_MAX / 2, "do not fit"},
               {24, UINT64_MAX, "do not fit"},
               {24, 1 << 20, "do not fit"},
               {32, 0, "the header is invalid"},
               {32, 65537, "the header is invalid"},
               {40, 1 << 20, "do not fit"},
               {48, UINT64_MAX, "do not fit"},
               {80, 65536, "the header is invalid"},
               {8, 3, "version 3"},
               {8, 2, "a mask of 7 tokens at byte 0 does not fit"},
               {16, 6, "end at 7"},
               {232, UINT64_MAX, "the header is invalid"}};
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        unsigned char changed[512];
        memcpy(changed, bytes, size);
        memcpy(changed + lie[i].at, &lie[i].value, lie[i].at == 8 ? 4 : 8);
        uint64_t hash = base_hash64(changed, 248, 0);
        memcpy(changed + 248, &hash, 8);
        put("b.gyt", changed, size);
        refuse("b.gyt", MODEL_TOKENS_GYRE, GYRE_ERR_FORMAT, lie[i].word);
    }
    unlink(at("a.gyt"));
    unlink(at("b.gyt"));
}

static void writer_refuses(void **state)
{
    (void)state;
    model_tokens_writer_t *writer = NULL;
    model_tokens_header_t header = {.vocab = 0, .eot = -1};
    assert_int_equal(model_tokens_create(at("c.gyt"), &header, &writer), GYRE_ERR_INVALID);
    header.vocab = 300;
    assert_int_equal(model_tokens_create("/dev/null", &header, &writer), GYRE_ERR_INVALID);
    assert_null(writer);
    assert_int_equal(model_tokens_create(at("c.gyt"), &header, &writer), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, (model_token_t[]){299, 300}, NULL, 2), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "300"));
    model_tokens_abandon(writer);
    assert_int_not_equal(access(at("c.gyt"), F_OK), 0);
}

/* ---- others' ------------------------------------------------------------------------------------------- */

static void put_llmc(const char *name, uint32_t magic, uint32_t version, uint32_t count,
                     const model_token_t *ids, size_t have)
{
    unsigned char bytes[2048] = {0};
    const uint32_t head[3] = {magic, version, count};
    size_t used = 1024;
    memcpy(bytes, head, sizeof head);
    for (size_t i = 0; i < have; i++, used += version == 1 ? 2 : 4)
        memcpy(bytes + used, &ids[i], version == 1 ? 2 : 4);
    put(name, bytes, used);
}

static void llmc(void **state)
{
    (void)state;
    model_tokens_t *tokens = NULL;
    const model_token_t big[] = {128255, 1, 65536};
    assert_int_equal(mkdir(at("llmc"), 0700), 0);
    put_llmc("llmc/x_001.bin", 20240520, 1, 4, sample + 3, 4);
    put_llmc("llmc/x_000.bin", 20240520, 1, 2, sample, 2);
    assert_int_equal(open_as("llmc", MODEL_TOKENS_AUTO, &tokens), GYRE_OK); /* a folder, in order */
    assert_int_equal(tokens->format, MODEL_TOKENS_LLMC);
    assert_int_equal(tokens->count, 6);
    assert_int_equal(tokens->vocab, 50257);
    assert_int_equal(tokens->files, 2);
    in_memory(tokens);
    expect(tokens, 0, (model_token_t[]){5, 0, 7, 300, 12, 9}, 6);
    expect(tokens, 1, (model_token_t[]){0, 7}, 2); /* over the edge */
    uint64_t hash = 0, again = 0;
    assert_int_equal(model_tokens_hash(tokens, &hash), GYRE_OK);
    model_tokens_close(tokens);

    assert_int_equal(open_as("llmc/x_*.bin", MODEL_TOKENS_AUTO, &tokens), GYRE_OK); /* a pattern */
    assert_int_equal(tokens->count, 6);
    assert_int_equal(model_tokens_hash(tokens, &again), GYRE_OK);
    assert_true(again == hash);
    model_tokens_close(tokens);
    assert_int_equal(open_as("llmc/x_001.bin", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_int_equal(tokens->count, 4);
    assert_int_equal(model_tokens_hash(tokens, &again), GYRE_OK);
    assert_true(again != hash);
    model_tokens_close(tokens);

    put_llmc("l3.bin", 20240801, 7, 3, big, 3);
    assert_int_equal(open_as("l3.bin", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_int_equal(tokens->vocab, 128256);
    expect(tokens, 0, big, 3);
    model_tokens_close(tokens);
    tokens = NULL;

    put("llmc/README", "text", 4);
    refuse("llmc", MODEL_TOKENS_AUTO, GYRE_ERR_INVALID, "and others");
    assert_int_equal(open_as("llmc", MODEL_TOKENS_LLMC, &tokens), GYRE_OK);
    assert_int_equal(tokens->files, 2);
    model_tokens_close(tokens);
    unlink(at("llmc/README"));
    put_llmc("llmc/x_002.bin", 20240801, 7, 3, big, 3);
    refuse("llmc", MODEL_TOKENS_AUTO, GYRE_ERR_INVALID, "llama3");
    put_llmc("llmc/x_002.bin", 20240520, 1, 3, sample, 2);
    refuse("llmc", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "3 tokens");
    put_llmc("llmc/x_002.bin", 20240520, 1, UINT32_MAX, sample, 2);
    refuse("llmc/x_002.bin", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "cut off");
    put_llmc("llmc/x_002.bin", 20240520, 2, 2, sample, 2);
    refuse("llmc/x_002.bin", MODEL_TOKENS_LLMC, GYRE_ERR_FORMAT, "not a shard");
    unlink(at("llmc/x_002.bin"));
    assert_int_equal(rename(at("llmc/x_000.bin"), at("llmc/x_train_000.bin")), 0);
    assert_int_equal(rename(at("llmc/x_001.bin"), at("llmc/x_val_000.bin")), 0);
    refuse("llmc", MODEL_TOKENS_AUTO, GYRE_ERR_INVALID, "--valid-data");
}

typedef struct {
    unsigned char bytes[512];
    size_t used;
} made_t;

static void add(made_t *made, const void *bytes, size_t count)
{
    memcpy(made->bytes + made->used, bytes, count);
    made->used += count;
}

/* Three sequences, two documents; */
static void put_megatron(const char *name, unsigned char type, const int64_t byte[3], uint64_t sequences,
                         uint64_t last_document, size_t cut)
{
    made_t made = {.used = 0};
    char path[64];
    const uint64_t version = 1, documents = 3;
    const int32_t length[3] = {2, 3, 2};
    const int64_t document[3] = {0, 2, (int64_t)last_document};
    add(&made, "MMIDIDX\0\0", 9);
    add(&made, &version, 8);
    add(&made, &type, 1);
    add(&made, &sequences, 8);
    add(&made, &documents, 8);
    add(&made, length, sizeof length);
    add(&made, byte, 3 * sizeof *byte);
    add(&made, document, sizeof document);
    snprintf(path, sizeof path, "%s.idx", name);
    put(path, made.bytes, made.used - cut);
}

static void megatron(void **state)
{
    (void)state;
    model_tokens_t *tokens = NULL;
    const uint16_t ids[7] = {5, 0, 65535, 7, 300, 12, 9};
    put("m.bin", ids, sizeof ids);
    put_megatron("m", 8, (const int64_t[]){0, 4, 10}, 3, 3, 0);
    const char *const name[] = {"m", "m.bin", "m.idx", "m.*"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(open_as(name[i], MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
        assert_int_equal(tokens->format, MODEL_TOKENS_MEGATRON);
        assert_int_equal(tokens->count, 7);
        assert_int_equal(tokens->documents, 2);
        assert_int_equal(tokens->vocab, 0);
        assert_int_equal(tokens->parts, 1); /* without gaps it is one */
        in_memory(tokens);
        expect(tokens, 0, sample, 7);
        model_tokens_close(tokens);
    }
    put_megatron("m", 8, (const int64_t[]){10, 4, 0}, 3, 3, 0); /* out of order: the index is right */
    assert_int_equal(open_as("m", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_int_equal(tokens->parts, 3);
    expect(tokens, 0, (model_token_t[]){12, 9, 65535, 7, 300, 5, 0}, 7);
    expect(tokens, 1, (model_token_t[]){9, 65535, 7, 300, 5}, 5);
    model_tokens_close(tokens);

    const int64_t good[] = {0, 4, 10};
    put_megatron("m", 8, (const int64_t[]){0, 4, 12}, 3, 3, 0);
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "sequence 2");
    put_megatron("m", 8, (const int64_t[]){0, -4, 10}, 3, 3, 0);
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "sequence 1");
    put_megatron("m", 7, good, 3, 3, 0);
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "type 7");
    put_megatron("m", 8, good, UINT64_MAX / 4, 3, 0);
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "do not fit");
    put_megatron("m", 8, good, 3, 4, 0);
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "end at 4");
    put_megatron("m", 8, good, 3, 3, 5);
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "m.idx");
    put_megatron("m", 5, good, 3, 3, 0); /* 64-bit ids in the same bytes: too few */
    refuse("m", MODEL_TOKENS_AUTO, GYRE_ERR_FORMAT, "sequence 0");
    put_megatron("m", 8, good, 3, 3, 0);
    unlink(at("m.bin"));
    refuse("m.idx", MODEL_TOKENS_AUTO, GYRE_ERR_NOT_FOUND, "m.bin");
}

static void every_type(void **state)
{
    (void)state;
    const struct {
        unsigned char code;
        size_t width;
        int is_signed;
    } type[] = {{1, 1, 0}, {2, 1, 1}, {3, 2, 1}, {4, 4, 1}, {5, 8, 1}, {8, 2, 0}};
    for (size_t t = 0; t < sizeof type / sizeof *type; t++) {
        model_tokens_t *tokens = NULL;
        unsigned char bytes[7 * 8] = {0};
        size_t w = type[t].width;
        for (size_t i = 0; i < 7; i++)
            bytes[i * w] = (unsigned char)(i + 1);
        memset(bytes + 5 * w, 0xff, w); /* the largest, or -1 */
        put("t.bin", bytes, 7 * w);
        put_megatron("t", type[t].code, (const int64_t[]){0, (int64_t)(2 * w), (int64_t)(5 * w)}, 3, 3, 0);
        assert_int_equal(open_as("t", MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
        expect(tokens, 0, (model_token_t[]){1, 2, 3, 4, 5}, 5);
        model_token_t got[7];
        gyre_status_t status = model_tokens_read(tokens, 0, 7, 0, got);
        assert_int_equal(status, type[t].is_signed ? GYRE_ERR_FORMAT : GYRE_OK);
        if (type[t].is_signed) {
            assert_non_null(strstr(gyre_last_error(), "is -1"));
            assert_int_equal(got[5], 0);
        } else
            assert_int_equal(got[5], w == 1 ? 255 : 65535);
        model_tokens_close(tokens);
    }
}

static void nanogpt(void **state)
{
    (void)state;
    model_tokens_t *tokens = NULL;
    const uint16_t ids[5] = {1, 2, 50256, 4, 5};
    put("n.bin", ids, sizeof ids);
    assert_int_equal(open_as("n.bin", MODEL_TOKENS_NANOGPT, &tokens), GYRE_OK);
    assert_int_equal(tokens->vocab, 0);
    in_memory(tokens);
    expect(tokens, 0, (model_token_t[]){1, 2, 50256, 4, 5}, 5);
    model_token_t got[5], most;
    assert_int_equal(model_tokens_read(tokens, 0, 5, 50256, got), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "byte 4 "));
    assert_non_null(strstr(gyre_last_error(), "--vocab"));
    assert_memory_equal(got, ((model_token_t[]){1, 2, 0, 0, 0}), sizeof got);
    assert_int_equal(model_tokens_verify(tokens, 50257, &most), GYRE_OK);
    assert_int_equal(most, 50256);
    model_tokens_close(tokens);
    refuse("n.bin", MODEL_TOKENS_AUTO, GYRE_ERR_INVALID, "if it holds 16-bit ids"); /* it is no text */
    assert_non_null(strstr(gyre_last_error(), "--data-format nanogpt"));
    assert_int_equal(open_as("n.bin", MODEL_TOKENS_TEXT, &tokens), GYRE_OK);
    assert_int_equal(tokens->count, sizeof ids);
    model_tokens_close(tokens);
    put("n.bin", ids, 9);
    refuse("n.bin", MODEL_TOKENS_NANOGPT, GYRE_ERR_FORMAT, "9 bytes");
    put_llmc("n.bin", 20240520, 1, 2, sample, 2);
    refuse("n.bin", MODEL_TOKENS_NANOGPT, GYRE_ERR_FORMAT, "llmc");
    refuse("*.nothing", MODEL_TOKENS_AUTO, GYRE_ERR_NOT_FOUND, "no file matches");
}

static void names(void **state)
{
    (void)state;
    model_tokens_format_t format;
    for (int i = MODEL_TOKENS_AUTO; i <= MODEL_TOKENS_NANOGPT; i++) {
        assert_true(model_tokens_format_find(model_tokens_format_name((model_tokens_format_t)i), &format));
        assert_int_equal(format, i);
    }
    assert_false(model_tokens_format_find("parquet", &format));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own),         cmocka_unit_test(own_layout),     cmocka_unit_test(own_mask),
        cmocka_unit_test(own_damaged), cmocka_unit_test(writer_refuses), cmocka_unit_test(llmc),
        cmocka_unit_test(megatron),    cmocka_unit_test(every_type),     cmocka_unit_test(nanogpt),
        cmocka_unit_test(names),       cmocka_unit_test(many_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
