/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/device_ops.h: what this room asks of the room that runs operations on devices
 * (collectives/gpu). That room puts its table into each communicator that it prepares
 * (gyre_comm_t.device_ops); without a part on a device it is NULL. */
#ifndef COLLECTIVES_RUN_DEVICE_OPS_H
#define COLLECTIVES_RUN_DEVICE_OPS_H

#include <gyre/collectives.h>

typedef struct {
    /* Finishes requests whose operations have ended; > 0: some were. The caller is driving. */
    int (*advance)(gyre_comm_t *comm);
    /* The communicator has failed: what is on streams ends soon, without a result. 1: nothing of it touches
     * the program's buffers any more. 0: the module's own thread called, which does not wait, and calls
     * again. The caller is driving. */
    int (*stop)(gyre_comm_t *comm);
    /* After stop: the request ends without its operation; what it has of the device is given back. */
    void (*give_up)(gyre_comm_t *comm, gyre_request_t *r);
    /* The rank that an operation on the device has been waiting for; -1: not known. */
    int (*late)(const gyre_comm_t *comm);
    /* This thread's group ends, before its requests are waited for: enqueues the messages that it has
     * collected, or drops them if the group has failed (`error`). Called only after
     * coll_group_note_device. */
    gyre_status_t (*group_end)(gyre_status_t error);
} coll_device_ops_t;

/* This thread's open group has collected messages on a device: its end calls ops->group_end. */
void coll_group_note_device(const coll_device_ops_t *ops);

#endif
