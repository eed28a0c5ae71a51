/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory/message.h: what every message carries, whichever way it takes: its lane and its tag. */
#ifndef COMM_MEMORY_MESSAGE_H
#define COMM_MEMORY_MESSAGE_H

#include <stdint.h>

enum {
    COMM_LANES = 3,   /* lanes 0 and 1 carry channels of collectives, */
    COMM_LANE_P2P = 2 /* lane 2 point-to-point messages */
};

/* What both ends of a message must agree on. */
typedef struct {
    uint32_t seq; /* call number on the communicator (collectives) or message number (point to point) */
    uint32_t sig; /* hash of what the ranks must agree on */
} comm_tag_t;

#endif
