# SPDX-License-Identifier: Apache-2.0
"""tests/mpi/hdf5.py: all ranks write and read one file of HDF5 (h5py over mpi4py), and reduce what they read."""
import sys

import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
half = comm.Split(rank % 2, rank)
with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    data = file.create_dataset("data", (size * 4, 1000), dtype="f8")
    with data.collective:
        data[rank * 4 : rank * 4 + 4] = numpy.arange(4000.0).reshape(4, 1000) * (rank + 1)
    file.attrs["ranks"] = size
with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    with file["data"].collective:
        read = file["data"][(rank + 1) % size :: size]
    ranks = int(file.attrs["ranks"])
for turn in range(100):
    total = comm.allreduce(read.sum(), op=MPI.SUM)
    columns = numpy.empty(1000)
    half.Allreduce(read.sum(axis=0), columns)
    rows = comm.gather((rank, float(columns[turn])), root=0)
    if rank == 0:
        print(turn, ranks, total, rows)
