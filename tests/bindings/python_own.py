# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/python_own.py: parts of python_ranks.py: operations and types of the program's own, plans, groups,
requests for communicators, buckets."""
import atexit
import copy
import gc
import os
import signal
import threading
import time
import weakref

import gyre
import numpy as np
from python_check import both, check, equal, raises


def after(left, right):
    """right = right after left, of functions slope * x + shift"""
    right["shift"] += right["slope"] * left["shift"]
    right["slope"] *= left["slope"]


def operations(comm):
    """Operations and types of the program's own."""
    n, rank = comm.size, comm.rank
    line = gyre.UserType([("slope", "i8"), ("shift", "i8")])
    compose = gyre.Operation(after)
    lines = [np.array([(r + 2, r + 1)] * 50, line.dtype) for r in range(n)]
    want = lines[0].copy()
    for r in range(1, n):
        step = lines[r].copy()
        after(want, step)
        want = step
    for name in ("all_reduce", "scan"):
        for call in both(comm, name, op=compose, type=line):
            out = np.empty_like(lines[rank])
            call(lines[rank], out)
            if name == "all_reduce" or rank == n - 1:
                equal(f"{name} of functions", out, want)
    x = lines[rank].copy()
    comm.broadcast(x, root=n - 1, type=line)
    equal("a type of its own moves", x, lines[n - 1])
    local = lines[0].copy()
    gyre.reduce_local(lines[0], local, compose, line)
    check("reduce_local", local["slope"][0] == 4)
    raises("reduce_local of two sizes", ValueError, "reduce_local: left has 2|right 3", gyre.reduce_local, np.zeros(2), np.zeros(3))
    big = gyre.Operation(np.maximum, commutative=True)  # takes no third array by position
    raises("not callable", TypeError, "Operation: function cannot be called", gyre.Operation, 3)
    raises("op of another kind", TypeError, "all_reduce: op is neither", comm.all_reduce, np.zeros(2), op="sum")
    raises("a large type", gyre.Error, "", gyre.UserType, 5000)
    raises("a type of objects", TypeError, "UserType: |holds Python objects", gyre.UserType, [("x", "i4"), ("y", "O")])
    raises("a copy of a type", TypeError, "cannot be copied", copy.copy, line)
    plan = comm.plan_all_reduce(np.zeros(2), op=big)
    raises("an operation in use", gyre.Error, "", big.free)
    plan.free()
    big.free()
    raises("a freed operation", ValueError, "all_reduce: op is an Operation that was freed", comm.all_reduce, np.zeros(2), op=big)
    plan = comm.plan_broadcast(x, type=line)
    raises("a type in use", gyre.Error, "", line.free)
    comm.broadcast(x, type=line)  # as before
    plan.free()
    line.free()
    raises("a freed type", ValueError, "broadcast: type: this UserType was freed", comm.broadcast, x, type=line)
    if n == 1:
        return
    kept = []
    for what, function, cause in (("raises", lambda left, right: {}["of the function"], KeyError),
                                  ("calls Gyre", lambda left, right: comm.barrier(), ValueError),
                                  ("keeps its arrays", lambda left, right: kept.append(right), ValueError)):
        op = gyre.Operation(function)
        for name in ("all_reduce", "iall_reduce", "plan_all_reduce"):
            seen = 0
            with comm.dup() as own:
                try:
                    made = getattr(own, name)(np.ones(4), np.empty(4), op=op)
                    if made is not None:
                        made() if name[0] == "p" else made.wait()
                    check(f"a function that {what}: {name}: no error", False)
                except gyre.Error as error:
                    check(f"a function that {what}: {name}: {error}", error.status is gyre.Status.ABORTED)
                    seen = isinstance(error.__cause__, cause)
            total = np.array([seen], "i4")
            comm.all_reduce(total)
            check(f"a function that {what}: {name}: the cause on {total[0]} ranks", total[0] > 0)
        with comm.dup() as own:
            try:
                own.all_reduce(np.ones(4 + rank), op=op)  # an error of another kind
            except gyre.Error as error:
                check(f"no old cause: {error.__cause__!r}", error.status is gyre.Status.MISMATCH and error.__cause__ is None)
    causes_of_others(comm)
    ids = np.frombuffer(gyre.unique_id() if rank == 0 else bytes(128), "u1").copy()
    comm.broadcast(ids)
    with gyre.create_id(ids.tobytes(), rank, n, progress_thread=1) as job:  # several threads drive it
        asked_meanwhile(job)
        forked_meanwhile(job)
        dropped_inside(job)


def causes_of_others(comm):
    """What a function raised in calls whose error nobody has seen is not the cause of a later error."""
    failing, raised = [True], np.zeros(1)

    def add(left, right):
        if failing:
            raised[0] += 1
            raise KeyError("of another call")
        right += left

    for how in ("a dropped request", "a group"):
        failing[:], raised[:] = [True], 0
        ops = [gyre.Operation(add), gyre.Operation(add)]
        with comm.dup() as one, comm.dup() as two, comm.dup() as own:
            try:
                if how == "a group":
                    with gyre.group():  # reports one error
                        for other, op in zip((one, two), ops):
                            other.all_reduce(np.ones(4), op=op)
                else:
                    one.iall_reduce(np.ones(4), op=ops[0])
                    while True:
                        one.barrier()
            except gyre.Error:
                pass
            failing.clear()
            if comm.rank == 0:
                own.abort("of the test")
            for op in ops:
                try:
                    own.all_reduce(np.ones(4), op=op)
                    check(f"after {how}: no error", False)
                except gyre.Error as error:
                    check(f"after {how}: {error}: {error.__cause__!r}", "of the test" in str(error) and error.__cause__ is None)
        comm.all_reduce(raised)
        check(f"{how}: a function has raised", raised[0] > 0)


def dropped_inside(comm):
    """A function of the program drops objects of Gyre, as the garbage collector may. The next call frees them."""
    def sees(bucket):
        pass

    def drop(left, right):
        right += left
        box.clear()

    def drop_failed(error):
        failing.clear()
        done.append(error)

    x = np.ones(3)
    box = [gyre.zeros(3), comm.plan_all_reduce(x), gyre.Buckets(comm, [1], gyre.Type.INT32, landed=sees), comm.dup()]
    box[-1].on_failure(sees)
    refs = [weakref.ref(x), weakref.ref(sees)]
    del x, sees
    op = gyre.Operation(drop)
    comm.iall_reduce(np.ones(4), op=op).wait()
    comm.barrier()
    box.clear()  # where the function was not called
    check("what a function has dropped is freed", refs[0]() is None and refs[1]() is None)
    for name, of in (("close", comm), ("free", comm.plan_barrier())):
        op = gyre.Operation(lambda left, right, call=getattr(of, name): raises(f"{name} in a function", ValueError, name, call))
        comm.iall_reduce(np.ones(4), op=op).wait()
    failing, done = [comm.dup()], []
    failing[0].on_failure(drop_failed)
    comm.barrier()
    if comm.rank == comm.size - 1:
        failing[0].abort()
    end = time.monotonic() + 20
    while not done and time.monotonic() < end:
        time.sleep(0.002)
    check("on_failure drops its communicator", len(done) == 1)


def asked_meanwhile(comm):
    """Calls that wait for the thread of Gyre that is in a function of the program, which needs the GIL."""
    n, rank, main = comm.size, comm.rank, threading.get_ident()
    inside, asked = threading.Event(), threading.Event()

    def add(left, right):
        right += left
        if threading.get_ident() != main:
            inside.set()
            asked.wait(0.05)

    op, met = gyre.Operation(add), np.zeros(1)
    for k, call in enumerate(2 * (comm.fileno, comm.place)):
        inside.clear(), asked.clear()
        time.sleep(0.02 * (k // 2 == rank))  # the other ranks' threads wait for this one, which is late
        x = np.ones(1000)
        request = comm.iall_reduce(x, op=op)
        if inside.wait(0.3):
            met += 1
            call()
        asked.set()
        request.wait()
        equal("asked meanwhile", x, np.full(1000, float(n)))
    comm.all_reduce(met)
    check("some rank has asked meanwhile", met[0] > 0 or n == 1)


def forked_meanwhile(comm):
    """A child of fork ends, where a thread of Gyre was in a function of the program."""
    main, inside, forked = threading.get_ident(), threading.Event(), threading.Event()

    def add(left, right):
        right += left
        if threading.get_ident() != main:
            inside.set()
            forked.wait(5)

    op, met = gyre.Operation(add), np.zeros(1)
    for k in range(20 * comm.size):
        time.sleep(0.02 * (k % comm.size == comm.rank))
        request = comm.iall_reduce(np.ones(4), op=op)
        if inside.wait(0.3):
            met += 1
            child = os.fork()
            if child == 0:
                atexit._run_exitfuncs()
                os._exit(0)
            end = time.monotonic() + 20
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
                time.sleep(0.002)
            if ended[0] == 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            check("a child of fork ends", ended == (child, 0))
        forked.set()
        request.wait()
        inside.clear(), forked.clear()
        comm.all_reduce(met)
        if met[0] > 0:
            return
    check("some rank has forked meanwhile", False)


def plans_and_groups(comm):
    n, rank = comm.size, comm.rank
    right, left = (rank + 1) % n, (rank - 1) % n
    x, y = np.zeros(3), np.zeros(3)
    plan, other = comm.plan_all_reduce(x), comm.plan_all_reduce(y, op=gyre.MAX)
    for step in range(3):
        x[:] = y[:] = step
        requests = [plan.start(), other.start()]
        raises("a plan under way", gyre.Error, "", plan.start)
        raises("a plan under way", gyre.Error, "", plan.free)
        done = [gyre.wait_any(requests), gyre.wait_any(requests)]
        check(f"wait_any: {done}", sorted(done) == [0, 1] and gyre.wait_any(requests) is None)
        equal("plans", [x[0], y[0]], [step * n, step])
    raises("wait_any of another thing", TypeError, r"wait_any: requests[0] is not", gyre.wait_any, [plan])
    raises("wait_any twice the same", ValueError, "wait_any: another", gyre.wait_any, [requests[0]] * 2)
    raises("a plan's arguments", ValueError, "all_gather: send has 3", comm.plan_all_gather, np.zeros(3), np.zeros(4 * n))
    plan.free()
    raises("a freed plan", ValueError, "start: this plan was freed", plan.start)
    total = gyre.Exact(**{})  # as functions of the standard library call what they are given
    total.add(np.ones(2))
    again = comm.plan_barrier()
    again(**{})
    raises("a plan with arguments", TypeError, "takes no arguments", again, comm=comm)
    with gyre.group():
        comm.send(np.full(2, float(rank)), right)  # an array that only the group holds
        received = comm.irecv(x[:2], left)
        total.all_reduce(comm)
        again()
    received.wait()
    check(f"a group: {x[:2]}", x[0] == left and total.value() == 2 * n)
    try:
        with gyre.group():
            received = comm.irecv(x[:1], left)
            raise KeyError("of the program")
    except KeyError:
        pass
    raises("a group that was left", gyre.Error, "", received.wait)
    with gyre.group():
        comm.barrier()
        raises("no request of an open group", gyre.Error, "", comm.irecv(x[:0], rank).wait)
        comm.send(x[:0], rank)
    class Watched(np.ndarray):
        pass

    with comm.dup() as own:
        with gyre.group():
            ref = weakref.ref(mine := np.ones(3).view(Watched))
            own.iall_reduce(mine)  # its request is dropped
            del mine
            raises("set in a group", gyre.Error, "group", own.set)
            raises("close in a group", gyre.Error, "group", own.close)
            check("an array of an open group, whose request was dropped, stays", ref() is not None)
        own.set()
        check("until it has finished", ref() is None)
    for request, size in ((comm.idup(), n), (comm.isplit(rank), 1), (comm.isplit_type(gyre.Split.HOST), n),
                          (comm.icreate_group([rank]), 1)):
        with request.wait() as made:
            check("a communicator by a request", made.size == size and request.wait() is made and request.makes)
    check("no color", comm.isplit(-1).wait() is None)
    sum_of = gyre.Exact()
    raises("a sum as the operation", TypeError, "all_reduce: op is neither", comm.iall_reduce, x, op=sum_of)
    sum_of.add(np.zeros(1))
    request = sum_of.iall_reduce(comm)
    raises("a sum under way", ValueError, "value: an all_reduce of this sum is under way", sum_of.value)
    request.wait()
    check("a sum", sum_of.value() == 0)
    before = comm.stats()
    comm.barrier()
    check("stats", comm.stats().operations == before.operations + 1 and before.private_bytes > 0)
    failed = []
    raises("on_failure", TypeError, "on_failure: function cannot be called", comm.on_failure, 1)
    with comm.dup() as own:
        own.on_failure(failed.append)
        comm.barrier()
        if rank == n - 1:
            own.abort("by the last rank")
        end = time.monotonic() + 20
        while not failed and time.monotonic() < end:
            time.sleep(0.002)
        check(f"on_failure without a call: {failed}", len(failed) == 1 and "by the last rank" in str(failed[0]))


def buckets(comm):
    n, rank = comm.size, comm.rank
    seen = []

    def landed(bucket):
        shard = bucket.data[bucket.shard_offset : bucket.shard_offset + bucket.shard_count]
        seen.append((bucket.index, float(shard.sum())))

    b = gyre.Buckets(comm, [3, 5, 7], gyre.Type.FLOAT64, op=gyre.MAX, scatter=True, bucket_bytes=8, landed=landed)
    for step in range(2):
        for i in (2, 0, 1):
            b.tensor(i)[:] = rank + step
            b.ready(i)
        b.wait()
    check(f"buckets: {seen}", sorted(i for i, _ in seen) == sorted(2 * list(range(len(b)))))
    shards = np.array([sum(total for _, total in seen)])
    comm.all_reduce(shards)
    equal("the shards of all ranks", shards, [15 * (n - 1 + n)])
    check(f"times {b.times()}", min(b.times()) >= 0)
    raises("twice ready", gyre.Error, "", lambda: (b.ready(0), b.ready(0)))
    raises("not all ready", gyre.Error, "", b.wait)
    b.ready(1), b.ready(2), b.wait()
    raises("tensor", IndexError, "tensor: tensor 3 is out of range; there are 3", b.tensor, 3)
    raises("count", ValueError, "Buckets: counts[1] is negative", gyre.Buckets, comm, [1, -1], gyre.Type.INT32)
    raises("op", ValueError, "Buckets: op is 77", gyre.Buckets, comm, [1], gyre.Type.INT32, op=77)
    raises("type", gyre.Error, "", gyre.Buckets, comm, [1], 99)
    raises("landed", ValueError, "Buckets: landed", gyre.Buckets, comm, [1], gyre.Type.INT32, landed=1)
    last = b.tensor(2)
    del b
    gc.collect()
    equal("an array keeps its Buckets", last.shape, (7,))
    b = gyre.Buckets(comm, [1], gyre.Type.INT32, landed=lambda bucket: {}["of the function"])
    raises("landed raises", KeyError, "of the function", lambda: (b.ready(0), b.wait()))


def wrong_numbers(comm):
    """Where a call takes a whole number: the exception names the call and the argument."""
    n = comm.size
    for call, argument, function, given in (
            ("broadcast", "root", comm.broadcast, {"buffer": np.zeros(2), "root": "a"}),
            ("all_gatherv", "counts", comm.all_gatherv, {"send": np.zeros(1), "recv": np.zeros(n), "counts": ["a"] * n}),
            ("all_gatherv", "counts", comm.all_gatherv, {"send": np.zeros(1), "recv": np.zeros(n), "counts": 7}),
            ("split", "color", comm.split, {"color": "a"}), ("split", "key", comm.split, {"color": 0, "key": 1.5}),
            ("split_type", "type", comm.split_type, {"type": "a"}),
            ("create_group", "ranks", comm.create_group, {"ranks": ["a"]}),
            ("create_group", "ranks", comm.create_group, {"ranks": 1}),
            ("place", "rank", comm.place, {"rank": "a"})):
        raises(f"{call} {argument}", TypeError, f"{call}: {argument}: ", function, **given)
    alone = {"all_gather": lambda mine: [mine], "rank": 0, "nranks": 1}
    plan, memory = comm.plan_barrier(), comm.alloc_shared(8)
    for function, given in ((gyre.init, {}), (gyre.create, alone), (comm.set, {}), (plan.set, {})):
        for argument, wrong in (("order", "exact"), ("chunk", "1M"), ("algorithm", 7), ("tag", "a"), ("leaves", 1.5),
                                ("timeout", "1 s"), ("rank", "a"), ("nranks", None), ("root", 7), ("secret", b"abc"),
                                ("name", 1), ("init_timeout", "a"), ("progress_thread", "on"), ("reason", 1)):
            raises(f"{argument} of {function.__name__}", TypeError, f"{function.__name__}: |{argument}", function,
                   **{**given, argument: wrong})
    for call, argument, function, given in (
            ("abort", "reason", comm.abort, {"reason": 7}), ("create_group", "tag", comm.create_group, {"ranks": [0], "tag": "a"}),
            ("create_id", "id", gyre.create_id, {"id": "a", "rank": 0, "nranks": 1}),
            ("create", "all_gather", gyre.create, {**alone, "all_gather": 7}),
            ("create", "all_gather", gyre.create, {**alone, "nranks": 2, "all_gather": lambda mine: 7}),
            ("create", "all_gather", gyre.create, {**alone, "nranks": 2, "all_gather": lambda mine: ["text"] * 2}),
            ("Memory", "nbytes", gyre.Memory, {"nbytes": "a"}), ("Memory", "nbytes", gyre.Memory, {}),
            ("Memory", "bytes", gyre.Memory, {"nbytes": 1, "bytes": 1}),
            ("put", "offset", memory.put, {"array": np.zeros(1), "rank": 0, "offset": "a"}),
            ("array", "dtype", memory.array, {"dtype": "nothing"}), ("array", "dtype", memory.array, {"dtype": object}),
            ("zeros", "dtype", gyre.zeros, {"shape": 3, "dtype": "nothing"}), ("zeros", "shape", gyre.zeros, {"shape": "ab"}),
            ("zeros", "shape", gyre.zeros, {"shape": (2, 1.5)}), ("zeros", "shape", gyre.zeros, {"shape": None}),
            ("UserType", "dtype", gyre.UserType, {"dtype": "nothing"}),
            ("wait_all", "requests", gyre.wait_all, {"requests": 7}), ("wait_all", "requests[0]", gyre.wait_all, {"requests": [7]}),
            ("Buckets", "counts", gyre.Buckets, {"comm": comm, "counts": 7, "type": 11}),
            ("Buckets", "bucket_bytes", gyre.Buckets, {"comm": comm, "counts": [7], "type": 11, "bucket_bytes": "1M"}),
            ("Operation", "function", gyre.Operation, {}), ("reduce_local", "right", gyre.reduce_local, {"left": np.zeros(1)})):
        raises(f"{call} {argument}", TypeError, f"{call}: |{argument}", function, **given)
    raises("wait_any", TypeError, "wait_any: requests: ", gyre.wait_any, 7)
    raises("alloc_shared", TypeError, "alloc_shared: nbytes: ", comm.alloc_shared, "a")
    raises("UserType below 0", ValueError, "UserType: dtype is -1", gyre.UserType, -1)
    raises("too many", TypeError, "place: 2 arguments were given", comm.place, 0, 0)
    raises("twice", TypeError, "place: argument rank was given twice", comm.place, 0, rank=0)
    raises("by its place", TypeError, "set: 1 arguments were given by their place", comm.set, 1)
    raises("a tag below 0", OverflowError, "set: tag: ", comm.set, tag=-1)
    raises("a null character", ValueError, "abort: reason has a null", comm.abort, "a\0b")
    raises("zeros below 0", ValueError, "zeros: shape has -1", gyre.zeros, (2, -1))
    raises("elements of 0 bytes", ValueError, "array: dtype |0 bytes", memory.array, "S")
    raises("more ranks than there can be", ValueError, "create_group: ranks has", comm.create_group, range(1 << 31))
    raises("chunk", ValueError, "set: chunk is -1; it must not be negative", comm.set, chunk=-1)
    raises("chunk of a plan", ValueError, "set: chunk is -1", comm.plan_barrier().set, chunk=-1)
    raises("chunk of a job", ValueError, "create: chunk is -1", gyre.create, lambda mine: [mine], 0, 1, chunk=-1)
    raises("scale", TypeError, "all_reduce: scale: ", comm.all_reduce, np.zeros(1), scale="a")
    raises("split far", ValueError, "split: color is 1099511627776, which is out of range", comm.split, 1 << 40)
    raises("grow", TypeError, "grow: newcomers: ", comm.grow, "a")
