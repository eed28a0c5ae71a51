/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/pmix.c: see pmix.h. Names and meanings are those of the PMIx Standard 4.1. */
#include "comm/launch/pmix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread/aside.h"
#include "base/error.h"
#include "base/machine/library.h"
#include "base/log.h"

#define RANK_ALL (UINT32_MAX - 1) /* PMIX_RANK_WILDCARD: facts of the job, all its ranks */
enum { PMIX_OK = 0, TYPE_BOOL = 1, TYPE_STRING = 3, TYPE_UINT32 = 14, SCOPE_GLOBAL = 3 };

const pmix_calls_t *pmix_load(const char *library, char *why, size_t room)
{
    static pmix_calls_t calls;
    const base_symbol_t symbols[] = {{"PMIx_Init", &calls.init},
                                     {"PMIx_Finalize", &calls.finalize},
                                     {"PMIx_Get", &calls.get},
                                     {"PMIx_Put", &calls.put},
                                     {"PMIx_Commit", &calls.commit},
                                     {"PMIx_Fence", &calls.fence},
                                     {"PMIx_Error_string", &calls.error_text}};

    return base_library_load(library, symbols, sizeof(symbols) / sizeof(symbols[0]), why, room) ? &calls
                                                                                                : NULL;
}

/* One conversation, or the goodbye alone, on PMIx's thread. */
typedef struct {
    pmix_talk_t *talk; /* NULL: only the goodbye */
    const pmix_calls_t *calls;
    gyre_status_t status;
    char error[512];
} errand_t;

static gyre_status_t refused(const errand_t *e, const char *what, int rc)
{
    return gyre_fail(GYRE_ERR_BOOTSTRAP, "%s: %s (%d)", what, e->calls->error_text(rc), rc);
}

static void option(pmix_option_t *out, const char *key)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->key, sizeof(out->key), "%s", key);
    out->value.type = TYPE_BOOL;
    out->value.data.flag = 1;
}

/* A fact about the job; 0: the server does not report it. */
static uint32_t fact(const errand_t *e, const pmix_id_t *job, const char *key)
{
    pmix_datum_t *datum = NULL;
    uint32_t number = 0;
    if (e->calls->get(job, key, NULL, 0, &datum) != PMIX_OK || datum == NULL)
        return 0;
    if (datum->type == TYPE_UINT32)
        number = datum->data.number;
    free(datum); /* PMIx's values are malloc's */
    return number;
}

static gyre_status_t publish(errand_t *e, int local)
{
    pmix_datum_t value = {.type = TYPE_STRING, .data.string = e->talk->text};
    e->talk->publish(e->talk->user, e->talk->size, local, e->talk->text);
    int rc = e->calls->put(SCOPE_GLOBAL, e->talk->key, &value);
    if (rc != PMIX_OK)
        return refused(e, "PMIx_Put", rc);
    rc = e->calls->commit();
    return rc == PMIX_OK ? GYRE_OK : refused(e, "PMIx_Commit", rc);
}

static gyre_status_t read_it(errand_t *e, const pmix_id_t *job)
{
    pmix_id_t zero = *job;
    pmix_datum_t *datum = NULL;
    zero.rank = 0;
    int rc = e->calls->get(&zero, e->talk->key, NULL, 0, &datum);
    if (rc != PMIX_OK || datum == NULL)
        return refused(e, "PMIx_Get of what rank 0 published", rc);
    gyre_status_t st = GYRE_OK;
    if (datum->type != TYPE_STRING || datum->data.string == NULL)
        st = gyre_fail(GYRE_ERR_BOOTSTRAP, "PMIx_Get of what rank 0 published: it has type %d", datum->type);
    else
        snprintf(e->talk->text, sizeof(e->talk->text), "%s", datum->data.string);
    if (datum->type == TYPE_STRING)
        free(datum->data.string);
    free(datum);
    return st;
}

static gyre_status_t converse(errand_t *e, const pmix_id_t *me)
{
    pmix_id_t job = *me;
    job.rank = RANK_ALL;
    uint32_t size = fact(e, &job, "pmix.job.size");
    if (me->rank != (uint32_t)e->talk->rank)
        return gyre_fail(GYRE_ERR_INVALID, "PMIX_RANK is %d, but the PMIx server says %u", e->talk->rank,
                         me->rank);
    if (size == 0 || size > INT32_MAX || me->rank >= size)
        return gyre_fail(GYRE_ERR_BOOTSTRAP, "the PMIx server says that this is rank %u of %u", me->rank,
                         size);
    e->talk->size = (int)size;
    e->talk->text[0] = '\0';
    if (size == 1)
        return GYRE_OK;
    gyre_status_t st = GYRE_OK;
    if (me->rank == 0)
        st = publish(e, fact(e, &job, "pmix.local.size") == size);
    pmix_option_t collect;
    option(&collect, "pmix.collect"); /* the values travel with the fence */
    int rc = st == GYRE_OK ? e->calls->fence(&job, 1, &collect, 1) : PMIX_OK;
    if (rc != PMIX_OK)
        st = refused(e, "PMIx_Fence", rc);
    return st == GYRE_OK && me->rank > 0 ? read_it(e, &job) : st;
}

static gyre_status_t talk_through(errand_t *e)
{
    pmix_id_t me = {.rank = 0};
    int rc = e->calls->init(&me, NULL, 0);
    if (rc != PMIX_OK)
        return gyre_fail(GYRE_ERR_BOOTSTRAP,
                         "PMIX_NAMESPACE and PMIX_RANK are set, but the launcher's PMIx server cannot be "
                         "reached: PMIx_Init: "
                         "%s (%d). In a container, mount the server's directory (PMIX_SERVER_TMPDIR); a "
                         "process that shall "
                         "not belong to the job needs: env -u PMIX_NAMESPACE -u PMIX_RANK",
                         e->calls->error_text(rc), rc);
    gyre_status_t st = converse(e, &me);
    if (st == GYRE_OK && e->talk->stay)
        return st;
    rc = e->calls->finalize(NULL, 0);
    if (rc != PMIX_OK)
        log_warning("PMIx_Finalize: %s (%d)", e->calls->error_text(rc), rc);
    return st;
}

static void errand_main(void *user)
{
    errand_t *e = user;
    int rc = PMIX_OK;
    if (e->talk != NULL)
        e->status = talk_through(e);
    else if ((rc = e->calls->finalize(NULL, 0)) != PMIX_OK)
        e->status = refused(e, "PMIx_Finalize", rc);
    if (e->status != GYRE_OK)
        snprintf(e->error, sizeof(e->error), "%s", gyre_last_error());
}

/* TIMEOUT (quiet): it is still under way. */
static gyre_status_t errand_run(const pmix_calls_t *calls, pmix_talk_t *talk, base_time_t deadline)
{
    errand_t *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to talk to PMIx");
    e->calls = calls;
    e->talk = talk;
    int err = base_aside(errand_main, free, e, deadline);
    if (err == ETIMEDOUT)
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "PMIx did not answer");
    gyre_status_t st = err != 0 ? gyre_fail_errno(GYRE_ERR_NO_MEMORY, err, "no thread for PMIx") : e->status;
    if (err == 0 && st != GYRE_OK)
        st = gyre_fail_quiet(st, "%s", e->error); /* logged on its thread */
    free(e);
    return st;
}

gyre_status_t pmix_talk(pmix_talk_t *talk, base_time_t deadline)
{
    gyre_status_t st = errand_run(talk->calls, talk, deadline);
    if (st == GYRE_ERR_TIMEOUT)
        return gyre_fail(
            st,
            "rank %d: the launcher's PMIx server did not finish before the deadline: some ranks of the job "
            "have not called gyre_init, or the launcher hangs",
            talk->rank);
    return st;
}

void pmix_leave(const pmix_calls_t *calls, base_time_t deadline)
{
    if (errand_run(calls, NULL, deadline) == GYRE_ERR_TIMEOUT)
        log_warning("PMIx_Finalize does not come back; going on without it");
}
