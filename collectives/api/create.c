/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/create.c: jobs that a program makes by its own means: by an all-gather, or by a unique
 * id. */
#include <sodium.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"
#include "collectives/api/world.h"

static gyre_status_t read_config(const char *call, const gyre_create_t *config, gyre_create_t *own,
                                 coll_asked_t *asked, gyre_comm_t **out)
{
    const gyre_create_t defaults = GYRE_CREATE_INITIALIZER;
    gyre_status_t st = GYRE_OK;
    *own = defaults;
    if (!out)
        return gyre_fail(GYRE_ERR_INVALID, "%s: out is NULL", call);
    if (config)
        st = coll_sized_read(own, sizeof *own, sizeof(gyre_create_t), config, call);
    if (st == GYRE_OK && own->reserved != 0)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: config.reserved is %d; start from GYRE_CREATE_INITIALIZER",
                       call, own->reserved);
    if (st == GYRE_OK)
        st = coll_world_refuse_child(call);
    if (st == GYRE_OK)
        st = base_settings_load();
    if (st == GYRE_OK)
        st = coll_options_read(call, own->options, asked);
    base_file_fill_standard();
    if (!own->name)
        own->name = "";
    return st;
}

/* Wipes and closes what `who` has. */
static gyre_status_t begin(const gyre_create_t *c, const coll_asked_t *asked, comm_identity_t *who,
                           gyre_comm_t **out)
{
    const double seconds = c->init_timeout_s > 0 ? c->init_timeout_s : base_setting_seconds(SET_INIT_TIMEOUT);
    gyre_status_t st = GYRE_ERR_NO_MEMORY;
    coll_world_t *world = coll_world_new(0, c->timeout_s, c->progress_thread, asked);
    if (world)
        st = coll_world_begin(world, who, base_deadline(seconds), out);
    if (who->root_fd >= 0)
        close(who->root_fd);
    sodium_memzero(who, sizeof *who);
    return st;
}

gyre_status_t gyre_comm_create(const gyre_create_t *config, gyre_comm_t **out)
{
    gyre_create_t c;
    coll_asked_t asked;
    comm_identity_t who;
    if (!config)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_create: config is NULL");
    gyre_status_t st = read_config("gyre_comm_create", config, &c, &asked, out);
    const comm_gather_t by = {"gyre_comm_create", c.all_gather, c.user};
    if (st == GYRE_OK && !c.all_gather && c.nranks != 1)
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_create: config.all_gather is NULL");
    if (st == GYRE_OK)
        st = comm_identity_gather(&by, c.name, c.rank, c.nranks, &who);
    return st == GYRE_OK ? begin(&c, &asked, &who, out) : st;
}

gyre_status_t gyre_get_unique_id(gyre_unique_id_t *id)
{
    if (!id)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_get_unique_id: id is NULL");
    _Static_assert(sizeof id->bytes == COMM_ID_BYTES, "the bytes of an id");
    gyre_status_t st = base_settings_load();
    base_file_fill_standard();
    return st == GYRE_OK ? comm_unique_id(id->bytes) : st;
}

gyre_status_t gyre_comm_create_id(const gyre_unique_id_t *id, int rank, int nranks,
                                  const gyre_create_t *config, gyre_comm_t **out)
{
    gyre_create_t c;
    coll_asked_t asked;
    comm_identity_t who;
    if (!id)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_create_id: id is NULL");
    gyre_status_t st = read_config("gyre_comm_create_id", config, &c, &asked, out);
    const comm_gather_t by = {.call = "gyre_comm_create_id"};
    if (st == GYRE_OK)
        st = comm_identity_by_id(&by, id->bytes, c.name, rank, nranks, &who);
    return st == GYRE_OK ? begin(&c, &asked, &who, out) : st;
}
