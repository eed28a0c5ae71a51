/* SPDX-License-Identifier: Apache-2.0 */
/* base/thread/team.h: threads that share the pieces of a loop.
 *
 * A thread that has a team (base_team_use) gives pieces of its loops to it (base_each), and works itself.
 * Which thread takes which piece is left to chance, so a loop must give the same result for any order of its
 * pieces, and cut itself in a way that does not depend on the number of threads. */
#ifndef BASE_THREAD_TEAM_H
#define BASE_THREAD_TEAM_H

#include <stddef.h>

#include <gyre/status.h>

typedef struct base_team base_team_t;

/* The most threads of a team. */
#define BASE_TEAM_MOST 1024

/* A warning that begins with `option`, if `threads` are more than the processors that the calling thread may
 * run on: they take turns there, as those of a rank that a launcher has bound to one core. If the machine
 * has more, it says what gives them: ucx-run's option if ucx-run has started this process. */
void base_team_check(size_t threads, const char *option);

/* `threads` in all, with the one that will call base_each; at least 1. If the system gives fewer (a limit of
 * processes), a warning that begins with `option` says so and the team is smaller: a loop's result is the
 * same. base_team_check warns, too. Workers block all signals and sleep while there is no work. NO_MEMORY. */
gyre_status_t base_team_create(size_t threads, const char *option, base_team_t **out);
/* Not while a thread uses it. NULL is allowed. In a child of fork, which has no workers, it only frees. */
void base_team_destroy(base_team_t *team);
/* Threads that it has, at least 1; team NULL: 1. */
size_t base_team_threads(const base_team_t *team);

/* From now on the calling thread divides its loops among `team` (NULL: it does not). A team has one such
 * thread at a time. Returns the team before. */
base_team_t *base_team_use(base_team_t *team);

/* Threads among which base_each of this thread divides a loop; 1: it has no team. */
size_t base_team_here(void);
/* piece(arg, at) for each `at` below n, each once, on the threads of the caller's team, in any order; returns
 * when all have returned. Without a team, and within a piece of a loop that is divided (of two pieces and
 * more), the caller does them all in their order. */
void base_each(size_t n, void (*piece)(void *arg, size_t at), void *arg);

#endif
