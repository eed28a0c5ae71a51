/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-generate.c: tokens after prompts, with the log-probabilities of gyre-train. See
 * gyre-generate(1). */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "base/clock.h"
#include "comm/boot/bootstrap.h"
#include "tools/gyre-generate/generate.h"
#include "tools/shared/blas.h"
#include "tools/shared/flags.h"
#include "tools/shared/job.h"
#include "tools/shared/model_flags.h"
#include "tools/shared/output.h"

static const char usage[] =
    "usage: gyre-generate --load MODEL [--prompt TEXT | --prompt-file FILE] [OPTION...]\n"
    "       ucx-run -n N gyre-generate --load MODEL [OPTION...]\n"
    "\n"
    "Generates text after a prompt, and writes each token as it comes. The log-probability of each token has "
    "the\n"
    "same bits as in gyre-train's forward pass over the same tokens, on any number of ranks. Without "
    "--prompt "
    "and\n"
    "--prompt-file the prompt is read from standard input. Defaults are in parentheses.\n";

/* -1: go on. */
static int parse(int argc, char **argv, generate_options_t *o, int speak)
{
    const flag_t rows[] = {
        MODEL_FLAGS(&o->part.source, &o->tokenizer, " "),
        {.kind = FLAG_HEADING, .help = "Prompts:"},
        {FLAG(0, "prompt", TEXT, &o->prompt, "TEXT", "continue this text")},
        {FLAG(0, "prompt-file", TEXT, &o->prompt_file, "FILE",
              "continue the content of this file; -, and without both:\nstandard input")},
        {FLAG(0, "lines", SWITCH, &o->lines, NULL,
              "each line is a prompt; each answer is one line, a JSON object")},
        {FLAG(0, "no-bos", SWITCH, &o->no_bos, NULL,
              "do not put the tokenizer's beginning-of-text token in front of a prompt")},
        {FLAG(0, "batch", SIZE, &o->config.batch, "N", "prompts at a time (8)"), .low = 1, .high = 4096},
        {FLAG(0, "prefill", SIZE, &o->config.prefill, "N", "tokens of prompts that are read at a time (64)"),
         .low = 1, .high = 65536},
        {.kind = FLAG_HEADING, .help = "Tokens:"},
        {FLAG(0, "tokens", SIZE, &o->how.tokens, "N", "most tokens after each prompt (64)"), .low = 1},
        {FLAG(0, "temperature", REAL, &o->how.draw.temperature, "X",
              "temperature of sampling; 0: always the likeliest token (0.7)"),
         .high = 100},
        {FLAG(0, "top-k", SIZE, &o->how.draw.top_k, "N",
              "sample from the N likeliest tokens; 0: from all (0)")},
        {FLAG(0, "top-p", REAL, &o->how.draw.top_p, "X",
              "of these, sample from the likeliest whose probabilities add up to X; 1: from all (1)"),
         .low = 1e-6, .high = 1},
        {FLAG(0, "seed", COUNT, &o->how.draw.seed, "N", "seed of the random numbers (0)")},
        {FLAG(0, "ignore-eot", SWITCH, &o->ignore_eot, NULL, "do not end at the model's end of text")},
        {FLAG(0, "stop", TEXT, &o->stop, "TOKEN", "end at this token, too, such as <|eot_id|>")},
        {.kind = FLAG_HEADING, .help = "Ranks:"},
        RANK_FLAGS(&o->part, &o->config.fast),
        {.kind = FLAG_HEADING, .help = "Output:"},
        {FLAG(0, "logprobs", TEXT, &o->logprobs, "FILE",
              "a JSON object for each token: prompt, index, token, text, logprob, logprob_hex")},
        {FLAG(0, "echo", SWITCH, &o->echo, NULL, "write the prompt, too")},
        {FLAG(0, "quiet", SWITCH, &o->quiet, NULL, "no line on standard error at the end")},
    };
    const flags_t flags = {.program = "gyre-generate", .usage = usage, FLAG_ROWS(rows)};
    char why[512] = "";
    FILE *out = speak ? stdout : fopen("/dev/null", "w");
    flags_result_t result = flags_parse(&flags, argc, argv, NULL, out ? out : stderr, why, sizeof why);
    if (!speak && out)
        fclose(out);
    if (result == FLAGS_HELP || result == FLAGS_VERSION)
        return output_end("gyre-generate", JOB_OK, JOB_ERROR);
    if (result == FLAGS_GO && !o->part.source.path)
        snprintf(why, sizeof why, "--load is missing: a model's folder, a checkpoint or a file of weights");
    else if (result == FLAGS_GO && o->prompt && o->prompt_file)
        snprintf(why, sizeof why, "--prompt and --prompt-file exclude each other");
    else if (result == FLAGS_GO)
        return flags_output(o->logprobs) ? -1 : JOB_USAGE;
    return speak ? flags_wrong("gyre-generate", "%s", why) : JOB_USAGE;
}

static gyre_status_t add_stop(generate_options_t *o, const model_tokenizer_t *tokenizer)
{
    model_specials_t *stop = &o->how.stop;
    if (!o->stop)
        return GYRE_OK;
    const int64_t id = model_tokenizer_find(tokenizer, o->stop, strlen(o->stop));
    if (id < 0 || stop->count == MODEL_SPECIALS)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--stop %s: tokenizer '%s' has no token of that text: give one token, such as "
                         "<|eot_id|>",
                         o->stop, model_tokenizer_name(tokenizer));
    stop->id[stop->count++] = (model_token_t)id;
    return GYRE_OK;
}

/* Rank 0's part before the first token. */
static gyre_status_t prepare(generate_options_t *o, const pipe_source_t *source,
                             model_tokenizer_t **tokenizer, prompts_t *prompts, output_t **output)
{
    char why[512];
    const char *path = o->part.source.path;
    const int foreign = pipe_tokenizer_foreign(path, pipe_source_model(source), why, sizeof why);
    gyre_status_t status = pipe_source_tokenizer(source, o->tokenizer, tokenizer);
    if (status == GYRE_OK && !*tokenizer)
        status = pipe_source_no_tokenizer(source);
    if (status == GYRE_OK)
        status = prompts_read(o, *tokenizer, prompts);
    if (status == GYRE_OK && !o->ignore_eot)
        status = model_tokenizer_ends(*tokenizer, foreign ? NULL : path, &o->how.stop);
    if (status == GYRE_OK)
        status = add_stop(o, *tokenizer);
    return status == GYRE_OK ? output_open(o, *tokenizer, prompts, output) : status;
}

/* Ranks other than 0 have no use for tokens but as the next ones to read. */
static gyre_status_t nothing(void *user, size_t prompt, size_t index, model_token_t token,
                             float log_probability, int last)
{
    (void)user;
    (void)prompt;
    (void)index;
    (void)token;
    (void)log_probability;
    (void)last;
    return GYRE_OK;
}

static void summary(const output_t *output, const pipe_prompts_t *prompts, base_time_t loaded,
                    base_time_t begin, int fast)
{
    double seconds = (double)(base_now() - begin) * 1e-9;
    fprintf(stderr,
            "gyre-generate: %zu tokens after %zu prompt%s of %zu in %.2f s: %.1f tokens/s (set-up %.2f s)\n",
            output_tokens(output), prompts->count, prompts->count == 1 ? "" : "s", prompts->total, seconds,
            (double)output_tokens(output) / seconds, (double)loaded * 1e-9);
    if (fast) /* what it spares here is not known without the other order */
        fprintf(
            stderr,
            "gyre-generate: --order fast: these bits may not be the trainer's; what those would cost is this "
            "line of --order canonical (docs/generate.md, \"The price of the promise\")\n");
}

static gyre_status_t run(gyre_comm_t *comm, void *user)
{
    generate_options_t *o = user;
    pipe_part_t part;
    pipe_generator_t *generator = NULL;
    model_tokenizer_t *tokenizer = NULL;
    output_t *output = NULL;
    prompts_t prompts = {0};
    const int rank = gyre_comm_rank(comm);
    const base_time_t start = base_now();
    gyre_status_t status = pipe_part_open(comm, &o->part, &part);
    if (status == GYRE_OK) {
        if (rank == 0)
            status = prepare(o, part.source, &tokenizer, &prompts, &output);
        status = pipe_prompts_share(comm, status, &prompts.ids);
    }
    if (status == GYRE_OK)
        status = gyre_broadcast(&o->how.stop, &o->how.stop, sizeof o->how.stop, GYRE_UINT8, 0, comm);
    o->config.batch = base_min_size(o->config.batch, base_max_size(1, prompts.ids.count));
    o->config.positions = pipe_prompts_positions(&prompts.ids, o->how.tokens);
    if (status == GYRE_OK)
        status = pipe_generator_create(&part, &o->config, &generator);
    const base_time_t begin = base_now();
    if (status == GYRE_OK)
        status = pipe_generate(generator, prompts.ids.prompt, prompts.ids.count, &o->how,
                               rank == 0 ? output_said : nothing, output);
    if (status == GYRE_OK && rank == 0 && !o->quiet)
        summary(output, &prompts.ids, begin - start, begin, o->config.fast);
    status = output_close(output, status);
    prompts_free(&prompts);
    model_tokenizer_destroy(tokenizer);
    pipe_generator_destroy(generator);
    pipe_part_close(&part);
    return status;
}

int main(int argc, char **argv)
{
    blas_leave_out_threads(argv);
    generate_options_t options = {.part = {.source = {.precision = -1}},
                                  .config = {.batch = 8, .prefill = 64},
                                  .how = {.draw = {.temperature = 0.7, .top_p = 1}, .tokens = 64}};
    int speak = comm_identity_rank_hint() == 0;
    base_settings_load();
    int code = parse(argc, argv, &options, speak);
    if (code >= 0)
        return code;
    return job_main(run, &options);
}
