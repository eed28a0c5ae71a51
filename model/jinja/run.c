/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/run.c: walks a program's tree: statements write to a buffer, expressions give values. */
#include <stdlib.h>
#include <string.h>

#include "model/jinja/internal.h"

enum { STEPS = 10000000, DEPTH = 300 };

static jinja_value_t eval(jinja_run_t *run, const jinja_node_t *node);
static void walk(jinja_run_t *run, const jinja_node_t *node);

int jinja_steps(jinja_run_t *run, size_t steps)
{
    run->steps += steps;
    if (run->steps > STEPS)
        jinja_fail(run, "the program takes more than %d steps", STEPS);
    return !jinja_fails(run);
}

int jinja_reads(jinja_run_t *run, jinja_value_t value)
{
    enum { AT_ONCE = 64 };
    const size_t size = value.kind == VALUE_TEXT                                   ? value.text->bytes
                        : value.kind == VALUE_MAP || value.kind == VALUE_NAMESPACE ? value.list->count
                                                                                   : 0;
    return jinja_steps(run, size / AT_ONCE);
}

/* Counts a step at a node. 0: an error. */
static int at(jinja_run_t *run, const jinja_node_t *node)
{
    run->line = node->line;
    return jinja_steps(run, 1);
}

/* ---- names --------------------------------------------------------------------------------------------- */

static jinja_frame_t *push_frame(jinja_run_t *run, jinja_frame_t *up)
{
    jinja_frame_t *frame = base_arena_alloc(&run->arena, 1, sizeof *frame);
    if (!frame) {
        run->status = jinja_no_memory();
        return NULL;
    }
    frame->up = up;
    return run->frame = frame;
}

static void set_name(jinja_run_t *run, const char *name, size_t bytes, jinja_value_t value)
{
    if (!jinja_fails(run))
        jinja_put(run, &run->frame->names, jinja_text(run, name, bytes, NULL), value);
}

static jinja_value_t look_up(jinja_run_t *run, const jinja_node_t *node)
{
    for (const jinja_frame_t *frame = run->frame; frame; frame = frame->up) {
        const jinja_value_t *found = jinja_find(&frame->names, node->text, node->bytes);
        if (found)
            return *found;
    }
    return jinja_function(run, node->text);
}

static void assign(jinja_run_t *run, const jinja_node_t *target, jinja_value_t value)
{
    if (jinja_fails(run))
        return;
    run->line = target->line;
    if (target->kind == NODE_NAME) {
        set_name(run, target->text, target->bytes, value);
        return;
    }
    if (target->kind == NODE_ATTR) {
        const jinja_value_t space = eval(run, target->a);
        if (space.kind != VALUE_NAMESPACE)
            jinja_fail(run, "'%.60s' is no namespace, so it has no attribute to set", target->a->text);
        else
            jinja_put(run, space.list, jinja_text(run, target->text, target->bytes, NULL), value);
        return;
    }
    const jinja_list_t *items = jinja_items(run, value);
    const jinja_node_t *name = target->first;
    size_t i = 0;
    for (; items && name && i < items->count; name = name->next)
        assign(run, name, items->item[i++]);
    if (items && (name || i < items->count))
        jinja_fail(run, "%zu values are given to another number of names", items->count);
}

/* ---- operators ----------------------------------------------------------------------------------------- */

static jinja_value_t joined(jinja_run_t *run, const jinja_text_t *a, const jinja_text_t *b)
{
    jinja_buffer_t buffer = {0};
    if (b->bytes == 0)
        return jinja_cut(run, a, 0, a->bytes);
    if (a->bytes == 0)
        return jinja_cut(run, b, 0, b->bytes);
    jinja_add(run, &buffer, a);
    jinja_add(run, &buffer, b);
    return jinja_taken(run, &buffer);
}

static jinja_value_t arithmetic(jinja_run_t *run, const char *sign, int64_t a, int64_t b)
{
    int64_t out = 0;
    int over = 0;
    if (*sign == '+')
        over = __builtin_add_overflow(a, b, &out);
    else if (*sign == '-')
        over = __builtin_sub_overflow(a, b, &out);
    else if (*sign == '*')
        over = __builtin_mul_overflow(a, b, &out);
    else if (b == 0)
        return jinja_fail(run, "a division by 0");
    else if (b == -1)
        over = *sign == '/' ? __builtin_sub_overflow(0, a, &out) : 0;
    else {
        const int64_t below = a % b != 0 && (a < 0) != (b < 0);
        out = *sign == '/' ? a / b - below : a % b + (below ? b : 0);
    }
    return over ? jinja_fail(run, "a number is beyond 2^63") : jinja_int(out);
}

static jinja_value_t binary(jinja_run_t *run, const jinja_node_t *node)
{
    const jinja_value_t a = eval(run, node->a), b = eval(run, node->b);
    if (jinja_fails(run))
        return JINJA_UNDEFINED;
    run->line = node->line;
    if (strcmp(node->text, "/") == 0 || strcmp(node->text, "**") == 0)
        return jinja_fail(run, "the operator %s is not supported", node->text);
    if (*node->text == '~')
        return joined(run, jinja_string(run, a), jinja_string(run, b));
    if (jinja_is_number(a) && jinja_is_number(b))
        return arithmetic(run, node->text, a.number, b.number);
    if (*node->text == '+' && a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
        return joined(run, a.text, b.text);
    if (*node->text == '+' && a.kind == VALUE_LIST && b.kind == VALUE_LIST) {
        jinja_value_t list = jinja_list(run);
        for (size_t i = 0; !jinja_fails(run) && i < a.list->count; i++)
            jinja_push(run, list.list, a.list->item[i]);
        for (size_t i = 0; !jinja_fails(run) && i < b.list->count; i++)
            jinja_push(run, list.list, b.list->item[i]);
        return list;
    }
    const jinja_value_t *lacks = a.kind == VALUE_UNDEFINED ? &a : b.kind == VALUE_UNDEFINED ? &b : NULL;
    if (lacks && *node->text != '%')
        return jinja_fail(run, "'%.60s' is undefined", lacks->name);
    return jinja_fail(run, "%s %s %s is not supported", jinja_kind_name(a), node->text, jinja_kind_name(b));
}

static int compares(jinja_run_t *run, const jinja_node_t *node)
{
    jinja_value_t left = eval(run, node->a);
    for (const jinja_node_t *operand = node->first; operand && !jinja_fails(run); operand = operand->next) {
        const jinja_value_t right = eval(run, operand->a);
        run->line = node->line;
        if (jinja_fails(run) || !jinja_compare(run, operand->text, left, right))
            return 0;
        left = right;
    }
    return !jinja_fails(run);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

static jinja_value_t item(jinja_run_t *run, const jinja_node_t *node)
{
    const jinja_value_t of = eval(run, node->a), key = eval(run, node->b);
    run->line = node->line;
    if (jinja_fails(run) || !jinja_reads(run, of))
        return JINJA_UNDEFINED;
    const int number = jinja_is_number(key);
    if ((of.kind == VALUE_LIST || of.kind == VALUE_TEXT) && number) {
        const size_t count = of.kind == VALUE_LIST ? of.list->count : jinja_length(of.text);
        const int64_t i = key.number < 0 ? key.number + (int64_t)count : key.number;
        if (i < 0 || (uint64_t)i >= count)
            return (jinja_value_t){.kind = VALUE_UNDEFINED, .name = "an item of a list"};
        return of.kind == VALUE_LIST ? of.list->item[i]
                                     : jinja_cut(run, of.text, jinja_offset(of.text, (size_t)i),
                                                 jinja_offset(of.text, (size_t)i + 1));
    }
    if (of.kind == VALUE_MAP) {
        const jinja_value_t *found = jinja_look(of.list, key);
        if (found)
            return *found;
    }
    if (key.kind == VALUE_TEXT)
        return jinja_attribute(run, of, key.text->text, key.text->bytes);
    return of.kind == VALUE_UNDEFINED ? jinja_fail(run, "'%.60s' is undefined", of.name)
                                      : (jinja_value_t){.kind = VALUE_UNDEFINED, .name = "an item"};
}

/* A bound of a slice in 0 .. count, as Python takes it, or -1 .. count - 1 with a negative step. */
static int64_t bound(jinja_run_t *run, const jinja_node_t *node, int64_t count, int64_t step, int64_t usual)
{
    const jinja_value_t value = node ? eval(run, node) : JINJA_NONE;
    if (jinja_fails(run) || value.kind == VALUE_NONE)
        return usual;
    if (!jinja_is_number(value)) {
        jinja_fail(run, "a slice with %s as a bound is not supported", jinja_kind_name(value));
        return usual;
    }
    int64_t i = value.number < 0 ? value.number + count : value.number;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    return i < low ? low : i > high ? high : i;
}

static jinja_value_t slice(jinja_run_t *run, const jinja_node_t *node)
{
    const jinja_value_t of = eval(run, node->a), by = node->d ? eval(run, node->d) : jinja_int(1);
    const int64_t step = jinja_is_number(by) ? by.number : by.kind == VALUE_NONE ? 1 : 0;
    run->line = node->line;
    if (jinja_fails(run) || !jinja_reads(run, of))
        return JINJA_UNDEFINED;
    if (of.kind == VALUE_UNDEFINED)
        return jinja_fail(run, "'%.60s' is undefined", of.name);
    if (of.kind != VALUE_LIST && of.kind != VALUE_TEXT)
        return jinja_fail(run, "a slice of %s is not supported", jinja_kind_name(of));
    if (step != 1 && (step != -1 || of.kind != VALUE_LIST))
        return jinja_fail(run, "a slice with this step is not supported: of lists one with -1 is");
    const int64_t count = (int64_t)(of.kind == VALUE_LIST ? of.list->count : jinja_length(of.text));
    const int64_t begin = bound(run, node->b, count, step, step < 0 ? count - 1 : 0),
                  end = bound(run, node->c, count, step, step < 0 ? -1 : count);
    if (of.kind == VALUE_TEXT)
        return jinja_cut(run, of.text, jinja_offset(of.text, (size_t)begin),
                         jinja_offset(of.text, (size_t)(end > begin ? end : begin)));
    jinja_value_t list = jinja_list(run);
    for (int64_t i = begin; !jinja_fails(run) && (step < 0 ? i > end : i < end); i += step)
        jinja_push(run, list.list, of.list->item[i]);
    return list;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static jinja_arguments_t arguments(jinja_run_t *run, const jinja_node_t *first)
{
    jinja_value_t list = jinja_list(run), named = jinja_map(run);
    for (const jinja_node_t *node = first; node && !jinja_fails(run); node = node->next)
        if (node->kind == NODE_KEYWORD)
            jinja_put(run, named.list, jinja_text(run, node->text, node->bytes, NULL), eval(run, node->a));
        else
            jinja_push(run, list.list, eval(run, node));
    if (jinja_fails(run))
        return (jinja_arguments_t){0};
    return (jinja_arguments_t){list.list->item, list.list->count, named.list};
}

static jinja_value_t captured(jinja_run_t *run, const jinja_node_t *body)
{
    jinja_buffer_t buffer = {0}, *out = run->out;
    run->out = &buffer;
    walk(run, body);
    run->out = out;
    return jinja_taken(run, &buffer);
}

static jinja_value_t call_macro(jinja_run_t *run, const jinja_macro_t *macro, jinja_arguments_t with)
{
    jinja_frame_t *frame = run->frame;
    size_t i = 0, named = 0;
    if (!push_frame(run, macro->frame))
        return JINJA_UNDEFINED;
    for (const jinja_node_t *name = macro->node->other; name && !jinja_fails(run); name = name->next, i++) {
        const jinja_value_t *given =
            i < with.count ? &with.item[i] : jinja_find(with.named, name->text, name->bytes);
        named += i >= with.count && given;
        set_name(run, name->text, name->bytes,
                 given     ? *given
                 : name->a ? eval(run, name->a)
                           : (jinja_value_t){.kind = VALUE_UNDEFINED, .name = name->text});
    }
    if (!jinja_fails(run) && (with.count > i || named < with.named->count))
        jinja_fail(run, "the macro '%.60s' does not take these arguments", macro->node->text);
    const jinja_value_t made = captured(run, macro->node->first);
    run->frame = frame;
    return made;
}

static jinja_value_t call(jinja_run_t *run, const jinja_node_t *node)
{
    const jinja_value_t of = eval(run, node->a);
    const jinja_arguments_t with = arguments(run, node->first);
    if (jinja_fails(run))
        return JINJA_UNDEFINED;
    run->line = node->line;
    if (of.kind == VALUE_METHOD)
        return jinja_call_method(run, of.method->name, of.method->of, with);
    if (of.kind == VALUE_FUNCTION)
        return jinja_call_function(run, of.name, with);
    if (of.kind == VALUE_MACRO)
        return call_macro(run, of.macro, with);
    if (of.kind == VALUE_UNDEFINED && strcmp(of.name, "strftime_now") == 0)
        return jinja_fail(run, "it asks for the day (strftime_now): give one with --date YYYY-MM-DD");
    return of.kind == VALUE_UNDEFINED ? jinja_fail(run, "'%.60s' is undefined, or not supported", of.name)
                                      : jinja_fail(run, "%s is no function", jinja_kind_name(of));
}

/* ---- expressions --------------------------------------------------------------------------------------- */

static jinja_value_t literal(jinja_run_t *run, const jinja_node_t *node)
{
    jinja_value_t made = node->kind == NODE_LIST ? jinja_list(run) : jinja_map(run);
    for (const jinja_node_t *one = node->first; one && !jinja_fails(run); one = one->next)
        if (node->kind == NODE_LIST)
            jinja_push(run, made.list, eval(run, one));
        else {
            const jinja_value_t key = eval(run, one);
            if (!(one = one->next))
                break;
            jinja_put(run, made.list, key, eval(run, one));
        }
    return made;
}

static jinja_value_t eval_one(jinja_run_t *run, const jinja_node_t *node)
{
    jinja_value_t a;
    switch (node->kind) {
    case NODE_TEXT:
        return jinja_text(run, node->text, node->bytes, NULL);
    case NODE_INT:
        return jinja_int(node->number);
    case NODE_BOOL:
        return jinja_bool((int)node->number);
    case NODE_NONE:
        return JINJA_NONE;
    case NODE_NAME:
        return look_up(run, node);
    case NODE_LIST:
    case NODE_MAP:
        return literal(run, node);
    case NODE_ATTR:
        a = eval(run, node->a);
        run->line = node->line;
        return jinja_fails(run) ? a : jinja_attribute(run, a, node->text, node->bytes);
    case NODE_ITEM:
        return item(run, node);
    case NODE_SLICE:
        return slice(run, node);
    case NODE_CALL:
        return call(run, node);
    case NODE_FILTER:
    case NODE_TEST: {
        a = eval(run, node->a);
        const jinja_arguments_t with = arguments(run, node->first);
        run->line = node->line;
        return jinja_fails(run)            ? a
               : node->kind == NODE_FILTER ? jinja_filter(run, node->text, a, with)
                                           : jinja_bool(jinja_test(run, node->text, a, with));
    }
    case NODE_NOT:
        return jinja_bool(!jinja_true(eval(run, node->a)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        a = eval(run, node->a);
        if (!jinja_fails(run) && !jinja_is_number(a))
            return jinja_fail(run, "a sign before %s is not supported", jinja_kind_name(a));
        return arithmetic(run, node->kind == NODE_NEGATIVE ? "-" : "+", 0, jinja_fails(run) ? 0 : a.number);
    case NODE_AND:
        a = eval(run, node->a);
        return jinja_true(a) ? eval(run, node->b) : a;
    case NODE_OR:
        a = eval(run, node->a);
        return jinja_true(a) ? a : eval(run, node->b);
    case NODE_BINARY:
        return binary(run, node);
    case NODE_COMPARE:
        return jinja_bool(compares(run, node));
    case NODE_CHOICE:
        a = eval(run, node->b);
        return jinja_true(a) ? eval(run, node->a) : node->c ? eval(run, node->c) : JINJA_UNDEFINED;
    default:
        return JINJA_UNDEFINED;
    }
}

static jinja_value_t eval(jinja_run_t *run, const jinja_node_t *node)
{
    if (!node || !at(run, node))
        return JINJA_UNDEFINED;
    if (++run->depth > DEPTH)
        jinja_fail(run, "calls are nested too deeply");
    const jinja_value_t value = jinja_fails(run) ? JINJA_UNDEFINED : eval_one(run, node);
    run->depth--;
    return value;
}

/* ---- statements ---------------------------------------------------------------------------------------- */

static void put_number(jinja_run_t *run, jinja_list_t *map, const char *name, size_t number)
{
    jinja_put(run, map, jinja_word(run, name), jinja_int((int64_t)number));
}

static void put_loop(jinja_run_t *run, const jinja_list_t *items, size_t i)
{
    jinja_value_t loop = jinja_map(run);
    if (jinja_fails(run))
        return;
    const size_t count = items->count;
    put_number(run, loop.list, "index", i + 1);
    put_number(run, loop.list, "index0", i);
    put_number(run, loop.list, "revindex", count - i);
    put_number(run, loop.list, "revindex0", count - i - 1);
    put_number(run, loop.list, "length", count);
    jinja_put(run, loop.list, jinja_word(run, "first"), jinja_bool(i == 0));
    jinja_put(run, loop.list, jinja_word(run, "last"), jinja_bool(i + 1 == count));
    if (i > 0)
        jinja_put(run, loop.list, jinja_word(run, "previtem"), items->item[i - 1]);
    if (i + 1 < count)
        jinja_put(run, loop.list, jinja_word(run, "nextitem"), items->item[i + 1]);
    set_name(run, "loop", 4, loop);
}

/* The items that the loop's condition takes. */
static const jinja_list_t *chosen(jinja_run_t *run, const jinja_node_t *node, const jinja_list_t *items)
{
    jinja_frame_t *frame = run->frame;
    jinja_value_t list = jinja_list(run);
    for (size_t i = 0; !jinja_fails(run) && i < items->count; i++) {
        if (!push_frame(run, frame))
            break;
        assign(run, node->b, items->item[i]);
        if (jinja_true(eval(run, node->c)))
            jinja_push(run, list.list, items->item[i]);
        run->frame = frame;
    }
    run->frame = frame;
    return jinja_fails(run) ? NULL : list.list;
}

static void loop(jinja_run_t *run, const jinja_node_t *node)
{
    jinja_frame_t *frame = run->frame;
    const uint32_t turn = run->turn;
    const jinja_value_t of = eval(run, node->a);
    const jinja_list_t *items = jinja_fails(run) ? NULL : jinja_items(run, of);
    if (items && node->c)
        items = chosen(run, node, items);
    int whole = 0; /* the body ran to its end at least once: as in Jinja, that is what "else" asks */
    for (size_t i = 0; items && !jinja_fails(run) && i < items->count && at(run, node); i++) {
        if (!push_frame(run, frame))
            break;
        if (items->item[i].kind == VALUE_MAP && items->item[i].list->message > 0)
            run->turn = items->item[i].list->message;
        put_loop(run, items, i);
        assign(run, node->b, items->item[i]);
        walk(run, node->first);
        run->frame = frame;
        run->turn = turn;
        const int leaves = run->leaving == 1;
        whole |= !run->leaving;
        run->leaving = 0;
        if (leaves)
            break;
    }
    run->frame = frame;
    if (!whole && !jinja_fails(run)) {
        if (push_frame(run, frame))
            walk(run, node->other);
        run->frame = frame;
    }
}

static void define_macro(jinja_run_t *run, const jinja_node_t *node)
{
    jinja_macro_t *macro = base_arena_alloc(&run->arena, 1, sizeof *macro);
    if (!macro) {
        run->status = jinja_no_memory();
        return;
    }
    *macro = (jinja_macro_t){node, run->frame};
    set_name(run, node->text, node->bytes, (jinja_value_t){.kind = VALUE_MACRO, .macro = macro});
}

static void statement(jinja_run_t *run, const jinja_node_t *node)
{
    jinja_value_t value;
    const int generating = run->generating;
    switch (node->kind) {
    case NODE_DATA:
        jinja_add(run, run->out, &(jinja_text_t){node->text, NULL, node->bytes});
        break;
    case NODE_PRINT:
        value = eval(run, node->a);
        if (!jinja_fails(run))
            jinja_add(run, run->out, jinja_string(run, value));
        break;
    case NODE_IF:
        value = eval(run, node->a);
        walk(run, jinja_true(value) ? node->first : node->other);
        break;
    case NODE_FOR:
        loop(run, node);
        break;
    case NODE_SET:
        assign(run, node->b, eval(run, node->a));
        break;
    case NODE_CAPTURE: {
        jinja_frame_t *frame = run->frame;
        push_frame(run, frame);
        value = captured(run, node->first);
        run->frame = frame;
        assign(run, node->b, value);
        break;
    }
    case NODE_MACRO:
        define_macro(run, node);
        break;
    case NODE_GENERATION: {
        jinja_frame_t *frame = run->frame;
        run->generating = 1;
        if (push_frame(run, frame))
            walk(run, node->first);
        run->frame = frame;
        run->generating = generating;
        break;
    }
    default: /* NODE_BREAK, NODE_CONTINUE */
        run->leaving = node->kind == NODE_BREAK ? 1 : 2;
    }
}

static void walk(jinja_run_t *run, const jinja_node_t *node)
{
    if (++run->depth > DEPTH)
        jinja_fail(run, "calls are nested too deeply");
    for (; node && !run->leaving && at(run, node); node = node->next)
        statement(run, node);
    run->depth--;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static void put_variables(jinja_run_t *run, const jinja_input_t *input)
{
    jinja_value_t all = jinja_from_json(run, input->variables, 0), list = jinja_list(run);
    for (size_t i = 0; !jinja_fails(run) && i < all.list->count; i++)
        set_name(run, all.list->item[2 * i].text->text, all.list->item[2 * i].text->bytes,
                 all.list->item[2 * i + 1]);
    const uint32_t count = (uint32_t)json_array_size(input->messages);
    for (uint32_t i = 0; !jinja_fails(run) && i < count; i++) {
        jinja_value_t message = jinja_from_json(run, json_array_get(input->messages, i), i + 1);
        if (message.kind == VALUE_MAP && !jinja_fails(run))
            message.list->message = i + 1;
        jinja_push(run, list.list, message);
    }
    set_name(run, "messages", 8, list);
    if (input->tools && !jinja_fails(run))
        set_name(run, "tools", 5, jinja_from_json(run, input->tools, count + 1));
}

gyre_status_t jinja_run(const jinja_program_t *program, const jinja_input_t *input, jinja_output_t *out)
{
    jinja_buffer_t buffer = {0};
    jinja_run_t run = {.date = input->date, .out = &buffer};
    if (push_frame(&run, NULL))
        put_variables(&run, input);
    if (!jinja_fails(&run))
        walk(&run, program->first);
    base_arena_free(&run.arena);
    if (jinja_fails(&run)) {
        jinja_buffer_free(&buffer);
        return run.status;
    }
    *out = (jinja_output_t){buffer.text, buffer.from, buffer.turn, buffer.generated, buffer.bytes};
    return GYRE_OK;
}

void jinja_output_free(jinja_output_t *output)
{
    free(output->text);
    free(output->from);
    free(output->turn);
    free(output->generated);
    *output = (jinja_output_t){0};
}
