/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/expression.c: words to the tree of an expression, with the precedence of Jinja's own parser. */
#include "model/jinja/parser.h"

static jinja_node_t *unary(parser_t *p, int filters);

/* Items up to `close`, which is taken: key, value pairs of a map, or values. A comma sets *tuple. */
static jinja_node_t *items(parser_t *p, const char *close, int pairs, int *tuple)
{
    jinja_node_t *first = NULL, **to = &first;
    while (!fails(p) && !is_sign(p, close)) {
        for (int i = 0; i <= pairs && !fails(p); i++) {
            if (i == 1)
                want_sign(p, ":");
            if ((*to = jinja_expression(p)))
                to = &(*to)->next;
        }
        if (!take_sign(p, ","))
            break;
        *tuple = 1;
    }
    want_sign(p, close);
    return first;
}

static jinja_node_t *arguments(parser_t *p)
{
    jinja_node_t *first = NULL, **to = &first;
    want_sign(p, "(");
    while (!fails(p) && !is_sign(p, ")")) {
        const jinja_word_t *name = word(p), *after = &p->words->word[p->at + 1];
        if (is_sign(p, "*") || is_sign(p, "**"))
            return refuse(p, "arguments with * are not supported", "");
        if (name->kind == WORD_NAME && after->kind == WORD_SIGN && strcmp(after->text, "=") == 0) {
            p->at += 2;
            *to = with(make(p, NODE_KEYWORD, name), jinja_expression(p), NULL, NULL);
        } else
            *to = jinja_expression(p);
        if (*to)
            to = &(*to)->next;
        if (!take_sign(p, ","))
            break;
    }
    want_sign(p, ")");
    return first;
}

static jinja_node_t *primary(parser_t *p)
{
    const jinja_word_t *at = word(p);
    jinja_node_t *node = NULL;
    int tuple = 0;
    if (at->kind == WORD_NAME) {
        static const struct {
            const char *name;
            jinja_kind_t kind;
            int number;
        } constants[] = {{"true", NODE_BOOL, 1},  {"True", NODE_BOOL, 1}, {"false", NODE_BOOL, 0},
                         {"False", NODE_BOOL, 0}, {"none", NODE_NONE, 0}, {"None", NODE_NONE, 0}};
        next(p);
        for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
            if (strcmp(at->text, constants[i].name) == 0 && (node = make(p, constants[i].kind, at)))
                node->number = constants[i].number;
        return node ? node : make(p, NODE_NAME, at);
    }
    if (at->kind == WORD_NUMBER) {
        next(p);
        return make(p, NODE_INT, at);
    }
    if (at->kind == WORD_TEXT) {
        if (!(node = make(p, NODE_TEXT, at)))
            return NULL;
        for (next(p); !fails(p) && word(p)->kind == WORD_TEXT; next(p)) {
            char *joined = base_arena_alloc(&p->words->arena, node->bytes + word(p)->bytes + 1, 1);
            if (!joined) {
                p->words->status = jinja_no_memory();
                return NULL;
            }
            memcpy(joined, node->text, node->bytes);
            memcpy(joined + node->bytes, word(p)->text, word(p)->bytes);
            node->text = joined;
            node->bytes += word(p)->bytes;
        }
        return node;
    }
    if (take_sign(p, "(")) {
        jinja_node_t *first = items(p, ")", 0, &tuple);
        if (first && !tuple)
            return first;
        if ((node = make(p, NODE_LIST, at)))
            node->first = first;
        return node;
    }
    const int list = is_sign(p, "[");
    if (!list && !is_sign(p, "{"))
        return unexpected(p, "a value");
    next(p);
    if ((node = make(p, list ? NODE_LIST : NODE_MAP, at)))
        node->first = items(p, list ? "]" : "}", !list, &tuple);
    return node;
}

/* a[b], or a[b:c:d]. */
static jinja_node_t *subscript(parser_t *p, jinja_node_t *a)
{
    jinja_node_t *node = make(p, NODE_ITEM, word(p)), *part[3] = {0};
    int n = 0;
    next(p);
    for (; n < 3 && !fails(p); n++) {
        if (!is_sign(p, ":") && !is_sign(p, "]"))
            part[n] = jinja_expression(p);
        if (!take_sign(p, ":"))
            break;
    }
    want_sign(p, "]");
    if (!node || fails(p))
        return NULL;
    if (n == 0 && !part[0])
        return unexpected(p, "an index");
    node->kind = n == 0 ? NODE_ITEM : NODE_SLICE;
    node->d = part[2];
    return with(node, a, part[0], part[1]);
}

static jinja_node_t *call(parser_t *p, jinja_node_t *a)
{
    jinja_node_t *node = with(make(p, NODE_CALL, word(p)), a, NULL, NULL);
    if (node)
        node->first = arguments(p);
    return node;
}

static jinja_node_t *postfix(parser_t *p, jinja_node_t *node)
{
    while (!fails(p))
        if (take_sign(p, ".")) {
            if (word(p)->kind != WORD_NAME)
                return unexpected(p, "a name");
            node = with(make(p, NODE_ATTR, word(p)), node, NULL, NULL);
            next(p);
        } else if (is_sign(p, "["))
            node = subscript(p, node);
        else if (is_sign(p, "("))
            node = call(p, node);
        else
            break;
    return node;
}

static jinja_node_t *filter(parser_t *p, jinja_node_t *a)
{
    if (word(p)->kind != WORD_NAME)
        return unexpected(p, "a filter");
    jinja_node_t *node = with(make(p, NODE_FILTER, word(p)), a, NULL, NULL);
    next(p);
    if (node && is_sign(p, "("))
        node->first = arguments(p);
    return node;
}

static jinja_node_t *test(parser_t *p, jinja_node_t *a)
{
    const int negated = take_name(p, "not");
    if (word(p)->kind != WORD_NAME)
        return unexpected(p, "a test");
    jinja_node_t *node = with(make(p, NODE_TEST, word(p)), a, NULL, NULL);
    const jinja_word_t *of = word(p);
    next(p);
    if (!node || fails(p))
        return NULL;
    const jinja_word_t *after = word(p);
    const int value =
        after->kind == WORD_TEXT || after->kind == WORD_NUMBER || is_sign(p, "[") || is_sign(p, "{") ||
        (after->kind == WORD_NAME && !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and") &&
         !is_name(p, "if") && !is_name(p, "is") && !is_name(p, "in") && !is_name(p, "not"));
    if (is_sign(p, "("))
        node->first = arguments(p);
    else if (value)
        node->first = postfix(p, primary(p));
    return negated ? with(make(p, NODE_NOT, of), node, NULL, NULL) : node;
}

static jinja_node_t *unary(parser_t *p, int filters)
{
    jinja_node_t *node = NULL;
    const jinja_word_t *at = word(p);
    if (!enter(p))
        return NULL;
    if (is_sign(p, "-") || is_sign(p, "+")) {
        next(p);
        node = with(make(p, *at->text == '-' ? NODE_NEGATIVE : NODE_POSITIVE, at), unary(p, 0), NULL, NULL);
    } else
        node = primary(p);
    node = postfix(p, node);
    while (filters && !fails(p))
        if (take_sign(p, "|"))
            node = filter(p, node);
        else if (take_name(p, "is"))
            node = test(p, node);
        else if (is_sign(p, "("))
            node = call(p, node);
        else
            break;
    p->depth--;
    return node;
}

/* Operators that bind alike, from the left. */
static jinja_node_t *binary(parser_t *p, const char *const *signs, jinja_node_t *(*of)(parser_t *p))
{
    jinja_node_t *node = of(p);
    for (size_t i = 0; !fails(p) && signs[i];) {
        const jinja_word_t *at = word(p);
        if (!take_sign(p, signs[i])) {
            i++;
            continue;
        }
        jinja_node_t *right = of(p);
        node = with(make(p, NODE_BINARY, at), node, right, NULL);
        i = 0;
    }
    return node;
}

static jinja_node_t *operand(parser_t *p)
{
    return unary(p, 1);
}
static jinja_node_t *power(parser_t *p)
{
    static const char *const signs[] = {"**", NULL};
    return binary(p, signs, operand);
}

static jinja_node_t *product(parser_t *p)
{
    static const char *const signs[] = {"*", "//", "/", "%", NULL};
    return binary(p, signs, power);
}
static jinja_node_t *joined(parser_t *p)
{
    static const char *const signs[] = {"~", NULL};
    return binary(p, signs, product);
}
static jinja_node_t *sum(parser_t *p)
{
    static const char *const signs[] = {"+", "-", NULL};
    return binary(p, signs, joined);
}

/* The operator here, taken: a sign, "in" or "not in"; NULL: there is none. */
static const char *comparison(parser_t *p)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (take_sign(p, signs[i]))
            return signs[i];
    if (take_name(p, "in"))
        return "in";
    const jinja_word_t *after = &p->words->word[p->at + 1];
    if (is_name(p, "not") && after->kind == WORD_NAME && strcmp(after->text, "in") == 0) {
        p->at += 2;
        return "not in";
    }
    return NULL;
}

static jinja_node_t *compare(parser_t *p)
{
    jinja_node_t *node = sum(p), *all = NULL, **to = NULL;
    const jinja_word_t *at = word(p);
    for (const char *sign; !fails(p) && (sign = comparison(p));) {
        if (!all) {
            all = with(make(p, NODE_COMPARE, at), node, NULL, NULL);
            to = all ? &all->first : NULL;
        }
        jinja_node_t *operand = with(make(p, NODE_OPERAND, at), sum(p), NULL, NULL);
        if (!to || !operand)
            return NULL;
        operand->text = sign;
        *to = operand;
        to = &operand->next;
    }
    return all ? all : node;
}

static jinja_node_t *negation(parser_t *p)
{
    const jinja_word_t *at = word(p);
    if (!take_name(p, "not"))
        return compare(p);
    jinja_node_t *node = enter(p) ? with(make(p, NODE_NOT, at), negation(p), NULL, NULL) : NULL;
    p->depth--;
    return node;
}

static jinja_node_t *conjunction(parser_t *p)
{
    jinja_node_t *node = negation(p);
    for (const jinja_word_t *at; (at = word(p), take_name(p, "and"));) {
        jinja_node_t *right = negation(p);
        node = with(make(p, NODE_AND, at), node, right, NULL);
    }
    return node;
}

jinja_node_t *jinja_disjunction(parser_t *p)
{
    jinja_node_t *node = conjunction(p);
    for (const jinja_word_t *at; (at = word(p), take_name(p, "or"));) {
        jinja_node_t *right = conjunction(p);
        node = with(make(p, NODE_OR, at), node, right, NULL);
    }
    return node;
}

jinja_node_t *jinja_expression(parser_t *p)
{
    if (!enter(p))
        return NULL;
    jinja_node_t *node = jinja_disjunction(p);
    for (const jinja_word_t *at; (at = word(p), take_name(p, "if"));) {
        jinja_node_t *condition = jinja_disjunction(p),
                     *other = take_name(p, "else") ? jinja_expression(p) : NULL;
        node = with(make(p, NODE_CHOICE, at), node, condition, other);
    }
    p->depth--;
    return node;
}

/* Values with commas between them are a list. */
jinja_node_t *jinja_tuple(parser_t *p, jinja_node_t *(*of)(parser_t *p))
{
    const jinja_word_t *at = word(p);
    jinja_node_t *node = of(p);
    if (!node || !is_sign(p, ","))
        return node;
    jinja_node_t *list = make(p, NODE_LIST, at), **to = list ? &list->first : NULL;
    while (to && node) {
        *to = node;
        to = &node->next;
        node = take_sign(p, ",") && word(p)->kind != WORD_BLOCK_END && word(p)->kind != WORD_VARIABLE_END &&
                       !is_name(p, "in") && !is_sign(p, "=")
                   ? of(p)
                   : NULL;
    }
    return list;
}
