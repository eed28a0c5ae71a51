/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/csv.c: records of comma-separated values (RFC 4180): a field in quotes may hold commas,
 * line breaks and quotes, which are doubled. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "pipeline/evaluate/internal.h"

enum { FIELDS = 6, FIRST_CHOICE = 1, CHOICES = 4, ANSWER = 5 };

typedef struct {
    char *text;             /* fields, each with a NUL after it */
    size_t bytes;           /* so far */
    size_t begin[FIELDS];   /* of the first of them in it */
    size_t fields;          /* that it has */
    size_t line;            /* of its first byte */
    const char *complaint;  /* what is wrong with it; NULL: nothing */
    int no_memory, nothing; /* nothing: the file has ended */
} record_t;

static int put(record_t *r, int byte)
{
    if ((r->bytes & (r->bytes + 1)) == 0) { /* 0, 1, 3, 7, ...: it is full */
        char *grown = realloc(r->text, 2 * (r->bytes + 1));
        if (!grown)
            return 0;
        r->text = grown;
    }
    r->text[r->bytes++] = (char)byte;
    return 1;
}

/* A field's bytes up to the comma or line break after it, which it returns, or EOF. */
static int read_field(FILE *in, record_t *r, size_t *line)
{
    int byte = getc(in), quoted = byte == '"';
    if (quoted)
        byte = getc(in);
    for (; !r->no_memory; byte = getc(in)) {
        if (quoted && byte == '"') {
            byte = getc(in);
            if (byte != '"')
                quoted = 0;
        }
        if (byte == EOF || (!quoted && (byte == ',' || byte == '\n')))
            break;
        if (byte == 0)
            r->complaint = "holds a byte of zero, which text does not";
        *line += byte == '\n';
        r->no_memory = !put(r, byte);
    }
    if (quoted && !r->no_memory)
        r->complaint = "begins a field in quotes that do not end";
    if (byte == '\n' && r->bytes > 0 && r->text[r->bytes - 1] == '\r')
        r->bytes--;
    r->no_memory |= !put(r, 0);
    return byte;
}

/* A record; lines without a byte are none. */
static void read_record(FILE *in, record_t *r, size_t *line)
{
    int end;
    do {
        r->line = *line + 1;
        r->bytes = r->fields = 0;
        do {
            if (r->fields < FIELDS)
                r->begin[r->fields] = r->bytes;
            r->fields++;
            end = read_field(in, r, line);
        } while (end == ',' && !r->no_memory);
        *line += end == '\n';
        r->nothing = r->fields == 1 && r->bytes == 1;
    } while (r->nothing && end == '\n' && !r->no_memory && !r->complaint);
}

static gyre_status_t check(const char *path, const record_t *r)
{
    const size_t bytes = r->bytes;
    if (r->complaint)
        return gyre_fail(GYRE_ERR_FORMAT, "%s:%zu: the record %s", path, r->line, r->complaint);
    if (r->fields != FIELDS)
        return gyre_fail(GYRE_ERR_FORMAT,
                         "%s:%zu: the record has %zu fields, but a question of MMLU has %d: question, four "
                         "choices, answer",
                         path, r->line, r->fields, FIELDS);
    const size_t good = base_utf8_span((const unsigned char *)r->text, bytes);
    if (good < bytes)
        return gyre_fail(GYRE_ERR_FORMAT, "%s:%zu: the record is not UTF-8: byte 0x%02x in it", path, r->line,
                         (unsigned char)r->text[good]);
    const char *answer = r->text + r->begin[ANSWER];
    if (answer[0] < 'A' || answer[0] >= 'A' + CHOICES || answer[1])
        return gyre_fail(GYRE_ERR_FORMAT, "%s:%zu: field 6, the answer, is '%.40s': it wants A, B, C or D",
                         path, r->line, answer);
    return GYRE_OK;
}

/* "abstract algebra" of .../abstract_algebra_test.csv */
static void print_subject(FILE *out, const char *path)
{
    static const char *const ends[] = {".csv", "_test", "_val", "_dev"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i]);
        if (n > end && strncmp(name + n - end, ends[i], end) == 0)
            n -= end;
    }
    for (size_t i = 0; i < n; i++)
        fputc(name[i] == '_' ? ' ' : name[i], out);
}

/* Without the spaces at its ends. */
static void print_stripped(FILE *out, const char *text)
{
    const char *space = " \t\n\r\v\f";
    text += strspn(text, space);
    size_t n = strlen(text);
    while (n > 0 && strchr(space, text[n - 1]))
        n--;
    fwrite(text, 1, n, out);
}

static gyre_status_t make(const char *path, const record_t *r, pipe_question_t *q)
{
    size_t bytes;
    FILE *out = open_memstream(&q->context, &bytes);
    if (!out || pipe_question_choices(q, CHOICES) != GYRE_OK) {
        if (out)
            fclose(out);
        return pipe_question_no_memory(path);
    }
    fputs("The following are multiple choice questions (with answers) about ", out);
    print_subject(out, path);
    fputs(".\n\n", out);
    print_stripped(out, r->text + r->begin[0]);
    for (size_t c = 0; c < CHOICES; c++)
        fprintf(out, "\n%c. %s", (char)('A' + c), r->text + r->begin[FIRST_CHOICE + c]);
    fputs("\nAnswer:", out);
    int failed = fclose(out) != 0;
    for (size_t c = 0; c < CHOICES; c++) {
        const char letter[] = {(char)('A' + c), 0};
        failed |= !(q->choice[c] = strdup(letter));
    }
    q->answer = (size_t)(r->text[r->begin[ANSWER]] - 'A');
    return failed ? pipe_question_no_memory(path) : GYRE_OK;
}

gyre_status_t pipe_read_csv(FILE *in, const char *path, size_t *line, pipe_question_t *out)
{
    record_t r = {0};
    read_record(in, &r, line);
    gyre_status_t status = r.no_memory                 ? pipe_question_no_memory(path)
                           : r.nothing && !r.complaint ? GYRE_ERR_NOT_FOUND
                                                       : check(path, &r);
    out->line = r.line;
    if (status == GYRE_OK)
        status = make(path, &r, out);
    free(r.text);
    return status;
}
