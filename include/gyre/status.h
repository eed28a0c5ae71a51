/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/status.h: the status that every call returns, and what an error leaves usable.
 *
 * Codes are grouped by the largest thing that the error kills: the operation, the communicator, the
 * process. So a caller knows what to rebuild without knowing every code (gyre_status_scope). */
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
    GYRE_IN_PROGRESS = 1, /* not an error: the request has not finished; ask again */

    /* Kills the operation only: nothing was sent, and the communicator is unchanged. */
    GYRE_ERR_INVALID = 100,     /* an argument is wrong; the last-error text names it */
    GYRE_ERR_TYPE = 101,        /* unknown type or reduction, or the type does not have this reduction */
    GYRE_ERR_OVERFLOW = 102,    /* count x size does not fit in size_t */
    GYRE_ERR_OVERLAP = 103,     /* send and receive buffers overlap without being the in-place form */
    GYRE_ERR_UNSUPPORTED = 104, /* not in this build, or not on this machine */
    GYRE_ERR_NO_MEMORY = 105,   /* memory, descriptors or registration exhausted */
    GYRE_ERR_NOT_FOUND = 106,   /* no such file, key, device or algorithm */
    GYRE_ERR_IO = 107,          /* a file could not be read or written */
    GYRE_ERR_FORMAT = 108,      /* a file or message does not have the expected format */

    /* Kills the communicator: its other ranks get an error, too. Destroy it and make a new one. */
    GYRE_ERR_MISMATCH = 200,  /* ranks called different operations or passed different arguments */
    GYRE_ERR_PEER_DEAD = 201, /* a rank died; the last-error text names it */
    GYRE_ERR_TIMEOUT = 202,   /* a deadline passed; the text names the rank that kept all waiting */
    GYRE_ERR_ABORTED = 203,   /* this communicator was aborted, here or by another rank */
    GYRE_ERR_TRANSPORT = 204, /* a connection failed although the peer is alive */

    /* Kills this process's part in the job. */
    GYRE_ERR_SYSTEM = 300,    /* an unexpected error of the operating system */
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

/* The text of the last error of this thread: rank, peer, operation, its arguments, and what to do. Empty
 * if there was none; never NULL. UTF-8: other bytes, as of a file's name, are ?. Owned by Gyre; valid until
 * the next failing call of this thread. Gyre has logged it on stderr already, unless GYRE_LOG is none: a
 * program that prints it as well shows it twice. */
GYRE_API const char *gyre_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
