/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/pmix.h: a client of PMIx, for mpirun of Open MPI, prterun and srun --mpi=pmix. Gyre does not
 * link libpmix: it opens libpmix.so.2 when a launcher's variables ask for it. This header declares the few
 * types that the client needs. Their layout is the same from PMIx 3 to 5; tests/launch compares them with
 * pmix.h.
 *
 * PMIx's calls have no deadline. A thread of their own makes them. If a call does not return, that thread
 * stays asleep in the process. */
#ifndef COMM_LAUNCH_PMIX_H
#define COMM_LAUNCH_PMIX_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#include "base/clock.h"

typedef struct {
    char space[256];
    uint32_t rank;
} pmix_id_t;

typedef struct {
    uint16_t type;
    union {
        uint8_t flag;
        char *string;
        uint32_t number;
        struct {
            char *text, *value;
            char separator;
        } widest; /* the widest member of PMIx's own union */
    } data;
} pmix_datum_t;

/* One element of PMIx's arrays of options. Gyre passes arrays of one element, so the size of an element does
 * not matter. */
typedef struct {
    char key[512];
    uint32_t flags;
    pmix_datum_t value;
} pmix_option_t;

typedef struct {
    int (*init)(pmix_id_t *me, pmix_option_t *options, size_t n);
    int (*finalize)(const pmix_option_t *options, size_t n);
    int (*get)(const pmix_id_t *whose, const char *key, const pmix_option_t *options, size_t n,
               pmix_datum_t **out);
    int (*put)(uint8_t scope, const char *key, pmix_datum_t *value);
    int (*commit)(void);
    int (*fence)(const pmix_id_t *who, size_t whos, const pmix_option_t *options, size_t n);
    const char *(*error_text)(int status);
} pmix_calls_t;

/* Loads the library. Returns NULL if there is no such library or a call is missing; why[room] then has the
 * loader's text. The library stays loaded: its threads do not survive dlclose. */
const pmix_calls_t *pmix_load(const char *library, char *why, size_t room);

/* What a job does with PMIx, once: opens, asks for its size, publishes rank 0's text, fences, reads the text,
 * closes. */
typedef struct {
    const pmix_calls_t *calls;
    int rank; /* in: the value of PMIX_RANK; the server must agree */
    const char *key;
    /* in: 1: keep the connection open: an MPI library in this process needs it (pmix_leave closes it) */
    int stay;
    /* Rank 0, on PMIx's thread: writes the text to publish into text[1024]. local: the launcher reports that
     * all ranks are on this host. */
    void (*publish)(void *user, int size, int local, char *text);
    void *user;
    int size;        /* out */
    char text[1024]; /* out: what rank 0 published; "" if size is 1 */
} pmix_talk_t;

/* BOOTSTRAP: the server cannot be reached or refuses. TIMEOUT: some rank has not called; the thread still
 * uses `talk`, which must stay valid. */
gyre_status_t pmix_talk(pmix_talk_t *talk, base_time_t deadline);
/* Closes the connection that `stay` kept open. */
void pmix_leave(const pmix_calls_t *calls, base_time_t deadline);

#endif
