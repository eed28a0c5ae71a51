# SPDX-License-Identifier: Apache-2.0
"""tests/mpi/python.py: conjugate gradients over mpi4py: a Poisson problem spread over the ranks, with all-reduces of
arrays and of objects, all-to-all, and communicators that are made and freed."""
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
counts = [len(range(r, 2000, size)) for r in range(size)]
first = sum(counts[:rank])
n = counts[rank]


def dot(on, a, b):
    return on.allreduce(float(a @ b), op=MPI.SUM)


def apply(x):
    left = comm.sendrecv(x[-1], (rank + 1) % size, source=(rank - 1) % size) if rank >= 0 else 0.0
    right = comm.sendrecv(x[0], (rank - 1) % size, source=(rank + 1) % size)
    wide = numpy.concatenate(([left if rank > 0 else 0.0], x, [right if rank < size - 1 else 0.0]))
    return 2.1 * x - wide[:-2] - wide[2:]


for turn in range(20):
    part = comm.Dup() if turn % 2 else comm.Split(0, -rank)
    b = numpy.sin((first + numpy.arange(n)) * (turn + 1) * 0.01)
    x = numpy.zeros(n)
    r = b.copy()
    p = r.copy()
    square = dot(part, r, r)
    for step in range(30):
        q = apply(p)
        alpha = square / dot(part, p, q)
        x += alpha * p
        r -= alpha * q
        after = dot(part, r, r)
        p = r + after / square * p
        square = after
    all_x = numpy.empty(2000)
    comm.Allgatherv(x, [all_x, counts])
    blocks = numpy.empty((size, 5))
    comm.Alltoall(numpy.tile(x[:5], (size, 1)), blocks)
    best = comm.allreduce((float(abs(x).max()), rank), op=MPI.MAXLOC)
    if rank == 0:
        print(f"turn {turn}: {square:.6e} {all_x.sum():.9g} {blocks.sum():.9g} {best[0]:.9g} {best[1]}")
    part.Free()
