/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/windows.c: see the header. */
#include "comm/verbs/windows.h"

#include <stdlib.h>

struct verbs_window {
    verbs_window_t *next;
    verbs_keys_t keys;
    void *gripped;
};

void verbs_windows_find(verbs_windows_t *windows, uint64_t id, void *base, size_t bytes, verbs_grip_fn grip,
                        void *user, verbs_keys_t *keys)
{
    verbs_window_t *window;

    pthread_mutex_lock(&windows->lock);
    for (window = windows->list; window && window->keys.window != id; window = window->next) {
    }
    if (!window && (window = calloc(1, sizeof *window))) {
        window->keys.window = id;
        window->keys.usable = grip(user, base, bytes, &window->keys, &window->gripped);
        window->next = windows->list;
        windows->list = window;
    }
    *keys = window ? window->keys : (verbs_keys_t){.window = id};
    pthread_mutex_unlock(&windows->lock);
}

static void end(verbs_windows_t *windows, verbs_window_t **link)
{
    verbs_window_t *window = *link;

    *link = window->next;
    if (window->keys.usable)
        windows->let_go(windows->user, window->gripped);
    free(window);
}

void verbs_windows_gone(verbs_windows_t *windows, uint64_t id)
{
    pthread_mutex_lock(&windows->lock);
    for (verbs_window_t **link = &windows->list; *link; link = &(*link)->next) {
        if ((*link)->keys.window == id) {
            end(windows, link);
            break;
        }
    }
    pthread_mutex_unlock(&windows->lock);
}

void verbs_windows_free(verbs_windows_t *windows)
{
    pthread_mutex_lock(&windows->lock);
    while (windows->list)
        end(windows, &windows->list);
    pthread_mutex_unlock(&windows->lock);
}
