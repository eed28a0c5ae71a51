/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/fortran/calls.c: what stands between module gyre and libgyre.
 *
 * Arrays come as C descriptors (ISO_Fortran_binding.h): they have the type, the shape and the strides of the
 * actual argument. Each call here checks them, and refuses what is not contiguous: no copy is made. */
#include <ISO_Fortran_binding.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/gyre.h>

/* Ends the program by `error stop`: gyre.f90. */
void gyre_f_stop(const char *text, int length);

/* Why the last call of this thread was refused here; "": ask Gyre. */
static _Thread_local char refusal[400];

/* type(gyre_comm): the calls get its address as that of the handle. */
typedef struct {
    gyre_comm_t *handle;
    int leaves;
} comm_t;

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
} call_t;

/* 1, and the text: for the call and its status argument. */
static int __attribute__((format(printf, 3, 4))) no(call_t *c, gyre_status_t why, const char *format, ...)
{
    int at = snprintf(refusal, sizeof refusal, "gyre_%s: ", c->name);
    va_list list;
    va_start(list, format);
    vsnprintf(refusal + at, sizeof refusal - (size_t)at, format, list);
    va_end(list);
    c->why = why;
    return c->refused = 1;
}

static void release(call_t *c)
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
static void refuse(call_t *c, int *status)
{
    release(c);
    finish(c->name, c->why, status);
}
static void done(call_t *c, gyre_status_t rc, int *status)
{
    release(c);
    *refusal = 0;
    finish(c->name, rc, status);
}
/* The same for calls without arrays. */
static void plain(const char *name, gyre_status_t rc, int *status)
{
    *refusal = 0;
    finish(name, rc, status);
}

static call_t begin(const char *name, gyre_comm_t *const *at, int op)
{
    gyre_comm_t *comm = *at;
    int n = gyre_comm_size(comm), rank = gyre_comm_rank(comm);
    call_t c = {.name = name,
                .comm = comm,
                .op = op,
                .leaves = op >= 0 ? (size_t)((const comm_t *)(const void *)at)->leaves : 1,
                .type = GYRE_TYPE_NONE,
                .n = n > 0 ? (size_t)n : 0,
                .me = rank > 0 ? (size_t)rank : 0};
    if (n < 1)
        no(&c, GYRE_ERR_INVALID, "the communicator has not been made, or has ended");
    return c;
}

static gyre_type_t type_of(const CFI_cdesc_t *a)
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

/* The address, number of elements and type of an array; `what` is the name of the argument. */
static int array(call_t *c, const CFI_cdesc_t *a, const char *what, void **at, size_t *count)
{
    size_t elements = 1;
    gyre_type_t type = type_of(a);
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i].extent < 0)
            return no(c, GYRE_ERR_INVALID, "%s is an assumed-size array: pass a section with an upper bound",
                      what);
        elements *= (size_t)a->dim[i].extent;
    }
    if (elements && !a->base_addr)
        return no(c, GYRE_ERR_INVALID, "%s is not allocated or not associated", what);
    if (elements > 1 && a->rank > 0 && !CFI_is_contiguous(a))
        return no(c, GYRE_ERR_INVALID,
                  "%s is not contiguous: copy the section into a contiguous array, and pass that", what);
    if (type == GYRE_TYPE_NONE)
        return no(c, GYRE_ERR_TYPE,
                  "%s has a type that Gyre does not have: it takes integer, real, complex and "
                  "logical of 1 to 8 bytes per part",
                  what);
    if (c->op >= 0 && (a->type & CFI_type_mask) == CFI_type_Logical &&
        (c->op < GYRE_BAND || c->op > GYRE_LXOR) && c->op < GYRE_REDOP_USER)
        return no(c, GYRE_ERR_TYPE, "%s is logical, which takes GYRE_LAND, GYRE_LOR and GYRE_LXOR only",
                  what);
    if (c->type != GYRE_TYPE_NONE && type != c->type)
        return no(c, GYRE_ERR_TYPE, "%s is %s, the other buffer is %s: pass the same type", what,
                  gyre_type_name(type), gyre_type_name(c->type));
    c->type = type;
    *at = a->base_addr;
    *count = elements;
    return 0;
}
static int must(call_t *c, const char *what, size_t has, size_t want)
{
    return has == want ? 0
                       : no(c, GYRE_ERR_INVALID, "%s has %zu elements, it must have %zu", what, has, want);
}
static size_t bytes(const call_t *c, size_t count)
{
    return count * gyre_type_size(c->type);
}
static void *plus(const call_t *c, void *base, size_t count)
{
    return (char *)base + bytes(c, count);
}

/* counts or displacements, integers of 4 or 8 bytes: a copy, which release() frees; absent: NULL */
static int list(call_t *c, const CFI_cdesc_t *a, const char *what, size_t n, size_t **out)
{
    gyre_type_t type = a ? type_of(a) : GYRE_INT32;
    if (!a)
        return 0;
    if (a->rank != 1 || (a->type & CFI_type_mask) != CFI_type_Integer ||
        (type != GYRE_INT32 && type != GYRE_INT64))
        return no(c, GYRE_ERR_INVALID, "%s must be an array of integers of 4 or 8 bytes", what);
    if (must(c, what, (size_t)a->dim[0].extent, n))
        return 1;
    if (!(*out = malloc((n + 1) * sizeof **out)))
        return no(c, GYRE_ERR_NO_MEMORY, "no memory for %zu counts", n);
    for (size_t i = 0; i < n; i++) {
        const char *at = (const char *)a->base_addr + (CFI_index_t)i * a->dim[0].sm;
        int32_t narrow = 0;
        int64_t wide = 0;
        memcpy(&narrow, at, sizeof narrow);
        memcpy(&wide, at, type == GYRE_INT64 ? sizeof wide : sizeof narrow);
        int64_t value = type == GYRE_INT64 ? wide : narrow;
        if (value < 0)
            return no(c, GYRE_ERR_INVALID, "%s(%zu) is %lld: a count or displacement is 0 or more", what,
                      i + 1, (long long)value);
        (*out)[i] = (size_t)value;
    }
    return 0;
}
/* Blocks of counts[i] at displs[i] (NULL: back to back) must lie in an array of `has` elements. */
static int lie(call_t *c, const char *what, size_t has, const size_t *counts, const size_t *displs, size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = displs ? displs[i] : end;
        if (counts[i] && (at > has || counts[i] > has - at))
            return no(c, GYRE_ERR_INVALID,
                      "block %zu (%zu elements at %zu) does not lie in %s, which has %zu", i, counts[i], at,
                      what, has);
        end += displs ? 0 : counts[i];
    }
    return 0;
}
static size_t block_at(const call_t *c, const size_t *counts, const size_t *displs)
{
    size_t at = 0;
    for (size_t i = 0; !displs && i < c->me; i++)
        at += counts[i];
    return displs ? displs[c->me] : at;
}
static int missing(call_t *c, const char *what)
{
    return no(c, GYRE_ERR_INVALID, "%s is absent: this rank must pass it", what);
}

/* What the collectives ask of their buffers. All: 1, and the text, if refused. */

static int one(call_t *c, const CFI_cdesc_t *buffer)
{
    return array(c, buffer, "buffer", &c->recv, &c->count);
}
/* With leaves, send has that many vectors of this rank, and there is no in-place form. */
static int no_leaves(call_t *c)
{
    return c->leaves != 1 &&
           no(c, GYRE_ERR_INVALID,
              "send is absent: with leaves other than 1 (gyre_comm_set) there is no in-place form");
}
/* send: as large as recv; absent: in place */
static int same(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv)
{
    size_t has = 0;
    if (array(c, recv, "recv", &c->recv, &c->count))
        return 1;
    c->send = c->recv;
    if (!send)
        return no_leaves(c);
    return array(c, send, "send", &c->send, &has) || must(c, "send", has, c->count * c->leaves);
}
/* send: n times recv; absent: recv is the wide one, and its block of this rank the result */
static int narrow(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv)
{
    size_t has = 0;
    if (array(c, recv, "recv", &c->recv, &c->count))
        return 1;
    if (send)
        return array(c, send, "send", &c->send, &has) || must(c, "send", has, c->count * c->n * c->leaves);
    if (no_leaves(c))
        return 1;
    if (c->count % c->n)
        return no(c, GYRE_ERR_INVALID, "recv has %zu elements, not a multiple of the %zu ranks", c->count,
                  c->n);
    c->send = c->recv;
    c->count /= c->n;
    c->recv = plus(c, c->send, c->me * c->count);
    return 0;
}
static int narrowv(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts)
{
    size_t has = 0;
    if (array(c, recv, "recv", &c->recv, &c->count) || list(c, counts, "counts", c->n, &c->counts[0]))
        return 1;
    if (send)
        return array(c, send, "send", &c->send, &has) ||
               lie(c, "send", c->leaves ? has / c->leaves : SIZE_MAX, c->counts[0], NULL, c->n) ||
               must(c, "recv", c->count, c->counts[0][c->me]);
    if (no_leaves(c))
        return 1;
    c->send = c->recv;
    c->recv = plus(c, c->send, block_at(c, c->counts[0], NULL));
    return lie(c, "recv", c->count, c->counts[0], NULL, c->n);
}
/* recv: n times send, where `takes`; send absent: its block of this rank is the input */
static int wide(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int takes)
{
    size_t has = 0;
    if (send && array(c, send, "send", &c->send, &c->count))
        return 1;
    if (!takes)
        return send ? 0 : missing(c, "send");
    if (!recv)
        return missing(c, "recv");
    if (array(c, recv, "recv", &c->recv, &has))
        return 1;
    if (send)
        return must(c, "recv", has, c->count * c->n);
    if (has % c->n)
        return no(c, GYRE_ERR_INVALID, "recv has %zu elements, not a multiple of the %zu ranks", has, c->n);
    c->count = has / c->n;
    c->send = plus(c, c->recv, c->me * c->count);
    return 0;
}
static int widev(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts,
                 const CFI_cdesc_t *displs, int takes)
{
    size_t has = 0;
    if (send && array(c, send, "send", &c->send, &c->count))
        return 1;
    if (!takes)
        return send ? 0 : missing(c, "send");
    if (!recv || !counts)
        return missing(c, recv ? "counts" : "recv");
    if (array(c, recv, "recv", &c->recv, &has) || list(c, counts, "counts", c->n, &c->counts[0]) ||
        list(c, displs, "displs", c->n, &c->counts[1]) ||
        lie(c, "recv", has, c->counts[0], c->counts[1], c->n))
        return 1;
    if (send)
        return must(c, "send", c->count, c->counts[0][c->me]);
    c->count = c->counts[0][c->me];
    c->send = plus(c, c->recv, block_at(c, c->counts[0], c->counts[1]));
    return 0;
}
static int rooted(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int root)
{
    if (!send && !recv)
        return missing(c, "send");
    if (gyre_comm_rank(c->comm) == root || c->leaves == 0) /* without leaves, only recv has the count */
        return recv ? same(c, send, recv) : missing(c, "recv");
    if (!send && no_leaves(c))
        return 1;
    size_t has = 0;
    if (array(c, send ? send : recv, send ? "send" : "recv", &c->send, &has))
        return 1;
    c->count = has / c->leaves;
    return must(c, "send", has, c->count * c->leaves);
}
/* scatter: send, where `gives`, is n times recv; recv absent there: in place */
static int deal(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv, int gives)
{
    size_t has = 0;
    if (recv && array(c, recv, "recv", &c->recv, &c->count))
        return 1;
    if (!gives)
        return recv ? 0 : missing(c, "recv");
    if (!send)
        return missing(c, "send");
    if (array(c, send, "send", &c->send, &has))
        return 1;
    if (recv)
        return must(c, "send", has, c->count * c->n);
    if (has % c->n)
        return no(c, GYRE_ERR_INVALID, "send has %zu elements, not a multiple of the %zu ranks", has, c->n);
    c->count = has / c->n;
    c->recv = plus(c, c->send, c->me * c->count);
    return 0;
}
static int dealv(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *counts, const CFI_cdesc_t *displs,
                 const CFI_cdesc_t *recv, int gives)
{
    size_t has = 0;
    if (recv && array(c, recv, "recv", &c->recv, &c->count))
        return 1;
    if (!gives)
        return recv ? 0 : missing(c, "recv");
    if (!send || !counts)
        return missing(c, send ? "counts" : "send");
    if (array(c, send, "send", &c->send, &has) || list(c, counts, "counts", c->n, &c->counts[0]) ||
        list(c, displs, "displs", c->n, &c->counts[1]) ||
        lie(c, "send", has, c->counts[0], c->counts[1], c->n))
        return 1;
    if (recv)
        return must(c, "recv", c->count, c->counts[0][c->me]);
    c->count = c->counts[0][c->me];
    c->recv = plus(c, c->send, block_at(c, c->counts[0], c->counts[1]));
    return 0;
}
static int square(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *recv)
{
    if (same(c, send, recv))
        return 1;
    if (c->count % c->n)
        return no(c, GYRE_ERR_INVALID, "recv has %zu elements, not a multiple of the %zu ranks", c->count,
                  c->n);
    c->count /= c->n;
    return 0;
}
static int both(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                const CFI_cdesc_t *send_displs, const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts,
                const CFI_cdesc_t *recv_displs, size_t nto, size_t nfrom)
{
    size_t sends = 0, takes = 0;
    return array(c, send, "send", &c->send, &sends) || array(c, recv, "recv", &c->recv, &takes) ||
           list(c, send_counts, "send_counts", nto, &c->counts[0]) ||
           list(c, send_displs, "send_displs", nto, &c->counts[1]) ||
           list(c, recv_counts, "recv_counts", nfrom, &c->counts[2]) ||
           list(c, recv_displs, "recv_displs", nfrom, &c->counts[3]) ||
           lie(c, "send", sends, c->counts[0], c->counts[1], nto) ||
           lie(c, "recv", takes, c->counts[2], c->counts[3], nfrom);
}
/* A list of ranks as int. */
static int ranks(call_t *c, const CFI_cdesc_t *a, const char *what, int **out, int *count)
{
    size_t n = a->rank == 1 && a->dim[0].extent > 0 ? (size_t)a->dim[0].extent : 0;
    size_t *values = NULL;
    int refused = list(c, a, what, n, &values) || n > INT32_MAX;
    if (!refused && !(*out = malloc((n + 1) * sizeof **out)))
        refused = no(c, GYRE_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    for (size_t i = 0; !refused && i < n; i++)
        (*out)[i] = values[i] > INT32_MAX ? INT32_MAX : (int)values[i];
    *count = (int)n;
    free(values);
    return refused;
}
static int neighbors(call_t *c, const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                     const CFI_cdesc_t *to, const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts,
                     const CFI_cdesc_t *from)
{
    return ranks(c, to, "to", &c->to, &c->nto) || ranks(c, from, "from", &c->from, &c->nfrom) ||
           both(c, send, send_counts, NULL, recv, recv_counts, NULL, (size_t)c->nto, (size_t)c->nfrom);
}

/* The collectives and messages, each with its sibling that returns a request, and the collectives with that
 * which makes a plan:
 * PAIR(name, (its parameters), what it reduces by or -1, whether its arrays are refused, (what Gyre gets)).
 * A sibling's parameters and what Gyre gets have the request or plan at the end; `status` is last of all. */
#define BARE(...) __VA_ARGS__
#define CALL(name, params, reduces, refuses, args)   \
    GYRE_API void gyre_f_##name(params, int *status) \
    {                                                \
        call_t c = begin(#name, comm, reduces);      \
        if (c.refused || (refuses))                  \
            refuse(&c, status);                      \
        else                                         \
            done(&c, gyre_##name(args), status);     \
    }
#define PAIR(name, params, reduces, refuses, args)       \
    CALL(name, BARE params, reduces, refuses, BARE args) \
    CALL(i##name, BARE(BARE params, gyre_request_t **request), reduces, refuses, BARE(BARE args, request))

#define THREE(name, params, reduces, refuses, args) \
    PAIR(name, params, reduces, refuses, args)      \
    CALL(plan_##name, BARE(BARE params, gyre_plan_t **plan), reduces, refuses, BARE(BARE args, plan))

THREE(all_reduce,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, same(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(reduce_scatter,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, narrow(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(reduce_scatterv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts, const gyre_redop_t *op,
       gyre_comm_t *const *comm),
      op->kind, narrowv(&c, send, recv, counts), (c.send, c.recv, c.counts[0], c.type, *op, *comm))
THREE(all_gather, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, gyre_comm_t *const *comm), -1,
      wide(&c, send, recv, 1), (c.send, c.recv, c.count, c.type, *comm))
THREE(all_gatherv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts, gyre_comm_t *const *comm,
       const CFI_cdesc_t *displs),
      -1, widev(&c, send, recv, counts, displs, 1), (c.send, c.recv, c.counts[0], c.counts[1], c.type, *comm))
THREE(broadcast, (const CFI_cdesc_t *buffer, const int *root, gyre_comm_t *const *comm), -1, one(&c, buffer),
      (c.recv, c.recv, c.count, c.type, *root, *comm))
THREE(reduce,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, const int *root,
       gyre_comm_t *const *comm),
      op->kind, rooted(&c, send, recv, *root), (c.send, c.recv, c.count, c.type, *op, *root, *comm))
THREE(scan,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, same(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(exscan,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, same(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(gather, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const int *root, gyre_comm_t *const *comm),
      -1, wide(&c, send, recv, gyre_comm_rank(*comm) == *root),
      (c.send, c.recv, c.count, c.type, *root, *comm))
THREE(gatherv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts, const int *root,
       gyre_comm_t *const *comm, const CFI_cdesc_t *displs),
      -1, widev(&c, send, recv, counts, displs, gyre_comm_rank(*comm) == *root),
      (c.send, c.count, c.recv, c.counts[0], c.counts[1], c.type, *root, *comm))
THREE(scatter, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const int *root, gyre_comm_t *const *comm),
      -1, deal(&c, send, recv, gyre_comm_rank(*comm) == *root),
      (c.send, c.recv, c.count, c.type, *root, *comm))
THREE(scatterv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *counts, const CFI_cdesc_t *recv, const int *root,
       gyre_comm_t *const *comm, const CFI_cdesc_t *displs),
      -1, dealv(&c, send, counts, displs, recv, gyre_comm_rank(*comm) == *root),
      (c.send, c.counts[0], c.counts[1], c.recv, c.count, c.type, *root, *comm))
THREE(all_to_all, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, gyre_comm_t *const *comm), -1,
      square(&c, send, recv), (c.send, c.recv, c.count, c.type, *comm))
THREE(all_to_allv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts, const CFI_cdesc_t *recv,
       const CFI_cdesc_t *recv_counts, gyre_comm_t *const *comm, const CFI_cdesc_t *send_displs,
       const CFI_cdesc_t *recv_displs),
      -1, both(&c, send, send_counts, send_displs, recv, recv_counts, recv_displs, c.n, c.n),
      (c.send, c.counts[0], c.counts[1], c.recv, c.counts[2], c.counts[3], c.type, *comm))
THREE(barrier, (gyre_comm_t *const *comm), -1, 0, (*comm))
PAIR(send, (const CFI_cdesc_t *buffer, const int *peer, gyre_comm_t *const *comm), -1, one(&c, buffer),
     (c.recv, c.count, c.type, *peer, *comm))
PAIR(recv, (const CFI_cdesc_t *buffer, const int *peer, gyre_comm_t *const *comm), -1, one(&c, buffer),
     (c.recv, c.count, c.type, *peer, *comm))
THREE(neighbor_exchange,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts, const CFI_cdesc_t *to,
       const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts, const CFI_cdesc_t *from,
       gyre_comm_t *const *comm),
      -1, neighbors(&c, send, send_counts, to, recv, recv_counts, from),
      (c.send, c.counts[0], NULL, c.nto, c.to, c.recv, c.counts[2], NULL, c.nfrom, c.from, c.type, *comm))

/* Requests. */
GYRE_API void gyre_f_wait(gyre_request_t **request, int *status)
{
    plain("wait", gyre_wait(request), status);
}
GYRE_API void gyre_f_test(gyre_request_t **request, _Bool *finished, int *status)
{
    gyre_status_t rc = gyre_test(request);
    *finished = rc != GYRE_IN_PROGRESS;
    plain("test", rc == GYRE_IN_PROGRESS ? GYRE_OK : rc, status);
}
GYRE_API void gyre_f_wait_all(const int *count, gyre_request_t **requests, int *status)
{
    plain("wait_all", gyre_wait_all(*count > 0 ? (size_t)*count : 0, requests), status);
}
GYRE_API void gyre_f_group_start(int *status)
{
    plain("group_start", gyre_group_start(), status);
}
GYRE_API void gyre_f_group_end(int *status)
{
    plain("group_end", gyre_group_end(), status);
}
GYRE_API void gyre_f_progress(gyre_comm_t *const *comm, int *status)
{
    plain("progress", gyre_progress(*comm), status);
}

/* Plans: gyre/plan.h. */
GYRE_API void gyre_f_start(gyre_plan_t *const *plan, gyre_request_t **request, int *status)
{
    plain("start", gyre_start(*plan, request), status);
}
GYRE_API void gyre_f_plan_set(gyre_plan_t *const *plan, const int *order, const char *algorithm,
                              const int64_t *chunk, const int64_t *tag, int *status)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order ? (gyre_order_t)*order : GYRE_ORDER_DEFAULT;
    options.algorithm = algorithm && *algorithm ? algorithm : NULL;
    options.chunk = chunk ? (size_t)*chunk : 0;
    options.tag = tag ? (uint64_t)*tag : 0;
    plain("plan_set", gyre_plan_set(*plan, &options), status);
}
GYRE_API void gyre_f_plan_free(gyre_plan_t **plan, int *status)
{
    plain("plan_free", gyre_plan_free(plan), status);
}

/* Operations of the program's own. */
GYRE_API void gyre_f_op_create(gyre_op_function_t function, const int *commutative, void *user,
                               gyre_redop_t *op, int *status)
{
    plain("op_create", gyre_op_create(function, user, *commutative ? GYRE_OP_COMMUTATIVE : 0, op), status);
}
GYRE_API void gyre_f_op_free(gyre_redop_t *op, int *status)
{
    plain("op_free", gyre_op_free(op), status);
}

/* Buckets: gyre/bucket.h. Tensors and buckets are numbered from 0. */
GYRE_API void gyre_f_buckets_create(gyre_comm_t *const *comm, const CFI_cdesc_t *counts,
                                    const CFI_cdesc_t *mold, const gyre_redop_t *op, gyre_buckets_t **buckets,
                                    const int *mode, const int64_t *bucket_bytes, gyre_bucket_fn landed,
                                    void *const *user, int *status)
{
    call_t c = begin("buckets_create", comm, -1);
    size_t tensors = counts->rank == 1 && counts->dim[0].extent > 0 ? (size_t)counts->dim[0].extent : 0;
    gyre_buckets_config_t config = {.size = sizeof config, .op = *op, .landed = landed};
    config.type = type_of(mold);
    config.user = user ? *user : NULL;
    config.mode = mode ? (gyre_bucket_mode_t)*mode : GYRE_BUCKET_ALL_REDUCE;
    config.bucket_bytes = bucket_bytes && *bucket_bytes > 0 ? (size_t)*bucket_bytes : 0;
    if (!c.refused && config.type == GYRE_TYPE_NONE)
        no(&c, GYRE_ERR_TYPE, "mold has a type that Gyre does not have");
    if (!c.refused && bucket_bytes && *bucket_bytes < 0)
        no(&c, GYRE_ERR_INVALID, "bucket_bytes is %lld: pass 0 or more", (long long)*bucket_bytes);
    if (c.refused || list(&c, counts, "counts", tensors, &c.counts[0]))
        refuse(&c, status);
    else
        done(&c, gyre_buckets_create(*comm, &config, tensors, c.counts[0], buckets), status);
}
GYRE_API void gyre_f_buckets_destroy(gyre_buckets_t **buckets, int *status)
{
    gyre_status_t rc = gyre_buckets_destroy(*buckets);
    *buckets = NULL;
    plain("buckets_destroy", rc, status);
}
static size_t index_of(int i)
{
    return i < 0 ? SIZE_MAX : (size_t)i;
}
GYRE_API void gyre_f_buckets_tensor(gyre_buckets_t *const *buckets, const int *tensor, void **ptr,
                                    int *status)
{
    void *at = gyre_buckets_tensor(*buckets, index_of(*tensor));
    call_t c = {.name = "buckets_tensor"};
    if (!at) {
        no(&c, GYRE_ERR_INVALID, "there is no tensor %d", *tensor);
        refuse(&c, status);
        return;
    }
    *ptr = at;
    plain("buckets_tensor", GYRE_OK, status);
}
GYRE_API int gyre_f_buckets_count(gyre_buckets_t *const *buckets)
{
    return (int)gyre_buckets_count(*buckets);
}
GYRE_API void gyre_f_buckets_get(gyre_buckets_t *const *buckets, const int *index, gyre_bucket_t *bucket,
                                 int *status)
{
    plain("buckets_get", gyre_buckets_get(*buckets, index_of(*index), bucket), status);
}
GYRE_API void gyre_f_buckets_ready(gyre_buckets_t *const *buckets, const int *tensor, int *status)
{
    plain("buckets_ready", gyre_buckets_ready(*buckets, index_of(*tensor)), status);
}
GYRE_API void gyre_f_buckets_progress(gyre_buckets_t *const *buckets, int *status)
{
    plain("buckets_progress", gyre_buckets_progress(*buckets), status);
}
GYRE_API void gyre_f_buckets_wait(gyre_buckets_t *const *buckets, int *status)
{
    plain("buckets_wait", gyre_buckets_wait(*buckets), status);
}
GYRE_API void gyre_f_buckets_times(gyre_buckets_t *const *buckets, double *total_s, double *exposed_s,
                                   int *status)
{
    plain("buckets_times", gyre_buckets_times(*buckets, total_s, exposed_s), status);
}

/* Communicators. Strings end with a zero; their Fortran side is in gyre.f90. */
GYRE_API void gyre_f_init(gyre_comm_t **comm, const double *timeout_s, int *status)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    if (timeout_s)
        config.timeout_s = *timeout_s;
    plain("init", gyre_init(&config, comm), status);
}
static void ended(const char *name, gyre_status_t rc, gyre_comm_t **comm, int *status)
{
    if (rc == GYRE_OK) {
        *comm = NULL;
        ((comm_t *)(void *)comm)->leaves = 1;
    }
    plain(name, rc, status);
}
GYRE_API void gyre_f_finalize(gyre_comm_t **comm, int *status)
{
    ended("finalize", gyre_finalize(*comm), comm, status);
}
GYRE_API void gyre_f_comm_destroy(gyre_comm_t **comm, int *status)
{
    ended("comm_destroy", gyre_comm_destroy(*comm), comm, status);
}
GYRE_API void gyre_f_comm_split(gyre_comm_t *const *comm, const int *color, const int *key, gyre_comm_t **out,
                                int *status)
{
    plain("comm_split", gyre_comm_split(*comm, *color, *key, out), status);
}
GYRE_API void gyre_f_comm_split_type(gyre_comm_t *const *comm, const int *type, const int *key,
                                     gyre_comm_t **out, int *status)
{
    plain("comm_split_type", gyre_comm_split_type(*comm, (gyre_split_t)*type, *key, out), status);
}
GYRE_API void gyre_f_comm_dup(gyre_comm_t *const *comm, gyre_comm_t **out, int *status)
{
    plain("comm_dup", gyre_comm_dup(*comm, out), status);
}
GYRE_API void gyre_f_comm_create_group(gyre_comm_t *const *comm, const CFI_cdesc_t *members, const int *tag,
                                       gyre_comm_t **out, int *status)
{
    call_t c = begin("comm_create_group", comm, -1);
    if (c.refused || ranks(&c, members, "ranks", &c.to, &c.nto))
        refuse(&c, status);
    else
        done(&c, gyre_comm_create_group(*comm, c.to, c.nto, (uint64_t)*tag, out), status);
}
GYRE_API void gyre_f_comm_shrink(gyre_comm_t *const *comm, gyre_comm_t **out, int *status)
{
    plain("comm_shrink", gyre_comm_shrink(*comm, out), status);
}
GYRE_API void gyre_f_comm_abort(gyre_comm_t *const *comm, const char *reason, int *status)
{
    plain("comm_abort", gyre_comm_abort(*comm, reason), status);
}
GYRE_API void gyre_f_comm_set(comm_t *comm, const int *order, const int *leaves, const char *algorithm,
                              const int64_t *chunk, const double *timeout_s, const int64_t *tag, int *status)
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order ? (gyre_order_t)*order : GYRE_ORDER_DEFAULT;
    options.algorithm = algorithm && *algorithm ? algorithm : NULL;
    options.chunk = chunk ? (size_t)*chunk : 0;
    options.timeout_s = timeout_s ? *timeout_s : 0;
    options.tag = tag ? (uint64_t)*tag : 0;
    options.leaves = leaves ? *leaves : 1;
    gyre_status_t rc = gyre_comm_set(comm->handle, &options);
    if (rc == GYRE_OK)
        comm->leaves = options.leaves;
    plain("comm_set", rc, status);
}
GYRE_API int gyre_f_comm_number(gyre_comm_t *const *comm, const int *which)
{
    switch (*which) {
    case 0:
        return gyre_comm_rank(*comm);
    case 1:
        return gyre_comm_size(*comm);
    case 2:
        return gyre_comm_local_rank(*comm);
    case 3:
        return gyre_comm_local_size(*comm);
    case 4:
        return gyre_comm_hosts(*comm);
    default:
        return gyre_comm_error(*comm);
    }
}
GYRE_API const char *gyre_f_last_error(void)
{
    return *refusal ? refusal : gyre_last_error();
}

/* Exact sums and memory. */
GYRE_API void gyre_f_exact_create(gyre_exact_t **sum, int *status)
{
    plain("exact_create", gyre_exact_create(sum), status);
}
GYRE_API void gyre_f_exact_destroy(gyre_exact_t **sum, int *status)
{
    plain("exact_destroy", gyre_exact_destroy(*sum), status);
    *sum = NULL;
}
GYRE_API void gyre_f_exact_add(gyre_exact_t *const *sum, const CFI_cdesc_t *x, int *status)
{
    call_t c = {.name = "exact_add", .op = -1, .type = GYRE_TYPE_NONE};
    if (array(&c, x, "x", &c.send, &c.count))
        refuse(&c, status);
    else
        done(&c, gyre_exact_add(*sum, c.send, c.count, c.type), status);
}
GYRE_API void gyre_f_exact_add_dot(gyre_exact_t *const *sum, const CFI_cdesc_t *x, const CFI_cdesc_t *y,
                                   int *status)
{
    call_t c = {.name = "exact_add_dot", .op = -1, .type = GYRE_TYPE_NONE};
    size_t has = 0;
    if (array(&c, x, "x", &c.send, &c.count) || array(&c, y, "y", &c.recv, &has) ||
        must(&c, "y", has, c.count))
        refuse(&c, status);
    else
        done(&c, gyre_exact_add_dot(*sum, c.send, c.recv, c.count, c.type), status);
}
GYRE_API void gyre_f_exact_all_reduce(gyre_exact_t *const *sum, gyre_comm_t *const *comm, int *status)
{
    plain("exact_all_reduce", gyre_exact_all_reduce(*sum, *comm), status);
}
GYRE_API void gyre_f_exact_value(gyre_exact_t *const *sum, double *value, int *status)
{
    plain("exact_value", gyre_exact_value(*sum, value), status);
}
GYRE_API void gyre_f_mem_alloc(const int64_t *bytes_, void **ptr, int *status)
{
    plain("mem_alloc", gyre_mem_alloc(*bytes_ < 0 ? SIZE_MAX : (size_t)*bytes_, ptr), status);
}
GYRE_API void gyre_f_mem_alloc_shared(gyre_comm_t *const *comm, const int64_t *bytes_, void **ptr,
                                      int *status)
{
    plain("mem_alloc_shared", gyre_mem_alloc_shared(*comm, *bytes_ < 0 ? SIZE_MAX : (size_t)*bytes_, ptr),
          status);
}
GYRE_API void gyre_f_mem_peer(void *const *ptr, const int *rank, void **peer, int *status)
{
    plain("mem_peer", gyre_mem_peer(*ptr, *rank, peer, NULL), status);
}
GYRE_API void gyre_f_mem_free(void **ptr, int *status)
{
    gyre_status_t rc = gyre_mem_free(*ptr);
    if (rc == GYRE_OK)
        *ptr = NULL;
    plain("mem_free", rc, status);
}
