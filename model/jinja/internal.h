/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/internal.h: what the parts of the interpreter share (this folder only).
 *
 *   lex.c      the program's text to words and data     values.c   texts, lists and maps; JSON in and out
 *   parse.c, expression.c  words to a tree              library.c  filters, tests and functions
 *   run.c      the tree to output                       methods.c  attributes, methods, tojson
 *                                                       order.c    sort and its like, paths of attributes
 *
 * Errors stick: the first one is kept, and every function goes on with undefined values until its caller
 * looks. */
#ifndef MODEL_JINJA_INTERNAL_H
#define MODEL_JINJA_INTERNAL_H

#include "base/arena.h"
#include "model/jinja/jinja.h"

/* ---- words --------------------------------------------------------------------------------------------- */

typedef enum {
    WORD_END,
    WORD_DATA,         /* text outside of tags */
    WORD_BLOCK,        /* {% */
    WORD_BLOCK_END,    /* %} */
    WORD_VARIABLE,     /* {{ */
    WORD_VARIABLE_END, /* }} */
    WORD_NAME,
    WORD_TEXT, /* a literal, without quotes and escapes */
    WORD_NUMBER,
    WORD_SIGN /* operators and brackets */
} jinja_word_kind_t;

typedef struct {
    jinja_word_kind_t kind;
    int line;         /* from 1 */
    const char *text; /* [bytes], and a NUL */
    size_t bytes;
    int64_t number;
} jinja_word_t;

typedef struct {
    base_arena_t arena; /* the program's */
    gyre_status_t status;
    jinja_word_t *word; /* [count], the last is WORD_END; from malloc */
    size_t count, room;
} jinja_words_t;

/* Fills `words`, which is all zeros; its status and gyre_last_error say what is wrong. */
void jinja_lex(jinja_words_t *words, const char *text, size_t bytes);
gyre_status_t jinja_no_memory(void);

/* ---- the tree ------------------------------------------------------------------------------------------ */

typedef enum {
    /* expressions */
    NODE_TEXT,
    NODE_INT,
    NODE_BOOL, /* number */
    NODE_NONE,
    NODE_NAME,
    NODE_LIST,    /* first, ... */
    NODE_MAP,     /* first, ...: key, value, key, value */
    NODE_ATTR,    /* a.text */
    NODE_ITEM,    /* a[b] */
    NODE_SLICE,   /* a[b:c:d] */
    NODE_CALL,    /* a(first, ...) */
    NODE_FILTER,  /* a | text(first, ...) */
    NODE_TEST,    /* a is text(first, ...) */
    NODE_KEYWORD, /* an argument: text=a */
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_BINARY,  /* a text b, text an operator of numbers or "~" */
    NODE_COMPARE, /* a text first->..., first's operator is in its `text` (NODE_OPERAND) */
    NODE_OPERAND, /* text a */
    NODE_CHOICE,  /* a if b else c */
    /* statements */
    NODE_DATA,
    NODE_PRINT,      /* a */
    NODE_IF,         /* a: first, ... else: other, ... */
    NODE_FOR,        /* target b in a if c: first, ... else: other, ... */
    NODE_SET,        /* target b = a */
    NODE_CAPTURE,    /* target b = what first, ... print */
    NODE_MACRO,      /* text(other, ...): first, ... */
    NODE_PARAMETER,  /* text, default a */
    NODE_GENERATION, /* first, ... */
    NODE_BREAK,
    NODE_CONTINUE
} jinja_kind_t;

typedef struct jinja_node jinja_node_t;
struct jinja_node {
    jinja_kind_t kind;
    int line;
    const char *text; /* [bytes], and a NUL */
    size_t bytes;
    int64_t number;
    jinja_node_t *a, *b, *c, *d, *first, *other, *next;
};

struct jinja_program {
    base_arena_t arena;
    jinja_node_t *first;
    int marks;
};

/* ---- values -------------------------------------------------------------------------------------------- */

typedef enum {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL, /* a number with a point, or an integer that the conversation has beyond 2^63 */
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_MAP,
    VALUE_NAMESPACE, /* a map whose entries are set */
    VALUE_METHOD,    /* of `of` */
    VALUE_FUNCTION,
    VALUE_MACRO
} jinja_value_kind_t;

typedef struct jinja_value jinja_value_t;
typedef struct {
    const char *text;     /* [bytes] */
    const uint32_t *from; /* [bytes]; NULL: all 0 */
    size_t bytes;
} jinja_text_t;
typedef struct {
    jinja_value_t *item; /* [count] of a list; of a map keys and values in turn, [2 * count] */
    size_t count, room;
    uint32_t message; /* 0: it is not a message, but maybe a part of one */
} jinja_list_t;
typedef struct jinja_method jinja_method_t;
typedef struct jinja_frame jinja_frame_t;
typedef struct {
    const jinja_node_t *node;
    jinja_frame_t *frame;
} jinja_macro_t;
struct jinja_value {
    jinja_value_kind_t kind;
    union {
        int64_t number;
        double real;
        const char *name; /* of UNDEFINED and FUNCTION */
        const jinja_text_t *text;
        jinja_list_t *list;
        const jinja_method_t *method;
        const jinja_macro_t *macro;
    };
};

struct jinja_method {
    const char *name;
    jinja_value_t of;
};

/* Names of a scope, and the scope around it. */
struct jinja_frame {
    jinja_frame_t *up;
    jinja_list_t names; /* as of a map, keys are texts */
};

typedef struct {
    char *text;
    uint32_t *from, *turn;
    unsigned char *generated;
    size_t bytes, room;
} jinja_buffer_t; /* arrays from malloc */

typedef struct {
    base_arena_t arena;
    gyre_status_t status;
    const char *date;
    size_t steps;
    size_t given;   /* bytes of the conversation's texts */
    size_t buffers; /* bytes that buffers take */
    uint32_t turn;  /* the message whose loop runs */
    int depth, generating;
    int leaving; /* 1: break, 2: continue */
    jinja_frame_t *frame;
    jinja_buffer_t *out;
    int line; /* of the node in hand */
} jinja_run_t;

/* Arguments of a call, evaluated. */
typedef struct {
    const jinja_value_t *item; /* [count] */
    size_t count;
    const jinja_list_t *named; /* a map */
} jinja_arguments_t;

#define JINJA_NONE      ((jinja_value_t){.kind = VALUE_NONE})
#define JINJA_UNDEFINED ((jinja_value_t){.kind = VALUE_UNDEFINED, .name = "a value"})

/* A truth value is a number, too, as in Python. `number` is it. */
static inline int jinja_is_number(jinja_value_t value)
{
    return value.kind == VALUE_INT || value.kind == VALUE_BOOL;
}

/* The same, or one with a point. */
static inline int jinja_is_any_number(jinja_value_t value)
{
    return jinja_is_number(value) || value.kind == VALUE_REAL;
}

static inline int jinja_fails(const jinja_run_t *run)
{
    return run->status != GYRE_OK;
}

/* values.c */
jinja_value_t jinja_fail(jinja_run_t *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Zeros of the run's. NULL: no memory, or too much. */
void *jinja_take(jinja_run_t *run, size_t count, size_t size);
jinja_value_t jinja_bool(int truth);
jinja_value_t jinja_int(int64_t number);
jinja_value_t jinja_text(jinja_run_t *run, const char *text, size_t bytes,
                         const uint32_t *from); /* borrowed */
jinja_value_t jinja_word(jinja_run_t *run, const char *text);
/* Part of a text. */
jinja_value_t jinja_cut(jinja_run_t *run, const jinja_text_t *text, size_t begin, size_t end);
jinja_value_t jinja_list(jinja_run_t *run);
jinja_value_t jinja_map(jinja_run_t *run);
void jinja_push(jinja_run_t *run, jinja_list_t *list, jinja_value_t value);
/* Of a map, or of names. */
void jinja_put(jinja_run_t *run, jinja_list_t *map, jinja_value_t key, jinja_value_t value);
const jinja_value_t *jinja_find(const jinja_list_t *map, const char *key, size_t bytes);
const jinja_value_t *jinja_look(const jinja_list_t *map, jinja_value_t key);
int jinja_true(jinja_value_t value);
/* Of any numbers: below 0, 0 or above 0, as a is to b. */
int jinja_order(jinja_value_t a, jinja_value_t b);
int jinja_equal(jinja_run_t *run, jinja_value_t a, jinja_value_t b);
/* Counts steps: 0: an error. */
int jinja_steps(jinja_run_t *run, size_t steps);
/* The steps of what may look at each byte of the value: one for 64 of a text, or of a map's keys. */
int jinja_reads(jinja_run_t *run, jinja_value_t value);
const char *jinja_kind_name(jinja_value_t value);
/* What str() makes of a value. */
const jinja_text_t *jinja_string(jinja_run_t *run, jinja_value_t value);
/* The items of a list, a map's keys, a text's characters; none of undefined. NULL: an error. */
const jinja_list_t *jinja_items(jinja_run_t *run, jinja_value_t value);
/* Characters of a text, and the byte at which the one of that number begins. */
size_t jinja_length(const jinja_text_t *text);
size_t jinja_offset(const jinja_text_t *text, size_t character);
/* [begin, end) of the text without white space, or characters of `set`, at its ends. */
void jinja_strip(const jinja_text_t *text, const jinja_text_t *set, int left, int right, size_t *begin,
                 size_t *end);
jinja_value_t jinja_from_json(jinja_run_t *run, const json_t *value, uint32_t from);
void jinja_add(jinja_run_t *run, jinja_buffer_t *buffer, const jinja_text_t *text);
/* The buffer's text as a value; frees it. */
jinja_value_t jinja_taken(jinja_run_t *run, jinja_buffer_t *buffer);
void jinja_buffer_free(jinja_buffer_t *buffer);

/* library.c */
jinja_value_t jinja_filter(jinja_run_t *run, const char *name, jinja_value_t value, jinja_arguments_t with);
int jinja_test(jinja_run_t *run, const char *name, jinja_value_t value, jinja_arguments_t with);
jinja_value_t jinja_call_function(jinja_run_t *run, const char *name, jinja_arguments_t with);
/* A function, or undefined. */
jinja_value_t jinja_function(const jinja_run_t *run, const char *name);
int jinja_compare(jinja_run_t *run, const char *sign, jinja_value_t a, jinja_value_t b);
/* The argument of that place, or of that name; NULL: there is none. */
const jinja_value_t *jinja_argument(jinja_arguments_t with, size_t i, const char *name);
int64_t jinja_number_argument(jinja_run_t *run, jinja_arguments_t with, size_t i, const char *name,
                              int64_t usual);
const jinja_text_t *jinja_text_argument(jinja_run_t *run, jinja_arguments_t with, size_t i, const char *name);

/* order.c: value.name.0: entries before methods, numbers are places. `usual` instead of what is undefined,
 * unless NULL. */
jinja_value_t jinja_attribute_path(jinja_run_t *run, jinja_value_t value, const jinja_text_t *path,
                                   const jinja_value_t *usual);
jinja_value_t jinja_filter_sort(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with);
jinja_value_t jinja_filter_dictsort(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with);
jinja_value_t jinja_filter_unique(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with);

/* methods.c */
jinja_value_t jinja_call_method(jinja_run_t *run, const char *name, jinja_value_t of, jinja_arguments_t with);
jinja_value_t jinja_to_json(jinja_run_t *run, jinja_value_t value, jinja_arguments_t with);
/* value.name: a method, or an entry. */
jinja_value_t jinja_attribute(jinja_run_t *run, jinja_value_t value, const char *name, size_t bytes);

#endif
