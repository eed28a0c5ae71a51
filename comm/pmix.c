/* comm/pmix.c: see pmix.h. Names and meanings are those of the PMIx Standard 4.1. */
#include "comm/pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"

#define RANK_ALL (UINT32_MAX - 1) /* PMIX_RANK_WILDCARD: facts of the job, all its ranks */
enum { PMIX_OK = 0, TYPE_BOOL = 1, TYPE_STRING = 3, TYPE_UINT32 = 14, SCOPE_GLOBAL = 3 };

const pmix_calls_t *pmix_load(const char *library, char *why, size_t room)
{
    static pmix_calls_t calls;
    const struct {
        const char *name;
        void *slot;
    } names[] = {{"PMIx_Init", &calls.init},
                 {"PMIx_Finalize", &calls.finalize},
                 {"PMIx_Get", &calls.get},
                 {"PMIx_Put", &calls.put},
                 {"PMIx_Commit", &calls.commit},
                 {"PMIx_Fence", &calls.fence},
                 {"PMIx_Error_string", &calls.error_text}};
    const char *error;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        error = dlerror();
        snprintf(why, room, "%s", error != NULL ? error : library);
        return NULL;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(handle, names[i].name);
        if (found == NULL) {
            snprintf(why, room, "%s has no %s", library, names[i].name);
            dlclose(handle);
            return NULL;
        }
        memcpy(names[i].slot, &found, sizeof(found));
    }
    return &calls;
}

/* One piece of work on PMIx's thread. Freed by whoever comes last: the thread, or the caller that waited. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int done, abandoned;
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

/* A fact about the job; 0: the server does not tell. */
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

static void errand_free(errand_t *e)
{
    pthread_cond_destroy(&e->moved);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *errand_main(void *user)
{
    errand_t *e = user;
    gyre_status_t st = GYRE_OK;
    int rc = PMIX_OK;
    if (e->talk != NULL)
        st = talk_through(e);
    else
        rc = e->calls->finalize(NULL, 0);
    if (rc != PMIX_OK)
        st = refused(e, "PMIx_Finalize", rc);
    pthread_mutex_lock(&e->lock);
    e->status = st;
    if (st != GYRE_OK)
        snprintf(e->error, sizeof(e->error), "%s", gyre_last_error());
    e->done = 1;
    int mine = e->abandoned;
    pthread_cond_signal(&e->moved);
    pthread_mutex_unlock(&e->lock);
    if (mine)
        errand_free(e);
    return NULL;
}

static struct timespec absolute(base_time_t deadline)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int ms = base_poll_ms(deadline);
    if (ms < 0) {
        t.tv_sec += 365 * 24 * 3600;
        return t;
    }
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static errand_t *errand_new(const pmix_calls_t *calls, pmix_talk_t *talk)
{
    errand_t *e = calloc(1, sizeof(*e));
    pthread_condattr_t attr;
    if (e == NULL || pthread_condattr_init(&attr) != 0) {
        free(e);
        return NULL;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&e->moved, &attr) != 0 || pthread_mutex_init(&e->lock, NULL) != 0;
    pthread_condattr_destroy(&attr);
    if (bad) {
        free(e);
        return NULL;
    }
    e->calls = calls;
    e->talk = talk;
    return e;
}

/* TIMEOUT (quiet): it is still under way. */
static gyre_status_t errand_run(const pmix_calls_t *calls, pmix_talk_t *talk, base_time_t deadline)
{
    pthread_t thread;
    errand_t *e = errand_new(calls, talk);
    int err = e == NULL ? ENOMEM : pthread_create(&thread, NULL, errand_main, e);
    if (err != 0) {
        if (e != NULL)
            errand_free(e);
        return gyre_fail_errno(GYRE_ERR_NO_MEMORY, err, "no thread for PMIx");
    }
    struct timespec until = absolute(deadline);
    pthread_mutex_lock(&e->lock);
    while (!e->done && pthread_cond_timedwait(&e->moved, &e->lock, &until) != ETIMEDOUT)
        ;
    int done = e->done;
    e->abandoned = !done;
    pthread_mutex_unlock(&e->lock);
    if (!done) {
        pthread_detach(thread);
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "PMIx did not answer");
    }
    pthread_join(thread, NULL);
    gyre_status_t st = e->status;
    if (st != GYRE_OK)
        st = gyre_fail_quiet(st, "%s", e->error); /* told on its thread */
    errand_free(e);
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
