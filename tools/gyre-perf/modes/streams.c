/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/modes/streams.c: --streams K: the same collective on K communicators of the same ranks at
 * once. All are started with their non-blocking calls before the first is waited for, each with buffers of
 * its own. */
#include "tools/gyre-perf/perf.h"

#include <stdlib.h>

#include "base/error.h"

gyre_status_t perf_streams_open(gyre_comm_t *comm, int count, int aggregate, perf_streams_t *s)
{
    *s = (perf_streams_t){.count = count,
                          .comms = calloc((size_t)count, sizeof *s->comms),
                          .requests = calloc((size_t)count * (size_t)aggregate * 2, sizeof *s->requests)};
    if (!s->comms || !s->requests)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for %d streams", count);
    gyre_status_t status = GYRE_OK;
    for (int i = 0; i < count && status == GYRE_OK; i++)
        status = gyre_comm_split(comm, 0, gyre_comm_rank(comm), &s->comms[i]);
    return status;
}

gyre_status_t perf_streams_iterate(const perf_case_t *c, const perf_place_t *p, int aggregate)
{
    perf_case_t one = *c;
    const perf_streams_t *s = c->streams;
    const size_t operations = (size_t)aggregate * (size_t)s->count;
    size_t started = 0;
    gyre_status_t status = GYRE_OK;
    for (; started < operations && status == GYRE_OK; started++) {
        const size_t shift = started * p->stride;
        one.comm = s->comms[started % (size_t)s->count];
        status = perf_case_start(&one, p->send ? p->send + shift : NULL, p->recv ? p->recv + shift : NULL,
                                 &s->requests[2 * started]);
    }
    gyre_status_t waited = gyre_wait_all(2 * started, s->requests);
    return status == GYRE_OK ? waited : status;
}

gyre_status_t perf_streams_close(perf_streams_t *s)
{
    gyre_status_t status = GYRE_OK;
    for (int i = 0; s->comms && i < s->count; i++) {
        gyre_status_t one = gyre_comm_destroy(s->comms[i]);
        status = status == GYRE_OK ? one : status;
    }
    free(s->comms);
    free(s->requests);
    *s = (perf_streams_t){0};
    return status;
}
