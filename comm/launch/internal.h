/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/internal.h: what identity.c, environment.c and rendezvous.c share. */
#ifndef COMM_LAUNCH_INTERNAL_H
#define COMM_LAUNCH_INTERNAL_H

#include "comm/launch/identity.h"

/* 1 if the variable is set and not empty. */
int identity_has(const char *name);
/* The decimal number of a variable, 0..high. INVALID: the variable is missing "although `because` is set", or
 * has another value. */
gyre_status_t identity_number(const char *name, const char *because, int high, int *out);
gyre_status_t identity_large(const char *name, const char *because, int64_t high, int64_t *out);
/* Checks that rank and size fit together; the names are for the message. */
gyre_status_t identity_check(const comm_identity_t *out, const char *rank_name, const char *size_name);
/* Sets the job's id, unless the user gave one. Longer ones are cut, on all ranks alike. common: other jobs
 * have the id `text`, too. */
void identity_job(comm_identity_t *out, const char *text, int common);
/* Makes `out` a job of one rank. source NULL: already noted. */
void identity_alone(comm_identity_t *out, const char *source);
/* For a launcher without a private channel when no secret was given: derives one if the ranks meet on
 * loopback, else AUTH. hint: what else users of this launcher can do, or "". */
gyre_status_t identity_secret(comm_identity_t *out, const char *hint);
/* Writes "host:port" into out->root; variable: the source of the host. INVALID. */
gyre_status_t identity_root(comm_identity_t *out, const char *host, int port, const char *variable);

/* environment.c: rank, size, root, secret from a launcher's variables; out->root and out->secret hold what
 * the user gave. */
int identity_is_slurm(void); /* SLURM_PROCID is this process's own: a task of a job step */
gyre_status_t identity_from_ompi(comm_identity_t *out);
gyre_status_t identity_from_slurm(comm_identity_t *out);
gyre_status_t identity_from_torchrun(comm_identity_t *out);
gyre_status_t identity_from_index(comm_identity_t *out);

/* rendezvous.c: the part of an identity that the variables of PMIx and PMI-1 give. */
gyre_status_t identity_from_pmix(comm_identity_t *out);
gyre_status_t identity_from_pmi1(comm_identity_t *out);
int identity_pmix_usable(void); /* libpmix can be loaded */

#endif
