/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/windows.h: the table of registered windows and their keys. It calls a registrar by two functions
 * only, which lets a test be the registrar. */
#ifndef COMM_VERBS_WINDOWS_H
#define COMM_VERBS_WINDOWS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/verbs/verbs.h"

typedef struct verbs_window verbs_window_t;

typedef struct {
    pthread_mutex_t lock;
    verbs_window_t *list;
    void (*let_go)(void *user, void *gripped); /* deregisters */
    void *user;
} verbs_windows_t;

/* Registers: fills the keys of *keys and *gripped, and returns 1; or 0 if it cannot. */
typedef int (*verbs_grip_fn)(void *user, void *base, size_t bytes, verbs_keys_t *keys, void **gripped);

/* Finds the keys of window `id`. `grip` registers the window if that was not yet tried. A failure is kept,
 * too, so a window is tried once. */
void verbs_windows_find(verbs_windows_t *windows, uint64_t id, void *base, size_t bytes, verbs_grip_fn grip,
                        void *user, verbs_keys_t *keys);
/* The window ends: its registrations are gone when this returns. */
void verbs_windows_gone(verbs_windows_t *windows, uint64_t id);
void verbs_windows_free(verbs_windows_t *windows);

#endif
