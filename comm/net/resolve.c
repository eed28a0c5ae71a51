/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/resolve.c: resolves names to addresses with a deadline. The C library's resolver has no deadline:
 * it takes 10 s and more if the name server does not answer. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread/aside.h"
#include "comm/net/address.h"

typedef struct {
    char host[256], service[8];
    int rc; /* as getaddrinfo gives it */
    struct addrinfo *found;
} question_t;

static void ask(void *user)
{
    question_t *q = user;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    q->rc = getaddrinfo(q->host, q->service, &hints, &q->found);
}

static void forget(void *user)
{
    question_t *q = user;
    if (q->rc == 0)
        freeaddrinfo(q->found);
    free(q);
}

int boot_resolve(const char *host, int port, base_time_t deadline, struct addrinfo **out)
{
    const struct addrinfo literal = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    char service[8];
    snprintf(service, sizeof(service), "%d", port);
    int rc = getaddrinfo(host, service, &literal, out);
    if (rc != EAI_NONAME)
        return rc; /* an address needs no name server */
    question_t *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return EAI_MEMORY;
    snprintf(q->host, sizeof(q->host), "%s", host);
    snprintf(q->service, sizeof(q->service), "%s", service);
    int err = base_aside(ask, forget, q, deadline);
    if (err == ETIMEDOUT)
        return EAI_AGAIN; /* q is the thread's now */
    rc = err == 0 ? q->rc : EAI_MEMORY;
    *out = q->found;
    free(q);
    return rc;
}
