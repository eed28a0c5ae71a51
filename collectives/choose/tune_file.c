/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/choose/tune_file.c: the tuning file as text: reading it with errors that name the line, and
 * writing it.
 *
 * One statement a line, words with blanks between, # begins a comment. Unknown words are errors, not
 * ignored: a typing mistake in an override would else look as if it did nothing. */
#include "collectives/choose/tune.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/settings/size.h"

#define FIELD(name, unit, kind, meaning)                        \
    {                                                           \
#name, unit, meaning, offsetof(coll_cost_t, name), kind \
    }
const coll_cost_field_t coll_cost_fields[] = {
    FIELD(call, "ns", 'd', "a collective call that exchanges nothing"),
    FIELD(step, "ns", 'd', "one step of a schedule"),
    FIELD(line, "ns", 'd', "from a store on one core to its sight on another"),
    FIELD(message, "ns", 'd', "a small message over a link"),
    FIELD(yield, "ns", 'd', "handing the core to another rank of this core"),
    FIELD(wake, "ns", 'd', "waking a sleeping rank"),
    FIELD(copy_cache, "GB/s", 'd', "memcpy within the second-level cache"),
    FIELD(copy_memory, "GB/s", 'd', "memcpy beyond it"),
    FIELD(reduce_cache, "GB/s", 'd', "input added up within the second-level cache"),
    FIELD(reduce_memory, "GB/s", 'd', "input added up beyond it"),
    FIELD(peer_cache, "GB/s", 'd', "copying what another core has just written"),
    FIELD(peer_memory, "GB/s", 'd', "the same where it was too much for that core's cache"),
    FIELD(peer_write, "GB/s", 'd', "copying to where another core has just read"),
    FIELD(peer_stage, "GB/s", 'd', "copying to where another core has read, too long ago for its cache"),
    FIELD(turn_write, "GB/s", 'd',
          "copying to where another core has just read, and written a word of each line"),
    FIELD(turn_load, "GB/s", 'd',
          "copying what another core has just written, and writing a word of each line"),
    FIELD(total_memory, "GB/s", 'd', "all cores together, read and written, beyond caches"),
    FIELD(cma_call, "ns", 'd', "a call of process_vm_readv"),
    FIELD(cma_rate, "GB/s", 'd', "what it copies, in small pages, within the cache"),
    FIELD(cma_memory, "GB/s", 'd', "what it copies from small pages beyond the caches, on two cores at once"),
    FIELD(copy_pages, "GB/s", 'd', "memcpy from small pages beyond the caches, on two cores at once"),
    FIELD(cache_bytes, "bytes", 'z', "of one core's second-level cache"),
    FIELD(cores, "", 'i', "that the system allowed the process that measured"),
    FIELD(net_latency, "ns", 'd', "between hosts; 0: unknown"),
    FIELD(net_rate, "GB/s", 'd', "between hosts; 0: unknown"),
};
const int coll_cost_field_count = sizeof coll_cost_fields / sizeof *coll_cost_fields;

double coll_cost_get(const coll_cost_t *cost, const coll_cost_field_t *field)
{
    const char *at = (const char *)cost + field->offset;
    size_t size;
    int number;
    double value;
    switch (field->kind) {
    case 'z':
        memcpy(&size, at, sizeof size);
        return (double)size;
    case 'i':
        memcpy(&number, at, sizeof number);
        return number;
    default:
        memcpy(&value, at, sizeof value);
        return value;
    }
}

static void cost_set(coll_cost_t *cost, const coll_cost_field_t *field, double value)
{
    char *at = (char *)cost + field->offset;
    size_t size;
    int number;
    switch (field->kind) { /* the reader has seen to it that the value fits */
    case 'z':
        size = (size_t)value;
        memcpy(at, &size, sizeof size);
        break;
    case 'i':
        number = (int)value;
        memcpy(at, &number, sizeof number);
        break;
    default:
        memcpy(at, &value, sizeof value);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

enum { WORDS_MOST = 24, LINE_MOST = 1024 };

typedef struct {
    const char *name;
    int line, quiet;
    coll_tune_t *out;
    char *boot;
    char *word[WORDS_MOST];
    int words;
    const char *comment; /* the text after #; "" if there is none */
} reader_t;

static gyre_status_t wrong(const reader_t *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static gyre_status_t wrong(const reader_t *r, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->quiet)
        return gyre_fail_quiet(GYRE_ERR_FORMAT, "%s:%d: %s", r->name, r->line, text);
    return gyre_fail(GYRE_ERR_FORMAT,
                     "%s:%d: %s (docs/tuning.md; GYRE_TUNE= without a value leaves this file aside)", r->name,
                     r->line, text);
}

/* Digits with a fraction, the same in every locale. */
static int parse_number(const char *text, double *out)
{
    double value = 0, scale = 1;
    int digits = 0, fraction = 0;
    for (; *text; text++) {
        if (*text == '.' && !fraction) {
            fraction = 1;
            continue;
        }
        if (*text < '0' || *text > '9')
            return 0;
        digits++;
        scale *= fraction ? 10 : 1;
        value = value * 10 + (*text - '0');
    }
    *out = value / scale;
    return digits > 0 && digits < 16;
}

/* Digits after the point of costs below 1; others are written with two. The least cost is one of the last
 * of these digits, and the greatest has no more digits than a number may, so that what is read can be
 * written. */
enum { SMALL_DIGITS = 6 };
static const double LEAST_COST = 1e-6, MOST_COST = 1e12;

static gyre_status_t read_cost(reader_t *r)
{
    double value;
    if (r->words != 3)
        return wrong(r, "a cost has a name and a number: cost line 55.2");
    for (int i = 0; i < coll_cost_field_count; i++) {
        const coll_cost_field_t *field = &coll_cost_fields[i];
        if (strcmp(r->word[1], field->name) != 0)
            continue;
        int zero = strncmp(field->name, "net_", 4) == 0, whole = field->kind != 'd';
        if (!parse_number(r->word[2], &value) || (whole && value != floor(value)) ||
            value > (field->kind == 'i' ? 1e6 : MOST_COST) ||
            (value < (whole ? 1.0 : LEAST_COST) && !(zero && value == 0)))
            return wrong(r, "cost %s: \"%s\" is not a %snumber from %s to %s%s", field->name, r->word[2],
                         whole ? "whole " : "", whole ? "1" : "0.000001",
                         field->kind == 'i' ? "1000000" : "1000000000000", zero ? ", or 0" : "");
        cost_set(&r->out->cost, field, value);
        return GYRE_OK;
    }
    return wrong(r, "there is no cost \"%s\"; gyre-doctor lists them", r->word[1]);
}

/* "8", "2-8", "8K-1M", "8-" */
static int parse_range(const char *text, uint64_t *low, uint64_t *high)
{
    char part[64];
    const char *dash = strchr(text, '-');
    size_t length = dash ? (size_t)(dash - text) : strlen(text);
    if (length >= sizeof part)
        return 0;
    memcpy(part, text, length);
    part[length] = 0;
    if (!base_size_parse(part, low))
        return 0;
    *high = dash ? UINT64_MAX : *low;
    return !dash || !dash[1] || (base_size_parse(dash + 1, high) && *high >= *low);
}

static gyre_status_t read_range(reader_t *r, int i, uint64_t *low, uint64_t *high)
{
    if (!parse_range(r->word[i + 1], low, high))
        return wrong(r, "%s: \"%s\" is no range such as %s", r->word[i], r->word[i + 1],
                     r->word[i][0] == 'b' ? "8K-1M, 4096 or 1M-" : "2-8, 4 or 2-");
    return GYRE_OK;
}

/* One pair of words of a choose line. */
static gyre_status_t read_clause(reader_t *r, int i, coll_tune_line_t *line)
{
    const char *key = r->word[i], *value = r->word[i + 1];
    uint64_t low, high;
    gyre_status_t st = GYRE_OK;
    if (!strcmp(key, "ranks") || !strcmp(key, "hosts")) {
        int32_t *range = key[0] == 'r' ? line->ranks : line->hosts;
        st = read_range(r, i, &low, &high);
        if (st == GYRE_OK && high == 0)
            return wrong(r, "%s: \"%s\" must be at least 1", key, value);
        if (st == GYRE_OK) {
            range[0] = low > INT32_MAX ? INT32_MAX : (int32_t)low;
            range[1] = high > INT32_MAX ? INT32_MAX : (int32_t)high;
        }
    } else if (!strcmp(key, "bytes")) {
        st = read_range(r, i, &line->bytes[0], &line->bytes[1]);
        line->any_bytes = 0;
    } else if (!strcmp(key, "algo")) {
        coll_algo_t algo = coll_algo_parse(value);
        if (algo == COLL_ALGO_END || algo == COLL_ALGO_AUTO ||
            !coll_algo_serves(algo, (coll_op_t)line->op, NULL))
            return wrong(r, "algo: \"%s\" is no algorithm for %s (gyre-perf --help lists them)", value,
                         coll_op_name((coll_op_t)line->op));
        line->algo = (uint8_t)algo;
    } else if (!strcmp(key, "chunk")) {
        if (!base_size_parse(value, &line->chunk) || line->chunk == 0 || line->chunk > (uint64_t)1 << 40)
            return wrong(r, "chunk: \"%s\" is no size such as 256K", value);
    } else if (!strcmp(key, "form")) {
        if (strcmp(value, "one_shot") != 0 && strcmp(value, "blocks") != 0)
            return wrong(r, "form: \"%s\" is neither one_shot nor blocks", value);
        line->one_shot = strcmp(value, "one_shot") == 0;
    } else {
        return wrong(r, "choose: \"%s\" is not one of ranks, hosts, bytes, algo, form, chunk", key);
    }
    return st;
}

static gyre_status_t read_choose(reader_t *r)
{
    coll_tune_line_t line = {.one_shot = -1,
                             .any_bytes = 1,
                             .line = r->line,
                             .ranks = {1, INT32_MAX},
                             .hosts = {1, INT32_MAX},
                             .bytes = {0, UINT64_MAX}};
    if (r->words < 2)
        return wrong(r, "choose needs a collective: choose all_reduce ranks 2-8 bytes 8K-1M algo direct");
    for (int op = 1; op < COLL_OP_END; op++)
        if (!strcmp(r->word[1], coll_op_name((coll_op_t)op)))
            line.op = (uint8_t)op;
    if (!line.op) {
        char all[160] = "";
        for (int op = 1; op < COLL_OP_END; op++)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", op > 1 ? ", " : "",
                     coll_op_name((coll_op_t)op));
        return wrong(r, "there is no collective \"%s\" (%s)", r->word[1], all);
    }
    for (int i = 2; i < r->words; i += 2) {
        if (i + 1 == r->words)
            return wrong(r, "choose: \"%s\" needs a value", r->word[i]);
        for (int before = 2; before < i; before += 2)
            if (!strcmp(r->word[before], r->word[i]))
                return wrong(r, "choose: \"%s\" is given twice", r->word[i]);
        gyre_status_t st = read_clause(r, i, &line);
        if (st != GYRE_OK)
            return st;
    }
    if (!line.algo && line.one_shot < 0 && !line.chunk)
        return wrong(r, "choose: the line chooses nothing: it needs algo, form or chunk");
    if (r->out->nlines == COLL_TUNE_LINES_MOST)
        return wrong(r, "more than %d choose lines", COLL_TUNE_LINES_MOST);
    snprintf(line.comment, sizeof line.comment, "%s", r->comment);
    r->out->lines[r->out->nlines++] = line;
    return GYRE_OK;
}

static gyre_status_t read_busy(reader_t *r)
{
    double stretch, times, when;
    if (r->words != 4 || !parse_number(r->word[1], &stretch) || !parse_number(r->word[2], &times) ||
        !parse_number(r->word[3], &when) || stretch < 1 || stretch > 1e6 || times < 1 || times > INT32_MAX)
        return wrong(r, "busy needs three numbers, such as: busy 1.8 2 1764283000");
    r->out->busy = (coll_tune_busy_t){.stretch = stretch, .times = (int32_t)times, .when = (int64_t)when};
    return GYRE_OK;
}

static gyre_status_t read_statement(reader_t *r, int first)
{
    const char *word = r->word[0];
    if (first) {
        if (strcmp(word, "gyre-tune") != 0 || r->words != 2)
            return wrong(r, "a tuning file begins with the line: gyre-tune 1");
        return strcmp(r->word[1], "1") == 0
                   ? GYRE_OK
                   : wrong(r, "version %s of the format is not known here, 1 is", r->word[1]);
    }
    if (!strcmp(word, "cost"))
        return read_cost(r);
    if (!strcmp(word, "choose"))
        return read_choose(r);
    if (!strcmp(word, "busy"))
        return read_busy(r);
    if (!strcmp(word, "signature") && r->words == 2) {
        char *end;
        r->out->signature = strtoull(r->word[1], &end, 16);
        return *end == 0 ? GYRE_OK : wrong(r, "signature: \"%s\" is not a hexadecimal number", r->word[1]);
    }
    if (!strcmp(word, "boot") && r->words == 2) {
        if (r->boot)
            snprintf(r->boot, 64, "%s", r->word[1]);
        return GYRE_OK;
    }
    return wrong(r, "\"%s\" is not one of signature, boot, busy, cost, choose", word);
}

gyre_status_t coll_tune_parse(FILE *in, const char *name, int quiet, coll_tune_t *out, char *boot)
{
    reader_t r = {.name = name, .quiet = quiet, .out = out, .boot = boot};
    char text[LINE_MOST];
    int first = 1;
    gyre_status_t st = GYRE_OK;
    out->nlines = 0;
    out->signature = 0;
    out->busy = (coll_tune_busy_t){0};
    snprintf(out->path, sizeof out->path, "%s", name);
    while (st == GYRE_OK && fgets(text, sizeof text, in)) {
        r.line++;
        if (!strchr(text, '\n') && !feof(in))
            return wrong(&r, "the line is longer than %d characters", LINE_MOST - 2);
        text[strcspn(text, "\n")] = 0;
        char *hash = strchr(text, '#');
        r.comment = hash ? hash + 1 + strspn(hash + 1, " ") : "";
        if (hash)
            *hash = 0;
        char *rest = NULL;
        r.words = 0;
        for (char *w = strtok_r(text, " \t\r", &rest); w && st == GYRE_OK;
             w = strtok_r(NULL, " \t\r", &rest)) {
            if (r.words == WORDS_MOST)
                st = wrong(&r, "more than %d words", WORDS_MOST);
            else
                r.word[r.words++] = w;
        }
        if (st == GYRE_OK && r.words > 0) {
            st = read_statement(&r, first);
            first = 0;
        }
    }
    if (st == GYRE_OK && ferror(in))
        return gyre_fail(GYRE_ERR_IO, "cannot read %s", name);
    if (st == GYRE_OK && first)
        st = wrong(&r, "a tuning file begins with the line: gyre-tune 1");
    return st;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void print_range(FILE *out, const char *word, uint64_t low, uint64_t high, uint64_t none)
{
    char a[BASE_SIZE_TEXT], b[BASE_SIZE_TEXT];
    if (low == high)
        fprintf(out, " %s %s", word, base_size_text(low, a));
    else
        fprintf(out, " %s %s-%s", word, base_size_text(low, a), high == none ? "" : base_size_text(high, b));
}

static void print_line(FILE *out, const coll_tune_line_t *l)
{
    char text[BASE_SIZE_TEXT];
    fprintf(out, "choose %s", coll_op_name((coll_op_t)l->op));
    if (l->ranks[0] > 1 || l->ranks[1] < INT32_MAX)
        print_range(out, "ranks", (uint64_t)l->ranks[0], (uint64_t)l->ranks[1], INT32_MAX);
    if (l->hosts[0] > 1 || l->hosts[1] < INT32_MAX)
        print_range(out, "hosts", (uint64_t)l->hosts[0], (uint64_t)l->hosts[1], INT32_MAX);
    if (!l->any_bytes)
        print_range(out, "bytes", l->bytes[0], l->bytes[1], UINT64_MAX);
    if (l->algo)
        fprintf(out, " algo %s", coll_algo_name((coll_algo_t)l->algo));
    if (l->one_shot >= 0)
        fprintf(out, " form %s", l->one_shot ? "one_shot" : "blocks");
    if (l->chunk)
        fprintf(out, " chunk %s", base_size_text(l->chunk, text));
    fprintf(out, l->comment[0] ? "  # %s\n" : "%s\n", l->comment);
}

/* text: [32]. */
static const char *number_text(double value, int digits, char *text)
{
    snprintf(text, 32, "%.*f", digits, value);
    if (strchr(text, ',')) /* the program's locale is not the file's */
        *strchr(text, ',') = '.';
    return text;
}

void coll_tune_print(FILE *out, const coll_tune_t *tune, const char *boot)
{
    char number[32];
    fputs("# What Gyre measured on this machine, and what it is to choose. gyre-perf --tune writes it anew; "
          "it may be edited:\n"
          "# docs/tuning.md says what the lines mean. With another signature it is not used but measured "
          "again.\n"
          "gyre-tune 1\n",
          out);
    if (tune->signature)
        fprintf(out, "signature %016llx\n", (unsigned long long)tune->signature);
    if (boot && *boot)
        fprintf(out, "boot %s\n", boot);
    if (tune->busy.stretch > 0)
        fprintf(out, "busy %s %d %lld  # %s\n", number_text(tune->busy.stretch, 2, number),
                (int)tune->busy.times, (long long)tune->busy.when,
                "others had the cores: times the best samples; so often; last (seconds since 1970)");
    for (int i = 0; i < coll_cost_field_count; i++) {
        const coll_cost_field_t *f = &coll_cost_fields[i];
        const double value = coll_cost_get(&tune->cost, f);
        fprintf(out, "cost %-12s %10s  # %s%s%s\n", f->name,
                number_text(value,
                            f->kind != 'd' ? 0
                            : value < 1    ? SMALL_DIGITS
                                           : 2,
                            number),
                f->unit, *f->unit ? ": " : "", f->meaning);
    }
    for (int i = 0; i < tune->nlines; i++)
        print_line(out, &tune->lines[i]);
}

const coll_tune_line_t *coll_tune_find(const coll_tune_t *tune, const coll_args_t *args, int hosts, int known,
                                       uint64_t bytes)
{
    for (int i = 0; i < tune->nlines; i++) {
        const coll_tune_line_t *l = &tune->lines[i];
        if (l->op != args->op || args->n < l->ranks[0] || args->n > l->ranks[1] || hosts < l->hosts[0] ||
            hosts > l->hosts[1])
            continue;
        if (!l->any_bytes && (!known || bytes < l->bytes[0] || bytes > l->bytes[1]))
            continue;
        if (!l->algo || coll_algo_serves((coll_algo_t)l->algo, args->op, args))
            return l;
    }
    return NULL;
}
