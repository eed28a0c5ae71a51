/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/evaluate/questions.c: all questions of a file. */
#include "pipeline/evaluate/questions.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text/foreign.h"
#include "pipeline/evaluate/internal.h"

gyre_status_t pipe_question_no_memory(const char *path)
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the questions of %s", path);
}

gyre_status_t pipe_question_choices(pipe_question_t *question, size_t choices)
{
    question->choice = calloc(choices + 1, sizeof *question->choice);
    question->choices = question->choice ? choices : 0;
    return question->choice ? GYRE_OK : GYRE_ERR_NO_MEMORY;
}

static void free_question(pipe_question_t *question)
{
    for (size_t c = 0; c < question->choices; c++)
        free(question->choice[c]);
    free(question->choice);
    free(question->context);
}

static gyre_status_t check(const char *path, const pipe_question_t *q)
{
    for (size_t c = 0; c < q->choices; c++)
        if (!*q->choice[c])
            return gyre_fail(GYRE_ERR_FORMAT, "%s:%zu: choice %zu is empty: there is nothing to score", path,
                             q->line, c + 1);
    return GYRE_OK;
}

static gyre_status_t read_all(FILE *in, pipe_questions_kind_t kind, size_t limit, pipe_questions_t *all)
{
    gyre_status_t status = GYRE_OK;
    size_t line = 0;
    while (limit == 0 || all->count < limit) {
        if (!base_grow(&all->question, &all->room, all->count, 1, sizeof *all->question))
            return pipe_question_no_memory(all->path);
        pipe_question_t *q = &all->question[all->count];
        *q = (pipe_question_t){0};
        status = kind == PIPE_MMLU ? pipe_read_csv(in, all->path, &line, q)
                                   : pipe_read_json(in, all->path, kind, &line, q);
        if (status == GYRE_OK)
            status = check(all->path, q);
        if (status != GYRE_OK) {
            free_question(q);
            break;
        }
        all->count++;
    }
    if (status != GYRE_OK && status != GYRE_ERR_NOT_FOUND)
        return status;
    if (ferror(in))
        return gyre_fail_errno(GYRE_ERR_IO, errno, "cannot read %s", all->path);
    return all->count > 0 ? GYRE_OK : gyre_fail(GYRE_ERR_INVALID, "%s holds no question", all->path);
}

/* A byte-order mark at the beginning. Other bytes go back: glibc and musl take more than one byte. */
static void skip_mark(FILE *in)
{
    static const unsigned char mark[] = {0xef, 0xbb, 0xbf};
    size_t n = 0;
    int byte = EOF;
    while (n < sizeof mark && (byte = getc(in)) == mark[n])
        n++;
    if (n == sizeof mark)
        return;
    ungetc(byte, in);
    while (n > 0)
        ungetc(mark[--n], in);
}

gyre_status_t pipe_questions_read(const char *path, pipe_questions_kind_t kind, size_t limit,
                                  pipe_questions_t *out)
{
    *out = (pipe_questions_t){.path = path};
    const char *foreign = base_foreign_file(path);
    if (foreign)
        return gyre_fail(GYRE_ERR_INVALID, "%s %s", path, foreign);
    FILE *in = fopen(path, "rb");
    if (!in)
        return gyre_fail_errno(base_file_status(errno), errno, "cannot open %s", path);
    skip_mark(in);
    gyre_status_t status = read_all(in, kind, limit, out);
    fclose(in);
    return status;
}

void pipe_questions_free(pipe_questions_t *questions)
{
    for (size_t i = 0; i < questions->count; i++)
        free_question(&questions->question[i]);
    free(questions->question);
    *questions = (pipe_questions_t){0};
}
