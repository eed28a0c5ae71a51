/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/fortran/arrays.c: see arrays.h. */
#include "bindings/fortran/arrays.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program by `error stop`: gyre.f90. */
void gyre_f_stop(const char *text, int length);

/* Why the last call of this thread was refused here; "": ask Gyre. */
static _Thread_local char refusal[400];

int __attribute__((format(printf, 3, 4)))
fortran_no(fortran_call_t *c, gyre_status_t why, const char *format, ...)
{
    int at = snprintf(refusal, sizeof refusal, "gyre_%s: ", c->name);
    va_list list;
    va_start(list, format);
    vsnprintf(refusal + at, sizeof refusal - (size_t)at, format, list);
    va_end(list);
    c->why = why;
    return c->refused = 1;
}

static void release(fortran_call_t *c)
{
    for (int i = 0; i < 4; i++)
        free(c->counts[i]);
    free(c->to);
    free(c->from);
}

static void finish(const char *name, gyre_status_t rc, int *status)
{
    char text[1200];
    if (status)
        *status = (int)rc;
    else if (rc != GYRE_OK) {
        const char *why = *refusal             ? refusal
                          : *gyre_last_error() ? gyre_last_error()
                                               : gyre_status_string(rc);
        /* the text begins with gyre_NAME, with NAME, or with neither */
        int bare = strncmp(why, name, strlen(name)) == 0, full = strncmp(why, "gyre_", 5) == 0;
        int length = snprintf(text, sizeof text, "%s%s%s%s", full ? "" : "gyre_", full || bare ? "" : name,
                              full || bare ? "" : ": ", why);
        gyre_f_stop(text, length < (int)sizeof text ? length : (int)sizeof text - 1);
    }
}
void fortran_refuse(fortran_call_t *c, int *status)
{
    release(c);
    finish(c->name, c->why, status);
}
void fortran_done(fortran_call_t *c, gyre_status_t rc, int *status)
{
    release(c);
    *refusal = 0;
    finish(c->name, rc, status);
}
void fortran_plain(const char *name, gyre_status_t rc, int *status)
{
    *refusal = 0;
    finish(name, rc, status);
}

fortran_call_t fortran_begin(const char *name, gyre_comm_t *const *at, int op)
{
    gyre_comm_t *comm = *at;
    int n = gyre_comm_size(comm), rank = gyre_comm_rank(comm);
    fortran_call_t c = {.name = name,
                        .comm = comm,
                        .op = op,
                        .leaves = op >= 0 ? (size_t)gyre_comm_leaves(comm) : 1,
                        .type = GYRE_TYPE_NONE,
                        .n = n > 0 ? (size_t)n : 0,
                        .me = rank > 0 ? (size_t)rank : 0};
    if (n < 1)
        fortran_no(&c, GYRE_ERR_INVALID, "the communicator has not been made, or has ended");
    return c;
}

gyre_type_t fortran_type_of(const CFI_cdesc_t *a)
{
    size_t size = a->elem_len;
    switch (a->type & CFI_type_mask) {
    case CFI_type_Integer:
        return size == 1   ? GYRE_INT8
               : size == 2 ? GYRE_INT16
               : size == 4 ? GYRE_INT32
               : size == 8 ? GYRE_INT64
                           : GYRE_TYPE_NONE;
    case CFI_type_Logical: /* a number, 0 or 1, of the logical's size */
        return size == 1 ? GYRE_BOOL : size == 4 ? GYRE_INT32 : size == 8 ? GYRE_INT64 : GYRE_TYPE_NONE;
    case CFI_type_Real:
        return size == 4 ? GYRE_FLOAT32 : size == 8 ? GYRE_FLOAT64 : GYRE_TYPE_NONE;
    case CFI_type_Complex:
        return size == 8 ? GYRE_COMPLEX64 : size == 16 ? GYRE_COMPLEX128 : GYRE_TYPE_NONE;
    default:
        return GYRE_TYPE_NONE;
    }
}

/* Of an empty array with bounds such as 10:1 gfortran gives a negative number. */
static size_t extent(const CFI_cdesc_t *a, int i)
{
    return a->dim[i].extent > 0 ? (size_t)a->dim[i].extent : 0;
}

int fortran_array(fortran_call_t *c, const CFI_cdesc_t *a, const char *what, void **at, size_t *count)
{
    size_t elements = 1;
    gyre_type_t type = fortran_type_of(a);
    for (int i = 0; i < a->rank; i++)
        elements *= extent(a, i);
    /* -1 is also an empty array of gfortran's, with bounds such as 3:1 */
    if (a->base_addr && a->rank > 0 && a->dim[a->rank - 1].extent == -1)
        return fortran_no(
            c, GYRE_ERR_INVALID,
            "%s has no size (assumed size, or bounds such as 3:1): pass a section with an upper bound, "
            "as x(1:n)",
            what);
    if (!a->base_addr && (elements || a->dim[0].extent < 0))
        return fortran_no(c, GYRE_ERR_INVALID, "%s is not allocated or not associated", what);
    if (elements > 1 && a->rank > 0 && !CFI_is_contiguous(a))
        return fortran_no(c, GYRE_ERR_INVALID,
                          "%s is not contiguous: copy the section into a contiguous array, and pass that",
                          what);
    if (type == GYRE_TYPE_NONE)
        return fortran_no(c, GYRE_ERR_TYPE,
                          "%s has a type that Gyre does not have: it takes integer, real, complex and "
                          "logical of 1 to 8 bytes per part",
                          what);
    if (c->op >= 0 && (a->type & CFI_type_mask) == CFI_type_Logical &&
        (c->op < GYRE_BAND || c->op > GYRE_LXOR) && c->op < GYRE_REDOP_USER)
        return fortran_no(c, GYRE_ERR_TYPE,
                          "%s is logical, which takes GYRE_LAND, GYRE_LOR and GYRE_LXOR only", what);
    if (c->type != GYRE_TYPE_NONE && type != c->type)
        return fortran_no(c, GYRE_ERR_TYPE, "%s is %s, the other buffer is %s: pass the same type", what,
                          gyre_type_name(type), gyre_type_name(c->type));
    c->type = type;
    *at = a->base_addr;
    *count = elements;
    return 0;
}
int fortran_must(fortran_call_t *c, const char *what, size_t has, size_t want)
{
    return has == want
               ? 0
               : fortran_no(c, GYRE_ERR_INVALID, "%s has %zu elements, it must have %zu", what, has, want);
}
/* c->count: the elements of a block of `what`, which has one for each rank. */
static int divide(fortran_call_t *c, const char *what, size_t has)
{
    c->count = has / c->n;
    return has % c->n && fortran_no(c, GYRE_ERR_INVALID,
                                    "%s has %zu elements, not a multiple of the %zu ranks", what, has, c->n);
}
static size_t bytes(const fortran_call_t *c, size_t count)
{
    return count * gyre_type_size(c->type);
}
static void *plus(const fortran_call_t *c, void *base, size_t count)
{
    return (char *)base + bytes(c, count);
}

int fortran_list(fortran_call_t *c, const CFI_cdesc_t *a, const char *what, size_t n, size_t **out)
{
    gyre_type_t type = a ? fortran_type_of(a) : GYRE_INT32;
    if (!a)
        return 0;
    if (a->rank != 1 || (a->type & CFI_type_mask) != CFI_type_Integer ||
        (type != GYRE_INT32 && type != GYRE_INT64))
        return fortran_no(c, GYRE_ERR_INVALID, "%s must be an array of integers of 4 or 8 bytes", what);
    if (!a->base_addr && n)
        return fortran_no(c, GYRE_ERR_INVALID, "%s is not allocated or not associated", what);
    if (fortran_must(c, what, extent(a, 0), n))
        return 1;
    if (!(*out = malloc((n + 1) * sizeof **out)))
        return fortran_no(c, GYRE_ERR_NO_MEMORY, "no memory for %zu counts", n);
    for (size_t i = 0; i < n; i++) {
        const char *at = (const char *)a->base_addr + (CFI_index_t)i * a->dim[0].sm;
        int32_t narrow = 0;
        int64_t wide = 0;
        memcpy(&narrow, at, sizeof narrow);
        memcpy(&wide, at, type == GYRE_INT64 ? sizeof wide : sizeof narrow);
        int64_t value = type == GYRE_INT64 ? wide : narrow;
        if (value < 0)
            return fortran_no(c, GYRE_ERR_INVALID, "%s(%zu) is %lld: a count or displacement is 0 or more",
                              what, i + 1, (long long)value);
        (*out)[i] = (size_t)value;
    }
    return 0;
}
/* Blocks of counts[i] at displs[i] (NULL: back to back) must lie in an array of `has` elements. */
static int lie(fortran_call_t *c, const char *what, size_t has, const size_t *counts, const size_t *displs,
               size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = displs ? displs[i] : end;
        if (counts[i] && (at > has || counts[i] > has - at))
            return fortran_no(c, GYRE_ERR_INVALID,
                              "block %zu (%zu elements at %zu) does not lie in %s, which has %zu", i,
                              counts[i], at, what, has);
        end += displs ? 0 : counts[i];
    }
    return 0;
}
static size_t block_at(const fortran_call_t *c, const size_t *counts, const size_t *displs)
{
    size_t at = 0;
    for (size_t i = 0; !displs && i < c->me; i++)
        at += counts[i];
    return displs ? displs[c->me] : at;
}
static int missing(fortran_call_t *c, const char *what)
{
    return fortran_no(c, GYRE_ERR_INVALID, "%s is absent: this rank must pass it", what);
}

int fortran_one(fortran_call_t *c, const CFI_cdesc_t *buffer)
{
    return fortran_array(c, buffer, "buffer", &c->recv, &c->count);
}
/* With leaves, send has that many vectors of this rank, and there is no in-place form. */
static int no_leaves(fortran_call_t *c)
{
    return c->leaves != 1 &&
           fortran_no(c, GYRE_ERR_INVALID,
                      "send is absent: with leaves other than 1 (gyre_comm_set) there is no in-place form");
}
int fortran_same(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv)
{
    size_t has = 0;
    if (fortran_array(c, recv, "recv", &c->recv, &c->count))
        return 1;
    c->send = c->recv;
    if (!send)
        return no_leaves(c);
    return fortran_array(c, send, "send", &c->send, &has) ||
           fortran_must(c, "send", has, c->count * c->leaves);
}
int fortran_narrow(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv)
{
    size_t has = 0;
    if (fortran_array(c, recv, "recv", &c->recv, &c->count))
        return 1;
    if (send)
        return fortran_array(c, send, "send", &c->send, &has) ||
               fortran_must(c, "send", has, c->count * c->n * c->leaves);
    if (no_leaves(c))
        return 1;
    if (divide(c, "recv", c->count))
        return 1;
    c->send = c->recv;
    c->recv = plus(c, c->send, c->me * c->count);
    return 0;
}
int fortran_narrowv(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv,
                    const CFI_cdesc_t *counts)
{
    size_t has = 0;
    if (fortran_array(c, recv, "recv", &c->recv, &c->count) ||
        fortran_list(c, counts, "counts", c->n, &c->counts[0]))
        return 1;
    if (send)
        return fortran_array(c, send, "send", &c->send, &has) ||
               lie(c, "send", c->leaves ? has / c->leaves : SIZE_MAX, c->counts[0], NULL, c->n) ||
               fortran_must(c, "recv", c->count, c->counts[0][c->me]);
    if (no_leaves(c))
        return 1;
    c->send = c->recv;
    c->recv = plus(c, c->send, block_at(c, c->counts[0], NULL));
    return lie(c, "recv", c->count, c->counts[0], NULL, c->n);
}
/* A buffer of one block, or of a block for each rank. */
typedef struct {
    const CFI_cdesc_t *array; /* NULL: absent */
    const char *name;
    void **at;
} side_t;

/* `all`, where it is used, is n times `one`; without `one` its block of this rank is meant. */
static int equal_blocks(fortran_call_t *c, side_t one, side_t all, int used)
{
    size_t has = 0;
    if (one.array && fortran_array(c, one.array, one.name, one.at, &c->count))
        return 1;
    if (!used)
        return one.array ? 0 : missing(c, one.name);
    if (!all.array)
        return missing(c, all.name);
    if (fortran_array(c, all.array, all.name, all.at, &has))
        return 1;
    if (one.array)
        return fortran_must(c, all.name, has, c->count * c->n);
    if (divide(c, all.name, has))
        return 1;
    *one.at = plus(c, *all.at, c->me * c->count);
    return 0;
}
/* As equal_blocks, with blocks of counts[i] at displs[i]. */
static int listed_blocks(fortran_call_t *c, side_t one, side_t all, const CFI_cdesc_t *counts,
                         const CFI_cdesc_t *displs, int used)
{
    size_t has = 0;
    if (one.array && fortran_array(c, one.array, one.name, one.at, &c->count))
        return 1;
    if (!used)
        return one.array ? 0 : missing(c, one.name);
    if (!all.array || !counts)
        return missing(c, all.array ? "counts" : all.name);
    if (fortran_array(c, all.array, all.name, all.at, &has) ||
        fortran_list(c, counts, "counts", c->n, &c->counts[0]) ||
        fortran_list(c, displs, "displs", c->n, &c->counts[1]) ||
        lie(c, all.name, has, c->counts[0], c->counts[1], c->n))
        return 1;
    if (one.array)
        return fortran_must(c, one.name, c->count, c->counts[0][c->me]);
    c->count = c->counts[0][c->me];
    *one.at = plus(c, *all.at, block_at(c, c->counts[0], c->counts[1]));
    return 0;
}
int fortran_wide(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int takes)
{
    return equal_blocks(c, (side_t){send, "send", &c->send}, (side_t){recv, "recv", &c->recv}, takes);
}
int fortran_widev(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv,
                  const CFI_cdesc_t *counts, const CFI_cdesc_t *displs, int takes)
{
    return listed_blocks(c, (side_t){send, "send", &c->send}, (side_t){recv, "recv", &c->recv}, counts,
                         displs, takes);
}
int fortran_deal(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int gives)
{
    return equal_blocks(c, (side_t){recv, "recv", &c->recv}, (side_t){send, "send", &c->send}, gives);
}
int fortran_dealv(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *counts,
                  const CFI_cdesc_t *displs, const CFI_cdesc_t *recv, int gives)
{
    return listed_blocks(c, (side_t){recv, "recv", &c->recv}, (side_t){send, "send", &c->send}, counts,
                         displs, gives);
}
int fortran_rooted(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int root)
{
    if (!send && !recv)
        return missing(c, "send");
    if (gyre_comm_rank(c->comm) == root || c->leaves == 0) /* without leaves, only recv has the count */
        return recv ? fortran_same(c, send, recv) : missing(c, "recv");
    if (!send && no_leaves(c))
        return 1;
    size_t has = 0;
    if (fortran_array(c, send ? send : recv, send ? "send" : "recv", &c->send, &has))
        return 1;
    c->count = has / c->leaves;
    return fortran_must(c, "send", has, c->count * c->leaves);
}
int fortran_square(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv)
{
    return fortran_same(c, send, recv) || divide(c, "recv", c->count);
}
int fortran_both(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                 const CFI_cdesc_t *send_displs, const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts,
                 const CFI_cdesc_t *recv_displs, size_t nto, size_t nfrom)
{
    size_t sends = 0, takes = 0;
    return fortran_array(c, send, "send", &c->send, &sends) ||
           fortran_array(c, recv, "recv", &c->recv, &takes) ||
           fortran_list(c, send_counts, "send_counts", nto, &c->counts[0]) ||
           fortran_list(c, send_displs, "send_displs", nto, &c->counts[1]) ||
           fortran_list(c, recv_counts, "recv_counts", nfrom, &c->counts[2]) ||
           fortran_list(c, recv_displs, "recv_displs", nfrom, &c->counts[3]) ||
           lie(c, "send", sends, c->counts[0], c->counts[1], nto) ||
           lie(c, "recv", takes, c->counts[2], c->counts[3], nfrom);
}
int fortran_ranks(fortran_call_t *c, const CFI_cdesc_t *a, const char *what, int **out, int *count)
{
    size_t n = a->rank == 1 && a->dim[0].extent > 0 ? (size_t)a->dim[0].extent : 0;
    size_t *values = NULL;
    int refused = fortran_list(c, a, what, n, &values) || n > INT32_MAX;
    if (!refused && !(*out = malloc((n + 1) * sizeof **out)))
        refused = fortran_no(c, GYRE_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    for (size_t i = 0; !refused && i < n; i++)
        (*out)[i] = values[i] > INT32_MAX ? INT32_MAX : (int)values[i];
    *count = (int)n;
    free(values);
    return refused;
}
int fortran_neighbors(fortran_call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                      const CFI_cdesc_t *to, const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts,
                      const CFI_cdesc_t *from)
{
    return fortran_ranks(c, to, "to", &c->to, &c->nto) ||
           fortran_ranks(c, from, "from", &c->from, &c->nfrom) ||
           fortran_both(c, send, send_counts, NULL, recv, recv_counts, NULL, (size_t)c->nto,
                        (size_t)c->nfrom);
}

GYRE_API const char *gyre_f_last_error(void)
{
    return *refusal ? refusal : gyre_last_error();
}
