/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-tokenize.c: text to token files and back. See gyre-tokenize(1). */
#include <string.h>
#include <time.h>

#include "base/machine/cgroup.h"
#include "base/settings/settings.h"
#include "tools/gyre-tokenize/tokenize.h"
#include "tools/shared/flags.h"
#include "tools/shared/job.h"
#include "tools/shared/output.h"

enum { THREADS_MOST = 1024 };

static const char usage[] =
    "usage: gyre-tokenize --tokenizer TOKENIZER --out FILE.gyt [OPTION...] INPUT...\n"
    "       gyre-tokenize --info FILE\n"
    "       gyre-tokenize --decode FILE [--tokenizer TOKENIZER] [--from N] [--count N]\n"
    "\n"
    "Writes the tokens of texts to a file for gyre-train --data. INPUT is a file, a folder of text files, or "
    "- for\n"
    "standard input; each file is one document. The file written does not depend on the number of threads.\n";

static int complain(const char *what)
{
    return flags_wrong("gyre-tokenize", "%s", what);
}

static int read_format(void *to, const char *name)
{
    return model_tokens_format_find(name, to);
}

static int read_template(void *to, const char *name)
{
    *(const char **)to = name;
    return model_chat_known(name);
}

static int read_date(void *to, const char *date)
{
    struct tm tm = {0};
    const char *end = strptime(date, "%Y-%m-%d", &tm);
    *(const char **)to = date;
    return end && !*end && strlen(date) == 10;
}

/* -1: go on. */
static int parse(int argc, char **argv, tokenize_options_t *options)
{
    enum { WRITE = 1, INFO = 2, DECODE = 4 };
    int words = 0, learn_given = 0, from_given = 0, count_given = 0, format_given = 0;
    const flag_t rows[] = {
        {FLAG(0, "tokenizer", TEXT, &options->tokenizer, "TOKENIZER",
              "bytes; gpt2:merges.txt; gpt2:FILE, cl100k:FILE or o200k:FILE (.tiktoken); or a\n"
              "file: tokenizer.json, a .model of SentencePiece, merges.txt, a .tiktoken file named\n"
              "after its pattern")},
        {FLAG(0, "out", TEXT, &options->out, "FILE",
              "the token file; an old one is replaced when all is done")},
        {FLAG(0, "eot", SWITCH, &options->eot, NULL, "put the tokenizer's end of text after each document")},
        {FLAG(0, "jsonl", SWITCH, &options->jsonl, NULL,
              "each line of INPUT is a JSON object with one document: \"messages\", a\n"
              "conversation, or \"conversations\"; \"prompt\" and \"completion\"; or \"text\"")},
        {FLAG(0, "key", TEXT, &options->key, "NAME", "each object's text is under NAME")},
        {FLAG(0, "template", READ, &options->template,
              "chatml|qwen2|qwen2.5|smollm2|llama3|llama3.1|qwen3|gemma|gemma3|deepseek|mistral|zephyr|plain",
              "of conversations (the model's own: chat_template.jinja or tokenizer_config.json next to\n"
              "the tokenizer)"),
         .read = read_template, .wants = model_chat_names()},
        {FLAG(0, "date", READ, &options->date, "YYYY-MM-DD",
              "the day that templates write which ask for it, such as gpt-oss's (none)"),
         .read = read_date, .wants = "a day, YYYY-MM-DD"},
        {FLAG(0, "learn", CHOICE, &options->learn, "answers|all",
              "which tokens of conversations and prompts are learned: the answers (default), or all"),
         .given = &learn_given},
        {FLAG(0, "context", COUNT, &options->context, "N",
              "leave out conversations and prompts of more than N tokens"),
         .low = 2},
        {FLAG(0, "specials", SWITCH, &options->specials, NULL,
              "take special tokens of tokenizer.json from the text: <s> is one token, not three\n"
              "characters")},
        {FLAG(0, "threads", COUNT, &options->threads, "N",
              "number of threads (one for each processor that it may use)"),
         .low = 1, .high = THREADS_MOST},
        {FLAG(0, "quiet", SWITCH, &options->quiet, NULL, "no progress on standard error")},
        {.kind = FLAG_HEADING, .help = "Existing token files:"},
        {FLAG(0, "info", TEXT, &options->info, "FILE",
              "print what a token file contains, and check all of it")},
        {FLAG(0, "decode", TEXT, &options->decode, "FILE",
              "write the text of a token file to standard output")},
        {FLAG(0, "from", COUNT, &options->from, "N", "only from token N on (0)"), .given = &from_given},
        {FLAG(0, "count", COUNT, &options->count, "N", "only N tokens (all)"), .given = &count_given},
        {FLAG(0, "data-format", READ, &options->format, "auto|text|gyre|llmc|megatron|nanogpt",
              "format of FILE (auto)"),
         .read = read_format, .wants = "auto, text, gyre, llmc, megatron or nanogpt", .given = &format_given},
    };
    const flags_t flags = {.program = "gyre-tokenize", .usage = usage, FLAG_ROWS(rows)};
    int done = flags_take(&flags, argc, argv, &words);
    if (done >= 0)
        return done;
    const struct {
        const char *name;
        int given;
    } needy[] = {{"--key", options->key != NULL},
                 {"--template", options->template != NULL},
                 {"--date", options->date != NULL},
                 {"--learn", learn_given},
                 {"--context", options->context != UINT64_MAX}};
    for (size_t i = 0; i < sizeof needy / sizeof *needy; i++) {
        if (needy[i].given && !options->jsonl)
            return flags_wrong("gyre-tokenize", "%s needs --jsonl", needy[i].name);
        if (needy[i].given && i > 0 && options->key)
            return flags_wrong("gyre-tokenize", "%s is for conversations, and --key for texts",
                               needy[i].name);
    }
    const int task = options->info ? INFO : options->decode ? DECODE : WRITE;
    const struct {
        const char *name;
        int given, of;
    } tied[] = {{"--eot", options->eot, WRITE},           {"--jsonl", options->jsonl, WRITE},
                {"--specials", options->specials, WRITE}, {"--from", from_given, DECODE},
                {"--count", count_given, DECODE},         {"--data-format", format_given, INFO | DECODE}};
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++)
        if (tied[i].given && !(tied[i].of & task))
            return flags_wrong("gyre-tokenize", "%s is no option of %s", tied[i].name,
                               task == INFO     ? "--info"
                               : task == DECODE ? "--decode"
                                                : "writing a token file");
    options->inputs = argv + words;
    options->input_count = (size_t)(argc - words);
    return -1;
}

/* What goes together. -1: all of it. */
static int check(const tokenize_options_t *options)
{
    int shows = (options->info != NULL) + (options->decode != NULL);
    if (shows > 1 || (shows == 1 && (options->out || options->input_count > 0)))
        return complain("--info, --decode and writing a file exclude each other");
    if (shows == 1)
        return -1;
    if (!options->tokenizer)
        return complain("--tokenizer is missing: bytes, gpt2:merges.txt or a tokenizer.json");
    if (!options->out)
        return complain("--out FILE.gyt is missing");
    if (options->input_count == 0)
        return complain("there is no INPUT");
    return -1;
}

int main(int argc, char **argv)
{
    tokenize_options_t options = {
        .count = UINT64_MAX, .context = UINT64_MAX, .threads = (uint64_t)base_cpus_allowed()};
    base_settings_load();
    int code = parse(argc, argv, &options);
    if (code < 0)
        code = check(&options);
    if (code >= 0)
        return code;
    gyre_status_t status = options.info     ? tokenize_info(&options)
                           : options.decode ? tokenize_decode(&options)
                                            : tokenize_encode(&options);
    return output_end("gyre-tokenize", job_exit(status), JOB_ERROR);
}
