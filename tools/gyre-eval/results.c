/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-eval/results.c: a row for each file, and one for all of them; the same as JSON. Nothing of it
 * depends on ranks or time, so that two documents can be compared byte by byte. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text/json.h"
#include "tools/gyre-eval/eval.h"
#include "tools/shared/unfinished.h"

#define LN2 0.69314718055994530942

struct results {
    const eval_options_t *options;
    json_t *document, *rows;
    base_file_t log;
    int logs;
    gyre_status_t status;
    /* of all files */
    size_t tokens, windows, bytes;
    int bytes_known;
    double nats; /* sum */
    size_t questions, cuts, right[PIPE_ACCS];
};

static const char *const acc_name[PIPE_ACCS] = {"acc", "acc_norm", "acc_bytes"};

/* ---- begin --------------------------------------------------------------------------------------------- */

static gyre_status_t no_results(void)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for results");
}

/* Names of files may be no UTF-8. */
static json_t *name_of(const char *path)
{
    return base_json_string(path, strlen(path));
}

static json_t *list_of(const model_specials_t *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count; i++)
        json_array_append_new(list, json_integer(ids->id[i]));
    return list;
}

/* What is the same for all rows. */
static gyre_status_t begin_document(const eval_t *eval, results_t *r)
{
    static const char *const tasks[] = {"perplexity", "hellaswag", "arc", "mmlu"};
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    const eval_options_t *o = eval->options;
    const pipe_source_t *source = eval->part.source;
    const model_config_t *model = pipe_source_model(source);
    const uint64_t step = pipe_source_step(source);
    const size_t stride = o->stride ? o->stride : model->seq;
    r->rows = json_array();
    r->document = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:o, s:O}", "task", tasks[o->task], "model",
        name_of(o->part.source.path), "step",
        step == UINT64_MAX ? json_null() : json_integer((json_int_t)step), "tokenizer",
        eval->tokenizer ? name_of(model_tokenizer_name(eval->tokenizer)) : json_null(), "bos",
        list_of(&eval->begin), "positions", (json_int_t)model->seq, "leaves", (json_int_t)model->leaves,
        "precision", precisions[pipe_source_precision(source)], "stride",
        o->task == TASK_PERPLEXITY ? json_integer((json_int_t)stride) : json_null(), "results", r->rows);
    return r->rows && r->document ? GYRE_OK : no_results();
}

/* No result is written over what is read. */
static gyre_status_t check_apart(const eval_options_t *o, const char *flag, const char *path)
{
    gyre_status_t status = pipe_source_check_output(flag, path, o->part.source.path, o->tokenizer);
    for (size_t i = 0; status == GYRE_OK && i < o->files; i++)
        status = pipe_source_check_input(flag, path, o->file[i]);
    return status;
}

gyre_status_t results_open(eval_t *eval)
{
    const eval_options_t *o = eval->options;
    results_t *r = eval->results = calloc(1, sizeof *r);
    if (!r)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for results");
    *r = (results_t){.options = o, .bytes_known = 1};
    const int cannot = o->json ? base_file_check(o->json) : 0;
    if (cannot)
        return gyre_fail_errno(GYRE_ERR_IO, cannot, "--json: cannot write %s", o->json);
    if (base_file_same(o->json, o->logprobs))
        return gyre_fail(GYRE_ERR_INVALID, "--json %s and --logprobs %s are one file: name two", o->json,
                         o->logprobs);
    gyre_status_t status = check_apart(o, "json", o->json);
    if (status == GYRE_OK)
        status = check_apart(o, "logprobs", o->logprobs);
    if (status == GYRE_OK)
        status = begin_document(eval, r);
    if (status == GYRE_OK && o->logprobs && (status = unfinished_begin(o->logprobs, &r->log)) == GYRE_OK)
        r->logs = 1;
    return status;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* A row that json_pack made; NULL: it had no memory. */
static void add_row(results_t *r, const char *key, json_t *row)
{
    int failed = strcmp(key, "results") == 0 ? json_array_append(r->rows, row)
                                             : json_object_set(r->document, key, row);
    json_decref(row);
    if (failed && r->status == GYRE_OK)
        r->status = no_results();
}

/* The end of the path, in characters. */
static void print_name(const char *path)
{
    enum { WIDTH = 36 };
    size_t n = pipe_choice_characters(path);
    for (; n > WIDTH; n--)
        do
            path++;
        while (((unsigned char)*path & 0xc0) == 0x80);
    printf("%s%*s", path, (int)(WIDTH - n), "");
}

static void print_end(results_t *r)
{
    putchar('\n');
    if ((fflush(stdout) != 0 || ferror(stdout)) && r->status == GYRE_OK)
        r->status = gyre_fail_errno(GYRE_ERR_IO, errno, "cannot write to standard output");
}

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* nats: the mean. */
static void add_text(results_t *r, const char *key, const char *path, size_t tokens, size_t windows,
                     size_t bytes, double nats)
{
    char exact[40];
    const double bits = bytes > 0 ? nats * (double)tokens / LN2 / (double)bytes : NAN;
    snprintf(exact, sizeof exact, "%a", nats);
    json_t *row = json_pack("{s:o, s:I, s:I, s:o, s:o, s:s, s:o, s:o}", "file", name_of(path), "tokens",
                            (json_int_t)tokens, "windows", (json_int_t)windows, "bytes",
                            bytes > 0 ? json_integer((json_int_t)bytes) : json_null(), "nats_per_token",
                            real_or_null(nats), "nats_per_token_hex", exact, "bits_per_byte",
                            real_or_null(bits), "perplexity", real_or_null(exp(nats)));
    add_row(r, key, row);
    print_name(path);
    printf(" %10zu %12.6f ", tokens, nats);
    if (bytes > 0)
        printf("%10.6f", bits);
    else
        printf("%10s", "-");
    printf(" %12.4f", exp(nats));
    print_end(r);
}

void results_text(results_t *r, const char *path, const model_token_t *tokens, size_t count,
                  const float *log_probability, size_t bytes, const pipe_perplexity_t *p)
{
    if (r->tokens == 0)
        printf("%-36s %10s %12s %10s %12s\n", "file", "tokens", "nats/token", "bits/byte", "perplexity");
    r->tokens += p->tokens;
    r->windows += p->windows;
    r->bytes += bytes;
    r->bytes_known &= bytes > 0;
    r->nats += p->nats * (double)p->tokens;
    add_text(r, "results", path, p->tokens, p->windows, bytes, p->nats);
    char real[BASE_JSON_REAL];
    for (size_t i = 1; r->logs && i < count; i++)
        fprintf(r->log.out,
                "{\"file\":%zu,\"index\":%zu,\"token\":%d,\"logprob\":%s,\"logprob_hex\":\"%a\"}\n",
                json_array_size(r->rows) - 1, i, (int)tokens[i],
                base_json_real(real, 9, (double)log_probability[i]), (double)log_probability[i]);
}

static void add_questions(results_t *r, const char *key, const char *path, size_t questions, size_t cuts,
                          const size_t *right)
{
    json_t *row = json_pack("{s:o, s:I, s:I}", "file", name_of(path), "questions", (json_int_t)questions,
                            "cut", (json_int_t)cuts);
    print_name(path);
    printf(" %9zu", questions);
    for (int a = 0; a < PIPE_ACCS; a++) {
        char name[32];
        const double n = (double)questions, part = (double)right[a] / n,
                     error = questions > 1 ? sqrt(part * (1.0 - part) / (n - 1.0)) : NAN;
        snprintf(name, sizeof name, "%s_stderr", acc_name[a]);
        json_object_set_new(row, acc_name[a], json_real(part));
        json_object_set_new(row, name, real_or_null(error));
        if (isfinite(error))
            printf("   %.4f +- %.4f", part, error);
        else
            printf("   %.4f         ", part);
    }
    print_end(r);
    add_row(r, key, row);
}

static void log_choices(results_t *r, const pipe_questions_t *questions, const double *score,
                        const pipe_prompts_t *prompts)
{
    char real[BASE_JSON_REAL];
    size_t n = 0;
    for (size_t i = 0; i < questions->count; i++) {
        const pipe_question_t *q = &questions->question[i];
        for (size_t c = 0; c < q->choices; c++, n++)
            fprintf(
                r->log.out,
                "{\"file\":%zu,\"line\":%zu,\"choice\":%zu,\"answer\":%s,\"context_tokens\":%zu,"
                "\"tokens\":%zu,\"characters\":%zu,\"bytes\":%zu,\"logprob\":%s,\"logprob_hex\":\"%a\"}\n",
                json_array_size(r->rows) - 1, q->line, c, c == q->answer ? "true" : "false",
                prompts->prompt[n].count, prompts->prompt[n].given, pipe_choice_characters(q->choice[c]),
                strlen(q->choice[c]), base_json_real(real, 17, score[n]), score[n]);
    }
}

void results_questions(results_t *r, const pipe_questions_t *questions, size_t cuts, const double *score,
                       const pipe_prompts_t *prompts)
{
    size_t right[PIPE_ACCS];
    pipe_choices_count(questions, score, right);
    if (r->questions == 0)
        printf("%-36s %9s   %-16s   %-16s   %s\n", "file", "questions", "acc", "acc_norm", "acc_bytes");
    r->questions += questions->count;
    r->cuts += cuts;
    for (int a = 0; a < PIPE_ACCS; a++)
        r->right[a] += right[a];
    add_questions(r, "results", questions->path, questions->count, cuts, right);
    if (r->logs)
        log_choices(r, questions, score, prompts);
}

/* ---- end ----------------------------------------------------------------------------------------------- */

/* The row of all files together: as if they were one list of tokens or questions. */
static void add_all(results_t *r)
{
    if (r->options->task == TASK_PERPLEXITY)
        add_text(r, "all", "all", r->tokens, r->windows, r->bytes_known ? r->bytes : 0,
                 r->nats / (double)r->tokens);
    else
        add_questions(r, "all", "all", r->questions, r->cuts, r->right);
}

gyre_status_t results_close(results_t *r, gyre_status_t status)
{
    if (!r)
        return status;
    if (status == GYRE_OK && r->options->files > 1)
        add_all(r);
    if (status == GYRE_OK)
        status = r->status;
    if (status == GYRE_OK && r->options->json)
        status = base_json_write(r->options->json, r->document);
    if (r->logs && status == GYRE_OK)
        status = base_file_commit(&r->log);
    else if (r->logs)
        base_file_abandon(&r->log);
    json_decref(r->document);
    json_decref(r->rows);
    free(r);
    return status;
}
