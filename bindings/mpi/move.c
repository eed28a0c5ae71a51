/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/move.c: the collectives of MPI that move data. They are always taken, as bytes: how many
 * go from one rank to another is what both know alike, while datatypes may differ. Data that is not plain
 * is packed. */
#include "shim.h"
#include <stdint.h>
#include <stdlib.h>

/* The send or the receive buffer of a call: n blocks. Block i has counts[i] elements, or `count` if
 * counts is NULL. It begins displs[i] elements from `user`; displs NULL: the blocks lie back to back.
 * types: [n], for MPI_Alltoallw, whose displacements are in bytes; else NULL. */
typedef struct {
    void *user;
    int n;
    int count;
    const int *counts;
    const int *displs;
    MPI_Datatype type;
    const MPI_Datatype *types;
    /* Set by side_open: what Gyre gets. Block i has bytes[i] bytes, offsets[i] from data. */
    unsigned char *data;
    size_t *bytes;
    size_t *offsets;
    size_t total;
    bool packed;
    void *memory;
    void *bounce;
    size_t small[2];
    /* the memory of the program that the blocks lie in; equal: none */
    uintptr_t low;
    uintptr_t high;
} side_t;

static int block_count(const side_t *s, int i)
{
    return s->counts != NULL ? s->counts[i] : s->count;
}
static MPI_Datatype block_type(const side_t *s, int i)
{
    return s->types != NULL ? s->types[i] : s->type;
}
/* Whether MPI accepts counts and datatypes, and a buffer is there: else MPI reports the error. */
static bool side_valid(const side_t *s)
{
    for (int i = 0; i < s->n; i++) {
        int count = block_count(s, i);
        if (count < 0 || (count > 0 && block_type(s, i) == MPI_DATATYPE_NULL))
            return false;
        if (s->counts == NULL)
            break;
    }
    return true;
}
/* Finds where the blocks lie. False: they are not plain, and must be packed. */
static bool side_place(side_t *s)
{
    shim_type_t how = {false, 0, 0};
    ptrdiff_t lowest = PTRDIFF_MAX;
    ptrdiff_t highest = PTRDIFF_MIN;
    ptrdiff_t next = 0;
    bool plain = true;
    s->total = 0;
    for (int i = 0; i < s->n; i++) {
        if (i == 0 || s->types != NULL)
            shim_type_of(block_type(s, i), &how);
        size_t count = (size_t)block_count(s, i);
        ptrdiff_t at = s->types != NULL ? s->displs[i] : s->displs != NULL ? s->displs[i] * how.extent : next;
        next += (ptrdiff_t)count * how.extent;
        s->bytes[i] = count * how.size;
        s->offsets[i] = (size_t)at;
        s->total += s->bytes[i];
        if (s->bytes[i] == 0)
            continue;
        plain = plain && how.plain;
        MPI_Aint from = 0;
        MPI_Aint span = 0;
        if (how.plain)
            span = how.extent;
        else
            PMPI_Type_get_true_extent(block_type(s, i), &from, &span);
        ptrdiff_t begin = at + from;
        ptrdiff_t end = begin + (ptrdiff_t)(count - 1) * how.extent + span;
        lowest = begin < lowest ? begin : lowest;
        highest = end > highest ? end : highest;
    }
    if (s->total == 0)
        lowest = highest = 0;
    s->low = (uintptr_t)s->user + (uintptr_t)lowest;
    s->high = (uintptr_t)s->user + (uintptr_t)highest;
    if (plain)
        for (int i = 0; i < s->n; i++)
            s->offsets[i] = s->bytes[i] == 0 ? 0 : s->offsets[i] - (size_t)lowest;
    return plain;
}
static bool back_to_back(const side_t *s)
{
    size_t next = 0;
    for (int i = 0; i < s->n; next += s->bytes[i++])
        if (s->bytes[i] != 0 && s->offsets[i] != next)
            return false;
    return true;
}
/* Copies between the program's blocks and `data`. */
static int side_copy(side_t *s, bool in)
{
    shim_type_t how = {false, 0, 0};
    ptrdiff_t next = 0;
    int rc = MPI_SUCCESS;
    for (int i = 0; i < s->n && rc == MPI_SUCCESS; i++) {
        MPI_Datatype type = block_type(s, i);
        if (i == 0 || s->types != NULL)
            shim_type_of(type, &how);
        size_t count = (size_t)block_count(s, i);
        ptrdiff_t at = s->types != NULL ? s->displs[i] : s->displs != NULL ? s->displs[i] * how.extent : next;
        next += (ptrdiff_t)count * how.extent;
        if (s->bytes[i] == 0)
            continue;
        char *user = (char *)s->user + at;
        rc = in ? shim_pack(user, count, type, how.size, s->data + s->offsets[i])
                : shim_unpack(s->data + s->offsets[i], count, type, how.size, user);
    }
    return rc;
}
typedef enum { OPEN_FILL = 1, OPEN_PACK = 2, OPEN_ADJACENT = 4 } open_t;
/* Finds or packs what Gyre gets. FILL: packed data holds what the program's buffer does. PACK: it is
 * packed in any case. ADJACENT: blocks that do not lie back to back are packed. */
static gyre_status_t side_open(side_t *s, unsigned flags)
{
    s->bytes = &s->small[0];
    s->offsets = &s->small[1];
    if (s->n > 1) {
        s->memory = malloc((size_t)s->n * 2 * sizeof(size_t));
        if (s->memory == NULL)
            return GYRE_ERR_NO_MEMORY;
        s->bytes = s->memory;
        s->offsets = s->bytes + s->n;
    }
    bool plain = side_place(s);
    if (plain && !(flags & OPEN_PACK) && (!(flags & OPEN_ADJACENT) || back_to_back(s))) {
        s->data =
            (unsigned char *)s->low; // NOLINT(performance-no-int-to-ptr): user, moved to the first block
        return GYRE_OK;
    }
    size_t next = 0;
    for (int i = 0; i < s->n; next += s->bytes[i++])
        s->offsets[i] = next;
    s->packed = true;
    s->bounce = malloc(s->total > 0 ? s->total : 1);
    s->data = s->bounce;
    if (s->bounce == NULL || ((flags & OPEN_FILL) && side_copy(s, true) != MPI_SUCCESS))
        return GYRE_ERR_NO_MEMORY;
    return GYRE_OK;
}
/* received: the blocks hold a result, which the program's buffer gets. */
static void side_close(side_t *s, bool received)
{
    if (received && s->packed)
        side_copy(s, false);
    free(s->bounce);
    free(s->memory);
}
static bool overlap(const side_t *a, const side_t *b)
{
    return a->low < b->high && b->low < a->high;
}

/* A call that is taken. */
typedef struct {
    const shim_comm_t *on;
    side_t send;
    side_t recv;
    bool sends; /* this rank has something to send, or to receive */
    bool recvs;
    shim_run_t run;
} move_t;

static side_t flat(const void *user, int count, MPI_Datatype type)
{
    return (side_t){.user = (void *)(uintptr_t)user, .n = 1, .count = count, .type = type};
}
static side_t blocks(const void *user, int n, const int *counts, int count, const int *displs,
                     MPI_Datatype type)
{
    return (side_t){.user = (void *)(uintptr_t)user,
                    .n = n,
                    .counts = counts,
                    .count = count,
                    .displs = displs,
                    .type = type};
}
static bool take(move_t *m, shim_call_t id, int root, MPI_Comm comm)
{
    shim_why_t why;
    *m = (move_t){.on = shim_comm_of(comm, &why), .run = {.id = id, .comm = comm}};
    if (m->on != NULL && (root < 0 || root >= m->on->size)) {
        m->on = NULL;
        why = WHY_ARGUMENT;
    }
    if (m->on == NULL)
        shim_passed_on(id, why);
    return m->on != NULL;
}
/* Prepares the sides that are used. send_flags and recv_flags: of side_open. False: MPI reports what is
 * wrong. */
static bool open_sides(move_t *m, unsigned send_flags, unsigned recv_flags, gyre_status_t *status)
{
    *status = GYRE_OK;
    if ((m->sends && !side_valid(&m->send)) || (m->recvs && !side_valid(&m->recv))) {
        shim_passed_on(m->run.id, WHY_ARGUMENT);
        return false;
    }
    if (m->recvs)
        *status = side_open(&m->recv, recv_flags);
    if (*status == GYRE_OK && m->sends)
        *status = side_open(&m->send, send_flags | OPEN_FILL);
    /* Blocks of one may lie between those of the other. Gyre sees an overlap, and MPI allows it. */
    if (*status == GYRE_OK && m->sends && m->recvs && !m->send.packed && overlap(&m->send, &m->recv)) {
        free(m->send.memory);
        m->send.memory = NULL;
        *status = side_open(&m->send, send_flags | OPEN_FILL | OPEN_PACK);
    }
    bool missing = (m->sends && m->send.total > 0 && m->send.low == 0) ||
                   (m->recvs && m->recv.total > 0 && m->recv.low == 0);
    if (*status == GYRE_OK && missing) {
        side_close(&m->send, false);
        side_close(&m->recv, false);
        shim_passed_on(m->run.id, WHY_ARGUMENT);
        return false;
    }
    m->run.bytes = m->send.total > m->recv.total ? m->send.total : m->recv.total;
    return true;
}
static int finish(move_t *m, gyre_status_t status)
{
    side_close(&m->send, false);
    side_close(&m->recv, status == GYRE_OK && m->recvs);
    return shim_end(&m->run, status);
}
#define CHECK(m, call)                                                                         \
    do {                                                                                       \
        if (shim_checking && (m)->recvs && status == GYRE_OK) {                                \
            size_t length = (m)->recv.high - (m)->recv.low;                                    \
            shim_check_keep(&(m)->run, (void *)(m)->recv.low, length, length, GYRE_TYPE_NONE); \
            call;                                                                              \
            shim_check_swap(&(m)->run);                                                        \
        } else if (shim_checking) {                                                            \
            call;                                                                              \
        }                                                                                      \
        shim_begin(&(m)->run);                                                                 \
    } while (0)
/* status = what `start` gives, once it has ended, unless there was an error before. */
#define RUN(start)                               \
    do {                                         \
        gyre_request_t *request = NULL;          \
        if (status == GYRE_OK)                   \
            status = shim_wait(start, &request); \
    } while (0)

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Bcast, root, comm))
        return REAL(Bcast)(buffer, count, type, root, comm);
    m.recv = flat(buffer, count, type);
    m.recvs = true;
    if (!open_sides(&m, 0, m.on->rank == root ? OPEN_FILL : 0, &status))
        return REAL(Bcast)(buffer, count, type, root, comm);
    CHECK(&m, REAL(Bcast)(buffer, count, type, root, comm));
    RUN(gyre_ibroadcast(m.recv.data, m.recv.data, m.recv.total, GYRE_UINT8, root, m.on->gyre, &request));
    return finish(&m, status);
}

/* The place in the received blocks where Gyre's in-place form has this rank's own. */
static const unsigned char *own(const side_t *s, int rank, size_t block)
{
    return s->n > 1 ? s->data + s->offsets[rank] : s->data + (size_t)rank * block;
}

int MPI_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
               MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Gather, root, comm))
        return REAL(Gather)(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
    m.recvs = m.on->rank == root;
    m.sends = send != MPI_IN_PLACE;
    m.send = flat(send, send_count, send_type);
    m.recv = blocks(recv, m.on->size, NULL, recv_count, NULL, recv_type);
    if ((!m.sends && !m.recvs) || !open_sides(&m, 0, OPEN_ADJACENT | (m.sends ? 0 : OPEN_FILL), &status))
        return REAL(Gather)(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
    CHECK(&m, REAL(Gather)(send, send_count, send_type, recv, recv_count, recv_type, root, comm));
    size_t block = m.recvs ? m.recv.bytes[0] : m.send.total;
    RUN(gyre_igather(m.sends ? m.send.data : own(&m.recv, root, block), m.recv.data, block, GYRE_UINT8, root,
                     m.on->gyre, &request));
    return finish(&m, status);
}

int MPI_Gatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *counts,
                const int *displs, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Gatherv, root, comm))
        return REAL(Gatherv)(send, send_count, send_type, recv, counts, displs, recv_type, root, comm);
    m.recvs = m.on->rank == root;
    m.sends = send != MPI_IN_PLACE;
    m.send = flat(send, send_count, send_type);
    m.recv = blocks(recv, m.on->size, counts, 0, displs, recv_type);
    if ((!m.sends && !m.recvs) || !open_sides(&m, 0, m.sends ? 0 : OPEN_FILL, &status))
        return REAL(Gatherv)(send, send_count, send_type, recv, counts, displs, recv_type, root, comm);
    CHECK(&m, REAL(Gatherv)(send, send_count, send_type, recv, counts, displs, recv_type, root, comm));
    RUN(gyre_igatherv(m.sends ? m.send.data : own(&m.recv, root, 0),
                      m.sends ? m.send.total : m.recv.bytes[root], m.recv.data, m.recv.bytes, m.recv.offsets,
                      GYRE_UINT8, root, m.on->gyre, &request));
    return finish(&m, status);
}

int MPI_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Scatter, root, comm))
        return REAL(Scatter)(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
    m.sends = m.on->rank == root;
    m.recvs = recv != MPI_IN_PLACE;
    m.send = blocks(send, m.on->size, NULL, send_count, NULL, send_type);
    m.recv = flat(recv, recv_count, recv_type);
    if ((!m.sends && !m.recvs) || !open_sides(&m, OPEN_ADJACENT, 0, &status))
        return REAL(Scatter)(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
    CHECK(&m, REAL(Scatter)(send, send_count, send_type, recv, recv_count, recv_type, root, comm));
    size_t block = m.sends ? m.send.bytes[0] : m.recv.total;
    void *to = m.recvs ? m.recv.data : m.send.data + (size_t)root * block;
    RUN(gyre_iscatter(m.send.data, to, block, GYRE_UINT8, root, m.on->gyre, &request));
    return finish(&m, status);
}

int MPI_Scatterv(const void *send, const int *counts, const int *displs, MPI_Datatype send_type, void *recv,
                 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Scatterv, root, comm))
        return REAL(Scatterv)(send, counts, displs, send_type, recv, recv_count, recv_type, root, comm);
    m.sends = m.on->rank == root;
    m.recvs = recv != MPI_IN_PLACE;
    m.send = blocks(send, m.on->size, counts, 0, displs, send_type);
    m.recv = flat(recv, recv_count, recv_type);
    if ((!m.sends && !m.recvs) || !open_sides(&m, 0, 0, &status))
        return REAL(Scatterv)(send, counts, displs, send_type, recv, recv_count, recv_type, root, comm);
    CHECK(&m, REAL(Scatterv)(send, counts, displs, send_type, recv, recv_count, recv_type, root, comm));
    void *to = m.recvs ? m.recv.data : m.send.data + m.send.offsets[root];
    RUN(gyre_iscatterv(m.send.data, m.send.bytes, m.send.offsets, to,
                       m.recvs ? m.recv.total : m.send.bytes[root], GYRE_UINT8, root, m.on->gyre, &request));
    return finish(&m, status);
}

int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Allgather, 0, comm))
        return REAL(Allgather)(send, send_count, send_type, recv, recv_count, recv_type, comm);
    m.recvs = true;
    m.sends = send != MPI_IN_PLACE;
    m.send = flat(send, send_count, send_type);
    m.recv = blocks(recv, m.on->size, NULL, recv_count, NULL, recv_type);
    if (!open_sides(&m, 0, OPEN_ADJACENT | (m.sends ? 0 : OPEN_FILL), &status))
        return REAL(Allgather)(send, send_count, send_type, recv, recv_count, recv_type, comm);
    CHECK(&m, REAL(Allgather)(send, send_count, send_type, recv, recv_count, recv_type, comm));
    size_t block = m.recv.bytes[0];
    RUN(gyre_iall_gather(m.sends ? m.send.data : own(&m.recv, m.on->rank, block), m.recv.data, block,
                         GYRE_UINT8, m.on->gyre, &request));
    return finish(&m, status);
}

/* Displacements may differ among the ranks, for which Gyre wants the same: it gets blocks that lie back
 * to back. */
int MPI_Allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *counts,
                   const int *displs, MPI_Datatype recv_type, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Allgatherv, 0, comm))
        return REAL(Allgatherv)(send, send_count, send_type, recv, counts, displs, recv_type, comm);
    m.recvs = true;
    m.sends = send != MPI_IN_PLACE;
    m.send = flat(send, send_count, send_type);
    m.recv = blocks(recv, m.on->size, counts, 0, displs, recv_type);
    if (!open_sides(&m, 0, OPEN_ADJACENT | (m.sends ? 0 : OPEN_FILL), &status))
        return REAL(Allgatherv)(send, send_count, send_type, recv, counts, displs, recv_type, comm);
    CHECK(&m, REAL(Allgatherv)(send, send_count, send_type, recv, counts, displs, recv_type, comm));
    RUN(gyre_iall_gatherv(m.sends ? m.send.data : own(&m.recv, m.on->rank, 0), m.recv.data, m.recv.bytes,
                          NULL, GYRE_UINT8, m.on->gyre, &request));
    return finish(&m, status);
}

int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                 MPI_Datatype recv_type, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Alltoall, 0, comm))
        return REAL(Alltoall)(send, send_count, send_type, recv, recv_count, recv_type, comm);
    m.recvs = true;
    m.sends = send != MPI_IN_PLACE;
    m.send = blocks(send, m.on->size, NULL, send_count, NULL, send_type);
    m.recv = blocks(recv, m.on->size, NULL, recv_count, NULL, recv_type);
    if (!open_sides(&m, OPEN_ADJACENT, OPEN_ADJACENT | (m.sends ? 0 : OPEN_FILL), &status))
        return REAL(Alltoall)(send, send_count, send_type, recv, recv_count, recv_type, comm);
    CHECK(&m, REAL(Alltoall)(send, send_count, send_type, recv, recv_count, recv_type, comm));
    RUN(gyre_iall_to_all(m.sends ? m.send.data : m.recv.data, m.recv.data, m.recv.bytes[0], GYRE_UINT8,
                         m.on->gyre, &request));
    return finish(&m, status);
}

/* MPI_Alltoallv and MPI_Alltoallw; in place: what is sent is a copy of the receive buffer. */
static gyre_status_t exchange(move_t *m, gyre_status_t status)
{
    RUN(gyre_iall_to_allv(m->send.data, m->send.bytes, m->send.offsets, m->recv.data, m->recv.bytes,
                          m->recv.offsets, GYRE_UINT8, m->on->gyre, &request));
    return status;
}
int MPI_Alltoallv(const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
                  void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type,
                  MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Alltoallv, 0, comm))
        return REAL(Alltoallv)(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs,
                               recv_type, comm);
    m.recvs = m.sends = true;
    m.recv = blocks(recv, m.on->size, recv_counts, 0, recv_displs, recv_type);
    m.send = send == MPI_IN_PLACE ? m.recv : blocks(send, m.on->size, send_counts, 0, send_displs, send_type);
    if (!open_sides(&m, send == MPI_IN_PLACE ? OPEN_PACK : 0, 0, &status))
        return REAL(Alltoallv)(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs,
                               recv_type, comm);
    CHECK(&m, REAL(Alltoallv)(send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs,
                              recv_type, comm));
    return finish(&m, exchange(&m, status));
}
int MPI_Alltoallw(const void *send, const int *send_counts, const int *send_displs,
                  const MPI_Datatype *send_types, void *recv, const int *recv_counts, const int *recv_displs,
                  const MPI_Datatype *recv_types, MPI_Comm comm)
{
    move_t m;
    gyre_status_t status;
    if (!take(&m, CALL_Alltoallw, 0, comm))
        return REAL(Alltoallw)(send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs,
                               recv_types, comm);
    m.recvs = m.sends = true;
    m.recv = blocks(recv, m.on->size, recv_counts, 0, recv_displs, MPI_DATATYPE_NULL);
    m.recv.types = recv_types;
    m.send = m.recv;
    if (send != MPI_IN_PLACE) {
        m.send = blocks(send, m.on->size, send_counts, 0, send_displs, MPI_DATATYPE_NULL);
        m.send.types = send_types;
    }
    if (!open_sides(&m, send == MPI_IN_PLACE ? OPEN_PACK : 0, 0, &status))
        return REAL(Alltoallw)(send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs,
                               recv_types, comm);
    CHECK(&m, REAL(Alltoallw)(send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs,
                              recv_types, comm));
    return finish(&m, exchange(&m, status));
}

/* Open MPI's Fortran calls the PMPI names. */
#ifdef OPEN_MPI
#define SHIM_ALIAS(name) \
    extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name), visibility("default")));
SHIM_ALIAS(Bcast)
SHIM_ALIAS(Gather)
SHIM_ALIAS(Gatherv)
SHIM_ALIAS(Scatter)
SHIM_ALIAS(Scatterv)
SHIM_ALIAS(Allgather)
SHIM_ALIAS(Allgatherv)
SHIM_ALIAS(Alltoall)
SHIM_ALIAS(Alltoallv)
SHIM_ALIAS(Alltoallw)
#endif
