# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/torch_ranks.py: every rank of torch.sh: the backend gyre next to Gloo, over the same ranks.

torch_ranks.py PART...: prints "rank R: PART: N checks" for each part of which all hold. Parts: calls, training,
errors, and, as the last one, exit or early.
"""
import atexit
import datetime
import os
import resource
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gyre_torch
import torch_check

parts = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gyre", timeout=datetime.timedelta(seconds=20))
rank, n = dist.get_rank(), dist.get_world_size()
OPS = dist.ReduceOp
torch_check.who = f"rank {rank} of {n}"
raises = torch_check.raises


def check(what, got, want=True):
    rounds = isinstance(want, torch.Tensor) and want.is_floating_point()
    torch_check.check(what, got, want, torch.allclose if rounds else torch.equal)


def values(dtype, count=6, of=rank):
    """Small, so that products and sums are exact in all types; different on all ranks."""
    numbers = torch.arange(count) % 3 + of % 2 + 1
    return numbers % 2 == of % 2 if dtype == torch.bool else numbers.to(dtype)


def calls():
    gloo = dist.new_group(backend="gloo")
    floats = [torch.float32, torch.float64, torch.float16]
    integers = [torch.int8, torch.int32, torch.int64, torch.uint8]
    for dtype in floats + integers + [torch.bool]:
        ops = [OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX]
        # Gloo adds the bytes of bools, and has no bitwise operations for bools
        for op in ops + ([OPS.BAND, OPS.BOR, OPS.BXOR] if dtype in integers else []):
            ours, theirs = values(dtype), values(dtype)
            dist.all_reduce(ours, op)
            if dtype == torch.bool:
                all_of = torch.stack([values(dtype, of=r) for r in range(n)])
                theirs = all_of.any(0) if op in (OPS.SUM, OPS.MAX) else all_of.all(0)
            else:
                dist.all_reduce(theirs, op, gloo)
            check(f"all_reduce {dtype} {op}", ours, theirs)
    for dtype in floats + integers:
        for root in range(n):
            results = []
            for group in (None, gloo):
                moved, reduced, part = values(dtype), values(dtype), torch.zeros(2, dtype=dtype)
                dist.broadcast(moved, root, group)
                dist.reduce(reduced, root, OPS.SUM, group)
                parts = [torch.zeros(6, dtype=dtype) for _ in range(n)] if rank == root else None
                dist.gather(values(dtype), parts, root, group)
                pieces = [values(dtype, 2, r) for r in range(n)] if rank == root else None
                dist.scatter(part, pieces, root, group)
                results.append([moved, part] + ([reduced] + parts if rank == root else []))
            for ours, theirs in zip(*results):
                check(f"rooted calls {dtype} {root}", ours, theirs)
        lists = [[torch.zeros(6, dtype=dtype) for _ in range(n)] for _ in range(2)]
        dist.all_gather(lists[0], values(dtype))
        dist.all_gather(lists[1], values(dtype), gloo)
        check(f"all_gather {dtype}", torch.cat(lists[0]), torch.cat(lists[1]))
    # What Gloo of PyTorch 1.13 does not have is compared with what it means.
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.complex64, torch.complex128):
        everything = [values(dtype, 2 * n, r) for r in range(n)]
        mine = slice(2 * rank, 2 * rank + 2)
        total = sum(everything)
        out = torch.zeros(2, dtype=dtype)
        if not dtype.is_complex:
            dist.reduce_scatter(out, list(values(dtype, 2 * n).chunk(n)))
            check(f"reduce_scatter {dtype}", out, total[mine])
            apart = [t.clone() for t in values(dtype, 2 * n).chunk(n)]
            dist.reduce_scatter(out, apart, OPS.MAX)
            check(f"reduce_scatter max {dtype}", out, torch.stack(everything).amax(0)[mine])
        group = dist.distributed_c10d._get_default_group()
        group._reduce_scatter_base(out, values(dtype, 2 * n)).wait()
        check(f"reduce_scatter_tensor {dtype}", out, total[mine])
        large = torch.zeros(2 * n * n, dtype=dtype)
        group._allgather_base(large, values(dtype, 2 * n)).wait()
        check(f"all_gather_into_tensor {dtype}", large, torch.cat(everything))
        to_all = torch.zeros(2 * n, dtype=dtype)
        dist.all_to_all_single(to_all, values(dtype, 2 * n))
        check(f"all_to_all_single {dtype}", to_all, torch.cat([t[mine] for t in everything]))
        swapped = [torch.zeros(2, dtype=dtype) for _ in range(n)]
        dist.all_to_all(swapped, [t.clone() for t in values(dtype, 2 * n).chunk(n)])
        check(f"all_to_all {dtype}", torch.cat(swapped), to_all)
        work = [values(dtype), values(dtype, 3)]
        dist.all_reduce_coalesced(work) if not dtype.is_complex else [dist.all_reduce(t) for t in work]
        check(f"all_reduce_coalesced {dtype}", work[1], sum(values(dtype, 3, r) for r in range(n)))
        if not dtype.is_complex:
            average = values(dtype)
            dist.all_reduce(average, OPS.AVG)
            check(f"average {dtype}", average, (sum(values(dtype, of=r) for r in range(n)) / n).to(dtype))
            scaled = [values(dtype), values(dtype, 3)]
            factor = dist._make_nccl_premul_sum(2.0)
            dist.all_reduce(scaled[0], factor)
            check(f"a sum times a factor {dtype}", scaled[0], 2 * sum(values(dtype, of=r) for r in range(n)))
            dist.reduce_scatter(out, list(values(dtype, 2 * n).chunk(n)), factor)
            check(f"reduce_scatter times a factor {dtype}", out, 2 * total[mine])
            apart = [torch.zeros(r + 1, dtype=dtype) for r in range(n)]
            dist.all_gather(apart, values(dtype, rank + 1))
            check(f"uneven all_gather {dtype}", torch.cat(apart),
                  torch.cat([values(dtype, r + 1, r) for r in range(n)]))
    # what one rank has transposed in memory, others have not
    def turned(of):
        table = torch.arange(6.0).reshape(2, 3) + of
        return table.t().contiguous().t() if of % 2 else table

    total = sum(turned(r) for r in range(n))
    for name, call, want in (("broadcast", lambda t: dist.broadcast(t, n - 1), turned(n - 1)),
                             ("all_reduce", dist.all_reduce, total),
                             ("reduce", lambda t: dist.reduce(t, 0), total if rank == 0 else turned(rank)),
                             ("all_reduce_coalesced", lambda t: dist.all_reduce_coalesced([t]), total)):
        mine = turned(rank).requires_grad_()
        with torch.no_grad():
            call(mine)
        check(f"{name}: strides that differ", mine.detach(), want)
        check(f"{name}: and stay", mine.is_contiguous(), rank % 2 == 0)
    # rank r sends r + 1 rows to each rank
    uneven = torch.full(((rank + 1) * n, 2), float(rank))
    received = torch.zeros(n * (n + 1) // 2, 2)
    dist.all_to_all_single(received, uneven, [r + 1 for r in range(n)], [rank + 1] * n)
    check("uneven all_to_all", received[:, 0], torch.cat([torch.full((r + 1,), float(r)) for r in range(n)]))
    # messages, asynchronous work, futures
    if n > 1:
        incoming = torch.zeros(4)
        works = [dist.isend(torch.full((4,), float(rank)), (rank + 1) % n, tag=7),
                 dist.irecv(incoming, (rank - 1) % n, tag=7)]
        [w.wait() for w in works]
        check("a message around the ring", incoming, torch.full((4,), float((rank - 1) % n)))
    tensors = [torch.full((1000,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    doubled = [w.get_future().then(lambda f: f.value()[0] * 2) for w in works]
    for i, future in enumerate(doubled):
        want = torch.full((1000,), 2.0 * (sum(range(n)) + n * i))
        check("a future that nobody drives", future.wait(), want)
    check("work is complete after that", all(w.is_completed() for w in works))
    def nested(_):
        return dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()[0]

    for waits in (False, True):  # a thread of the group runs the callback, or this one
        work, under_way = (dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2))
        future = work.get_future().then(nested).then(lambda _: under_way.get_future().wait()).then(nested)
        if waits:
            work.wait()
        check("a callback that waits for futures", future.wait(), torch.full((3,), float(n)))
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    check("objects", objects, [{"rank": r} for r in range(n)])
    dist.barrier()
    exact = dist.new_group(pg_options=gyre_torch.Options(order="exact"))
    tiny = torch.tensor([1e30 if rank == 0 else -1e30 if rank == n - 1 else 1.0]) if n > 2 else torch.ones(1)
    dist.all_reduce(tiny, group=exact)
    check("an exact sum", tiny, torch.ones(1) if n > 2 else torch.full((1,), float(n)))


def training():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    gloo = dist.new_group(backend="gloo")
    losses = {}
    for name, group in (("gyre", None), ("gloo", gloo)):
        for zero in (False, True):
            torch.manual_seed(3)
            model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
            model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001,
                                            gradient_as_bucket_view=True)
            optimizer = (ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group,
                                                 lr=0.01)
                         if zero else torch.optim.Adam(model.parameters(), lr=0.01))
            x = torch.randn(30, 8)[rank::n]
            lost = []
            for _ in range(10):
                optimizer.zero_grad()
                loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
                loss.backward()
                optimizer.step()
                lost.append(loss.detach())
            losses[name, zero] = torch.stack(lost)
    for zero in (False, True):
        check("the loss falls", bool(losses["gyre", zero][-1] < losses["gyre", zero][0]))
        check(f"losses as Gloo's, zero={zero}", losses["gyre", zero], losses["gloo", zero])


def errors():
    other = rank % 2
    square = torch.zeros(4, 4)
    # refused on this rank, and the group works on
    raises("not contiguous", "all_gather: the tensor Float [2, 4] is not contiguous",
           lambda: dist.all_gather([torch.zeros(8)] * n, torch.zeros(4, 4)[:, ::2].t()))
    raises("a stride", "all_reduce: the tensor Float [4, 2] is not contiguous",
           lambda: dist.all_reduce(square[:, ::2]))
    if n > 1:  # its elements would arrive in another order at a rank with other strides
        raises("send of a view", "send: the tensor Float [4, 2] is not contiguous",
               lambda: dist.send(torch.zeros(2, 4).t(), (rank + 1) % n))
        raises("recv into a view", "recv: the tensor Float [4, 2] is not contiguous",
               lambda: dist.recv(torch.zeros(2, 4).t(), (rank + 1) % n))
    # PyTorch 1 hands over the elements in memory, 2.15 those that a read gives
    signs = [torch.zeros(2) for _ in range(n)]
    try:
        dist.all_gather(signs, torch._neg_view(torch.ones(2)))
        check("a sign that memory does not have", torch.stack(signs), -torch.ones(n, 2))
    except RuntimeError as error:
        check("a sign that memory does not have", "Float [2] is negated when it is read" in str(error))
    # PyTorch 2 finds this one by itself
    raises("sparse", "parse", lambda: dist.broadcast(square.to_sparse(), 0))
    # PyTorch 2 sends the first one nowhere, and the second one as float16
    if torch.__version__.startswith("1."):
        raises("a device", "Meta", lambda: dist.all_reduce(torch.zeros(4, device="meta")))
        raises("a type", "ComplexHalf are not supported",
               lambda: dist.broadcast(torch.zeros(2, dtype=torch.complex32), 0))
    raises("any source", "Name the source", lambda: dist.recv(torch.zeros(1)))
    raises("sizes of a list", "they need the same size",
           lambda: dist.all_gather([torch.zeros(3)] * n, torch.zeros(2)))
    raises("a float has no bits", "band", lambda: dist.all_reduce(torch.zeros(2), OPS.BAND))
    truths = [values(torch.bool), values(torch.bool, 3)]
    raises("bools times a factor", "ReduceOp",
           lambda: dist.all_reduce_coalesced(truths, dist._make_nccl_premul_sum(2.0)))
    total = torch.ones(2)
    dist.all_reduce(total)
    check("the call after it is started", total, torch.full((2,), float(n)))
    raises("splits", "add up to 4",
           lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), None, [5] * n))
    raises("options", "takes gyre_torch.Options", lambda: dist.new_group(pg_options={"order": "exact"}))
    for name, wrong in (("order", 3), ("algorithm", None), ("chunk", "1M"), ("chunk", -1)):
        raises("an option", f"gyre_torch.Options: {name} is ", lambda: gyre_torch.Options(**{name: wrong}))
    raises("an order", "order 'quick' is unknown",
           lambda: dist.new_group(pg_options=gyre_torch.Options(order="quick")))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    most, taken = max(int(fd) for fd in os.listdir("/proc/self/fd")), []
    while not taken or taken[-1] < most:  # each takes the lowest number that is free
        taken.append(os.open("/dev/null", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, limits[1]))
    raises("a group without descriptors", "no descriptor", dist.new_group)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for fd in taken:
        os.close(fd)
    check("it has closed those that it had", len(os.listdir("/proc/self/fd")) <= before)
    late = torch.zeros(1)
    if n == 1:
        return
    if rank == 0:
        work = dist.irecv(late, 1)
        raises("a limit of a wait", "has not finished within the 50 ms",
               lambda: work.wait(datetime.timedelta(milliseconds=50)))
    dist.barrier()
    if rank == 0:
        work.wait()
        check("it has come after all", late, torch.ones(1))
    elif rank == 1:
        dist.send(torch.ones(1), 0)
    for what, call in {
        "sizes": lambda g: dist.all_reduce(torch.zeros(3 + other), group=g),
        "types": lambda g: dist.all_reduce(torch.zeros(4, dtype=[torch.int64, torch.float64][other]),
                                           group=g),
        "operations": lambda g: dist.all_reduce(torch.zeros(4), OPS.MAX if other else OPS.SUM, group=g),
        # each root has sent and is done: the next call has the error
        "roots": lambda g: (dist.broadcast(torch.zeros(4), other, g),
                            dist.all_reduce(torch.zeros(4), group=g)),
        # only the rank that receives too little or too much notices
        "splits": lambda g: (dist.all_to_all_single(torch.zeros(n + other), torch.zeros(n),
                                                    [1 + other] + [1] * (n - 1), group=g),
                             dist.all_reduce(torch.zeros(4), group=g)),
        "calls": lambda g: dist.barrier(g) if other else dist.all_reduce(torch.zeros(4), group=g),
    }.items():
        group = dist.new_group()
        begin = time.monotonic()
        raises(f"other {what}", ":", lambda: call(group))
        check(f"other {what}: at once", time.monotonic() - begin < 5)
        raises(f"after other {what}", ":", lambda: dist.all_reduce(torch.zeros(1), group=group))
        dist.destroy_process_group(group)
    # more groups than a process may have jobs: they are parts of the default group's
    groups = [dist.new_group([0, k % n] if k % n else None) for k in range(40)]
    for k, group in enumerate(groups):
        if dist.get_rank(group) >= 0:
            total = torch.ones(1)
            dist.all_reduce(total, group=group)
            check(f"group {k} of many", total, torch.full((1,), 2.0 if k % n else float(n)))
            dist.destroy_process_group(group)
    group = dist.new_group()
    if rank == 0:
        dist.send(torch.ones(1), 1, group, tag=1)
    elif rank == 1:
        raises("another tag", "rank 0 has sent tag 1, and tag 2",
               lambda: dist.recv(torch.ones(1), 0, group, tag=2))
    slow = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        raises("a deadline", "barrier", lambda: dist.barrier(slow))
    dist.barrier()


def leave():
    """The last rank ends by an exception while the others wait for it. A callback of a work calls the group, which
    has failed, while a thread waits for another work."""
    if rank == n - 1:
        for other in range(n - 1):
            dist.recv(torch.zeros(1), other)
        raise SystemError("this rank has had enough")
    works = [dist.all_reduce(torch.zeros(4), async_op=True) for _ in range(2)]
    begun, seen = threading.Event(), []

    def again(_):
        begun.set()
        time.sleep(0.1)  # the main thread waits meanwhile
        try:
            dist.all_reduce(torch.zeros(1))
        except RuntimeError as error:
            seen.append(str(error))

    called = works[0].get_future().then(again)
    dist.send(torch.ones(1), n - 1)
    begin = time.monotonic()
    check("the callback of work that failed", begun.wait(20))
    raises("a rank that is gone", "all_reduce", works[1].wait)
    called.wait()
    check("a call of the callback has the error", [text.split(":")[0] for text in seen], ["all_reduce"])
    check("at once", time.monotonic() - begin < 10)


def early():
    """A child of fork ends. Rank 0 ends with work under way that will call Python, and does not wait for it."""
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # it has the groups of its parent, but not their threads
        os._exit(0)
    end = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
    check("a child of fork ends, and waits for no group", ended, (child, 0))
    gyre_torch._END_S = 0.0
    dist.barrier()
    works = [dist.all_reduce(torch.zeros(1), async_op=True) for _ in range(50)]
    for work in works:
        work.get_future().then(lambda _: time.sleep(0.001))
    if rank > 0:
        try:
            works[-1].wait()
        except RuntimeError:  # of a rank that is gone
            pass
        check("the others go on", True)


for part in parts:
    torch_check.checks = 0
    {"calls": calls, "training": training, "errors": errors, "exit": leave, "early": early}[part]()
    print(f"rank {rank}: {part}: {torch_check.checks} checks", flush=True)
if part not in ("exit", "early"):
    dist.destroy_process_group()
