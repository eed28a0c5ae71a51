/* base/settings.h: the one place that reads the environment.
 *
 * base_settings_load() takes a snapshot once (thread-safe; later calls do nothing); every getter calls it.
 * A flag of a tool overrides through base_settings_set() before anything else runs. Malformed values are an
 * error that names the variable and keeps the default; unknown GYRE_* names are warned of with the nearest known
 * name. */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <gyre/status.h>

typedef enum {
#define SETTING(id, name, kind, def, unit, meaning) SET_##id,
#include "base/settings.def"
#undef SETTING
    SET_COUNT
} base_setting_t;

/* Reads the environment if that has not happened yet. INVALID if a value was malformed (it names which). */
gyre_status_t base_settings_load(void);
/* Drops the snapshot and reads the environment anew: for tests, and for gyre_init after a changed environment. */
gyre_status_t base_settings_reload(void);

/* Overrides one setting; `source` is what gyre-doctor prints, such as "flag --algo". Copies both. */
gyre_status_t base_settings_set(base_setting_t id, const char *value, const char *source);

const char *
base_setting_string(base_setting_t id);      /* also for CHOICE; never NULL; valid until reload or set */
int64_t base_setting_int(base_setting_t id); /* INT, SIZE, BOOL */
double base_setting_seconds(base_setting_t id);
int base_setting_is_default(base_setting_t id);

/* Variables of other launchers that Gyre reads (RANK, WORLD_SIZE, MASTER_ADDR, ...), from the same snapshot.
 * NULL if unset. */
const char *base_env(const char *name);

/* One row per setting: name, meaning, unit, default, present value and where it came from. */
void base_settings_print(FILE *out);

#endif
