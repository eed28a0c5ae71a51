# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/gpu/torch/ranks.py: every rank of tests/bindings/gpu/torch.sh: calls on tensors of an emulated device
have the bits of the same calls on the CPU, and are ordered by streams.

ranks.py PART...: prints "rank R: PART: N checks" for each part of which all hold. Parts: calls, streams, messages,
errors, none, and, as the last one, exit.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)  # the emulator's CUDA instead of that of PyTorch
import emulated_device as device  # noqa: E402
import gyre_torch  # noqa: E402,F401
import torch_check  # noqa: E402

torch.cuda._lazy_init = lambda: None
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch._C._cuda_getCurrentRawStream = device.raw_stream
parts = sys.argv[1:]
new = not torch.__version__.startswith("1.")
OPS = dist.ReduceOp
raises = torch_check.raises


def check(what, got, want=True):
    torch_check.check(what, got.cpu() if isinstance(want, torch.Tensor) else got, want)


def values(dtype, count=1001):
    """Different on all ranks; sums of floats round."""
    numbers = (torch.arange(count) * 7919 + (rank + 1) * 104729) % 1009
    return numbers.to(dtype) / 7 - 50 if dtype.is_floating_point else (numbers % 11 - 5).to(dtype)


def both(what, call, *tensors):
    """call(*tensors) with the tensors on the CPU and on the device: the same bits in all of them."""
    there = [t.to("cuda") for t in tensors]
    call(*tensors)
    call(*there)
    for i, (here, t) in enumerate(zip(tensors, there)):
        check(f"{what}, tensor {i}", t, here)


def calls():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        x = values(dtype)
        for op in (OPS.SUM, OPS.MAX, OPS.PRODUCT) + ((OPS.AVG,) if dtype.is_floating_point else ()):
            both(f"all_reduce {op} {dtype}", lambda t: dist.all_reduce(t, op), x.clone())
            both(f"reduce_scatter {op} {dtype}",
                 lambda out, t: dist.reduce_scatter(out, list(t.view(n, 1001)), op),
                 torch.zeros(1001, dtype=dtype), values(dtype, 1001 * n))
        for root in range(n):
            both(f"broadcast {dtype}", lambda t: dist.broadcast(t, root), x.clone())
            keep = x.to("cuda")
            dist.reduce(keep, root)
            total = x.clone()
            dist.reduce(total, root)
            check(f"reduce {dtype}", keep, total)
        both(f"all_gather {dtype}", lambda out, t: dist.all_gather(list(out.view(n, 1001)), t),
             torch.zeros(n * 1001, dtype=dtype), x)
        both(f"all_to_all {dtype}", lambda out, t: dist.all_to_all(list(out.view(n, 77)), list(t.view(n, 77))),
             torch.zeros(77 * n, dtype=dtype), values(dtype, 77 * n))
        both(f"all_to_all_single {dtype}", dist.all_to_all_single,
             torch.zeros(5 * n, dtype=dtype), values(dtype, 5 * n))
    into, part = ((dist.all_gather_into_tensor, dist.reduce_scatter_tensor) if new else
                  (dist._all_gather_base, dist._reduce_scatter_base))
    both("all_gather_into_tensor", into, torch.zeros(n * 33), values(torch.float32, 33))
    both("reduce_scatter_tensor", part, torch.zeros(33), values(torch.float32, n * 33))
    # tensors of lists that do not lie back to back, and of other sizes
    apart = [torch.zeros(r + 1).to("cuda") for r in range(n)]
    dist.all_gather(apart, values(torch.float32, rank + 1).to("cuda"))
    want = [torch.zeros(r + 1) for r in range(n)]
    dist.all_gather(want, values(torch.float32, rank + 1))
    for r in range(n):
        check(f"uneven all_gather, rank {r}", apart[r], want[r])
    lists = [values(torch.float32, 9 + r) + r for r in range(n)]
    out, wanted = torch.zeros(9 + rank).to("cuda"), torch.zeros(9 + rank)
    dist.reduce_scatter(out, [t.to("cuda") for t in lists])
    dist.reduce_scatter(wanted, lists)
    check("uneven reduce_scatter of separate tensors", out, wanted)
    got = [torch.zeros(6).to("cuda") for _ in range(n)]
    dist.all_to_all(got, [torch.full((6,), float(rank * n + r)).to("cuda") for r in range(n)])
    for r in range(n):
        check(f"all_to_all of separate tensors from rank {r}", got[r], torch.full((6,), float(r * n + rank)))
    for root in range(n):
        got = [torch.zeros(4).to("cuda") for _ in range(n)] if rank == root else None
        dist.gather(torch.full((4,), float(rank)).to("cuda"), got, root)
        for r in range(n if rank == root else 0):
            check(f"gather from rank {r}", got[r], torch.full((4,), float(r)))
        out = torch.zeros(3).to("cuda")
        dist.scatter(out, [torch.full((3,), float(r)).to("cuda") for r in range(n)] if rank == root else None, root)
        check("scatter", out, torch.full((3,), float(rank)))
    many = [values(torch.float32, 10 + i).to("cuda") for i in range(3)]
    total = [values(torch.float32, 10 + i) for i in range(3)]
    for tensors in (many, total):
        dist.all_reduce_coalesced(tensors)
    for i in range(3):
        check(f"all_reduce_coalesced, tensor {i}", many[i], total[i])
    if new:
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cuda"), async_ops=True) as coalesced:
            for i in range(3):
                dist.all_reduce(many[i])
        coalesced.wait()
        for i in range(3):
            dist.all_reduce(total[i])
            check(f"coalesced calls, tensor {i}", many[i], total[i])

        def two_kinds():
            with dist.distributed_c10d._coalescing_manager(device=torch.device("cuda"), async_ops=True):
                dist.all_gather(list(torch.zeros(n)), torch.zeros(1))
                dist.all_gather(list(torch.zeros(n).to("cuda")), torch.zeros(1).to("cuda"))

        raises("coalesced calls on two kinds of memory", "on one device", two_kinds)
        dist.distributed_c10d._world.pg_coalesce_state.clear()  # PyTorch's own, which the exception has left
    exact = dist.new_group(pg_options=gyre_torch.Options(order="exact"))
    tiny = torch.tensor([1e30 if rank == 0 else -1e30 if rank == n - 1 else 1.0]) if n > 2 else torch.ones(1)
    both("an exact sum", lambda t: dist.all_reduce(t, group=exact), tiny)
    dist.destroy_process_group(exact)


def behind(other, call):
    """call() on the stream `other`, which is held until release(), and there alone."""
    dist.barrier()
    device.set_stream(0, other)
    device.hold()
    work = call()
    device.set_stream(0, 0)
    check("a call behind a stream that is held", work.is_completed(), False)
    return work


def streams():
    fill = torch.full((5000,), float(rank + 1)).to("cuda")
    total = torch.full((5000,), float(sum(range(1, n + 1))))
    other = device.new_stream(0)
    x = torch.zeros(5000).to("cuda")
    dist.all_reduce(x)

    def late():
        x.copy_(fill, non_blocking=True)
        return dist.all_reduce(x, async_op=True)

    # what the current stream does before the call is seen by it; wait() holds up the stream, not the thread
    work = behind(other, late)
    future = work.get_future()
    check("its future is there", future.done())
    first = future.then(lambda f: f.value()[0].view(-1))
    work.wait()
    check("wait() does not wait for the device", work.is_completed(), False)
    raises("a limit of a wait", "has not finished within the 50 ms",
           lambda: work.wait(datetime.timedelta(milliseconds=50)))
    device.release()
    check("the result after wait()", x, total)
    work.wait(datetime.timedelta(seconds=10))
    check("it is completed", work.is_completed())
    check("a future", first.wait(), total)
    # the tensor is dropped at once, and its memory may be used again on the first stream, which is not held
    gone = [torch.full((5000,), float(rank + 1)).to("cuda")]
    kept = torch.zeros(n * 5000).to("cuda")
    work = behind(other, lambda: dist.all_gather(list(kept.view(n, 5000)), gone.pop(), async_op=True))
    device.synchronize()
    device.release()
    work.wait()
    check("a tensor that was dropped", kept, torch.cat([torch.full((5000,), float(r + 1)) for r in range(n)]))
    # many at once, which nobody waits for one by one
    tensors = [torch.full((3000,), float(rank + i)).to("cuda") for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    works[-1].wait()
    for i, t in enumerate(tensors):
        check(f"call {i} of many", t, torch.full((3000,), float(sum(range(n)) + n * i)))
    # work that the program does not keep, and a barrier that waits for the device
    dist.all_reduce(tensors[0], async_op=True)
    dist.barrier(**({"device_ids": [0]} if new else {}))
    mixed = torch.ones(3)
    dist.all_reduce(mixed)
    check("a call on the CPU in between", mixed, torch.full((3,), float(n)))


def messages():
    incoming = torch.zeros(4000).to("cuda")
    mine = torch.full((4000,), float(rank)).to("cuda")
    after, before = (rank + 1) % n, (rank - 1) % n
    first = dist.new_group()
    raises("the first call of the group", "device_id", lambda: dist.isend(mine, after, first))
    dist.destroy_process_group(first)
    dist.all_reduce(torch.zeros(1).to("cuda"))
    works = [dist.isend(mine, after), dist.irecv(incoming, before)]
    [work.wait() for work in works]
    check("a message around the ring", incoming, torch.full((4000,), float(before)))
    long = [torch.full((1 << 20,), float(rank + k)).to("cuda") for k in range(2)]
    got = [torch.zeros(1 << 20).to("cuda") for k in range(2)]
    if new:  # both directions at once, longer than the room for messages under way
        ops = [dist.P2POp(dist.isend, t, after) for t in long] + [dist.P2POp(dist.irecv, t, before) for t in got]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for k in range(2):
            check(f"batch_isend_irecv, message {k}", got[k], torch.full((1 << 20,), float(before + k)))
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cuda"), async_ops=True) as coalesced:
            dist.all_reduce(mine)
            dist.isend(long[0], after)
            dist.irecv(got[1], before)
        coalesced.wait()
        check("a message among coalesced calls", got[1], torch.full((1 << 20,), float(before)))
        check("a sum among coalesced calls", mine, torch.full((4000,), float(sum(range(n)))))


def until_it_fails(call, group):
    """A failure on the device is known some 20 ms after the operation has ended without a result."""
    call(group).wait(datetime.timedelta(seconds=10))
    for _ in range(100):
        time.sleep(0.01)
        dist.all_reduce(torch.zeros(1).to("cuda"), group=group)


def errors():
    here, there = torch.zeros(4), torch.zeros(4).to("cuda")
    raises("two kinds of memory", "need the same device", lambda: dist.all_gather([here] * n, there))
    group = dist.new_group()
    dist.all_reduce(there, group=group)
    raises("another device", "works on cuda:0", lambda: dist.all_reduce(torch.zeros(4).to("cuda:1"), group=group))
    raises("a reduction that kernels lack", "GYRE_CUDA_PATH=staged",
           lambda: dist.all_reduce(torch.zeros(4, dtype=torch.int64).to("cuda"), OPS.BXOR, group=group))
    total = torch.ones(4).to("cuda")
    dist.all_reduce(total, group=group)
    check("the group works on", total, torch.full((4,), float(n)))
    if n == 1:
        return
    for what, call in {
        "sizes": lambda g: dist.all_reduce(torch.zeros(3 + rank % 2).to("cuda"), group=g, async_op=True),
        "calls": lambda g: (dist.broadcast if rank % 2 else dist.all_reduce)(
            torch.zeros(4).to("cuda"), *([0] if rank % 2 else []), group=g, async_op=True),
    }.items():
        group = dist.new_group()
        begin = time.monotonic()
        raises(f"other {what}", "rank", lambda: until_it_fails(call, group))
        raises(f"after other {what}", ":", lambda: dist.all_reduce(total, group=group))
        check(f"other {what}: at once", time.monotonic() - begin < 8)
        dist.destroy_process_group(group)
    slow = dist.new_group(timeout=datetime.timedelta(seconds=2))
    dist.all_reduce(total, group=slow)
    if rank == 0:
        work = dist.all_reduce(total, group=slow, async_op=True)
        raises("a deadline", "all_reduce", lambda: work.wait(datetime.timedelta(seconds=15)))
    dist.barrier()


def leave():
    """The last rank ends by an exception while the others wait for it."""
    dist.all_reduce(torch.zeros(4).to("cuda"))
    dist.barrier()
    if rank == n - 1:
        time.sleep(0.5)  # the others have left the barrier
        raise SystemError("this rank has had enough")
    begin = time.monotonic()
    raises("a rank that is gone", "all_reduce", lambda: dist.all_reduce(
        torch.zeros(4).to("cuda"), async_op=True).wait(datetime.timedelta(seconds=15)))
    check("at once", time.monotonic() - begin < 10)
    raises("the next call", "all_reduce", lambda: dist.all_reduce(torch.zeros(4).to("cuda")))


def none():
    """The library has no device, and PyTorch has one."""
    raises("a library without a device", "all_reduce: no CUDA device: ",
           lambda: dist.all_reduce(torch.zeros(4).to("cuda")))
    total = torch.ones(1)
    dist.all_reduce(total)
    check("the CPU works on", total, torch.full((1,), float(n)))


def bound():
    """After init_process_group with a device_id messages are allowed at once."""
    got = torch.zeros(4).to("cuda")
    works = [dist.isend(torch.full((4,), float(rank)).to("cuda"), (rank + 1) % n), dist.irecv(got, (rank - 1) % n)]
    [work.wait() for work in works]
    check("the first message", got, torch.full((4,), float((rank - 1) % n)))


words = {"timeout": datetime.timedelta(seconds=20)}
if "bound" in parts:
    torch._C._get_accelerator = lambda *_: torch.device("cuda")
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    torch.accelerator.device_count = lambda: 1
    words["device_id"] = torch.device("cuda:0")
dist.init_process_group("cpu:gyre,cuda:gyre" if "bound" in parts else "gyre", **words)
rank, n = dist.get_rank(), dist.get_world_size()
torch_check.who = f"rank {rank} of {n}"
for part in parts:
    torch_check.checks = 0
    {"calls": calls, "streams": streams, "messages": messages, "errors": errors, "exit": leave, "none": none,
     "bound": bound}[part]()
    print(f"rank {rank}: {part}: {torch_check.checks} checks", flush=True)
if part != "exit":
    dist.destroy_process_group()
