# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/python_ranks.py [kill]: a rank that compares the collectives of the package gyre with NumPy, and makes
every kind of mistake. kill: the last rank dies, and the others get an error."""
import array
import asyncio
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref

import gyre
import numpy as np
import python_check
from python_check import both, check, equal, raises
from python_own import buckets, operations, plans_and_groups, wrong_numbers

def inputs(n, shape, dtype, seed):
    """The same list on every rank: what each rank has."""
    random = np.random.default_rng(seed)
    return [random.integers(0, 5, shape).astype(dtype) for _ in range(n)]


TYPES = "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()


def reductions(comm):
    n, rank = comm.size, comm.rank
    for seed, dtype in enumerate(TYPES):
        all_of = inputs(n, (3, 2 * n), dtype, seed)
        total, mine = np.sum(all_of, axis=0, dtype=dtype), all_of[rank]
        for call in both(comm, "all_reduce"):
            out = np.empty_like(mine)
            call(mine, out)
            equal(f"all_reduce {dtype}", out, total)
            same = mine.copy()
            call(same)
            equal(f"all_reduce in place {dtype}", same, total)
        for call in both(comm, "scan"):
            out = np.empty_like(mine)
            call(mine, out)
            equal(f"scan {dtype}", out, np.sum(all_of[: rank + 1], axis=0, dtype=dtype))
        for call in both(comm, "exscan"):
            out = np.full_like(mine, 9)
            call(mine, recv=out)
            equal(f"exscan {dtype}", out, np.sum(all_of[:rank], axis=0, dtype=dtype) if rank else np.full_like(mine, 9))
    a = inputs(n, 2 * n, "i4", 50)
    for op, want in ((gyre.MAX, np.max(a, axis=0)), (gyre.MIN, np.min(a, axis=0)), (gyre.PROD, np.prod(a, axis=0)),
                     (gyre.BOR, np.bitwise_or.reduce(a)), (gyre.LAND, np.logical_and.reduce(a)),
                     (gyre.AVG, np.sum(a, axis=0) // n)):
        out = np.empty_like(a[rank])
        comm.all_reduce(a[rank], out, op)
        equal(op.name, out, want)
    for root in range(n):
        for call in both(comm, "reduce", root=root):
            x = a[rank].copy()
            call(x)
            equal(f"reduce to {root}", x, np.sum(a, axis=0) if rank == root else a[rank])
            out = np.empty_like(x) if rank == root else None
            call(a[rank], out)
            if rank == root:
                equal(f"reduce to {root}", out, np.sum(a, axis=0))
    block, total = slice(2 * rank, 2 * rank + 2), np.sum(a, axis=0)
    for call in both(comm, "reduce_scatter"):
        out, same = np.empty(2, "i4"), a[rank].copy()
        call(a[rank], out)
        equal("reduce_scatter", out, total[block])
        call(same)
        equal("reduce_scatter in place", same[block], total[block])
    counts = np.arange(n) + 1
    v = inputs(n, counts.sum(), "f8", 60)
    block = slice(counts[:rank].sum(), counts[: rank + 1].sum())
    for call in both(comm, "reduce_scatterv"):
        out, same = np.empty(rank + 1), v[rank].copy()
        call(v[rank], out, counts)
        equal("reduce_scatterv", out, np.sum(v, axis=0)[block])
        call(same, None, counts)
        equal("reduce_scatterv in place", same[block], np.sum(v, axis=0)[block])
    x = np.ones(2)
    comm.all_reduce(x, scale=0.5)
    equal("scale", x, [n / 2] * 2)
    flags = np.array([rank == 0, False])
    comm.all_reduce(flags, op=gyre.LOR)
    equal("bool", flags, [True, False])
    for kind in ("f4", "f8", "i4", "i8", "i2"):
        pair = np.zeros(1, np.dtype([("value", kind), ("index", "i4")], align=True))
        pair["value"], pair["index"] = -rank, rank
        comm.all_reduce(pair, op=gyre.MINLOC)
        equal(f"minloc {kind}", pair["index"], [n - 1])
    for kind in (ctypes.c_short, ctypes.c_int64, ctypes.c_float):
        pair = type("Pair", (ctypes.Structure,), {"_fields_": [("value", kind), ("index", ctypes.c_int)]})(-rank, rank)
        comm.all_reduce(pair, op=gyre.MINLOC)
        equal(f"minloc {kind}", pair.index, n - 1)
    halves = np.full(3, 0x3F80, "u2")  # 1 in bfloat16
    comm.all_reduce(halves, type=gyre.BFLOAT16)
    equal("bfloat16", halves, [{1: 0x3F80, 2: 0x4000, 3: 0x4040}[n]] * 3)


def movements(comm):
    n, rank = comm.size, comm.rank
    a = inputs(n, 4, "f4", 70)
    counts, displs = np.arange(n) + 1, (np.arange(n) * (n + 2)).tolist()
    v = [np.full(r + 1, r, "i8") for r in range(n)]
    for call in both(comm, "all_gather"):
        out, same = np.empty((n, 4), "f4"), np.zeros((n, 4), "f4")
        call(a[rank], out)
        equal("all_gather", out, a)
        same[rank] = a[rank]
        call(None, same)
        equal("all_gather in place", same, a)
    for call in both(comm, "all_gatherv"):
        out = np.empty(counts.sum(), "i8")
        call(v[rank], out, counts)
        equal("all_gatherv", out, np.concatenate(v))
        out, want = np.full(n * (n + 2), -1), np.full(n * (n + 2), -1)
        for r in range(n):
            want[displs[r] : displs[r] + r + 1] = v[r]
        call(v[rank], out, counts.tolist(), displs)
        equal("all_gatherv, displs", out, want)
    for root in range(n):
        at_root = rank == root
        for call in both(comm, "broadcast", root=root):
            x = a[rank].copy()
            call(x)
            equal("broadcast", x, a[root])
        for call in both(comm, "gather", root=root):
            out = np.empty((n, 4), "f4")
            call(a[rank], out if at_root else None)
            if at_root:
                equal("gather", out, a)
        for call in both(comm, "gatherv", root=root):
            out = np.empty(counts.sum(), "i8")
            call(v[rank], out if at_root else None, counts if at_root else None)
            if at_root:
                equal("gatherv", out, np.concatenate(v))
        for call in both(comm, "scatter", root=root):
            out = np.empty(4, "f4")
            call(np.array(a) if at_root else None, out)
            equal("scatter", out, a[rank])
        for call in both(comm, "scatterv", root=root):
            out = np.empty(rank + 1, "i8")
            call(np.concatenate(v) if at_root else None, out, counts if at_root else None)
            equal("scatterv", out, v[rank])
    for call in both(comm, "all_to_all"):
        out = np.empty((n, 2), "i4")
        call(np.repeat(np.arange(n, dtype="i4") + 10 * rank, 2), out)
        equal("all_to_all", out[:, 0], 10 * np.arange(n) + rank)
    for call in both(comm, "all_to_allv"):
        out = np.empty(n * (rank + 1), "i8")
        call(np.concatenate(v), counts, out, [rank + 1] * n)
        equal("all_to_allv", out, np.full(n * (rank + 1), rank))
    for call in both(comm, "neighbor_exchange"):
        out = np.empty(3 * n, "i4")
        send = np.arange(n, dtype="i4").repeat(3) + 10 * rank
        call(send, list(range(n)), out, range(n))
        equal("neighbor_exchange", out.reshape(n, 3)[:, 0], 10 * np.arange(n) + rank)
        call(send, range(n), out, range(n), send_counts=[3] * n, recv_counts=[3] * n,
             recv_displs=[3 * (n - 1 - r) for r in range(n)])
        equal("neighbor_exchange, displs", out.reshape(n, 3)[::-1, 1], 10 * np.arange(n) + rank)
    if n > 1 and rank < 2:
        x = np.full(5, rank)
        if rank == 0:
            comm.send(x, 1)
        else:
            comm.recv(x, peer=0)
            equal("send and recv", x, [0] * 5)


def other_arrays(comm):
    """What is no NumPy array."""
    x = array.array("d", [1.0, 2.0])
    comm.all_reduce(x)
    equal("array.array", x, [comm.size, 2 * comm.size])
    octets = bytearray(b"\1\2")
    comm.all_reduce(memoryview(octets))
    equal("memoryview", octets[1], 2 * comm.size)
    out = np.empty(0)
    comm.all_reduce(out)
    try:
        import ml_dtypes
    except ImportError:
        pass  # python.sh leaves it out
    else:
        b = np.ones(2, ml_dtypes.bfloat16)
        comm.all_reduce(b)
        equal("ml_dtypes", b.astype("f4"), [comm.size] * 2)
    if os.environ.get("WITH_TORCH"):
        import torch

        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
            t, out = torch.ones(3, 2, dtype=dtype), torch.zeros(3, 2, dtype=dtype)
            comm.all_reduce(t, out)
            check(f"torch {dtype}", bool((out == comm.size).all()))
            request = comm.iall_reduce(t)
            request.wait()
            check(f"torch {dtype} in place", bool((t == comm.size).all()))
        mixed = np.zeros(2)
        comm.all_reduce(torch.ones(2, dtype=torch.float64), mixed)
        equal("torch and NumPy", mixed, [comm.size] * 2)
        raises("torch strides", ValueError, "all_reduce: send|not contiguous", comm.all_reduce, torch.ones(3, 2).t())
        raises("torch grad", BufferError if torch.__version__ >= "2" else Exception, "all_reduce: send|grad",
               comm.all_reduce, torch.ones(3, requires_grad=True))
        raises("torch device", ValueError, "all_reduce: send is on a device", comm.all_reduce, Elsewhere())


class Elsewhere:
    """A tensor on a GPU, as far as anybody asks."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise AssertionError("asked for the memory of another device")


def mistakes(comm):
    n, x = comm.size, np.zeros(4 * comm.size)
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    raises("strides", ValueError, "all_reduce: send is not contiguous|ascontiguousarray", comm.all_reduce, x[::2])
    raises("Fortran's order", ValueError, "not contiguous in C's", comm.all_reduce, np.zeros((2, 3), order="F"))
    raises("read-only recv", ValueError, "all_reduce: recv is read-only", comm.all_reduce, np.zeros(4), frozen)
    raises("read-only in place", ValueError, "all_reduce: send is read-only", comm.all_reduce, frozen)
    raises("bytes", ValueError, "read-only", comm.all_reduce, b"1234")
    masked = np.ma.masked_array(np.zeros(2), [True, False])
    raises("masked", TypeError, "all_reduce: send is a masked array|filled", comm.all_reduce, masked)
    comm.all_reduce(masked.data)
    raises("masked, again", TypeError, "all_gather: recv is a masked array", comm.all_gather, np.zeros(1), masked)
    wrong_numbers(comm)
    raises("long double", TypeError, "all_reduce: send has elements of the format|'g'", comm.all_reduce,
           np.zeros(2, "g"))
    raises("byte order", TypeError, "'>d'|byte order", comm.all_reduce, np.zeros(2, ">f8"))
    raises("objects", Exception, "all_reduce: send", comm.all_reduce, np.array([None]))
    raises("objects as numbers", TypeError, "broadcast: buffer holds Python objects", comm.broadcast, np.array([None]), type=gyre.Type.INT64)
    raises("objects in a struct", TypeError, "all_reduce: send holds Python objects", comm.all_reduce, np.zeros(2, "f4, O"),
           type=gyre.Type.INT32)
    equal("a name with O", comm.broadcast(np.zeros(2, [("One", "i4"), ("O", "i4")]), type=gyre.Type.INT32), None)
    packed = np.dtype({"names": ["value", "index"], "formats": ["i2", "i4"], "offsets": [0, 2], "itemsize": 8})
    raises("a pair that lies otherwise", TypeError, "all_reduce: send has elements of the format 'T{", comm.all_reduce,
           np.zeros(2, packed), op=gyre.MINLOC)
    equal("zeros of NumPy's number", gyre.zeros(np.int64(3)).tolist(), [0.0] * 3)
    raises("dates", Exception, "all_reduce: send", comm.all_reduce, np.zeros(2, "M8[s]"))
    raises("strings", TypeError, "all_reduce: send", comm.all_reduce, np.zeros(2, "S3"))
    raises("list", TypeError, "all_reduce: send has neither the buffer protocol", comm.all_reduce, [1.0])
    raises("device", ValueError, "broadcast: buffer is on a device", comm.broadcast, Elsewhere())
    raises("types", TypeError, "double and recv of type float;", comm.all_reduce, np.zeros(2), np.zeros(2, "f"))
    raises("sizes", ValueError, "all_reduce: recv has 3 elements; it must have 2", comm.all_reduce, np.zeros(2),
           np.zeros(3))
    raises("block", ValueError, "reduce_scatter: recv has", comm.reduce_scatter, x, np.zeros(5))
    raises("gathered", ValueError, "all_gather: send has 3 elements; it must have 4", comm.all_gather, np.zeros(3), x)
    raises("counts", ValueError, "all_gatherv: counts has", comm.all_gatherv, np.zeros(4), x, [4] * (n + 1))
    raises("too many", ValueError, "all_gatherv: block|of counts", comm.all_gatherv, np.zeros(5), x, [5] * n)
    raises("displs", ValueError, "all_gatherv: block", comm.all_gatherv, np.zeros(4), x, [4] * n, [4 * n] * n)
    raises("negative", ValueError, "all_gatherv: counts has a negative", comm.all_gatherv, np.zeros(4), x, [-1] * n)
    raises("large", ValueError, "all_gatherv", comm.all_gatherv, np.zeros(4), x, [2**64] * n)
    raises("sum", ValueError, "reduce_scatterv: send has|sum of counts", comm.reduce_scatterv, x, np.zeros(1), [1] * n)
    raises("root", ValueError, f"broadcast: root is {n}; allowed: 0 to {n - 1}", comm.broadcast, x, root=n)
    raises("peer", ValueError, "send: peer is -1", comm.isend, x, -1)
    for given, missing in (((None, [0] * n, x, [0] * n), "send"), ((x, [0] * n, None, [0] * n), "recv")):
        raises("all_to_allv without an array", ValueError, f"all_to_allv: {missing} is missing", comm.all_to_allv, *given)
    raises("neighbour", ValueError, "neighbor_exchange: to has a number", comm.neighbor_exchange, x, [n], x, [])
    raises("op", ValueError, "all_reduce: op is 99", comm.all_reduce, x, op=99)
    raises("scaled", ValueError, "all_reduce: scale is for sums", comm.all_reduce, x, op=gyre.MAX, scale=2)
    raises("type", ValueError, "all_reduce: type", comm.all_reduce, x, type=99)
    raises("part of an element", ValueError, "all_reduce: send has 3 bytes", comm.all_reduce, bytearray(3),
           type=gyre.BFLOAT16)
    raises("argument", TypeError, "all_reduce: argument axis", comm.all_reduce, x, axis=1)
    raises("twice", TypeError, "all_reduce: argument send was given twice", comm.all_reduce, x, send=x)
    raises("missing", TypeError, "broadcast: argument buffer is missing", comm.broadcast)
    raises("many", TypeError, "barrier: 1 arguments", comm.barrier, 1)
    raises("op of a type", gyre.Error, "all_reduce", comm.all_reduce, x, op=gyre.BAND)
    if n > 1:
        raises("overlap", gyre.Error, "overlap", comm.all_reduce, x[:3], x[1:4])
    try:
        comm.all_reduce(x, op=gyre.BAND)
    except gyre.Error as error:
        check("status", error.status is gyre.Status.TYPE)
        again = pickle.loads(pickle.dumps(error))
        check("an Error can be pickled", again.status is error.status and str(again) == str(error))
    raises("option", gyre.Error, "", comm.set, leaves=-1)
    raises("no Comm", TypeError, "not a gyre.Comm", gyre.Exact().all_reduce, None)
    raises("exact of integers", gyre.Error, "", gyre.Exact().add, np.zeros(2, "i4"))
    raises("exact of two sizes", ValueError, "add_dot: x has 2|y 3", gyre.Exact().add_dot, np.zeros(2), np.zeros(3))
    raises("negative memory", ValueError, "Memory: nbytes is -1", gyre.Memory, -1)
    raises("peer of plain memory", gyre.Error, "", gyre.Memory(8).peer, 0)
    raises("a Comm of nothing", TypeError, "", gyre.Comm)
    raises("id", ValueError, "create_id: id has 3 bytes", gyre.create_id, b"123", 0, 1)
    comm.barrier()  # nothing of all this was sent


def lifetimes(comm):
    class Watched(np.ndarray):
        pass

    def start():
        x = np.full(100000, 1.0).view(Watched)
        return weakref.ref(x), comm.iall_reduce(x)

    ref, request = start()
    gc.collect()
    check("a request keeps its array", ref() is not None)
    request.wait()
    gc.collect()
    check("until it has finished", ref() is None)
    request.wait()
    check("test after wait", request.test() is True)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = np.zeros(3)
    pending = comm.irecv(out, left)
    dropped = [weakref.ref(x := np.full(3, 7.0).view(Watched)), comm.isend(x, right)]
    del x
    dropped.pop()  # the request, not waited for
    pending.wait()
    equal("what a dropped request sends", out, [7.0] * 3)
    comm.barrier()
    deadline = time.monotonic() + 20
    while dropped[0]() is not None and time.monotonic() < deadline:
        comm.ibarrier().wait() if comm.size == 1 else comm.progress()
        comm.isend(np.zeros(1), comm.rank), comm.irecv(np.zeros(1), comm.rank)
        gc.collect()
    check("and its array is freed later", dropped[0]() is None)
    memory = gyre.Memory(64)
    x = memory.array("f4")
    del memory
    gc.collect()
    comm.all_reduce(x)
    check("an array keeps its Memory", x.shape == (16,) and float(x.sum()) == 0)


def shared_memory(comm):
    memory = comm.alloc_shared(8 * (comm.rank + 1))
    mine = memory.array("i8")
    mine[:] = comm.rank
    comm.barrier()
    for rank in range(comm.size):
        equal("a peer's part", memory.peer(rank).array("i8"), [rank] * (rank + 1))
    raises("rank", gyre.Error, "", memory.peer, comm.size)
    part = memory.peer(comm.size - 1).array("i8")
    comm.barrier()
    del memory, mine
    gc.collect()
    equal("a view outlives the Memory", part, [comm.size - 1] * comm.size)
    memory = comm.alloc_shared(64)
    raises("put beyond", gyre.Error, "", memory.put, np.zeros(9), 0)
    raises("offset", ValueError, "put: offset is -1", memory.put, np.zeros(1), 0, -1)
    raises("get to read-only", ValueError, "get: array is read-only", memory.get, b"12345678", 0)
    raises("put to plain memory", ValueError, "put: this Memory is not", gyre.Memory(8).put, np.zeros(1), 0)
    raises("put of a list", TypeError, "put: array has neither", memory.put, [1.0], 0)
    memory.put(np.full(2, comm.rank + 1.0), comm.rank, offset=8)  # an array that only the Memory holds
    memory.flush(comm.rank)
    comm.barrier()
    seen = np.zeros(2)
    memory.get(seen, comm.size - 1, 8)
    memory.flush()
    equal("put and get", seen, [comm.size] * 2)
    comm.barrier()
    x = np.arange(100000.0)
    registered = gyre.register(x)
    raises("register twice", gyre.Error, "", gyre.register, x[1000:])
    frozen = np.zeros(9)
    frozen.flags.writeable = False
    raises("register read-only", ValueError, "register: array is read-only", gyre.register, frozen)
    request = comm.iall_reduce(x)
    request.wait()
    del registered
    check("register", x[3] == 3 * comm.size)
    raises("zeros of objects", TypeError, "Python objects", gyre.zeros, 3, object)
    equal("zeros of a number of NumPy's", gyre.zeros(np.int64(3)), [0, 0, 0])
    x = gyre.zeros(np.array([2, 3]), "f4")
    x += 1
    comm.all_reduce(x)
    equal("zeros", x, np.full((2, 3), comm.size))


def communicators(comm):
    n, rank = comm.size, comm.rank
    with comm.split(rank % 2, key=-rank) as half:
        x = np.array([rank])
        half.all_reduce(x)
        equal("split", x, [sum(range(rank % 2, n, 2))])
        check("key", half.rank == len(range(rank, n, 2)) - 1 or n < 3)
    check("closed", half.closed)
    raises("after close", ValueError, "barrier: this communicator is closed", half.barrier)
    half.close()
    check("no color", comm.split(-1) is None)
    group = comm.create_group([0]) if rank == 0 else None
    check("create_group", group is None or group.size == 1)
    raises("not a member", gyre.Error, "", comm.create_group, [n + 3])
    place = comm.place()
    check(f"place: {place}", place.host == 0 and place.host_rank == rank and comm.local_rank == rank and comm.hosts == 1)
    raises("place", gyre.Error, "place", comm.place, n)
    with comm.dup() as own:
        own.set(order=gyre.Order.EXACT)
        x = np.array([[1e16, 1.0, -1e16][r] if r < 3 else 0.0 for r in [rank]])
        own.all_reduce(x)
        equal("exact order", x, [[1e16, 1e16 + 2, 1.0][n - 1] if n != 2 else 1e16])
        own.set(leaves=2)
        out = np.empty(2)
        own.all_reduce(np.ones((2, 2)), out)
        equal("leaves", out, [2 * n] * 2)
        raises("leaves in place", ValueError, "all_reduce: recv is missing: with leaves", own.all_reduce, np.ones(4))
    with comm.dup() as own:
        request = own.ibarrier()
        request.wait()
        comm.barrier()  # else the abort may meet another rank's ibarrier
        own.abort("a test of abort")
        raises("abort", gyre.Error, "a test of abort", own.barrier)
        check("error", own.error().status is gyre.Status.ABORTED)
    ids = np.frombuffer(gyre.unique_id() if rank == 0 else bytes(128), "u1").copy()
    comm.broadcast(ids)
    with gyre.create_id(ids.tobytes(), rank, n, name="a job by id") as job:
        x = np.ones(1)
        job.all_reduce(x)
        equal("create_id", x, [n])

    def all_gather(mine):
        out = np.empty((n, len(mine)), "u1")
        comm.all_gather(np.frombuffer(mine, "u1"), out)
        return [block.tobytes() for block in out]

    with gyre.create(all_gather, rank, n, timeout=30) as job:
        x = np.ones(1)
        job.all_reduce(x)
        equal("create", x, [n])
        inner = job.dup()
    inner.close()  # its job has ended: no error
    if n > 1:
        raises("all_gather raises", KeyError, "mine", gyre.create, lambda mine: {}["mine"], rank, n)
        raises("all_gather returns less", ValueError, "create: all_gather returned 1 blocks", gyre.create,
               lambda mine: [mine], rank, n + 1)
        comm.barrier()
    one, two = gyre.Exact(), gyre.Exact()
    one.add_dot(np.array([1e100, 1.0]), np.array([1e100, rank]))
    two.add_norm2(np.array([3.0], "f4"))
    one.merge(two)
    one.all_reduce(comm)
    big = gyre.Exact()
    big.add_dot(np.full(n, 1e100), np.full(n, -1e100))
    one.merge(big)
    check(f"exact: {one.value()}", one.value() == sum(range(n)) + 9 * n)
    one.reset()
    check("reset", one.value() == 0)


def threads(comm):
    """Other threads run while one waits: rank 0 sends only after its thread has counted."""
    if comm.size == 1:
        return
    with comm.dup() as own:
        if comm.rank == 0:
            time.sleep(0.3)
            own.barrier()
            return
        counted = []
        thread = threading.Thread(target=own.barrier)
        thread.start()
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            counted.append(1)
        check("the waiting thread has no lock on Python", thread.is_alive() and len(counted) > 10)
        raises("close under a call", ValueError, "close: another thread", own.close)
        thread.join()


async def tasks(comm):
    x = [np.full(1000, float(i)) for i in range(4)]

    async def total(i):
        await comm.iall_reduce(x[i])
        return float(x[i][0])

    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    ticker = asyncio.create_task(tick())
    check("gather of awaits", await asyncio.gather(*map(total, range(4))) == [i * comm.size for i in range(4)])
    if comm.size > 1:
        token = np.zeros(1)
        if comm.rank == 0:
            await asyncio.sleep(0.2)
            await comm.isend(np.ones(1), 1)
        elif comm.rank == 1:
            before = ticks
            await comm.irecv(token, 0)
            check(f"the loop runs while a task waits: {ticks - before}", ticks - before > 3 and token[0] == 1)
        request = comm.irecv(token, (comm.rank + 1) % comm.size)
        try:
            await asyncio.wait_for(request, 0.05)
            check("a time limit", False)
        except asyncio.TimeoutError:
            pass
        await comm.ibarrier()
        other = comm.isend(np.full(1, 5.0), (comm.rank - 1) % comm.size)
        await request
        check("a request after its await was cancelled", token[0] == 5)
        await other
    ticker.cancel()
    made = await comm.idup()
    check("await of a communicator", made.size == comm.size)
    made.close()
    with comm.dup() as own:
        request = own.irecv(np.zeros(1), own.rank)
        await comm.ibarrier()
        own.abort("no message")
        try:
            await request
            check("await of an aborted request", False)
        except gyre.Error as error:
            check("its error", error.status is gyre.Status.ABORTED)


def kill():
    """The last rank dies: the others get an error that names it, and go on without it."""
    world = gyre.init(timeout=20)
    last = world.size - 1
    child = world.dup()
    world.barrier()
    if world.rank == last:
        for other in range(last):  # they have left the barrier
            world.recv(np.zeros(1), other)
        os._exit(0)
    try:
        world.send(np.zeros(1), last)
        world.barrier()
        check("no error", False)
    except gyre.Error as error:
        check(f"status {error.status}", error.status is gyre.Status.PEER_DEAD and str(last) in str(error))
    check("error()", world.error().status is gyre.Status.PEER_DEAD)
    left = world.shrink()
    x = np.ones(1)
    left.all_reduce(x)
    equal("after shrink", x, [last])
    joins = {**os.environ, "GYRE_JOIN": left.address()}
    newcomer = subprocess.Popen([sys.executable, __file__, "join"], env=joins) if left.rank == 0 else None
    with left.grow(1) as grown:
        left.close()
        x = np.ones(1)
        grown.all_reduce(x)
        equal("after grow", x, [last + 1])
    child.close()
    check("close() after the job that came of its own has ended", child.closed)
    world.close()  # after the job has ended: nothing is left to do
    if newcomer is not None:
        equal("the newcomer ends", newcomer.wait(20), 0)


def join():
    """A newcomer of kill."""
    with gyre.init(timeout=20) as world:
        x = np.ones(1)
        world.all_reduce(x)
        equal("a newcomer", x, [world.size])


def leave():
    """Rank 0 raises within `with`: the others do not wait for it."""
    Silent = type("Silent", (Exception,), {"__str__": lambda self: {}["no text"]})
    for own, text in ((KeyError("of the program"), "KeyError: 'of the program'"), (Silent(), "Silent"),
                      (OSError("file \0 \udcff"), r"OSError: file \0 \udcff")):
        try:
            with gyre.init(timeout=60) as comm:
                if comm.rank == 0:
                    raise own
                comm.barrier()
                check("no error", False)
        except (KeyError, OSError, Silent) as error:
            check("the program's own exception", error is own)
        except gyre.Error as error:
            check(f"the others' exception: {error}", error.status is gyre.Status.ABORTED and text in str(error))


def main():
    if sys.argv[1:] == ["kill"]:
        kill()
    elif sys.argv[1:] == ["join"]:
        join()
    elif sys.argv[1:] == ["leave"]:
        leave()
    else:
        with gyre.init() as comm:
            for part in (reductions, movements, operations, plans_and_groups, buckets, other_arrays, mistakes, lifetimes,
                         shared_memory, communicators, threads):
                part(comm)
            asyncio.run(tasks(comm))
        raises("after close", ValueError, "closed", comm.barrier)
    return python_check.finish()


if __name__ == "__main__":
    sys.exit(main())
