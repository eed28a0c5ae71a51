/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/parser.h: what parse.c and expression.c share: the word in hand, nodes, errors. */
#ifndef MODEL_JINJA_PARSER_H
#define MODEL_JINJA_PARSER_H

#include <string.h>

#include "base/error.h"
#include "model/jinja/internal.h"

enum { JINJA_DEPTH = 200 };

typedef struct {
    jinja_words_t *words;
    size_t at;
    int depth, loops, marks;
} parser_t;

/* expression.c: a whole expression; one without a condition after it; values of `of` with commas between
 * them, which are a list. */
jinja_node_t *jinja_expression(parser_t *p);
jinja_node_t *jinja_disjunction(parser_t *p);
jinja_node_t *jinja_tuple(parser_t *p, jinja_node_t *(*of)(parser_t *p));

static inline const jinja_word_t *word(const parser_t *p)
{
    return &p->words->word[p->at];
}

static inline void next(parser_t *p)
{
    p->at += p->at + 1 < p->words->count;
}

static inline jinja_node_t *refuse(parser_t *p, const char *what, const char *more)
{
    if (p->words->status == GYRE_OK)
        p->words->status = gyre_fail_quiet(GYRE_ERR_INVALID, "line %d: %s%.60s", word(p)->line, what, more);
    return NULL;
}

static inline jinja_node_t *unexpected(parser_t *p, const char *wanted)
{
    if (p->words->status == GYRE_OK)
        p->words->status =
            gyre_fail_quiet(GYRE_ERR_INVALID, "line %d: '%.40s' stands where %s was expected", word(p)->line,
                            word(p)->kind == WORD_END ? "the end" : word(p)->text, wanted);
    return NULL;
}

static inline int fails(const parser_t *p)
{
    return p->words->status != GYRE_OK;
}

static inline jinja_node_t *make(parser_t *p, jinja_kind_t kind, const jinja_word_t *of)
{
    jinja_node_t *node = base_arena_alloc(&p->words->arena, 1, sizeof *node);
    if (!node) {
        p->words->status = jinja_no_memory();
        return NULL;
    }
    node->kind = kind;
    node->line = of->line;
    node->text = of->text;
    node->bytes = of->bytes;
    node->number = of->number;
    return node;
}

static inline jinja_node_t *with(jinja_node_t *node, jinja_node_t *a, jinja_node_t *b, jinja_node_t *c)
{
    if (node) {
        node->a = a;
        node->b = b;
        node->c = c;
    }
    return node;
}

static inline int is(const parser_t *p, jinja_word_kind_t kind, const char *text)
{
    return !fails(p) && word(p)->kind == kind && strcmp(word(p)->text, text) == 0;
}
static inline int is_sign(const parser_t *p, const char *text)
{
    return is(p, WORD_SIGN, text);
}
static inline int is_name(const parser_t *p, const char *text)
{
    return is(p, WORD_NAME, text);
}
static inline int take_sign(parser_t *p, const char *text)
{
    const int here = is_sign(p, text);
    if (here)
        next(p);
    return here;
}
static inline int take_name(parser_t *p, const char *text)
{
    const int here = is_name(p, text);
    if (here)
        next(p);
    return here;
}
static inline void want_sign(parser_t *p, const char *text)
{
    if (!take_sign(p, text))
        unexpected(p, text);
}
static inline void end_block(parser_t *p)
{
    if (!fails(p) && word(p)->kind == WORD_BLOCK_END)
        next(p);
    else
        unexpected(p, "%}");
}

/* 0: nested too deeply, or an error before. */
static inline int enter(parser_t *p)
{
    if (++p->depth > JINJA_DEPTH)
        refuse(p, "it is nested too deeply", "");
    return !fails(p);
}

#endif
