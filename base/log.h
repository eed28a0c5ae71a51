/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h: one line per message on stderr, written with one write(2):
 *     gyre[3] warning: text          (3: the rank, once known)
 * GYRE_LOG chooses the level: none error warning info debug trace. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

typedef enum {
    BASE_LOG_NONE = 0,
    BASE_LOG_ERROR = 1,
    BASE_LOG_WARNING = 2, /* default */
    BASE_LOG_INFO = 3,
    BASE_LOG_DEBUG = 4,
    BASE_LOG_TRACE = 5
} base_log_level_t;

extern int base_log_limit; /* messages above it are not formatted; read through BASE_LOG only */

/* Use the macros: they cost one load and one branch when the level is off. */
void base_log_write(base_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void base_log_set_level(base_log_level_t level);
/* 1: drops what this thread would log, until 0. Returns what was set before, to be restored. For calls whose
 * errors are expected, or are logged by another rank. */
int base_log_mute(int muted);
/* 1: from here on this thread never waits for stderr (a pipe that nobody reads, a terminal that stands
 * still): lines that would wait are dropped, and counted in a line once there is room again. -1 takes that
 * back. Nests. For threads on which other ranks depend. */
void base_log_hurry(int by);
void base_log_set_rank(int rank); /* -1: unknown */
int base_log_rank(void);

#define BASE_LOG(level, ...)                                                    \
    do {                                                                        \
        if ((int)(level) <= __atomic_load_n(&base_log_limit, __ATOMIC_RELAXED)) \
            base_log_write((level), __VA_ARGS__);                               \
    } while (0)
#define log_error(...)   BASE_LOG(BASE_LOG_ERROR, __VA_ARGS__)
#define log_warning(...) BASE_LOG(BASE_LOG_WARNING, __VA_ARGS__)
#define log_info(...)    BASE_LOG(BASE_LOG_INFO, __VA_ARGS__)
#define log_debug(...)   BASE_LOG(BASE_LOG_DEBUG, __VA_ARGS__)
#define log_trace(...)   BASE_LOG(BASE_LOG_TRACE, __VA_ARGS__)

#endif
