/* comm/launch/pmix.h: a client of PMIx: mpirun of Open MPI, prterun, srun --mpi=pmix. Gyre does not link libpmix: it opens libpmix.so.2 when a
 * launcher's variables ask for it, and declares the few types that it needs by itself (their layout is the same from PMIx 3 to 5;
 * tests/launch compares it with pmix.h).
 *
 * PMIx's calls have no deadline. They are made on a thread of their own, which is left behind (asleep) should they not come back. */
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

/* One element of PMIx's arrays of options. We pass arrays of one: the elements' size is none of our business. */
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

/* The library's calls, or NULL: no such library, or not with these names; why[room] says what the loader said. The library stays
 * loaded: its threads could not bear anything else. */
const pmix_calls_t *pmix_load(const char *library, char *why, size_t room);

/* What a job does with PMIx, once: hello, who am I, publish rank 0's text, fence, read it, goodbye. */
typedef struct {
    const pmix_calls_t *calls;
    int rank; /* in: what PMIX_RANK says; the server must agree */
    const char *key;
    int stay; /* in: 1: no goodbye yet: an MPI library in this process needs the connection (pmix_leave) */
    /* Rank 0, on PMIx's thread: writes what is to be published into text[1024]. local: all ranks are on this host, says the launcher. */
    void (*publish)(void *user, int size, int local, char *text);
    void *user;
    int size;        /* out */
    char text[1024]; /* out: what rank 0 published; "" if size is 1 */
} pmix_talk_t;

/* BOOTSTRAP (the server cannot be reached, refuses), TIMEOUT: some rank has not called; then `talk` is still in use, and must stay. */
gyre_status_t pmix_talk(pmix_talk_t *talk, base_time_t deadline);
/* The goodbye that `stay` held back. */
void pmix_leave(const pmix_calls_t *calls, base_time_t deadline);

#endif
