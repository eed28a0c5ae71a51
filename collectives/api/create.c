/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/create.c: jobs that a program makes by its own means: by an all-gather, or by a unique
 * id. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/settings/settings.h"
#include "collectives/api/sized.h"
#include "collectives/api/world.h"

/* A call, with its arguments checked. */
typedef struct {
    const char *call;
    gyre_create_t config;
    coll_asked_t asked;
    int by_id;
    unsigned char id[COMM_ID_BYTES];
    gyre_comm_t *made, **out; /* out: the caller's, of a call that does not block */
    char *name;               /* config.name, if that is not the caller's */
    base_time_t deadline;     /* of a call that does not block; 0: of each step its own */
} creating_t;

static gyre_status_t read_config(creating_t *c, const gyre_create_t *config, gyre_comm_t **out)
{
    const gyre_create_t defaults = GYRE_CREATE_INITIALIZER;
    gyre_create_t *own = &c->config;
    gyre_status_t st = GYRE_OK;
    *own = defaults;
    if (!out)
        return gyre_fail(GYRE_ERR_INVALID, "%s: out is NULL", c->call);
    c->out = out;
    if (config)
        st = coll_sized_read(own, sizeof *own, sizeof(gyre_create_t), config, c->call);
    if (st == GYRE_OK && own->reserved != 0)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: config.reserved is %d; start from GYRE_CREATE_INITIALIZER",
                       c->call, own->reserved);
    if (st == GYRE_OK)
        st = coll_check_deadlines(c->call, own->init_timeout_s, own->timeout_s);
    if (st == GYRE_OK)
        st = coll_world_refuse_child(c->call);
    if (st == GYRE_OK)
        st = base_settings_load();
    if (st == GYRE_OK)
        st = coll_options_read(c->call, own->options, &c->asked);
    base_file_fill_standard();
    if (!own->name)
        own->name = "";
    return st;
}

/* By an all-gather. */
static gyre_status_t read_gather(creating_t *c, const gyre_create_t *config, gyre_comm_t **out)
{
    if (!config)
        return gyre_fail(GYRE_ERR_INVALID, "%s: config is NULL", c->call);
    gyre_status_t st = read_config(c, config, out);
    if (st == GYRE_OK && !c->config.all_gather && c->config.nranks != 1)
        st = gyre_fail(GYRE_ERR_INVALID, "%s: config.all_gather is NULL", c->call);
    return st;
}

static gyre_status_t read_id(creating_t *c, const gyre_unique_id_t *id, int rank, int nranks,
                             const gyre_create_t *config, gyre_comm_t **out)
{
    if (!id)
        return gyre_fail(GYRE_ERR_INVALID, "%s: id is NULL", c->call);
    gyre_status_t st = read_config(c, config, out);
    c->by_id = 1;
    memcpy(c->id, id->bytes, sizeof c->id);
    c->config.rank = rank;
    c->config.nranks = nranks;
    return st;
}

static double seconds_of(const gyre_create_t *config)
{
    return config->init_timeout_s > 0 ? config->init_timeout_s : base_setting_seconds(SET_INIT_TIMEOUT);
}

/* Wipes and closes what `who` has. */
static gyre_status_t begin(creating_t *creating, comm_identity_t *who)
{
    const gyre_create_t *c = &creating->config;
    const base_time_t deadline = creating->deadline ? creating->deadline : base_deadline(seconds_of(c));
    gyre_status_t st = GYRE_ERR_NO_MEMORY;
    coll_world_t *world = coll_world_new(0, c->timeout_s, c->progress_thread, &creating->asked);
    if (world)
        st = coll_world_begin(world, who, deadline, &creating->made);
    if (st == GYRE_OK)
        base_bias_disown(&creating->made->driving); /* this thread may be one that ends with the creation */
    if (who->root_fd >= 0)
        close(who->root_fd);
    sodium_memzero(who, sizeof *who);
    return st;
}

static gyre_status_t create(void *user)
{
    creating_t *c = user;
    comm_identity_t who;
    const comm_gather_t by = {c->call, c->by_id ? NULL : c->config.all_gather, c->config.user, c->deadline};
    gyre_status_t st =
        c->by_id ? comm_identity_by_id(&by, c->id, c->config.name, c->config.rank, c->config.nranks, &who)
                 : comm_identity_gather(&by, c->config.name, c->config.rank, c->config.nranks, &who);
    return st == GYRE_OK ? begin(c, &who) : st;
}

/* Of a call whose arguments are right. */
static gyre_status_t create_now(creating_t *c, gyre_status_t st)
{
    if (st == GYRE_OK)
        st = create(c);
    if (st == GYRE_OK)
        *c->out = c->made;
    sodium_memzero(c->id, sizeof c->id);
    return st;
}

static void end_creating(void *user, gyre_status_t status)
{
    creating_t *c = user;
    if (status == GYRE_OK)
        *c->out = c->made;
    sodium_memzero(c->id, sizeof c->id);
    free(c->name);
    free(c);
}

/* The same without blocking: the caller's memory is not read after this has returned. */
static gyre_status_t create_later(creating_t *checked, gyre_status_t st, gyre_request_t **request)
{
    static const coll_task_ops_t ops = {.run = create, .end = end_creating};
    creating_t *c = NULL;
    if (st == GYRE_OK && coll_group_open())
        st = gyre_fail(GYRE_ERR_INVALID, "%s cannot be part of a group", checked->call);
    if (st == GYRE_OK)
        st = coll_check_request(checked->call, request);
    if (st == GYRE_OK) {
        c = malloc(sizeof *c);
        if (c) {
            *c = *checked;
            c->deadline = base_deadline(seconds_of(&c->config));
            c->config.name = c->name = strdup(checked->config.name);
        }
        if (!c || !c->name)
            st = gyre_fail(GYRE_ERR_NO_MEMORY, "%s: no memory", checked->call);
    }
    if (st == GYRE_OK)
        st = coll_task_start(checked->call, NULL, &ops, c, request);
    if (st != GYRE_OK && c) {
        sodium_memzero(c->id, sizeof c->id);
        free(c->name);
        free(c);
    }
    sodium_memzero(checked->id, sizeof checked->id);
    return st;
}

gyre_status_t gyre_comm_create(const gyre_create_t *config, gyre_comm_t **out)
{
    creating_t c = {.call = "gyre_comm_create"};
    return create_now(&c, read_gather(&c, config, out));
}

gyre_status_t gyre_comm_icreate(const gyre_create_t *config, gyre_comm_t **out, gyre_request_t **request)
{
    creating_t c = {.call = "gyre_comm_icreate"};
    return create_later(&c, read_gather(&c, config, out), request);
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
    creating_t c = {.call = "gyre_comm_create_id"};
    return create_now(&c, read_id(&c, id, rank, nranks, config, out));
}

gyre_status_t gyre_comm_icreate_id(const gyre_unique_id_t *id, int rank, int nranks,
                                   const gyre_create_t *config, gyre_comm_t **out, gyre_request_t **request)
{
    creating_t c = {.call = "gyre_comm_icreate_id"};
    return create_later(&c, read_id(&c, id, rank, nranks, config, out), request);
}
