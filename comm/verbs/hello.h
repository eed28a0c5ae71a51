/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/hello.h: the datagram by which two ranks learn each other's queue pairs (hello.c). */
#ifndef COMM_VERBS_HELLO_H
#define COMM_VERBS_HELLO_H

#include "comm/verbs/verbs.h"

enum { VERBS_HELLO_KNOWS = 1, VERBS_HELLO_READY = 2 };

typedef struct {
    uint32_t magic, flags;
    uint64_t token; /* the receiver's */
    uint64_t group;
    int32_t source, dest;
    uint32_t lane, stripes, rails, units;
    uint64_t ring;
    uint32_t rkey, pad;
    verbs_address_t address[VERBS_RAILS];
    struct {
        uint32_t qpn, psn;
    } qp[VERBS_STRIPES];
} verbs_hello_t;

/* "GYL2"; another layout has another size, and with it another magic. */
#define VERBS_HELLO_MAGIC (0x47594c32u + (uint32_t)sizeof(verbs_hello_t))

enum {
    VERBS_HELLO_GRH = 40, /* bytes that adapters put in front of a datagram */
    VERBS_HELLO_SLOT = 512,
    VERBS_HELLO_RECEIVES = 128, /* slots of vg->ud_memory: first these, */
    VERBS_HELLO_SENDS = 32      /* then those */
};
_Static_assert(sizeof(verbs_hello_t) <= VERBS_HELLO_SLOT - VERBS_HELLO_GRH, "a hello fits into its slot");

/* In the identifier of a work request, next to the number of its slot: it is a receive. */
#define VERBS_HELLO_RECEIVED ((uint64_t)1 << 32)

#endif
