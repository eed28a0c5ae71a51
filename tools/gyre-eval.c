/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-eval.c: perplexity and multiple choice, with the log-probabilities of gyre-train. See
 * gyre-eval(1). */
#include <stdio.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "comm/boot/bootstrap.h"
#include "pipeline/agree/agree.h"
#include "tools/gyre-eval/eval.h"
#include "tools/shared/blas.h"
#include "tools/shared/flags.h"
#include "tools/shared/job.h"
#include "tools/shared/model_flags.h"
#include "tools/shared/output.h"

static const char usage[] =
    "usage: gyre-eval --load MODEL [OPTION...] FILE...\n"
    "       gyre-eval --load MODEL --task hellaswag|arc|mmlu [OPTION...] FILE...\n"
    "       ucx-run -n N gyre-eval --load MODEL [OPTION...] FILE...\n"
    "\n"
    "Prints the perplexity of texts and token files, or how many questions a model "
    "answers, a row for each FILE.\n"
    "Log-probabilities have the same bits as in gyre-train's forward pass over the same "
    "tokens, on any number\n"
    "of ranks. Defaults are in parentheses.\n";

static int read_format(void *to, const char *name)
{
    return model_tokens_format_find(name, to);
}

/* What options of one kind of task are given with the other. NULL: nothing. */
static const char *misplaced(const eval_options_t *o, int long_)
{
    if (o->task == TASK_PERPLEXITY)
        return o->generate.batch     ? "--batch"
               : o->generate.prefill ? "--prefill"
               : o->generate.fast    ? "--order"
               : long_ >= 0          ? "--long"
                                     : NULL;
    return o->stride ? "--stride" : o->format != MODEL_TOKENS_AUTO ? "--data-format" : NULL;
}

/* -1: go on. */
static int parse(int argc, char **argv, eval_options_t *o, int speak)
{
    int words = argc, long_ = -1;
    const flag_t rows[] = {
        MODEL_FLAGS(&o->part.source, &o->tokenizer, "; none: token files only\n"),
        {FLAG(0, "task", CHOICE, &o->task, "perplexity|hellaswag|arc|mmlu",
              "what FILE holds: text or tokens, or questions as their authors publish them\n"
              "(perplexity)")},
        {FLAG(0, "limit", SIZE, &o->limit, "N",
              "only the first N tokens, BOS included, or questions of each FILE (all)"),
         .low = 1},
        {FLAG(0, "no-bos", SWITCH, &o->no_bos, NULL,
              "do not put the tokenizer's beginning-of-text token in front of a text or\ncontext")},
        {.kind = FLAG_HEADING, .help = "Perplexity:"},
        {FLAG(0, "stride", SIZE, &o->stride, "N",
              "tokens from window to window: a smaller number gives each token more context,\n"
              "and takes longer (all positions)"),
         .low = 1},
        {FLAG(0, "data-format", READ, &o->format, "auto|text|gyre|llmc|megatron|nanogpt",
              "format of FILE (auto)"),
         .read = read_format, .wants = "auto, text, gyre, llmc, megatron or nanogpt"},
        {.kind = FLAG_HEADING, .help = "Questions:"},
        {FLAG(0, "long", CHOICE, &long_, "refuse|cut",
              "contexts that are too long for the model: refuse, or cut their beginning\n"
              "(refuse)")},
        {FLAG(0, "batch", SIZE, &o->generate.batch, "N", "choices at a time (8)"), .low = 1, .high = 4096},
        {FLAG(0, "prefill", SIZE, &o->generate.prefill, "N",
              "tokens of contexts that are processed at a time (64)"),
         .low = 1, .high = 65536},
        {.kind = FLAG_HEADING, .help = "Ranks:"},
        RANK_FLAGS(&o->part, &o->generate.fast),
        {.kind = FLAG_HEADING, .help = "Output:"},
        {FLAG(0, "json", TEXT, &o->json, "FILE", "the results as a JSON document; - is standard output")},
        {FLAG(0, "logprobs", TEXT, &o->logprobs, "FILE",
              "write a JSON object for each scored token or choice, one per line")},
        {FLAG(0, "quiet", SWITCH, &o->quiet, NULL, "no line on standard error at the end")},
    };
    const flags_t flags = {.program = "gyre-eval", .usage = usage, FLAG_ROWS(rows)};
    char why[512] = "";
    FILE *out = speak ? stdout : fopen("/dev/null", "w");
    flags_result_t result = flags_parse(&flags, argc, argv, &words, out ? out : stderr, why, sizeof why);
    if (!speak && out)
        fclose(out);
    if (result == FLAGS_HELP || result == FLAGS_VERSION)
        return output_end("gyre-eval", JOB_OK, JOB_ERROR);
    o->file = argv + words;
    o->files = (size_t)(argc - words);
    o->cut = long_ == 1;
    const char *other = misplaced(o, long_);
    if (result == FLAGS_GO && !o->part.source.path)
        snprintf(why, sizeof why, "--load is missing: a model's folder, a checkpoint or a file of weights");
    else if (result == FLAGS_GO && o->files == 0)
        snprintf(why, sizeof why, "there is no FILE");
    else if (result == FLAGS_GO && other)
        snprintf(why, sizeof why, "%s is an option of %s", other,
                 o->task == TASK_PERPLEXITY ? "questions, which --task names" : "--task perplexity");
    else if (result == FLAGS_GO && (!flags_output(o->json) || !flags_output(o->logprobs)))
        snprintf(why, sizeof why,
                 "--json and --logprobs cannot both be - (standard output): name a file for one");
    else if (result == FLAGS_GO)
        return -1;
    return speak ? flags_wrong("gyre-eval", "%s", why) : JOB_USAGE;
}

/* Rank 0's part before the first file. */
static gyre_status_t prepare(eval_t *eval)
{
    gyre_status_t status =
        pipe_source_tokenizer(eval->part.source, eval->options->tokenizer, &eval->tokenizer);
    if (status == GYRE_OK && !eval->tokenizer && eval->options->task != TASK_PERPLEXITY)
        status = pipe_source_no_tokenizer(eval->part.source);
    if (status == GYRE_OK && eval->tokenizer && !eval->options->no_bos)
        status = model_tokenizer_begin(eval->tokenizer, &eval->begin);
    return status == GYRE_OK ? results_open(eval) : status;
}

static gyre_status_t evaluate(eval_t *eval)
{
    const eval_options_t *o = eval->options;
    const int texts = o->task == TASK_PERPLEXITY, rank = gyre_comm_rank(eval->comm);
    const base_time_t start = base_now();
    gyre_status_t status = pipe_part_open(eval->comm, &o->part, &eval->part);
    if (status == GYRE_OK)
        status = pipe_agree(eval->comm, rank == 0 ? prepare(eval) : GYRE_OK, NULL);
    if (status == GYRE_OK)
        status = texts ? pipe_evaluator_create(&eval->part, &eval->evaluator) : eval_questions_open(eval);
    const base_time_t begin = base_now();
    for (size_t i = 0; status == GYRE_OK && i < o->files; i++)
        status = texts ? eval_text(eval, o->file[i]) : eval_questions(eval, i);
    if (status == GYRE_OK && rank == 0 && !o->quiet)
        fprintf(stderr, "gyre-eval: %.2f s (set-up %.2f s)\n", (double)(base_now() - begin) * 1e-9,
                (double)(begin - start) * 1e-9);
    return status;
}

static gyre_status_t run(gyre_comm_t *comm, void *user)
{
    const eval_options_t *o = user;
    eval_t eval = {.options = o, .comm = comm};
    gyre_status_t status = evaluate(&eval);
    status = results_close(eval.results, status);
    eval_questions_close(&eval);
    pipe_evaluator_destroy(eval.evaluator);
    model_tokenizer_destroy(eval.tokenizer);
    pipe_part_close(&eval.part);
    return status;
}

int main(int argc, char **argv)
{
    blas_leave_out_threads(argv);
    eval_options_t options = {.part = {.source = {.precision = -1}}};
    int speak = comm_identity_rank_hint() == 0;
    base_settings_load();
    int code = parse(argc, argv, &options, speak);
    if (code >= 0)
        return code;
    return job_main(run, &options);
}
