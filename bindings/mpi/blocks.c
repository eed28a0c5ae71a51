/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/blocks.c: the buffers of calls that move data, as bytes: how many go from one rank to another
 * is what both know alike, while datatypes may differ. Data that is not plain is packed. */
#include "shim.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

shim_side_t shim_flat(const void *user, int count, MPI_Datatype type)
{
    return (shim_side_t){.user = (void *)(uintptr_t)user, .n = 1, .count = count, .type = type};
}
shim_side_t shim_blocks(const void *user, int n, const int *counts, int count, const int *displs,
                        MPI_Datatype type)
{
    return (shim_side_t){.user = (void *)(uintptr_t)user,
                         .n = n,
                         .counts = counts,
                         .count = count,
                         .displs = displs,
                         .type = type};
}

/* Block i in the program's arrays. */
static int place_of(const shim_side_t *s, int i)
{
    return s->index != NULL ? s->index[i] : i;
}
static int block_count(const shim_side_t *s, int i)
{
    return s->counts != NULL ? s->counts[place_of(s, i)] : s->count;
}
static MPI_Datatype block_type(const shim_side_t *s, int i)
{
    return s->kept            ? s->own_types[s->types != NULL ? i : 0]
           : s->types != NULL ? s->types[place_of(s, i)]
                              : s->type;
}
/* Whether MPI accepts counts and datatypes: else MPI reports the error. */
static bool side_valid(const shim_side_t *s)
{
    bool known = false;
    for (int i = 0; i < s->n; i++) {
        int count = block_count(s, i);
        if (count < 0 || (count > 0 && !known && !shim_type_usable(block_type(s, i))))
            return false;
        known = known || (count > 0 && s->types == NULL);
        if (s->counts == NULL)
            break;
    }
    return true;
}
/* Finds where the blocks lie. False: they are not plain, and must be packed. */
static bool side_place(shim_side_t *s)
{
    shim_type_t how = {false, 0, 0};
    ptrdiff_t lowest = PTRDIFF_MAX;
    ptrdiff_t highest = PTRDIFF_MIN;
    bool plain = true;
    s->total = 0;
    for (int i = 0; i < s->n; i++) {
        const int p = place_of(s, i);
        if (i == 0 || s->types != NULL)
            shim_type_of(block_type(s, i), &how);
        size_t count = (size_t)block_count(s, i);
        s->at[i] = s->places != NULL   ? s->places[p]
                   : s->types != NULL  ? s->displs[p]
                   : s->displs != NULL ? s->displs[p] * how.extent
                                       : p * (ptrdiff_t)count * how.extent;
        s->bytes[i] = count * how.size;
        s->offsets[i] = 0;
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
        const ptrdiff_t reach = (ptrdiff_t)(count - 1) * how.extent; /* an extent may be negative */
        const ptrdiff_t begin = s->at[i] + from + (reach < 0 ? reach : 0);
        const ptrdiff_t end = s->at[i] + from + (reach > 0 ? reach : 0) + span;
        lowest = begin < lowest ? begin : lowest;
        highest = end > highest ? end : highest;
    }
    if (s->total == 0)
        lowest = highest = 0;
    s->low = (uintptr_t)s->user + (uintptr_t)lowest;
    s->high = (uintptr_t)s->user + (uintptr_t)highest;
    for (int i = 0; plain && i < s->n; i++)
        if (s->bytes[i] != 0)
            s->offsets[i] = (size_t)(s->at[i] - lowest);
    return plain;
}
static bool back_to_back(const shim_side_t *s)
{
    size_t next = 0;
    for (int i = 0; i < s->n; next += s->bytes[i++])
        if (s->bytes[i] != 0 && s->offsets[i] != next)
            return false;
    return true;
}
/* Packs block i of the program's buffer, which is moved by `shift` bytes, or unpacks it. */
static int block_copy(const shim_side_t *s, int i, ptrdiff_t shift, void *bytes, bool in)
{
    MPI_Datatype type = block_type(s, i);
    shim_type_t how;
    if (s->bytes[i] == 0)
        return MPI_SUCCESS;
    shim_type_of(type, &how);
    char *user = (char *)s->user + s->at[i] + shift;
    size_t count = s->bytes[i] / how.size;
    if (how.plain) {
        memcpy(in ? bytes : user, in ? user : bytes, s->bytes[i]);
        return MPI_SUCCESS;
    }
    return in ? shim_pack(user, count, type, how.size, bytes)
              : shim_unpack(bytes, count, type, how.size, user);
}
static int side_copy(const shim_side_t *s, bool in)
{
    int rc = MPI_SUCCESS;
    for (int i = 0; i < s->n && rc == MPI_SUCCESS; i++)
        rc = block_copy(s, i, 0, s->data + s->offsets[i], in);
    return rc;
}
/* The program may free its datatypes and change its arrays while a call is under way. */
static bool side_keep(shim_side_t *s)
{
    int n = s->types != NULL ? s->n : 1;
    MPI_Datatype *own = s->own_types = malloc((size_t)n * sizeof(*own) + 1);
    for (int i = 0; own != NULL && i < n; i++) {
        MPI_Datatype type = block_type(s, i);
        own[i] = MPI_DATATYPE_NULL;
        if (type != MPI_DATATYPE_NULL && (s->types == NULL || s->bytes[i] > 0)) {
            PMPI_Type_contiguous(1, type, &own[i]);
            PMPI_Type_commit(&own[i]);
        }
    }
    s->kept = own != NULL;
    return s->kept;
}
/* Whether MPI can pack each element: it counts their bytes in an int. */
static bool side_packable(const shim_side_t *s)
{
    for (int i = 0; i < s->n; i++) {
        shim_type_t how;
        shim_type_of(block_type(s, i), &how);
        if (s->bytes[i] > 0 && !how.plain && how.size > INT_MAX) {
            fprintf(
                stderr,
                "libgyre-mpi: an element of a datatype with gaps has %zu bytes, and at most %d are allowed: "
                "use more elements of a smaller datatype\n",
                how.size, INT_MAX);
            return false;
        }
    }
    return true;
}
static gyre_status_t side_open(shim_side_t *s, unsigned flags)
{
    s->bytes = &s->small[0];
    s->offsets = &s->small[1];
    s->at = (ptrdiff_t *)&s->small[2];
    if (s->n > 1) {
        s->memory = malloc((size_t)s->n * (2 * sizeof(size_t) + sizeof(ptrdiff_t)));
        if (s->memory == NULL)
            return GYRE_ERR_NO_MEMORY;
        s->bytes = s->memory;
        s->offsets = s->bytes + s->n;
        s->at = (ptrdiff_t *)(s->offsets + s->n);
    }
    bool plain = side_place(s);
    if (plain && !(flags & SHIM_PACK) && (!(flags & SHIM_ADJACENT) || back_to_back(s))) {
        s->data =
            (unsigned char *)s->low; // NOLINT(performance-no-int-to-ptr): user, moved to the first block
        return GYRE_OK;
    }
    if (!side_packable(s))
        return GYRE_ERR_OVERFLOW;
    size_t next = 0;
    for (int i = 0; i < s->n; next += s->bytes[i++])
        s->offsets[i] = next;
    s->packed = true;
    s->bounce = malloc(s->total > 0 ? s->total : 1);
    s->data = s->bounce;
    if (s->bounce == NULL)
        return GYRE_ERR_NO_MEMORY;
    return (flags & SHIM_FILL) && side_copy(s, true) != MPI_SUCCESS ? GYRE_ERR_INTERNAL : GYRE_OK;
}
static void side_close(shim_side_t *s)
{
    for (int i = 0; s->kept && i < (s->types != NULL ? s->n : 1); i++)
        if (s->own_types[i] != MPI_DATATYPE_NULL)
            PMPI_Type_free(&s->own_types[i]);
    free(s->own_types);
    free(s->bounce);
    free(s->memory);
}
void shim_receive(shim_op_t *o)
{
    if (o->recvs && o->recv.packed && side_copy(&o->recv, false) != MPI_SUCCESS)
        o->status = GYRE_ERR_INTERNAL;
}
void shim_close(shim_op_t *o)
{
    if (o->sends)
        side_close(&o->send);
    if (o->recvs)
        side_close(&o->recv);
}
static bool overlap(const shim_side_t *a, const shim_side_t *b)
{
    return a->low < b->high && b->low < a->high;
}

bool shim_open(shim_op_t *o, unsigned send_flags, unsigned recv_flags)
{
    if ((o->sends && !side_valid(&o->send)) || (o->recvs && !side_valid(&o->recv))) {
        shim_drop(o, WHY_ARGUMENT);
        return false;
    }
    if (o->recvs)
        o->status = side_open(&o->recv, recv_flags);
    if (o->status == GYRE_OK && o->sends)
        o->status = side_open(&o->send, send_flags | SHIM_FILL);
    /* Blocks of one may lie between those of the other. Gyre sees an overlap, and MPI allows it. */
    if (o->status == GYRE_OK && o->sends && o->recvs && !o->send.packed && overlap(&o->send, &o->recv)) {
        free(o->send.memory);
        o->send.memory = NULL;
        o->status = side_open(&o->send, send_flags | SHIM_FILL | SHIM_PACK);
    }
    bool missing = (o->sends && o->send.total > 0 && o->send.low == 0) ||
                   (o->recvs && o->recv.total > 0 && o->recv.low == 0);
    if (o->status == GYRE_OK && missing) {
        shim_close(o);
        shim_drop(o, WHY_ARGUMENT);
        return false;
    }
    o->bytes = o->sends ? o->send.total : 0;
    if (o->recvs && o->recv.total > o->bytes)
        o->bytes = o->recv.total;
    if (o->status == GYRE_OK && o->recvs && !o->blocking && (o->recv.packed || shim_checking) &&
        !side_keep(&o->recv))
        o->status = GYRE_ERR_NO_MEMORY;
    return true;
}

void shim_copy_blocks(shim_side_t *s, unsigned char *shadow)
{
    const ptrdiff_t shift = (ptrdiff_t)((uintptr_t)shadow - s->low);
    for (int i = 0; i < s->n; i++) {
        void *bytes = malloc(s->bytes[i] > 0 ? s->bytes[i] : 1);
        if (bytes == NULL)
            shim_no_memory("GYRE_MPI_CHECK");
        block_copy(s, i, 0, bytes, true);
        block_copy(s, i, shift, bytes, false);
        free(bytes);
    }
}
void shim_compare_blocks(shim_side_t *s, unsigned char *shadow,
                         bool (*each)(void *user, const void *mine, const void *other, size_t bytes),
                         void *user)
{
    const ptrdiff_t shift = (ptrdiff_t)((uintptr_t)shadow - s->low);
    bool more = true;
    for (int i = 0; i < s->n && more; i++) {
        unsigned char *both = calloc(2 * s->bytes[i] + 1, 1); /* MPI_Pack may leave padding out */
        if (both == NULL)
            shim_no_memory("GYRE_MPI_CHECK");
        block_copy(s, i, 0, both, true);
        block_copy(s, i, shift, both + s->bytes[i], true);
        more = each(user, both, both + s->bytes[i], s->bytes[i]);
        free(both);
    }
}
