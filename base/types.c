/* SPDX-License-Identifier: Apache-2.0 */
/* base/types.c: sizes and names of element types and reductions. Names are nccl-tests' where it has one. */
#include <gyre/types.h>

#include "base/defined.h"

const base_type_t base_types[GYRE_TYPE_COUNT] = {
    [GYRE_INT8] = {1, "int8"},
    [GYRE_UINT8] = {1, "uint8"},
    [GYRE_INT16] = {2, "int16"},
    [GYRE_UINT16] = {2, "uint16"},
    [GYRE_INT32] = {4, "int32"},
    [GYRE_UINT32] = {4, "uint32"},
    [GYRE_INT64] = {8, "int64"},
    [GYRE_UINT64] = {8, "uint64"},
    [GYRE_FLOAT16] = {2, "half"},
    [GYRE_BFLOAT16] = {2, "bfloat16"},
    [GYRE_FLOAT32] = {4, "float"},
    [GYRE_FLOAT64] = {8, "double"},
    [GYRE_BOOL] = {1, "bool"},
    [GYRE_COMPLEX64] = {8, "complex64"},
    [GYRE_COMPLEX128] = {16, "complex128"},
    [GYRE_FLOAT8_E4M3] = {1, "float8_e4m3"},
    [GYRE_FLOAT8_E5M2] = {1, "float8_e5m2"},
    [GYRE_FLOAT32_INT32] = {sizeof(gyre_float32_int32_t), "float32_int32"},
    [GYRE_FLOAT64_INT32] = {sizeof(gyre_float64_int32_t), "float64_int32"},
    [GYRE_INT32_INT32] = {sizeof(gyre_int32_int32_t), "int32_int32"},
    [GYRE_INT64_INT32] = {sizeof(gyre_int64_int32_t), "int64_int32"},
    [GYRE_INT16_INT32] = {sizeof(gyre_int16_int32_t), "int16_int32"},
};

static const char *const redops[GYRE_REDOP_COUNT] = {
#define REDOP(id, name, kernels, device) [GYRE_##id] = #name,
#include "base/redops.def"
#undef REDOP
};

/* The table and the enumeration of gyre/types.h have the same kinds in the same order. */
enum {
#define REDOP(id, name, kernels, device) ROW_OF_##id,
#include "base/redops.def"
#undef REDOP
    ROWS
};
_Static_assert(ROWS == GYRE_REDOP_COUNT, "base/redops.def has a row for each kind of reduction");
#define REDOP(id, name, kernels, device) \
    _Static_assert((int)ROW_OF_##id == (int)GYRE_##id, "GYRE_" #id " has another place in gyre/types.h");
#include "base/redops.def"
#undef REDOP

/* What the program has defined, by number: userop0 and so on. */
#define TEN(what, tens)                                                                                      \
    what tens "0", what tens "1", what tens "2", what tens "3", what tens "4", what tens "5", what tens "6", \
        what tens "7", what tens "8", what tens "9"
#define NAMES(what)                                                                                       \
    TEN(what, ""), TEN(what, "1"), TEN(what, "2"), TEN(what, "3"), TEN(what, "4"), TEN(what, "5"),        \
        TEN(what, "6"), TEN(what, "7"), TEN(what, "8"), TEN(what, "9"), TEN(what, "10"), TEN(what, "11"), \
        TEN(what, "12")
static const char *const user_redops[] = {NAMES("userop")}, *const user_types[] = {NAMES("usertype")};

size_t gyre_type_size(gyre_type_t type)
{
    return base_type_size(type);
}

const char *gyre_type_name(gyre_type_t type)
{
    if ((unsigned)type < GYRE_TYPE_COUNT)
        return base_types[type].name;
    /* Also where this process has none of that number: it may be another rank's. */
    const unsigned number = (unsigned)type - GYRE_TYPE_USER;
    return number < BASE_DEFINED_MOST ? user_types[number] : "unknown";
}

const char *gyre_redop_name(gyre_redop_kind_t kind)
{
    if ((unsigned)kind < GYRE_REDOP_COUNT)
        return redops[kind];
    const unsigned number = (unsigned)kind - GYRE_REDOP_USER;
    return number < BASE_DEFINED_MOST ? user_redops[number] : "unknown";
}
