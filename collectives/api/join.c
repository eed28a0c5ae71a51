/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/join.c: gyre_init: joining the job that the launcher describes, as one of its first ranks
 * or as a newcomer. */

#include <pthread.h>

#include "base/error.h"
#include "base/file.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"
#include "collectives/api/world.h"

static gyre_status_t init_locked(const gyre_config_t *config, gyre_comm_t **out)
{
    if (coll_world_of_launcher())
        return gyre_fail(GYRE_ERR_INVALID, "gyre_init was called before; call gyre_finalize first");
    gyre_config_t c = GYRE_CONFIG_INITIALIZER;
    gyre_status_t st = GYRE_OK;
    if (config)
        st = coll_sized_read(&c, sizeof c, offsetof(gyre_config_t, init_timeout_s), config, "gyre_init");
    if (st == GYRE_OK)
        st = coll_check_deadlines("gyre_init", c.init_timeout_s, c.timeout_s);
    if (st == GYRE_OK)
        st = base_settings_reload(); /* the program may have set variables since */
    base_file_fill_standard();
    coll_asked_t asked;
    if (st == GYRE_OK)
        st = coll_options_read("gyre_init", c.options, &asked);
    if (st != GYRE_OK)
        return st;
    const int newcomer = *base_setting_string(SET_JOIN) != '\0';
    if (newcomer && asked.leaves != 1)
        return gyre_fail(GYRE_ERR_INVALID,
                         "gyre_init: options.leaves is %d: a newcomer (GYRE_JOIN) has 1, as the others have "
                         "after gyre_comm_grow",
                         asked.leaves);
    comm_identity_t who = {0};
    st = newcomer ? GYRE_OK : comm_identity_find(config ? &c : NULL, &who);
    if (st != GYRE_OK)
        return st;
    const base_time_t deadline =
        base_deadline(c.init_timeout_s > 0 ? c.init_timeout_s : base_setting_seconds(SET_INIT_TIMEOUT));
    coll_world_t *world = coll_world_new(1, c.timeout_s, c.progress_thread, &asked);
    if (!world) {
        st = GYRE_ERR_NO_MEMORY;
    } else if (newcomer) {
        st = coll_world_enter(world, deadline, out);
    } else {
        coll_world_name(world, who.meet == COMM_MEET_KNOWN && who.size == 1 ? -1 : who.rank);
        st = comm_identity_meet(&who, deadline);
        if (st == GYRE_OK)
            st = coll_world_begin(world, &who, deadline, out);
        else
            coll_world_drop(world);
    }
    if (st != GYRE_OK)
        comm_identity_leave();
    return st;
}

gyre_status_t gyre_init(const gyre_config_t *config, gyre_comm_t **world)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* the launcher's channel is one */
    if (!world)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_init: world is NULL");
    gyre_status_t st = coll_world_refuse_child("gyre_init");
    if (st != GYRE_OK)
        return st;
    pthread_mutex_lock(&turn);
    st = init_locked(config, world);
    pthread_mutex_unlock(&turn);
    return st;
}
