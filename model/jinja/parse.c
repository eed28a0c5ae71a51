/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/parse.c: words to a tree of statements. */
#include <stdlib.h>

#include "model/jinja/parser.h"

static jinja_node_t *body(parser_t *p, const char *const *ends);

static int starts_with_name(const parser_t *p, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        if (is_name(p, names[i]))
            return 1;
    return 0;
}

static jinja_node_t *conditional(parser_t *p, const jinja_word_t *at)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jinja_node_t *node = with(make(p, NODE_IF, at), jinja_tuple(p, jinja_expression), NULL, NULL);
    end_block(p);
    if (!node || fails(p))
        return NULL;
    node->first = body(p, ends);
    const jinja_word_t *what = word(p);
    if (take_name(p, "elif")) {
        if (enter(p))
            node->other = conditional(p, what);
        p->depth--;
        return node;
    }
    if (take_name(p, "else")) {
        static const char *const last[] = {"endif", NULL};
        end_block(p);
        node->other = body(p, last);
    }
    next(p);
    end_block(p);
    return node;
}

/* A name, or a name's attribute. */
static jinja_node_t *target(parser_t *p)
{
    if (word(p)->kind != WORD_NAME)
        return unexpected(p, "a name");
    jinja_node_t *node = make(p, NODE_NAME, word(p));
    next(p);
    if (!take_sign(p, "."))
        return node;
    if (word(p)->kind != WORD_NAME)
        return unexpected(p, "a name");
    node = with(make(p, NODE_ATTR, word(p)), node, NULL, NULL);
    next(p);
    return node;
}

static jinja_node_t *loop(parser_t *p, const jinja_word_t *at)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    jinja_node_t *node = make(p, NODE_FOR, at), *names = jinja_tuple(p, target);
    if (!take_name(p, "in"))
        return unexpected(p, "in");
    /* an "if" after it is the loop's */
    jinja_node_t *list = jinja_tuple(p, jinja_disjunction),
                 *condition = take_name(p, "if") ? jinja_expression(p) : NULL;
    if (is_name(p, "recursive"))
        return refuse(p, "loops that are recursive are not supported", "");
    end_block(p);
    if (!with(node, list, names, condition) || fails(p))
        return NULL;
    p->loops++;
    node->first = body(p, ends);
    p->loops--;
    if (take_name(p, "else")) {
        end_block(p);
        node->other = body(p, last);
    }
    next(p);
    end_block(p);
    return node;
}

/* The rest of a block of one body, from the end of its first tag on. node: NULL after an error. */
static jinja_node_t *filled(parser_t *p, jinja_node_t *node, const char *const *ends)
{
    end_block(p);
    if (!node || fails(p))
        return NULL;
    node->first = body(p, ends);
    next(p);
    end_block(p);
    return node;
}

static jinja_node_t *assignment(parser_t *p, const jinja_word_t *at)
{
    static const char *const ends[] = {"endset", NULL};
    jinja_node_t *names = jinja_tuple(p, target);
    if (take_sign(p, "=")) {
        jinja_node_t *node = with(make(p, NODE_SET, at), jinja_tuple(p, jinja_expression), names, NULL);
        end_block(p);
        return node;
    }
    if (is_sign(p, "|"))
        return refuse(p, "set blocks with filters are not supported", "");
    jinja_node_t *node = with(make(p, NODE_CAPTURE, at), NULL, names, NULL);
    return filled(p, node, ends);
}

static jinja_node_t *macro(parser_t *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    if (word(p)->kind != WORD_NAME)
        return unexpected(p, "a name");
    jinja_node_t *node = make(p, NODE_MACRO, word(p)), **to = node ? &node->other : NULL;
    next(p);
    want_sign(p, "(");
    while (to && !fails(p) && !is_sign(p, ")")) {
        if (word(p)->kind != WORD_NAME)
            return unexpected(p, "a parameter");
        jinja_node_t *parameter = *to = make(p, NODE_PARAMETER, word(p));
        next(p);
        if (parameter && take_sign(p, "="))
            parameter->a = jinja_expression(p);
        to = parameter ? &parameter->next : NULL;
        if (!take_sign(p, ","))
            break;
    }
    want_sign(p, ")");
    const int loops = p->loops;
    p->loops = 0;
    node = filled(p, node, ends);
    p->loops = loops;
    return node;
}

static jinja_node_t *generation(parser_t *p, const jinja_word_t *at)
{
    static const char *const ends[] = {"endgeneration", NULL};
    jinja_node_t *node = make(p, NODE_GENERATION, at);
    p->marks = 1;
    return filled(p, node, ends);
}

/* After {%. */
static jinja_node_t *block(parser_t *p)
{
    const jinja_word_t *at = word(p);
    if (at->kind != WORD_NAME)
        return unexpected(p, "a statement");
    next(p);
    if (strcmp(at->text, "if") == 0)
        return conditional(p, at);
    if (strcmp(at->text, "for") == 0)
        return loop(p, at);
    if (strcmp(at->text, "set") == 0)
        return assignment(p, at);
    if (strcmp(at->text, "macro") == 0)
        return macro(p);
    if (strcmp(at->text, "generation") == 0)
        return generation(p, at);
    const int leave = strcmp(at->text, "break") == 0;
    if (!leave && strcmp(at->text, "continue") != 0)
        return refuse(p, "the statement is not supported: ", at->text);
    if (p->loops == 0)
        return refuse(p, "it is not in a loop: ", at->text);
    jinja_node_t *node = make(p, leave ? NODE_BREAK : NODE_CONTINUE, at);
    end_block(p);
    return node;
}

/* Statements up to a block that begins with one of `ends`, whose {% is taken; NULL: up to the end. */
static jinja_node_t *body(parser_t *p, const char *const *ends)
{
    jinja_node_t *first = NULL, **to = &first;
    if (!enter(p))
        return NULL;
    while (!fails(p) && word(p)->kind != WORD_END) {
        const jinja_word_t *at = word(p);
        next(p);
        if (at->kind == WORD_DATA)
            *to = make(p, NODE_DATA, at);
        else if (at->kind == WORD_VARIABLE) {
            *to = with(make(p, NODE_PRINT, at), jinja_tuple(p, jinja_expression), NULL, NULL);
            if (word(p)->kind != WORD_VARIABLE_END)
                return unexpected(p, "}}");
            next(p);
        } else if (ends && starts_with_name(p, ends)) {
            p->depth--;
            return first;
        } else
            *to = block(p);
        if (*to)
            to = &(*to)->next;
    }
    p->depth--;
    if (ends)
        unexpected(p, ends[0][0] == 'e' && ends[1] ? "{% else %} or the end of the block" : ends[0]);
    return first;
}

gyre_status_t jinja_compile(const char *text, size_t bytes, jinja_program_t **out)
{
    jinja_words_t words = {0};
    parser_t parser = {.words = &words};
    jinja_lex(&words, text, bytes);
    jinja_node_t *first = words.status == GYRE_OK ? body(&parser, NULL) : NULL;
    jinja_program_t *program = words.status == GYRE_OK ? calloc(1, sizeof *program) : NULL;
    if (words.status == GYRE_OK && !program)
        words.status = jinja_no_memory();
    free(words.word);
    if (!program) {
        base_arena_free(&words.arena);
        return words.status;
    }
    *program = (jinja_program_t){.arena = words.arena, .first = first, .marks = parser.marks};
    *out = program;
    return GYRE_OK;
}

void jinja_destroy(jinja_program_t *program)
{
    if (!program)
        return;
    base_arena_free(&program->arena);
    free(program);
}

int jinja_marks(const jinja_program_t *program)
{
    return program->marks;
}
