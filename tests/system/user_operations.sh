#!/bin/bash
# tests/system/user_operations.sh: operations of the program's own from Python (ctypes) and C++.
# deadline: 90
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
export LD_LIBRARY_PATH=$B/lib

cat >"$W/own.py" <<'END'
import ctypes as c
import sys

class RedOp(c.Structure):
    _fields_ = [("kind", c.c_int), ("scaled", c.c_int), ("scale", c.c_double)]

FUNCTION = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_void_p)
gyre = c.CDLL(sys.argv[1])
gyre.gyre_all_reduce.argtypes = [c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, RedOp, c.c_void_p]
gyre.gyre_op_create.argtypes = [FUNCTION, c.c_void_p, c.c_uint, c.POINTER(RedOp)]
for name in ("gyre_comm_rank", "gyre_comm_size", "gyre_finalize"):
    getattr(gyre, name).argtypes = [c.c_void_p]

def farther(left, right, count, kind, user):
    """The number that is farther from 0."""
    a, b = (c.cast(p, c.POINTER(c.c_double)) for p in (left, right))
    for i in range(count):
        b[i] = a[i] if abs(a[i]) > abs(b[i]) else b[i]
    return 0

function = FUNCTION(farther)  # kept as long as it may be called
world, op = c.c_void_p(), RedOp()
assert gyre.gyre_init(None, c.byref(world)) == 0
rank, size = gyre.gyre_comm_rank(world), gyre.gyre_comm_size(world)
assert gyre.gyre_op_create(function, None, 1, c.byref(op)) == 0
x = (c.c_double * 3)(rank, -rank, 5 - rank)
assert gyre.gyre_all_reduce(x, x, 3, 11, op, world) == 0
assert list(x) == [size - 1, 1 - size, 5], list(x)
# bitwise or, of int32; exclusive or of bools; the smallest value and where it is
bits = (c.c_int32 * 1)(1 << rank)
assert gyre.gyre_all_reduce(bits, bits, 1, 4, RedOp(6, 0, 1.0), world) == 0
assert bits[0] == (1 << size) - 1
truth = (c.c_bool * 1)(True)
assert gyre.gyre_all_reduce(truth, truth, 1, 12, RedOp(10, 0, 1.0), world) == 0
assert truth[0] == (size % 2 == 1)

class Pair(c.Structure):
    _fields_ = [("value", c.c_double), ("index", c.c_int32)]

where = Pair(-abs(rank - 1), rank)
assert gyre.gyre_all_reduce(c.byref(where), c.byref(where), 1, 18, RedOp(11, 0, 1.0), world) == 0
assert (where.value, where.index) == (-1, 0), (where.value, where.index)
assert gyre.gyre_op_free(c.byref(op)) == 0 and op.kind == 255
assert gyre.gyre_finalize(world) == 0
END
for n in 1 3; do
    run "$UCX_RUN" -n $n --timeout 30 python3 "$W/own.py" "$B/lib/libgyre.so.0"
    want "Python, $n ranks" 0
done

cat >"$W/own.cc" <<'END'
#include <gyre/gyre.h>
#include <complex>
int main()
{
    gyre_comm_t *world;
    gyre_redop_t op;
    if (gyre_init(nullptr, &world) != GYRE_OK)
        return 1;
    auto last = [](const void *, void *, size_t, gyre_type_t, void *) { return GYRE_OK; };
    int x = gyre_comm_rank(world);
    std::complex<double> z(1, 2);
    if (gyre_op_create(last, nullptr, 0, &op) != GYRE_OK || op.kind < GYRE_REDOP_USER ||
        gyre_all_reduce(&x, &x, 1, GYRE_INT32, op, world) != GYRE_OK || x != gyre_comm_size(world) - 1 ||
        gyre_all_reduce(&z, &z, 1, GYRE_COMPLEX128, GYRE_OP(GYRE_SUM), world) != GYRE_OK ||
        z.imag() != 2 * gyre_comm_size(world) || gyre_op_free(&op) != GYRE_OK)
        return 2;
    return gyre_finalize(world) != GYRE_OK;
}
END
cat >"$W/throws.cc" <<'END'
#include <gyre/gyre.h>
#include <cstring>
#include <exception>
#include <stdexcept>
struct Counted { // what the stack of the operation holds is destroyed
    static int alive;
    Counted() { alive++; }
    ~Counted() { alive--; }
};
int Counted::alive;
static gyre_status_t throws(const void *, void *right, size_t count, gyre_type_t, void *user)
{
    Counted one;
    if (*static_cast<bool *>(user))
        throw std::runtime_error("too much");
    for (size_t i = 0; i < count; i++)
        static_cast<int *>(right)[i]++;
    return GYRE_OK;
}
static bool says(gyre_status_t status) // the operation, on all ranks
{
    return status == GYRE_ERR_ABORTED && strstr(gyre_last_error(), "an exception has left the program's operation userop0");
}
int main()
{
    gyre_comm_t *world, *comm;
    gyre_redop_t op;
    bool now = false;
    static int x[50000], y[50000];
    if (gyre_init(nullptr, &world) != GYRE_OK || gyre_op_create(throws, &now, 0, &op) != GYRE_OK)
        return 1;
    const int n = gyre_comm_size(world);
    for (size_t count : {size_t(1), sizeof x / sizeof *x}) {
        now = false;
        if (gyre_comm_split(world, 0, 0, &comm) != GYRE_OK || gyre_all_reduce(x, y, count, GYRE_INT32, op, comm) != GYRE_OK)
            return 2;
        now = true;
        gyre_status_t st = gyre_all_reduce(x, y, count, GYRE_INT32, op, comm);
        if (n > 1 && (!says(st) || !says(gyre_comm_error(comm)) || gyre_comm_destroy(comm) != GYRE_OK))
            return 3;
    }
    if (!says(gyre_reduce_local(x, x + 1, y, 1, GYRE_INT32, op)))
        return 4;
    if (Counted::alive || std::uncaught_exception() || gyre_op_free(&op) != GYRE_OK)
        return 5;
    return gyre_barrier(world) != GYRE_OK || gyre_finalize(world) != GYRE_OK;
}
END
run ${CXX:-g++} -std=c++11 -Wall -Wextra -o "$W/throws" "$W/throws.cc" -Iinclude -L"$B/lib" -lgyre
want "throws.cc compiles" 0
for n in 1 3; do
    run "$UCX_RUN" -n $n --timeout 30 "$W/throws"
    want "C++ exceptions, $n ranks" 0
done
run ${CXX:-g++} -fno-exceptions -std=c++11 -Wall -Wextra -Werror -fsyntax-only "$W/own.cc" -Iinclude
want "a program without exceptions" 0
run ${CXX:-g++} -Wall -Wextra -o "$W/own" "$W/own.cc" -Iinclude -L"$B/lib" -lgyre
want "own.cc compiles" 0
for n in 1 3; do
    run "$UCX_RUN" -n $n --timeout 30 "$W/own"
    want "C++, $n ranks" 0
done
finish
