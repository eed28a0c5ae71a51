/* tools/gyre-plan/options.h: command lines of `schedule` and `pipeline`: every flag once, as a row of a table. (memory, time and
 * search have one together, whose values go into a recipe: tools/gyre-plan/recipe.h.) */
#ifndef GYRE_PLAN_OPTIONS_H
#define GYRE_PLAN_OPTIONS_H

#include <stddef.h>

typedef enum {
    PLAN_INT,   /* int, from low to high */
    PLAN_BYTES, /* size_t, from low on; K, M and G are understood */
    PLAN_TIME,  /* double, from 0 on */
    PLAN_TEXT,  /* const char * */
    PLAN_SWITCH /* int; the flag alone means 1 */
} plan_kind_t;

typedef struct {
    const char *name;
    char letter; /* 0: none */
    plan_kind_t kind;
    size_t at; /* in the options */
    long low, high;
    const char *wants; /* "1 to 512", for the message; NULL: nothing is refused here */
    /* In place of kind and at, unless NULL: reads the value into the options. 1; 0: it is none; -1: the same, and said. */
    int (*read)(void *options, const char *text);
} plan_option_t;

/* Fills `options` from the flags; help is one of them. -1: go on; else the exit status, and all is said. argv[0] is the
 * subcommand. */
int plan_options_parse(int argc, char **argv, const plan_option_t *row, size_t rows, const char *help,
                       void *options);

#endif
