/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/members/asks.h: what the files of this folder ask of each other. */
#ifndef COLLECTIVES_API_MEMBERS_ASKS_H
#define COLLECTIVES_API_MEMBERS_ASKS_H

#include "collectives/api/comm.h"
#include "topo/topo.h"

/* The checks of calls that make a communicator of some of the ranks of `comm`. */
gyre_status_t coll_check_parent(const char *name, gyre_comm_t *comm, gyre_comm_t **out);
/* gyre_comm_split, for the call `inside`; the arguments are right. Collective over `comm`. */
gyre_status_t coll_split(coll_inside_t inside, gyre_comm_t *comm, int color, int key, gyre_comm_t **out);

/* What members need to make a communicator of some ranks of another, over the bootstrap. All is borrowed.
 * Of the other communicator only what never changes is used. */
typedef struct {
    const char *label; /* of the call, for errors */
    comm_world_t *world;
    const comm_group_t *group; /* the other communicator's */
    uint64_t parent, tag;      /* the other communicator's id; see comm_circle_open */
    base_time_t deadline;
    const coll_options_t *options;  /* of the new one */
    double timeout_s;               /* of its operations */
    const int *ranks, *world_ranks; /* [n] the members by their ranks in the other one, and in the job */
    int n, rank;
} coll_members_t;

/* Collective over the members; thread-safe. Errors as gyre_comm_create_group. */
gyre_status_t coll_members_make(const coll_members_t *members, gyre_comm_t **out);
/* Of a communicator made of `comm`, as that is now; label, tag and list are to be filled in. */
coll_members_t coll_members_of(const gyre_comm_t *comm);
/* A caller's list of `n` ranks of `comm` for the call `name`, checked. *world_ranks: [n], the same by ranks
 * of the job, which the caller frees. *rank: this rank's place in it. INVALID, NO_MEMORY. */
gyre_status_t coll_members_read(const char *name, const gyre_comm_t *comm, const int *ranks, int n,
                                int **world_ranks, int *rank);

/* What a rank asks of a split. */
typedef struct {
    int32_t call; /* two calls that differ must not make one communicator */
    int32_t color, key;
} coll_split_ask_t;
/* Fills members (ranks of [n] with the color of `rank`, by key, then rank). Returns how many; *mine: the
 * place of `rank`. */
int coll_split_members(const coll_split_ask_t *asks, int n, int rank, int *members, int *mine);

/* Where a rank is. Ranks of one host with the same words are together. */
typedef struct {
    int32_t type;             /* gyre_split_t, which must be the same on all ranks */
    int32_t status;           /* of finding the rest */
    uint64_t word[TOPO_SETS]; /* the set of NUMA nodes, the device's UUID, or zeros */
} coll_place_t;

/* Where the calling thread is. An error is in place->status, with its text in gyre_last_error. INVALID:
 * type is not a kind of place. */
gyre_status_t coll_place_find(const char *name, gyre_split_t type, coll_place_t *place);
/* places: [n], of all ranks of `comm`, who see the same and so fail alike. why: the text of this rank's
 * error. *color: the lowest rank that is where this one is. */
gyre_status_t coll_place_color(const char *name, const gyre_comm_t *comm, const coll_place_t *places,
                               const char *why, int *color);

#endif
