/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/fortran/arrays.h: one call from Fortran: its arrays, checked, and its end.
 *
 * Arrays come as C descriptors (ISO_Fortran_binding.h): they have the type, the shape and the strides of the
 * actual argument. Each call checks them, and refuses what is not contiguous: no copy is made. */
#ifndef BINDINGS_FORTRAN_ARRAYS_H
#define BINDINGS_FORTRAN_ARRAYS_H

#include <ISO_Fortran_binding.h>
#include <stddef.h>

#include <gyre/gyre.h>

typedef struct {
    const char *name;
    gyre_comm_t *comm;
    size_t n, me, leaves;
    int op; /* gyre_redop_kind_t, -1: the call reduces nothing */
    int refused;
    gyre_status_t why;
    void *send, *recv;
    size_t count;
    gyre_type_t type;
    size_t *counts[4]; /* counts, displacements; of recv, where both sides have some */
    int *to, *from, nto, nfrom;
} fortran_call_t;

/* A call on the communicator at `at`. op: gyre_redop_kind_t, or -1. Look at `refused`. */
fortran_call_t fortran_begin(const char *name, gyre_comm_t *const *at, int op);
/* Refuses it: 1, and the text, for the call and its status argument. */
int __attribute__((format(printf, 3, 4)))
fortran_no(fortran_call_t *c, gyre_status_t why, const char *format, ...);
/* The end of a call that was refused, of one that Gyre made, and of one without arrays. status: NULL: an
 * error ends the program. */
void fortran_refuse(fortran_call_t *c, int *status);
void fortran_done(fortran_call_t *c, gyre_status_t rc, int *status);
void fortran_plain(const char *name, gyre_status_t rc, int *status);

gyre_type_t fortran_type_of(const CFI_cdesc_t *a);
/* The following: 1, and the text, if refused. `what` is the name of the argument. */
/* The address, number of elements and type of an array. */
int fortran_array(fortran_call_t *c, const CFI_cdesc_t *a, const char *what, void **at, size_t *count);
int fortran_must(fortran_call_t *c, const char *what, size_t has, size_t want);
/* counts or displacements, integers of 4 or 8 bytes: a copy, which the call's end frees; absent: NULL */
int fortran_list(fortran_call_t *c, const CFI_cdesc_t *a, const char *what, size_t n, size_t **out);
/* A list of ranks as int. */
int fortran_ranks(fortran_call_t *c, const CFI_cdesc_t *a, const char *what, int **out, int *count);

/* What the collectives ask of their buffers. */
int fortran_one(fortran_call_t *c, const CFI_cdesc_t *buffer);
/* send: as large as recv; absent: in place */
int fortran_same(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv);
/* send: n times recv; absent: recv is the wide one, and its block of this rank the result */
int fortran_narrow(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv);
int fortran_narrowv(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv,
                    const CFI_cdesc_t *counts);
/* recv: n times send, where `takes`; send absent: its block of this rank is the input */
int fortran_wide(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int takes);
int fortran_widev(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv,
                  const CFI_cdesc_t *counts, const CFI_cdesc_t *displs, int takes);
/* reduce: recv matters at the root */
int fortran_rooted(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int root);
/* scatter: send, where `gives`, is n times recv; recv absent there: in place */
int fortran_deal(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int gives);
int fortran_dealv(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *counts,
                  const CFI_cdesc_t *displs, const CFI_cdesc_t *recv, int gives);
/* all_to_all: both wide */
int fortran_square(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv);
/* nto blocks of send to, and nfrom blocks of recv from other ranks */
int fortran_both(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                 const CFI_cdesc_t *send_displs, const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts,
                 const CFI_cdesc_t *recv_displs, size_t nto, size_t nfrom);
int fortran_neighbors(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                      const CFI_cdesc_t *to, const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts,
                      const CFI_cdesc_t *from);

#endif
