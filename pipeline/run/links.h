/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/run/links.h: boundary tensors between the GPUs of a pipeline's ranks, in stream order: the host
 * only enqueues.
 *
 * A link is one way between two ranks. A link has a communicator of the two, in which one only sends and the
 * other only receives, and a stream of its own on each side. So a send waits only for the computation that
 * made its contents and for room. A receive waits only for the message and for its slot. Neither waits for
 * another message of the rank. So the rules of pipeline/schedules/program.h for posted receives and for sends
 * hold for the streams, too, and so does the checker's proof.
 *
 *     computation's stream   ... | forward -> slot |                    | wait: slot has left | forward ->
 *     slot | ...
 *     link's stream                   wait: made    | send the slot       | note: it has left | */
#ifndef PIPELINE_RUN_LINKS_H
#define PIPELINE_RUN_LINKS_H

#include <gyre/collectives.h>

#include "base/device/device.h"
#include "pipeline/schedules/schedule.h"

typedef struct pipe_links pipe_links_t;

/* stream: the cudaStream_t that computes, which must outlive it. Local. */
gyre_status_t pipe_links_create(base_device_t device, void *stream, pipe_links_t **out);
/* Collective over comm, the pipeline's ranks: the links that the schedule needs. */
gyre_status_t pipe_links_connect(pipe_links_t *links, gyre_comm_t *comm, const pipe_schedule_t *schedule);
/* On all ranks at the end of what was enqueued, or after an error: destroys the communicators. NULL is
 * allowed in these three. */
void pipe_links_leave(pipe_links_t *links);
void pipe_links_abort(pipe_links_t *links, const char *reason);
void pipe_links_destroy(pipe_links_t *links);

/* Enqueued after the work that the computation's stream holds so far. `moved` is recorded after the
 * message. */
gyre_status_t pipe_links_receive(pipe_links_t *links, int peer, void *buffer, size_t count, gyre_type_t type,
                                 base_event_t *moved);
gyre_status_t pipe_links_send(pipe_links_t *links, int peer, const void *buffer, size_t count,
                              gyre_type_t type, base_event_t *moved);
/* Work that is enqueued for computing from now on waits for the event. */
gyre_status_t pipe_links_await(pipe_links_t *links, base_event_t *moved);
/* A timed event on the computation's stream. */
gyre_status_t pipe_links_note(pipe_links_t *links, base_event_t *event);
/* The first error of a link, or of the pipeline's communicator, which a step that fails on another rank ends,
 * however far away: what was computed since is worth nothing. Asked once the streams have been waited for. */
gyre_status_t pipe_links_error(const pipe_links_t *links);

#endif
