/* SPDX-License-Identifier: Apache-2.0 */
/* base/error.h: errors are values; the function that first decides that something is an error says so here.
 *
 * gyre_fail() records the text as this thread's last error, logs it, and returns `status`, so the usual form
 * is `return gyre_fail(GYRE_ERR_INVALID, "root %d is not in 0..%d", root, n - 1);`. Callers that merely pass
 * an error on return its status and say nothing.
 *
 * Where memory is missing (NO_MEMORY, ENOMEM, EAGAIN of a thread) the text ends with the limit of the address
 * space (ulimit -v), if the process has one. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <gyre/status.h>

/* Logged at level error. */
gyre_status_t gyre_fail(gyre_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with ": " and strerror(err) appended. */
gyre_status_t gyre_fail_errno(gyre_status_t status, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records without logging: for an error that is expected and handled, or repeated on another thread. */
gyre_status_t gyre_fail_quiet(gyre_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
