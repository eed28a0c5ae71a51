/* SPDX-License-Identifier: Apache-2.0 */
/* tests/failing/formats.c: every kind of file that is loaded: tokenizers, tokens, models, checkpoints,
 * tuning, recipes, networks, settings. What is loaded is compared with what was written, so that nothing is
 * left out. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/json.h"
#include "collectives/choose/tune.h"
#include "model/data/tokens_format.h"
#include "model/formats/hf.h"
#include "model/formats/weights.h"
#include "model/tokenizer/internal.h"
#include "optim/checkpoint/snapshot.h"
#include "pipeline/plan/recipe.h"
#include "tests/failing/scenario.h"
#include "tests/support/weights.h"
#include "topo/network/network.h"

enum { LETTERS = 256, EACH = 300 /* tokens of a file */ };
static const char *const merge[] = {"t h", "th e", "i n", "in g", "a n"};
enum { MERGES = sizeof merge / sizeof *merge };

static char files[64];
static model_params_t *params;
static float *weights; /* [params->total] */

static const char *in_files(const char *name)
{
    static char path[4][PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", files, name);
    return path[turn];
}

/* ---- writing them -------------------------------------------------------------------------------------- */

static int put(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(in_files(name), "w");
    const int good = file && fwrite(bytes, 1, count, file) == count;
    return file && fclose(file) == 0 && good;
}

static int put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

/* A byte's letter in quotes, as JSON. */
static const char *letter(unsigned byte)
{
    static char text[16];
    snprintf(text, sizeof text, "\"\\u%04x\"", (unsigned)tokenizer_letter(byte));
    return text;
}

static void joined(const char *pair, char *out)
{
    const char *space = strchr(pair, ' ');
    sprintf(out, "%.*s%s", (int)(space - pair), pair, space + 1);
}

static void put_vocabulary(FILE *out)
{
    char word[32];
    for (unsigned b = 0; b < LETTERS; b++)
        fprintf(out, "%s: %u, ", letter(b), b);
    for (unsigned m = 0; m < MERGES; m++) {
        joined(merge[m], word);
        fprintf(out, "\"%s\": %u%s", word, LETTERS + m, m + 1 < MERGES ? ", " : "");
    }
}

static int put_tokenizers(void)
{
    FILE *json = fopen(in_files("tokenizer.json"), "w"), *ranks = fopen(in_files("gpt2.tiktoken"), "w");
    if (!json || !ranks || mkdir(in_files("gpt2"), 0700) != 0)
        return 0;
    fputs(
        "{\"added_tokens\": [{\"id\": 261, \"content\": \"<|endoftext|>\", \"special\": true}, "
        "{\"id\": 262, \"content\": \"[a token that text may give]\", \"special\": false}], "
        "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
        "{\"Regex\": \" ?\\\\p{L}+| ?[^\\\\s\\\\p{L}]+|\\\\s+\"}, \"behavior\": \"Isolated\", \"invert\": "
        "false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}, "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {",
        json);
    put_vocabulary(json);
    fputs("}, \"merges\": [", json);
    for (unsigned m = 0; m < MERGES; m++)
        fprintf(json, "\"%s\"%s", merge[m], m + 1 < MERGES ? ", " : "]}}");
    for (unsigned i = 0; i < LETTERS + MERGES; i++) {
        char word[32] = {(char)i, 0}, coded[64];
        if (i >= LETTERS)
            joined(merge[i - LETTERS], word);
        sodium_bin2base64(coded, sizeof coded, (unsigned char *)word, i < LETTERS ? 1 : strlen(word),
                          sodium_base64_VARIANT_ORIGINAL);
        fprintf(ranks, "%s %u\n", coded, i);
    }
    FILE *vocab = fopen(in_files("gpt2/vocab.json"), "w"), *merges = fopen(in_files("gpt2/merges.txt"), "w");
    if (!vocab || !merges)
        return 0;
    fputc('{', vocab);
    put_vocabulary(vocab);
    fputs(", \"<|endoftext|>\": 261}", vocab);
    for (unsigned m = 0; m < MERGES; m++)
        fprintf(merges, "%s\n", merge[m]);
    return fclose(json) == 0 && fclose(ranks) == 0 && fclose(vocab) == 0 && fclose(merges) == 0;
}

/* Tokenizers of characters: the letters, a mark for spaces, and what follows. */
static int put_characters(const char *name, const char *model, const char *letter_form, const char *rest)
{
    FILE *json = fopen(in_files(name), "w");
    if (!json)
        return 0;
    fprintf(
        json,
        "{\"added_tokens\": [{\"id\": 40, \"content\": \"[a token that text may give]\", \"special\": false, "
        "\"normalized\": true}], \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
        "\"NFC\"}, "
        "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"z+\"}, \"content\": \"z\"}]}, \"pre_tokenizer\": "
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Metaspace\", \"replacement\": "
        "\"\\u2581\", "
        "\"prepend_scheme\": \"first\", \"split\": true}, {\"type\": \"Split\", \"pattern\": {\"String\": "
        "\"g\"}, "
        "\"behavior\": \"MergedWithPrevious\"}]}, \"decoder\": {\"type\": \"Metaspace\", \"replacement\": "
        "\"\\u2581\", \"prepend_scheme\": \"first\"}, \"model\": {%s",
        model);
    for (int i = 0; i < 26; i++) {
        const char word[] = {(char)('a' + i), 0};
        fprintf(json, letter_form, word, i);
    }
    fputs(rest, json);
    return fclose(json) == 0;
}

static int put_kinds(void)
{
    return put_characters(
               "chars.json",
               "\"type\": \"BPE\", \"unk_token\": \"?\", \"merges\": [[\"t\", \"h\"], [\"\\u2581\", "
               "\"th\"]], \"vocab\": {\"?\": 30, \"\\u2581\": 31, \"\\n\": 32, \"th\": 33",
               ", \"%s\": %d", ", \"\\u2581th\": 34}}}") &&
           put_characters(
               "unigram.json",
               "\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"\\u2581\", -2], [\"\\n\", "
               "-2], [\"the\", -3]",
               ", [\"%s\", -%d]", "]}}");
}

/* Two files of each format in a folder of its own, whose tokens are 0, 1, ... 255, 0, ... */
static int put_tokens(void)
{
    const model_tokens_header_t header = {.vocab = LETTERS, .tokenizer = "bytes", .eot = -1};
    static const char *const folders[] = {"gyre", "llmc", "megatron", "nanogpt", "texts"};
    model_token_t ids[EACH];
    unsigned char llmc[1024 + 2 * EACH] = {0}, index[34 + 12 + 16] = "MMIDIDX\0";
    int good = 1;
    char name[64];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        good &= mkdir(in_files(folders[i]), 0700) == 0;
    for (int i = 0; i < EACH; i++) {
        ids[i] = i % LETTERS;
        llmc[1024 + 2 * i] = (unsigned char)i;
    }
    tokens_put_u32(llmc, 20240520);
    tokens_put_u32(llmc + 4, 1);
    tokens_put_u32(llmc + 8, EACH);
    tokens_put_u64(index + 9, 1);
    index[17] = 8; /* 16 bits */
    tokens_put_u64(index + 18, 1);
    tokens_put_u64(index + 26, 2);
    tokens_put_u32(index + 34, EACH);
    tokens_put_u64(index + 54, 1);
    for (int f = 0; f < 2; f++) {
        model_tokens_writer_t *writer;
        snprintf(name, sizeof name, "gyre/part-%d.gyt", f);
        good = good && model_tokens_create(in_files(name), &header, &writer) == GYRE_OK &&
               model_tokens_add(writer, ids, NULL, EACH) == GYRE_OK && model_tokens_finish(writer) == GYRE_OK;
        snprintf(name, sizeof name, "llmc/part-%d.bin", f);
        good = good && put(name, llmc, sizeof llmc);
        snprintf(name, sizeof name, "nanogpt/part-%d.bin", f);
        good = good && put(name, llmc + 1024, 2 * EACH);
        snprintf(name, sizeof name, "megatron/part-%d.bin", f);
        good = good && put(name, llmc + 1024, 2 * EACH);
        snprintf(name, sizeof name, "megatron/part-%d.idx", f);
        good = good && put(name, index, sizeof index);
        snprintf(name, sizeof name, "texts/part-%d.txt", f);
        good = good && put_text(name, "A line of a text that is one of several in its folder.\n");
    }
    return good;
}

/* The same weights as one file, and as a folder with an index of several. */
static int put_models(void)
{
    const model_config_t config = model_config_complete(&(model_config_t){
        .vocab = 512, .seq = 16, .layers = 1, .hidden = 16, .heads = 2, .leaves = 2, .untied = 1});
    model_hf_writer_t *writer;
    if (model_params_create(&config, &params) != GYRE_OK ||
        !(weights = malloc(params->total * sizeof *weights)))
        return 0;
    for (size_t i = 0; i < params->total; i++)
        weights[i] = (float)i / 7;
    int good = save_weights(in_files("alone.safetensors"), params, weights) == GYRE_OK &&
               model_hf_create(in_files("hf"), params, MODEL_HF_F32, 4000, NULL, &writer) == GYRE_OK;
    for (size_t r = 0; good && r < params->rows; r++)
        good = model_hf_write(writer, r, weights + params->row[r].offset) == GYRE_OK;
    return good && model_hf_finish(writer) == GYRE_OK &&
           access(in_files("hf/model.safetensors.index.json"), F_OK) == 0;
}

static const char recipe[] =
    "{\"model\": {\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 32, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"vocab_size\": 256, \"max_position_embeddings\": "
    "16, "
    "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"tie_word_embeddings\": "
    "false}, "
    "\"layout\": {\"dp\": 1, \"tp\": 1, \"pp\": 1, \"zero\": 0, \"micro_batch\": 1, \"global_batch\": 2, "
    "\"recompute\": \"none\"}, \"precision\": {\"dtype\": \"fp32\", \"grad_dtype\": \"fp32\"}, "
    "\"optimizer\": {\"lr\": 3e-4, \"min_lr\": 3e-5, \"beta1\": 0.9, \"beta2\": 0.95, \"eps\": 1e-8, "
    "\"weight_decay\": 0.1, \"clip\": 1.0, \"schedule\": \"cosine\", \"warmup_samples\": 4, "
    "\"decay_samples\": 100}}";

int formats_prepare(const char *at)
{
    char settings[512];
    snprintf(files, sizeof files, "%s", at);
    snprintf(settings, sizeof settings,
             "{\"recipe\": \"%s/recipe.json\", \"data\": \"1:%s/gyre,2:%s/texts\", \"steps\": 1, \"seq\": 8, "
             "\"eval-sequences\": 1}",
             at, at, at);
    return put_tokenizers() && put_kinds() && put_tokens() && put_models() &&
           put_text("tuning", "gyre-tune 1\ncost line 55.2\nchoose all_reduce ranks 2-8 algo direct\n") &&
           put_text("recipe.json", recipe) && put_text("settings.json", settings) &&
           put_text("network.json",
                    "{\"title\": \"a network\", \"nodes\": [\"a\", \"b\"], \"links\": ["
                    "{\"between\": [\"a\", \"a switch of it\"], \"latency_ns\": 500, \"rate\": 25}, "
                    "{\"between\": [\"b\", \"a switch of it\"], \"latency_ns\": 500, \"rate\": 25}]}");
}

/* ---- loading them -------------------------------------------------------------------------------------- */

static gyre_status_t load_tokenizer(job_t *job, const char *name, const char *spec, size_t vocab)
{
    static const char text[] = "the thing and [a token that text may give] in it\n";
    model_tokenizer_t *tokenizer;
    model_encoder_t *encoder;
    const model_token_t *ids;
    unsigned char *back = NULL;
    size_t count, bytes = 0;
    STEP(name, model_tokenizer_open(spec, &tokenizer));
    job->wrong |= model_tokenizer_vocab(tokenizer) != vocab;
    gyre_status_t status = model_encoder_create(tokenizer, &encoder);
    if (status == GYRE_OK) {
        status = model_encode(encoder, text, sizeof text - 1, &ids, &count);
        if (status == GYRE_OK)
            status = model_decode(tokenizer, ids, count, &back, &bytes);
        job->wrong |=
            status == GYRE_OK && (bytes != sizeof text - 1 || memcmp(back, text, bytes) != 0 || count > 45);
        model_encoder_destroy(encoder);
    }
    free(back);
    model_tokenizer_destroy(tokenizer);
    return status;
}

static gyre_status_t load_tokenizers(job_t *job)
{
    char spec[PATH_MAX + 16];
    gyre_status_t status =
        load_tokenizer(job, "tokenizer.json", in_files("tokenizer.json"), LETTERS + MERGES + 2);
    if (status == GYRE_OK)
        status = load_tokenizer(job, "merges.txt", in_files("gpt2/merges.txt"), LETTERS + MERGES + 1);
    if (status == GYRE_OK)
        status = load_tokenizer(job, "chars.json", in_files("chars.json"), 41);
    if (status == GYRE_OK)
        status = load_tokenizer(job, "unigram.json", in_files("unigram.json"), 41);
    if (status == GYRE_OK) {
        snprintf(spec, sizeof spec, "gpt2:%s", in_files("gpt2.tiktoken"));
        status = load_tokenizer(job, ".tiktoken", spec, LETTERS + MERGES + 1);
    }
    return status;
}

static gyre_status_t load_tokens(job_t *job, const char *name, model_tokens_format_t as,
                                 model_tokens_format_t format, uint64_t count)
{
    model_tokens_t *tokens;
    model_token_t most;
    STEP(name, model_tokens_open(in_files(name), as, &tokens));
    job->wrong |= tokens->format != format || tokens->count != count;
    gyre_status_t status = model_tokens_verify(tokens, 0, &most);
    model_tokens_close(tokens);
    return status;
}

static gyre_status_t load_all_tokens(job_t *job)
{
    static const struct {
        const char *name;
        model_tokens_format_t as, format;
        uint64_t count;
    } all[] = {{"gyre", MODEL_TOKENS_AUTO, MODEL_TOKENS_GYRE, 2 * EACH},
               {"gyre/part-1.gyt", MODEL_TOKENS_AUTO, MODEL_TOKENS_GYRE, EACH},
               {"gyre/*.gyt", MODEL_TOKENS_AUTO, MODEL_TOKENS_GYRE, 2 * EACH},
               {"llmc", MODEL_TOKENS_AUTO, MODEL_TOKENS_LLMC, 2 * EACH},
               {"megatron", MODEL_TOKENS_AUTO, MODEL_TOKENS_MEGATRON, 2 * EACH},
               {"megatron/part-0", MODEL_TOKENS_AUTO, MODEL_TOKENS_MEGATRON, EACH},
               {"megatron/part-0.bin", MODEL_TOKENS_AUTO, MODEL_TOKENS_MEGATRON, EACH},
               {"nanogpt", MODEL_TOKENS_NANOGPT, MODEL_TOKENS_NANOGPT, 2 * EACH},
               {"texts", MODEL_TOKENS_AUTO, MODEL_TOKENS_TEXT, 110},
               {"texts/part-0.txt", MODEL_TOKENS_AUTO, MODEL_TOKENS_TEXT, 55}};
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < sizeof all / sizeof *all; i++)
        status = load_tokens(job, all[i].name, all[i].as, all[i].format, all[i].count);
    return status;
}

static gyre_status_t load_model(job_t *job, const char *name)
{
    static float back[1 << 16];
    job->wrong |= params->total > sizeof back / sizeof *back;
    memset(back, 0, sizeof back);
    STEP(name, model_hf_load(in_files(name), params, back));
    job->wrong |= memcmp(back, weights, params->total * sizeof *back) != 0;
    return GYRE_OK;
}

static gyre_status_t load_models(job_t *job)
{
    model_config_t config = {0};
    model_hf_origin_t *origin;
    json_t *kept = NULL;
    STEP("hf_config", model_hf_config(in_files("hf"), 8, &config));
    job->wrong |= config.hidden != 16 || config.seq != 8;
    STEP("checkpoint_config", model_checkpoint_config(in_files("alone.safetensors"), &config));
    job->wrong |= config.hidden != 16 || config.layers != 1 || config.heads != 2;
    gyre_status_t status = load_model(job, "hf");
    if (status == GYRE_OK)
        status = load_model(job, "alone.safetensors");
    if (status != GYRE_OK)
        return status;
    STEP("hf_origin", model_hf_origin_open(in_files("hf"), params, &origin));
    status = model_hf_origin_config(origin, &params->config, &kept);
    json_decref(kept);
    model_hf_origin_close(origin);
    STEP("hf_origin_config", status);
    return GYRE_OK;
}

/* A checkpoint of step 2. One that is there without its name, as after a writer that was killed, gets that
 * back. */
static gyre_status_t write_checkpoint(job_t *job, const char *folder)
{
    static const char run[] = "{\"a key of the run\": \"and its value, which is text\"}";
    char made[PATH_MAX];
    optim_range_t range[64];
    size_t n = 0;
    for (size_t r = 0; r < params->rows; r++)
        if (params->row[r].alias == MODEL_NONE) {
            float *at = weights + params->row[r].offset;
            range[n++] = (optim_range_t){.row = r, .count = params->row[r].count, .part = {at, at, at}};
        }
    STEP("snapshot_prepare", optim_snapshot_prepare(folder));
    STEP("snapshot_begin", optim_snapshot_begin(folder, 2, "here-1", 1, made));
    json_error_t error;
    int lacks;
    json_t *entry = NULL, *all = json_array(), *said = base_json_text(run, sizeof run - 1, &error, &lacks);
    gyre_status_t status = all && said ? model_shard_write(made, 0, params, range, n)
                                       : gyre_fail(GYRE_ERR_NO_MEMORY, "the test lacks memory");
    if (status == GYRE_OK)
        status = model_shard_entry(made, 0, &entry);
    if (status == GYRE_OK && json_array_append(all, entry) != 0)
        status = gyre_fail(GYRE_ERR_NO_MEMORY, "the test lacks memory");
    if (status == GYRE_OK)
        status = optim_snapshot_publish(folder, 2, made, params, all, said, 1);
    json_decref(entry);
    json_decref(all);
    json_decref(said);
    STEP("snapshot_publish", status);
    return GYRE_OK;
}

static gyre_status_t load_checkpoint(job_t *job)
{
    char folder[128], hidden[256], named[256], id[OPTIM_SNAPSHOT_ID];
    optim_snapshot_t *snapshot;
    snprintf(folder, sizeof folder, "%s/snapshots", job->folder);
    optim_snapshot_id(id, sizeof id);
    snprintf(hidden, sizeof hidden, "%s/.step-000000000002.old-%s", folder, id);
    snprintf(named, sizeof named, "%s/step-000000000002", folder);
    if (access(hidden, F_OK) != 0) { /* else a job before this one left it */
        gyre_status_t status = write_checkpoint(job, folder);
        if (status != GYRE_OK)
            return status;
        if (renameat(AT_FDCWD, named, AT_FDCWD, hidden) != 0) /* not rename, which may fail */
            job->wrong = 1;
    }
    STEP("snapshot_prepare to restore", optim_snapshot_prepare(folder));
    job->wrong |= access(named, F_OK) != 0 && access(hidden, F_OK) != 0;
    if (access(named, F_OK) != 0)
        return GYRE_OK;
    STEP("snapshot_open", optim_snapshot_open(folder, 2, &snapshot));
    gyre_status_t fits = optim_snapshot_fit(snapshot, params);
    gyre_status_t sound = optim_snapshot_verify(snapshot, 0, 1);
    job->wrong |= !json_object_get(optim_snapshot_run(snapshot), "a key of the run");
    optim_snapshot_close(snapshot);
    STEP("snapshot_fit", fits);
    STEP("snapshot_verify", sound);
    return GYRE_OK;
}

/* Not by GYRE_TUNE: that would measure this machine for what the file does not say. */
static gyre_status_t load_tuning(job_t *job)
{
    coll_tune_t tune = {0};
    FILE *file = fopen(in_files("tuning"), "re");
    gyre_status_t status = file ? coll_tune_parse(file, "tuning", 0, &tune, NULL)
                                : gyre_fail_errno(GYRE_ERR_IO, errno, "the test lacks a descriptor");
    if (file)
        fclose(file);
    STEP("tune_parse", status);
    job->wrong |= tune.nlines != 1 || tune.cost.line != 55.2;
    return GYRE_OK;
}

static gyre_status_t load_settings(job_t *job)
{
    pipe_recipe_t read;
    topo_network_t *network;
    STEP("recipe_load", pipe_recipe_load(in_files("recipe.json"), &read));
    job->wrong |= read.model.hidden != 16 || read.optimizer.warmup != 4;
    STEP("network_open", topo_network_open(in_files("network.json"), 2, 1, &network));
    topo_network_free(network);
    STEP("train_create of a file", gyre_train_create(NULL, in_files("settings.json"), &job->train));
    return GYRE_OK;
}

gyre_status_t formats_load(job_t *job, double patience)
{
    (void)patience;
    gyre_status_t status = load_tokenizers(job);
    if (status == GYRE_OK)
        status = load_all_tokens(job);
    if (status == GYRE_OK)
        status = load_models(job);
    if (status == GYRE_OK)
        status = load_checkpoint(job);
    if (status == GYRE_OK)
        status = load_tuning(job);
    return status == GYRE_OK ? load_settings(job) : status;
}
