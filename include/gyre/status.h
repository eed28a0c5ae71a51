/* gyre/status.h: what a call answers, and how much of the program an error takes with it.
 *
 * Every call returns a gyre_status_t. Codes are grouped by the largest thing that the error kills, so that
 * a caller knows what to rebuild without knowing every code (gyre_status_scope). */
#ifndef GYRE_STATUS_H
#define GYRE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GYRE_API __attribute__((visibility("default")))
#else
#define GYRE_API
#endif

typedef enum {
    GYRE_OK = 0,
    GYRE_IN_PROGRESS = 1, /* not an error: the request is not finished yet, ask again */

    /* Kills the operation only: nothing was sent, the communicator is as it was. */
    GYRE_ERR_INVALID = 100,     /* an argument is wrong; the last-error text names it */
    GYRE_ERR_TYPE = 101,        /* unknown data type or reduction, or a pair that does not go together */
    GYRE_ERR_OVERFLOW = 102,    /* count x size does not fit in size_t */
    GYRE_ERR_OVERLAP = 103,     /* send and receive buffers overlap without being the in-place form */
    GYRE_ERR_UNSUPPORTED = 104, /* not in this build, or not on this machine */
    GYRE_ERR_NO_MEMORY = 105,   /* memory, descriptors or registration exhausted */
    GYRE_ERR_NOT_FOUND = 106,   /* no such file, key, device or algorithm */
    GYRE_ERR_IO = 107,          /* a file could not be read or written */
    GYRE_ERR_FORMAT = 108,      /* a file or message is not what it should be */

    /* Kills the communicator: its other ranks get an error too; abort it and build a new one. */
    GYRE_ERR_MISMATCH = 200,  /* ranks disagree on what they called */
    GYRE_ERR_PEER_DEAD = 201, /* a rank died; the last-error text names it */
    GYRE_ERR_TIMEOUT = 202,   /* a deadline passed; the text names the ranks waited for */
    GYRE_ERR_ABORTED = 203,   /* this communicator was aborted, here or by another rank */
    GYRE_ERR_TRANSPORT = 204, /* a connection failed although the peer lives */

    /* Kills this process's part in the job. */
    GYRE_ERR_SYSTEM = 300,    /* an unexpected answer from the operating system */
    GYRE_ERR_AUTH = 301,      /* the job secret is missing or wrong */
    GYRE_ERR_BOOTSTRAP = 302, /* the rendezvous could not be reached or joined */
    GYRE_ERR_INTERNAL = 303   /* a defect of Gyre itself: please report it with the last-error text */
} gyre_status_t;

typedef enum {
    GYRE_SCOPE_NONE = 0,
    GYRE_SCOPE_OPERATION = 1,
    GYRE_SCOPE_COMMUNICATOR = 2,
    GYRE_SCOPE_PROCESS = 3
} gyre_scope_t;

/* The largest thing that `status` kills. */
GYRE_API gyre_scope_t gyre_status_scope(gyre_status_t status);

/* The name of a code in words, such as "peer dead"; never NULL. Static storage. */
GYRE_API const char *gyre_status_string(gyre_status_t status);

/* The text of the last error that this thread was given: rank, peer, operation, its arguments, and what to
 * do. Empty if there was none. Valid until this thread's next failing call. */
GYRE_API const char *gyre_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
