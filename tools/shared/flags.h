/* SPDX-License-Identifier: Apache-2.0 */
/* tools/shared/flags.h: the command line of a tool, described by a table: parsing, --help and messages
 * come from the same rows, so none of them lacks what another has.
 *
 * Understood: --name value, --name=value, the beginning of a name that only one option has, _ for - in
 * names, -x value, -xvalue, switches together (-ab), words anywhere, and -- after which all are words. -h,
 * --help and --version need no rows. */
#ifndef GYRE_SHARED_FLAGS_H
#define GYRE_SHARED_FLAGS_H

#include <stddef.h>
#include <stdio.h>

typedef enum {
    FLAG_HEADING, /* no option: `help` is a line of the help, after an empty one */
    FLAG_SWITCH,  /* int, set to 1; takes no value */
    FLAG_INT,     /* int, from low to high */
    FLAG_COUNT,   /* uint64_t, from low to high */
    FLAG_SIZE,    /* size_t, from low to high; as base_size_parse reads it: 512k, 64M, 4KiB */
    FLAG_REAL,    /* double, finite, from low to high */
    FLAG_TEXT,    /* const char *, not empty */
    FLAG_WORD,    /* const char *, one of the words of `argument`, such as "canonical|fast" */
    FLAG_CHOICE,  /* int: the place of the word in `argument` */
    FLAG_READ     /* what `read` makes of it */
} flag_kind_t;

typedef struct {
    char letter;      /* 0: none */
    const char *name; /* without the dashes */
    const char *also; /* a second name, which the help does not print; NULL: none */
    flag_kind_t kind;
    void *to;             /* NULL: the value is checked, and nothing is kept */
    double low, high;     /* high 0: no upper limit */
    const char *argument; /* as the help calls it; NULL for a switch */
    const char *help;     /* may have several lines; NULL: the help does not list the option */
    int optional;         /* TEXT: may come without a value, which leaves *to as it is */
    int *given;           /* set to 1 if the option is there; NULL: not needed */
    int (*read)(void *to, const char *text); /* READ: 1; 0: refused */
    const char *wants;                       /* READ, WORD: what is allowed, for messages; NULL: `argument` */
} flag_t;

/* What most rows say; others add fields after it: {FLAG('n', "iters", INT, &o->iters, "N", "iterations
 * (20)"), .low = 1} */
#define FLAG(letter_, name_, kind_, to_, argument_, help_) \
    .letter = letter_, .name = name_, .kind = FLAG_##kind_, .to = to_, .argument = argument_, .help = help_

typedef struct {
    const char *program; /* "gyre-topo", or with a subcommand: "gyre-plan schedule" */
    const char *usage;   /* of the help: before the options; an empty line follows */
    const char *notes;   /* of the help: after the options; NULL: nothing */
    const flag_t *flag;
    size_t count;
    int one_dash; /* of flags_next: long names may have one dash, as those of mpirun have: -np 4 */
} flags_t;

/* {.program = "gyre-topo", .usage = usage, FLAG_ROWS(rows)}; rows: an array. */
#define FLAG_ROWS(rows) .flag = rows, .count = sizeof(rows) / sizeof *(rows)

typedef enum {
    FLAGS_GO,      /* all is read */
    FLAGS_HELP,    /* the help was printed */
    FLAGS_VERSION, /* the version was printed */
    FLAGS_WRONG    /* `why` has the option, its value, and what is allowed */
} flags_result_t;

/* Reads the options to where the rows point; prints help and version on `out`. Moves the words that are no
 * options to the end of argv, in their order: *words is the place of the first. `words` NULL: words are
 * refused. */
flags_result_t flags_parse(const flags_t *flags, int argc, char **argv, int *words, FILE *out, char *why,
                           size_t bytes);

/* The same for a whole tool: prints on stdout and stderr. -1: go on; else the exit status: 0, or 2 for
 * wrong usage. */
int flags_take(const flags_t *flags, int argc, char **argv, int *words);

/* "gyre-plan: WHY; see gyre-plan schedule --help" on stderr. Returns 2. */
int flags_wrong(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For each FILE that a tool writes, or NULL. "-" is standard output (base/file.h), which is left to that
 * file: what the tool prints from here on goes to standard error. 0: another FILE has standard output. */
int flags_output(const char *path);
/* 1: `path`, which the tool writes, is not the file `other` too. 0: it is, and `why` says so: --`flag` PATH
 * names it. Each may be NULL. */
int flags_apart(const char *flag, const char *path, const char *other, char *why, size_t bytes);

/* A command line option by option, for tools that act on each one as it comes and have texts of their own.
 * Names are written out; words end the options. Rows need a name and whether they are switches. */
typedef enum {
    FLAG_AT_END,     /* no argument is left */
    FLAG_AT_WORD,    /* argv[at] is a word, perhaps after -- */
    FLAG_AT_OPTION,  /* `flag`, and its value unless it is a switch */
    FLAG_AT_UNKNOWN, /* no row has the name of `typed` */
    FLAG_AT_BARE,    /* `flag` lacks its value */
    FLAG_AT_SPARE    /* `flag` is a switch and has `value` */
} flag_at_t;

typedef struct {
    const flags_t *flags;
    int argc;
    char **argv;
    int at;            /* the argument after `typed`; begins with 1 */
    const char *typed; /* argument of the option; of its name the first `length` bytes, dashes included */
    int length;
    const flag_t *flag; /* NULL: unknown */
    const char *value;  /* NULL: none */
} flags_walk_t;

flag_at_t flags_next(flags_walk_t *walk);
/* The name that is nearest to a long option, without dashes; NULL: none is near. */
const char *flags_nearest(const flags_t *flags, const char *typed);

/* The row of this name, _ and - being the same; NULL: there is none. */
const flag_t *flags_find(const flags_t *flags, const char *name);
/* Reads `text` to where the row points. 1; 0: refused, `why` is "--name text: wants ...". */
int flags_set(const flag_t *flag, const char *text, char *why, size_t bytes);

#endif
