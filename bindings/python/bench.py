# SPDX-License-Identifier: Apache-2.0
"""bench.py NANOSECONDS: the loop of bench.c through the package; the argument is what bench.c has printed."""
import sys
import time

import gyre
import numpy

BATCHES, CALLS = 20, 20000


def least(function, *args):
    """Nanoseconds of a call, in the fastest batch."""
    best = float("inf")
    for _ in range(BATCHES):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            function(*args)
        best = min(best, (time.perf_counter_ns() - begin) / CALLS)
    return best


def main():
    in_c = float(sys.argv[1])
    with gyre.init() as comm:
        x, y = numpy.ones(1), numpy.ones(1)
        print(f"C                                {in_c:6.0f} ns")
        for name, function, args in (
            ("all_reduce(x)", comm.all_reduce, (x,)),
            ("all_reduce(x, y, gyre.MAX)", comm.all_reduce, (x, y, gyre.MAX)),
            ("iall_reduce(x).wait()", lambda array: comm.iall_reduce(array).wait(), (x,)),
        ):
            ns = least(function, *args)
            print(f"{name:32} {ns:6.0f} ns, {ns - in_c:+6.0f}")


if __name__ == "__main__":
    main()
