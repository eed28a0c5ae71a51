#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/all_reduce.py: Gyre from Python through ctypes; nothing to install.

    ucx-run -n 4 python3 examples/all_reduce.py [path of libgyre.so.0]

Each rank contributes a vector; every rank gets the sum and checks it.
"""
import ctypes
import os
import sys

FLOAT64 = 11  # gyre_type_t, include/gyre/types.h
SUM = 0  # gyre_redop_kind_t


class RedOp(ctypes.Structure):
    """gyre_redop_t, passed by value."""

    _fields_ = [("kind", ctypes.c_int), ("scaled", ctypes.c_int), ("scale", ctypes.c_double)]


def load():
    if len(sys.argv) > 1:
        return ctypes.CDLL(sys.argv[1])
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "lib", "libgyre.so.0")
    return ctypes.CDLL(here if os.path.exists(here) else "libgyre.so.0")


gyre = load()
gyre.gyre_status_string.restype = ctypes.c_char_p
gyre.gyre_all_reduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, RedOp, ctypes.c_void_p]
for name in ("gyre_comm_rank", "gyre_comm_size", "gyre_finalize"):
    getattr(gyre, name).argtypes = [ctypes.c_void_p]
gyre.gyre_init.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]


def check(status):
    if status != 0:
        sys.exit("all_reduce.py: " + gyre.gyre_status_string(status).decode())  # Gyre has logged why


def main():
    world = ctypes.c_void_p()
    check(gyre.gyre_init(None, ctypes.byref(world)))
    rank, size = gyre.gyre_comm_rank(world), gyre.gyre_comm_size(world)

    count = 1000
    vector = (ctypes.c_double * count)(*(rank * i for i in range(count)))
    check(gyre.gyre_all_reduce(vector, vector, count, FLOAT64, RedOp(SUM, 0, 1.0), world))  # in place

    ranks = size * (size - 1) // 2
    wrong = sum(vector[i] != ranks * i for i in range(count))
    print(f"rank {rank} of {size}: sum[{count - 1}] = {vector[count - 1]:g}, {wrong} wrong", flush=True)
    check(gyre.gyre_finalize(world))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
