/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/types.c: datatypes and operations of MPI as those of Gyre, and any datatype as bytes. */
#include "shim.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef enum { KIND_INT, KIND_UINT, KIND_FLOAT, KIND_COMPLEX, KIND_LOGICAL, KIND_BITS, KIND_PAIR } kind_t;

typedef struct {
    MPI_Datatype mpi;
    kind_t kind;
    gyre_type_t gyre;
} entry_t;
/* The first ones are found first. */
static entry_t table[64];
static size_t entries;
static bool exact;
static MPI_Comm self = MPI_COMM_NULL; /* a duplicate of MPI_COMM_SELF, whose errors are returned */

static gyre_type_t by_width(kind_t kind, int bytes)
{
    switch (kind) {
    case KIND_INT:
    case KIND_LOGICAL:
        return bytes == 1   ? (kind == KIND_INT ? GYRE_INT8 : GYRE_BOOL)
               : bytes == 2 ? GYRE_INT16
               : bytes == 4 ? GYRE_INT32
               : bytes == 8 ? GYRE_INT64
                            : GYRE_TYPE_NONE;
    case KIND_UINT:
    case KIND_BITS:
        return bytes == 1   ? GYRE_UINT8
               : bytes == 2 ? GYRE_UINT16
               : bytes == 4 ? GYRE_UINT32
               : bytes == 8 ? GYRE_UINT64
                            : GYRE_TYPE_NONE;
    case KIND_FLOAT:
        return bytes == 4 ? GYRE_FLOAT32 : bytes == 8 ? GYRE_FLOAT64 : GYRE_TYPE_NONE;
    case KIND_COMPLEX:
        return bytes == 8 ? GYRE_COMPLEX64 : bytes == 16 ? GYRE_COMPLEX128 : GYRE_TYPE_NONE;
    default:
        return GYRE_TYPE_NONE;
    }
}
static int bytes_of(MPI_Datatype type)
{
    int bytes = 0;
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_size(type, &bytes);
    return bytes;
}
static void add(MPI_Datatype type, kind_t kind, gyre_type_t pair)
{
    if (type == MPI_DATATYPE_NULL || entries == sizeof(table) / sizeof(table[0]))
        return;
    gyre_type_t gyre = kind == KIND_PAIR ? pair : by_width(kind, bytes_of(type));
    if (gyre != GYRE_TYPE_NONE)
        table[entries++] = (entry_t){type, kind, gyre};
}
/* Called once MPI is initialized: optional types are MPI_DATATYPE_NULL where the library lacks them. */
void shim_types_init(void)
{
    const MPI_Datatype ints[] = {
        MPI_INT,   MPI_INTEGER,  MPI_LONG,     MPI_LONG_LONG,   MPI_INT64_T,  MPI_INT32_T,
        MPI_SHORT, MPI_INT16_T,  MPI_INT8_T,   MPI_SIGNED_CHAR, MPI_AINT,     MPI_OFFSET,
        MPI_COUNT, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,    MPI_INTEGER8,
    };
    const MPI_Datatype uints[] = {MPI_UNSIGNED,       MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG,
                                  MPI_UNSIGNED_SHORT, MPI_UNSIGNED_CHAR, MPI_UINT64_T,
                                  MPI_UINT32_T,       MPI_UINT16_T,      MPI_UINT8_T};
    const MPI_Datatype floats[] = {MPI_DOUBLE, MPI_DOUBLE_PRECISION, MPI_FLOAT, MPI_REAL, MPI_REAL8,
                                   MPI_REAL4};
    const MPI_Datatype complexes[] = {MPI_DOUBLE_COMPLEX,  MPI_COMPLEX,           MPI_C_DOUBLE_COMPLEX,
                                      MPI_C_FLOAT_COMPLEX, MPI_C_COMPLEX,         MPI_COMPLEX16,
                                      MPI_COMPLEX8,        MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX};
    const MPI_Datatype logicals[] = {MPI_LOGICAL, MPI_C_BOOL, MPI_CXX_BOOL};
#define ADD(list, kind)                                           \
    for (size_t i = 0; i < sizeof(list) / sizeof((list)[0]); i++) \
    add((list)[i], kind, GYRE_TYPE_NONE)
    ADD(floats, KIND_FLOAT);
    ADD(ints, KIND_INT);
    ADD(uints, KIND_UINT);
    ADD(complexes, KIND_COMPLEX);
    ADD(logicals, KIND_LOGICAL);
#undef ADD
    add(MPI_BYTE, KIND_BITS, GYRE_TYPE_NONE);
    add(MPI_DOUBLE_INT, KIND_PAIR, GYRE_FLOAT64_INT32);
    add(MPI_FLOAT_INT, KIND_PAIR, GYRE_FLOAT32_INT32);
    add(MPI_2INT, KIND_PAIR, GYRE_INT32_INT32);
    if (bytes_of(MPI_2INTEGER) == 8)
        add(MPI_2INTEGER, KIND_PAIR, GYRE_INT32_INT32);
    add(MPI_SHORT_INT, KIND_PAIR, GYRE_INT16_INT32);
    if (sizeof(long) == 8)
        add(MPI_LONG_INT, KIND_PAIR, GYRE_INT64_INT32);
    exact = shim_order() != NULL && strcmp(shim_order(), "exact") == 0;
    REAL(Comm_dup)(MPI_COMM_SELF, &self);
    PMPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN);
}
void shim_types_end(void)
{
    PMPI_Comm_free(&self);
}

/* NULL: it is no number, or of a width that Gyre lacks. */
static const entry_t *find_type(MPI_Datatype type)
{
    size_t t = 0;
    while (t < entries && table[t].mpi != type)
        t++;
    return t < entries ? &table[t] : NULL;
}
typedef struct {
    MPI_Op mpi;
    gyre_redop_kind_t gyre;
    unsigned group;
} operation_t;
enum { ARITHMETIC = 1, ORDER = 2, BITS = 4, LOGIC = 8, PLACE = 16, PRODUCT = 32 };
/* False: it is the program's own. */
static bool find_operation(MPI_Op op, operation_t *out)
{
    const operation_t all[] = {
        {MPI_SUM, GYRE_SUM, ARITHMETIC}, {MPI_MAX, GYRE_MAX, ORDER},       {MPI_MIN, GYRE_MIN, ORDER},
        {MPI_PROD, GYRE_PROD, PRODUCT},  {MPI_LOR, GYRE_LOR, LOGIC},       {MPI_LAND, GYRE_LAND, LOGIC},
        {MPI_LXOR, GYRE_LXOR, LOGIC},    {MPI_BOR, GYRE_BOR, BITS},        {MPI_BAND, GYRE_BAND, BITS},
        {MPI_BXOR, GYRE_BXOR, BITS},     {MPI_MINLOC, GYRE_MINLOC, PLACE}, {MPI_MAXLOC, GYRE_MAXLOC, PLACE},
    };
    size_t o = 0;
    while (o < sizeof(all) / sizeof(all[0]) && all[o].mpi != op)
        o++;
    if (o == sizeof(all) / sizeof(all[0]))
        return false;
    *out = all[o];
    return true;
}
bool shim_reduction(MPI_Datatype type, MPI_Op op, gyre_type_t *gyre_type, gyre_redop_t *gyre_op)
{
    static const unsigned allowed[] = {
        [KIND_INT] = ARITHMETIC | PRODUCT | ORDER | BITS | LOGIC,
        [KIND_UINT] = ARITHMETIC | PRODUCT | ORDER | BITS | LOGIC,
        [KIND_FLOAT] = ARITHMETIC | PRODUCT | ORDER,
        [KIND_COMPLEX] = ARITHMETIC | PRODUCT,
        [KIND_LOGICAL] = LOGIC,
        [KIND_BITS] = BITS,
        [KIND_PAIR] = PLACE,
    };
    operation_t o;
    const entry_t *t = find_type(type);
    if (t == NULL || !find_operation(op, &o) || !(allowed[t->kind] & o.group))
        return false;
    /* Gyre has no exact products. */
    bool rounded = t->kind == KIND_FLOAT || t->kind == KIND_COMPLEX;
    if (exact && rounded && o.gyre == GYRE_PROD)
        return false;
    *gyre_type = t->gyre;
    *gyre_op = GYRE_OP(o.gyre);
    return true;
}
bool shim_depends_on_order(MPI_Datatype type, MPI_Op op)
{
    operation_t o;
    const entry_t *t = find_type(type);
    if (op == MPI_OP_NULL || type == MPI_DATATYPE_NULL)
        return false;
    return !find_operation(op, &o) || ((o.group & (ARITHMETIC | PRODUCT)) != 0 &&
                                       (t == NULL || (t->kind != KIND_INT && t->kind != KIND_UINT)));
}

static bool is_plain(MPI_Datatype type)
{
    int integers = 0;
    int addresses = 0;
    int types = 0;
    int combiner = 0;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    if (combiner == MPI_COMBINER_NAMED)
        return true;
    if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || integers > 1 || types != 1)
        return false;
    int count = 0;
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    PMPI_Type_get_contents(type, integers, addresses, types, &count, NULL, &inner);
    bool plain = is_plain(inner);
    PMPI_Type_get_envelope(inner, &integers, &addresses, &types, &combiner);
    if (combiner != MPI_COMBINER_NAMED)
        PMPI_Type_free(&inner);
    return plain;
}
bool shim_type_usable(MPI_Datatype type)
{
    int integers = 0;
    int addresses = 0;
    int types = 0;
    int combiner = 0;
    int position = 0;
    const char in = 0;
    char out = 0;
    if (type == MPI_DATATYPE_NULL)
        return false;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    return combiner == MPI_COMBINER_NAMED || PMPI_Pack(&in, 0, type, &out, 1, &position, self) == MPI_SUCCESS;
}
void shim_type_of(MPI_Datatype type, shim_type_t *out)
{
    MPI_Count size = 0;
    MPI_Aint low = 0;
    *out = (shim_type_t){true, 0, 0};
    if (type == MPI_DATATYPE_NULL) /* of no elements */
        return;
    PMPI_Type_size_x(type, &size);
    PMPI_Type_get_extent(type, &low, &out->extent);
    out->size = (size_t)size;
    out->plain = low == 0 && out->extent == (MPI_Aint)size && is_plain(type);
}

/* PMPI_Pack and PMPI_Unpack count bytes in an int. */
static size_t piece(size_t count, size_t size)
{
    size_t most = size == 0 ? (size_t)INT_MAX : (size_t)INT_MAX / size;
    return count < most ? count : most;
}
/* MPI_BOTTOM is NULL, which MPICH's pack refuses: elements at address 1 of a datatype one byte before it. */
static char *from_bottom(char *at, MPI_Datatype *type)
{
    const MPI_Aint before = -1;
    if (at != NULL)
        return at;
    PMPI_Type_create_hindexed_block(1, 1, &before, *type, type);
    PMPI_Type_commit(type);
    return at + 1;
}
/* Does what PMPI_Pack and PMPI_Unpack do. */
static int send_to_self(char *user, int n, MPI_Datatype type, char *packed, int bytes, bool in)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* else threads get each other's messages */
    pthread_mutex_lock(&one);
    const int rc =
        in ? PMPI_Sendrecv(user, n, type, 0, 0, packed, bytes, MPI_PACKED, 0, 0, self, MPI_STATUS_IGNORE)
           : PMPI_Sendrecv(packed, bytes, MPI_PACKED, 0, 0, user, n, type, 0, 0, self, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&one);
    return rc;
}
/* Between `count` elements at `at` and size * count bytes. MPICH 4.0.2 packs less than an element of a
 * datatype of one displaced block, and reports success, once some 771 of these are live. Its messages are
 * right. */
static int repack(char *at, size_t count, MPI_Datatype type, size_t size, char *bytes, bool in)
{
    shim_type_t how;
    MPI_Datatype moved = type;
    int rc = MPI_SUCCESS;
    shim_type_of(type, &how);
    at = from_bottom(at, &moved);
    for (size_t done = 0, n; done < count && rc == MPI_SUCCESS; done += n) {
        int position = 0;
        n = piece(count - done, size);
        char *user = at + (ptrdiff_t)done * how.extent;
        char *packed = bytes + done * size;
        const int length = (int)(n * size);
        rc = in ? PMPI_Pack(user, (int)n, moved, packed, length, &position, self)
                : PMPI_Unpack(packed, length, &position, user, (int)n, moved, self);
        if (rc == MPI_SUCCESS && position != length)
            rc = send_to_self(user, (int)n, moved, packed, length, in);
    }
    if (moved != type)
        PMPI_Type_free(&moved);
    return rc;
}
int shim_pack(void *from, size_t count, MPI_Datatype type, size_t size, void *bytes)
{
    return repack(from, count, type, size, bytes, true);
}
int shim_unpack(void *bytes, size_t count, MPI_Datatype type, size_t size, void *to)
{
    return repack(to, count, type, size, bytes, false);
}
