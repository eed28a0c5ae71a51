/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/hosts/hostlist.h: the hosts, their slots, and the host of each rank.
 *
 * Pure: text in, lists or a complaint out. Names that could be taken for an option of ssh or for shell syntax
 * are refused here, so later code need not check them. */
#ifndef TOOLS_UCX_RUN_HOSTS_HOSTLIST_H
#define TOOLS_UCX_RUN_HOSTS_HOSTLIST_H

#include <stddef.h>

enum { RUN_SLOTS_MAX = 65536, RUN_HOSTS_MAX = 8192, RUN_HOST_NAME_MAX = 255 };

typedef struct {
    char *name; /* owned: [user@]name or address */
    int slots;
} run_host_t;
typedef struct {
    run_host_t *host; /* [count], owned; no name twice */
    int count;
    size_t room;
    int slots;    /* of all */
} run_hostlist_t; /* all zero is empty */

/* All return 1, or 0 with a complaint in why: [bytes]; the list then holds what came before the mistake. */
/* Adds to the slots of `name` (length n), which joins the list if it is new. */
int run_hostlist_add(run_hostlist_t *list, const char *name, size_t n, int slots, char *why, size_t bytes);
/* "a:2,b,[fe80::1]:4": without a number one slot. An address with colons needs brackets to have slots. */
int run_hostlist_parse(run_hostlist_t *list, const char *text, char *why, size_t bytes);
/* The lines of a hostfile, text[0, n): `h`, `h:2` or `h slots=2` (max_slots= is skipped), # comments. `path`:
 * for the complaint. A file that names no host is a mistake. */
int run_hostlist_parse_file(run_hostlist_t *list, const char *text, size_t n, const char *path, char *why,
                            size_t bytes);
/* Slurm's "n[0-2,7],login" with "2(x3),1": hosts and the number on each. `counts` may be NULL: one each. */
int run_hostlist_parse_slurm(run_hostlist_t *list, const char *nodes, const char *counts, char *why,
                             size_t bytes);
/* Every host has `slots` slots. 0: too many. */
int run_hostlist_set_slots(run_hostlist_t *list, int slots);
/* Takes host i out. */
void run_hostlist_drop(run_hostlist_t *list, int i);
int run_hostlist_copy(const run_hostlist_t *from, run_hostlist_t *to); /* 0: out of memory */
void run_hostlist_free(run_hostlist_t *list);

typedef enum {
    RUN_MAP_SLOT, /* fill one host after the other */
    RUN_MAP_NODE  /* deal the ranks out, one to each host in turn */
} run_map_t;
/* The host of each of `ranks` ranks, of[ranks]. No host gets more than its slots until all have theirs; ranks
 * beyond that go on evenly. The list is not empty. */
void run_hostlist_place(const run_hostlist_t *list, run_map_t map, int ranks, int *of);

#endif
