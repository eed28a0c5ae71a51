/* SPDX-License-Identifier: Apache-2.0 */
/* base/settings/settings.h: the one place that reads the environment.
 *
 * base_settings_load() takes a snapshot once (thread-safe; later calls do nothing); every getter calls it.
 * A flag of a tool overrides through base_settings_set() before anything else runs. Malformed values are an
 * error that names the variable and keeps the default; unknown GYRE_* names are warned of with the nearest
 * known name. A variable that is set to nothing counts as not set. */
#ifndef BASE_SETTINGS_SETTINGS_H
#define BASE_SETTINGS_SETTINGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <gyre/status.h>

typedef enum {
#define SETTING(id, name, kind, def, unit, meaning) SET_##id,
#include "base/settings/table.def"
#undef SETTING
    SET_COUNT
} base_setting_t;

typedef enum {
    BASE_SETTING_STRING,
    BASE_SETTING_INT,
    BASE_SETTING_SIZE,
    BASE_SETTING_SECONDS,
    BASE_SETTING_BOOL,
    BASE_SETTING_CHOICE
} base_setting_kind_t;

/* Reads the environment if that has not happened yet. INVALID if a value was malformed: the last-error text
 * names the first such one, and every call until the next reload says so again. */
gyre_status_t base_settings_load(void);
/* Reads the environment anew: for tests, and for gyre_init after a changed environment. What
 * base_settings_set overrode stays overridden. */
gyre_status_t base_settings_reload(void);

/* Overrides one setting; `source` is what gyre-doctor prints, such as "flag --algo". Copies both. value NULL:
 * takes the override back. A malformed value is INVALID and changes nothing. */
gyre_status_t base_settings_set(base_setting_t id, const char *value, const char *source);

/* Strings stay valid, with their old value, after a reload or set: snapshots are kept until the process
 * ends. */
const char *
base_setting_string(base_setting_t id);         /* any kind, as given; CHOICE: the listed word; never NULL */
int64_t base_setting_int(base_setting_t id);    /* INT, SIZE, BOOL; CHOICE: the word's place in its list */
double base_setting_seconds(base_setting_t id); /* at most 1e8, three years, whatever was given */
int base_setting_is_default(base_setting_t id); /* neither the environment nor a flag gave it */

/* Variables of other launchers that Gyre reads (RANK, WORLD_SIZE, MASTER_ADDR, ...), from the same snapshot.
 * NULL if unset. */
const char *base_env(const char *name);

/* A row of the table. Static storage, but for value and source, which live as strings do. */
typedef struct {
    const char *name; /* GYRE_... */
    base_setting_kind_t kind;
    const char *standard; /* default text */
    const char *unit;
    const char *meaning;
    const char *value;  /* present text; "(hidden)" for a secret that is set */
    const char *source; /* "default", "environment", or as given to base_settings_set */
} base_setting_row_t;
base_setting_row_t base_setting_row(base_setting_t id);
/* The default of a SECONDS setting: for code that needs a time while the setting is 0, which means never. */
double base_setting_standard_seconds(base_setting_t id);
/* The setting whose name is nearest to `name` in edits. */
base_setting_t base_setting_nearest(const char *name);

/* One row per setting: name, present value, default, unit, source and meaning. */
void base_settings_print(FILE *out);

#endif
