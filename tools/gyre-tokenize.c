/* tools/gyre-tokenize.c: text to token files and back. See gyre-tokenize(1). */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "tools/gyre-tokenize/tokenize.h"

enum { OK = 0, ERROR = 1, USAGE = 2 };

static const char help[] =
    "usage: gyre-tokenize --tokenizer TOKENIZER --out FILE.gyt [OPTION...] INPUT...\n"
    "       gyre-tokenize --info FILE\n"
    "       gyre-tokenize --decode FILE [--tokenizer TOKENIZER] [--from N] [--count N]\n"
    "\n"
    "Writes the tokens of texts to a file for gyre-train --data. INPUT is a file, a folder of text files, or "
    "- for\n"
    "standard input; each file is one document. The file written does not depend on the number of threads.\n"
    "\n"
    "  --tokenizer TOKENIZER  bytes; gpt2:merges.txt; gpt2:FILE, cl100k:FILE or o200k:FILE (.tiktoken); or a "
    "file:\n"
    "                         tokenizer.json (byte-level BPE), merges.txt, a .tiktoken file named after its "
    "pattern\n"
    "  --out FILE             the token file; it is replaced as a whole, when all is done\n"
    "  --eot                  put the tokenizer's end of text after each document\n"
    "  --jsonl                each line of INPUT is a JSON object with one document\n"
    "  --key NAME             of the document in it (text)\n"
    "  --threads N            that encode (as many as there are cores)\n"
    "  --quiet                no progress on standard error\n"
    "\n"
    "  --info FILE            say what a token file holds, and check all of it\n"
    "  --decode FILE          write the text of a token file to standard output\n"
    "  --from N, --count N    only N tokens, from token N on (0, all)\n"
    "  --data-format NAME     of FILE: auto, text, gyre, llmc, megatron, nanogpt (auto)\n"
    "  -h, --help             this text\n"
    "  --version              the version\n";

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "gyre-tokenize: %s%s; see gyre-tokenize --help\n", what, why);
    return USAGE;
}

static int to_number(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || strchr(text, '-') || errno || value < low || value > high)
        return 0;
    *out = value;
    return 1;
}

/* -1: go on. */
static int parse(int argc, char **argv, tokenize_options_t *options)
{
    enum {
        TOKENIZER = 256,
        OUT,
        EOT,
        JSONL,
        KEY,
        THREADS,
        QUIET,
        INFO,
        DECODE,
        FROM,
        COUNT,
        FORMAT,
        VERSION
    };
    static const struct option names[] = {{"tokenizer", required_argument, NULL, TOKENIZER},
                                          {"out", required_argument, NULL, OUT},
                                          {"eot", no_argument, NULL, EOT},
                                          {"jsonl", no_argument, NULL, JSONL},
                                          {"key", required_argument, NULL, KEY},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"quiet", no_argument, NULL, QUIET},
                                          {"info", required_argument, NULL, INFO},
                                          {"decode", required_argument, NULL, DECODE},
                                          {"from", required_argument, NULL, FROM},
                                          {"count", required_argument, NULL, COUNT},
                                          {"data-format", required_argument, NULL, FORMAT},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, VERSION},
                                          {NULL, 0, NULL, 0}};
    const char *key = NULL;
    int option, jsonl = 0;
    while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1)
        switch (option) {
        case TOKENIZER:
            options->tokenizer = optarg;
            break;
        case OUT:
            options->out = optarg;
            break;
        case EOT:
            options->eot = 1;
            break;
        case JSONL:
            jsonl = 1;
            break;
        case KEY:
            key = optarg;
            break;
        case QUIET:
            options->quiet = 1;
            break;
        case INFO:
            options->info = optarg;
            break;
        case DECODE:
            options->decode = optarg;
            break;
        case THREADS:
            if (!to_number(optarg, 1, 1024, &options->threads))
                return complain("--threads wants a number from 1 to 1024, not ", optarg);
            break;
        case FROM:
            if (!to_number(optarg, 0, UINT64_MAX, &options->from))
                return complain("--from wants a number, not ", optarg);
            break;
        case COUNT:
            if (!to_number(optarg, 0, UINT64_MAX, &options->count))
                return complain("--count wants a number, not ", optarg);
            break;
        case FORMAT:
            if (!model_tokens_format_find(optarg, &options->format))
                return complain("there is no format ", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return OK;
        case VERSION:
            printf("gyre-tokenize %s\n", GYRE_VERSION);
            return OK;
        default:
            return complain("the command line is not understood", "");
        }
    if (key && !jsonl)
        return complain("--key needs --jsonl", "");
    options->key = jsonl ? (key ? key : "text") : NULL;
    options->inputs = argv + optind;
    options->input_count = (size_t)(argc - optind);
    return -1;
}

/* What goes together. -1: all of it. */
static int check(const tokenize_options_t *options)
{
    int shows = (options->info != NULL) + (options->decode != NULL);
    if (shows > 1 || (shows == 1 && (options->out || options->input_count > 0)))
        return complain("--info, --decode and writing a file exclude each other", "");
    if (shows == 1)
        return -1;
    if (!options->tokenizer)
        return complain("--tokenizer is missing: bytes, gpt2:merges.txt or a tokenizer.json", "");
    if (!options->out)
        return complain("--out FILE.gyt is missing", "");
    if (options->input_count == 0)
        return complain("there is no INPUT", "");
    return -1;
}

int main(int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    tokenize_options_t options = {.count = UINT64_MAX,
                                  .threads = cores < 1      ? 1
                                             : cores > 1024 ? 1024
                                                            : (uint64_t)cores};
    base_settings_load();
    int code = parse(argc, argv, &options);
    if (code < 0)
        code = check(&options);
    if (code >= 0)
        return code;
    gyre_status_t status = options.info     ? tokenize_info(&options)
                           : options.decode ? tokenize_decode(&options)
                                            : tokenize_encode(&options);
    if (fflush(stdout) != 0 && status == GYRE_OK) {
        fprintf(stderr, "gyre-tokenize: cannot write to standard output: %s\n", strerror(errno));
        return ERROR;
    }
    if (status == GYRE_OK)
        return OK;
    int input = status == GYRE_ERR_INVALID || status == GYRE_ERR_NOT_FOUND || status == GYRE_ERR_FORMAT;
    return input ? USAGE : ERROR;
}
