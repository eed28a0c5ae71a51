/* SPDX-License-Identifier: Apache-2.0 */
/* base/status.c: the status codes in words, and what each of them kills. */
#include <gyre/status.h>

gyre_scope_t gyre_status_scope(gyre_status_t status)
{
    /* The hundreds are the groups of gyre/status.h. A code that this version does not know is taken by its
     * group, so that a program built against a newer header still learns what to rebuild. */
    int group = (int)status / 100;
    if ((int)status < 100)
        return GYRE_SCOPE_NONE;
    if (group == 1)
        return GYRE_SCOPE_OPERATION;
    if (group == 2)
        return GYRE_SCOPE_COMMUNICATOR;
    return GYRE_SCOPE_PROCESS;
}

const char *gyre_status_string(gyre_status_t status)
{
    switch (status) {
    case GYRE_OK:
        return "ok";
    case GYRE_IN_PROGRESS:
        return "in progress";
    case GYRE_ERR_INVALID:
        return "invalid argument";
    case GYRE_ERR_TYPE:
        return "unknown type or reduction";
    case GYRE_ERR_OVERFLOW:
        return "size overflow";
    case GYRE_ERR_OVERLAP:
        return "overlapping buffers";
    case GYRE_ERR_UNSUPPORTED:
        return "unsupported";
    case GYRE_ERR_NO_MEMORY:
        return "out of memory";
    case GYRE_ERR_NOT_FOUND:
        return "not found";
    case GYRE_ERR_IO:
        return "input/output error";
    case GYRE_ERR_FORMAT:
        return "malformed data";
    case GYRE_ERR_MISMATCH:
        return "ranks disagree";
    case GYRE_ERR_PEER_DEAD:
        return "peer dead";
    case GYRE_ERR_TIMEOUT:
        return "timeout";
    case GYRE_ERR_ABORTED:
        return "aborted";
    case GYRE_ERR_TRANSPORT:
        return "transport failure";
    case GYRE_ERR_SYSTEM:
        return "system error";
    case GYRE_ERR_AUTH:
        return "not authenticated";
    case GYRE_ERR_BOOTSTRAP:
        return "cannot join the job";
    case GYRE_ERR_INTERNAL:
        return "internal error";
    }
    return "unknown status";
}
