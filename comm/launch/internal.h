/* comm/launch/internal.h: what identity.c, environment.c and rendezvous.c share. */
#ifndef COMM_LAUNCH_INTERNAL_H
#define COMM_LAUNCH_INTERNAL_H

#include "comm/launch/identity.h"

/* The variable is set, and not to nothing. */
int identity_has(const char *name);
/* The decimal number of a variable, 0..high. INVALID: missing "although `because` is set", or no such number. */
gyre_status_t identity_number(const char *name, const char *because, int high, int *out);
/* rank and size go together; the names are for the message. */
gyre_status_t identity_check(const comm_identity_t *out, const char *rank_name, const char *size_name);
gyre_status_t identity_put(char *out, size_t bytes, const char *text, const char *name);
/* The job's id, unless the user gave one. Longer ones are cut, on all ranks alike. */
void identity_job(comm_identity_t *out, const char *text);
/* A job of one rank. source NULL: already noted. */
void identity_alone(comm_identity_t *out, const char *source);
/* No secret was given and the launcher has no private channel: one is derived where the ranks meet on loopback, else AUTH. hint: what else
 * this launcher's users can do, or "". */
gyre_status_t identity_secret(comm_identity_t *out, const char *hint);
/* "host:port" into out->root; variable: where the host is from. INVALID. */
gyre_status_t identity_root(comm_identity_t *out, const char *host, int port, const char *variable);

/* environment.c: rank, size, root, secret from a launcher's variables; out->root and out->secret hold what the user gave. */
int identity_is_slurm(void); /* SLURM_PROCID is this process's own: a task of a job step */
gyre_status_t identity_from_ompi(comm_identity_t *out);
gyre_status_t identity_from_slurm(comm_identity_t *out);
gyre_status_t identity_from_torchrun(comm_identity_t *out);
gyre_status_t identity_from_index(comm_identity_t *out);

/* rendezvous.c: what of it the environment tells. */
gyre_status_t identity_from_pmix(comm_identity_t *out);
gyre_status_t identity_from_pmi1(comm_identity_t *out);
int identity_pmix_usable(void); /* libpmix is here */

#endif
