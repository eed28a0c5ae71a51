# SPDX-License-Identifier: Apache-2.0
"""tests/torch/ranks.py OUT RUN: every rank of make check-torch: what PyTorch 2 builds on its collectives.

RUN: "gyre", "exact" (gyre with exact sums), "gloo", which also compares what the others have left in OUT.
Each is a job of its own: PyTorch keeps groups of a mesh after destroy_process_group. Rank 0 prints a line
for each check: "PASS NAME" or "FAIL NAME: RANK: WHY". The bits of exact runs, and a checkpoint, stay in the
folder OUT, where a job with another number of ranks compares them.
"""
import datetime
import hashlib
import json
import os
import sys
import time
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import gyre_torch

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
out, which = sys.argv[1:]
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), n, rank == 0)
OPS = dist.ReduceOp
verdicts = 0


def verdict(name, why):
    """All ranks call it: the check has passed if no rank has a reason against it."""
    global verdicts
    verdicts += 1
    store.set(f"verdict/{verdicts}/{rank}", why or "")
    reasons = [store.get(f"verdict/{verdicts}/{r}").decode() for r in range(n)]
    if rank == 0:
        wrong = [f"rank {r}: {text}" for r, text in enumerate(reasons) if text]
        print(f"FAIL {name}, {n} ranks: {'; '.join(wrong)[:2000]}" if wrong else f"PASS {name}, {n} ranks",
              flush=True)


def equal(got, want):
    assert torch.equal(got, want), f"{got} instead of {want}"


# ---- training ----

BATCH = 16
RATE = 2.0  # of SGD: a power of two, large enough for parameters that are rounded after each step


class Model(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.up = torch.nn.Linear(8, 32, dtype=dtype)
        self.down = torch.nn.Linear(32, 8, dtype=dtype)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def on_grid(tensor):
    """Multiples of 2^-6: sums of their products have few enough bits for float64 to hold all of them."""
    return torch.round(tensor * 64) / 64


class Training:
    """A model and ten steps. grid: the arithmetic of a rank is exact, so that only collectives may round."""

    def __init__(self, grid):
        self.grid = grid
        self.dtype = torch.float64 if grid else torch.float32
        torch.manual_seed(3)
        self.model = Model(self.dtype)
        self.x = torch.randn(BATCH, 8, dtype=self.dtype)
        if grid:
            self.x = on_grid(self.x)
            self.round(self.model)
        self.target = self.x.flip(1)

    @staticmethod
    def round(model):
        with torch.no_grad():
            for p in model.parameters():
                p = p.to_local() if isinstance(p, DTensor) else p
                p.copy_(on_grid(p))

    def optimizer(self, model):
        if self.grid:
            return torch.optim.SGD(model.parameters(), lr=RATE)
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def steps(self, model, optimizer, part=rank, parts=n):
        rows = slice(part * BATCH // parts, (part + 1) * BATCH // parts)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = ((model(self.x[rows]) - self.target[rows]) ** 2).mean()
            loss.backward()
            optimizer.step()
            if self.grid:
                self.round(model)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            losses.append(mean / n)
        losses = torch.stack(losses)
        assert losses[-1] < 0.9 * losses[0], f"the loss does not fall: {losses}"
        return losses


def flat(model):
    return torch.cat([(p.full_tensor() if isinstance(p, DTensor) else p).detach().reshape(-1)
                      for p in model.parameters()])


def ddp(t):
    model = DistributedDataParallel(t.model, bucket_cap_mb=0.001, gradient_as_bucket_view=True)
    return t.steps(model, t.optimizer(model)), flat(model)


def zero(t):
    model = DistributedDataParallel(t.model, gradient_as_bucket_view=True)
    kind, rate = (torch.optim.SGD, RATE) if t.grid else (torch.optim.Adam, 0.01)
    return t.steps(model, ZeroRedundancyOptimizer(model.parameters(), kind, lr=rate)), flat(model)


def fsdp(t):
    t.model.up = FullyShardedDataParallel(t.model.up, use_orig_params=True, device_id=torch.device("cpu"))
    model = FullyShardedDataParallel(t.model, use_orig_params=True, device_id=torch.device("cpu"))
    losses = t.steps(model, t.optimizer(model))
    with FullyShardedDataParallel.summon_full_params(model):
        return losses, flat(model).clone()


def fsdp2(t):
    mesh = init_device_mesh("cpu", (n,))
    for layer in (t.model.up, t.model.down):
        fully_shard(layer, mesh=mesh)
    model = fully_shard(t.model, mesh=mesh)
    return t.steps(model, t.optimizer(model)), flat(model)


def hybrid(t):
    """FSDP2 in pairs of ranks, and copies of these."""
    pair = min(n, 2)
    mesh = init_device_mesh("cpu", (n // pair, pair), mesh_dim_names=("copies", "shards"))
    fully_shard(t.model.up, mesh=mesh)
    model = fully_shard(t.model, mesh=mesh)
    return t.steps(model, t.optimizer(model)), flat(model)


PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def tensor_parallel(t):
    model = parallelize_module(t.model, init_device_mesh("cpu", (n,)), PLAN)
    return t.steps(model, t.optimizer(model), 0, 1), flat(model)


def two_dimensions(t):
    """Tensor parallelism in pairs of ranks, FSDP2 over the pairs."""
    pair = min(n, 2)
    mesh = init_device_mesh("cpu", (n // pair, pair), mesh_dim_names=("data", "tensor"))
    model = fully_shard(parallelize_module(t.model, mesh["tensor"], PLAN), mesh=mesh["data"])
    return t.steps(model, t.optimizer(model), rank // pair, n // pair), flat(model)


TRAININGS = {"DDP": ddp, "ZeroRedundancyOptimizer": zero, "FSDP": fsdp, "FSDP2": fsdp2,
             "hybrid FSDP2": hybrid, "tensor parallelism": tensor_parallel,
             "FSDP2 and tensor parallelism": two_dimensions}


# ---- collectives ----

def mine(count, of=rank):
    return torch.arange(count, dtype=torch.float32) + 10 * of


def added(count):
    return sum(mine(count, r) for r in range(n))


def joined(count):
    return torch.cat([mine(count, r) for r in range(n)])


def part(tensor):
    return tensor.chunk(n)[rank]


def one_tensor():
    x = torch.zeros(5 * n)
    dist.all_gather_into_tensor(x, mine(5))
    equal(x, joined(5))
    x = torch.zeros(n, 5)
    dist.all_gather_into_tensor(x, mine(5))
    equal(x.reshape(-1), joined(5))
    x = torch.zeros(3)
    dist.reduce_scatter_tensor(x, mine(3 * n))
    equal(x, part(added(3 * n)))
    dist.reduce_scatter_tensor(x, mine(3 * n), OPS.MAX)
    equal(x, part(mine(3 * n, n - 1)))
    dist.reduce_scatter_tensor(x, mine(3 * n), OPS.AVG)
    torch.testing.assert_close(x, part(added(3 * n)) / n)
    x = torch.zeros(2 * n)
    dist.all_to_all_single(x, mine(2 * n))
    equal(x, torch.cat([part(mine(2 * n, r)) for r in range(n)]))
    for root in range(n):
        x = mine(4)
        dist.broadcast(x, root)
        equal(x, mine(4, root))
        if hasattr(dist, "gather_single"):
            x = torch.zeros(2 * n) if rank == root else None
            dist.gather_single(mine(2), x, root)
            if rank == root:
                equal(x, joined(2))


def factors():
    """PREMUL_SUM, and FSDP2 with a divisor of gradients, which uses it."""
    total, part_of = mine(3), torch.zeros(2)
    dist.all_reduce(total, dist._make_nccl_premul_sum(torch.tensor([0.5])))
    equal(total, added(3) / 2)
    dist.reduce_scatter_tensor(part_of, mine(2 * n), dist._make_nccl_premul_sum(0.25))
    equal(part_of, part(added(2 * n)) / 4)
    gradients = []
    for divisor in (1.0, 4.0):
        t = Training(False)
        model = fully_shard(t.model, mesh=init_device_mesh("cpu", (n,)))
        model.set_gradient_divide_factor(divisor)
        model(t.x).sum().backward()
        gradients.append(torch.cat([p.grad.full_tensor().reshape(-1) for p in model.parameters()]))
    torch.testing.assert_close(gradients[0] / 4, gradients[1])
    assert gradients[1].any()


def coalescing():
    group = dist.group.WORLD
    for device in (None, torch.device("cpu")):
        for asynchronous in (False, True):
            tensors = [mine(k) for k in (1, 5, 0, 1000)]
            with dist._coalescing_manager(group, device, asynchronous) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            if asynchronous:
                manager.wait()
            for tensor in tensors:
                equal(tensor, added(tensor.numel()))
            large = [torch.zeros(n * k) for k in (1, 5, 100)]
            with dist._coalescing_manager(group, device, asynchronous) as manager:
                for tensor in large:
                    dist.all_gather_into_tensor(tensor, mine(tensor.numel() // n))
            if asynchronous:
                manager.wait()
            for tensor in large:
                equal(tensor, joined(tensor.numel() // n))
            small = [torch.zeros(k) for k in (1, 5, 100)]
            with dist._coalescing_manager(group, device, asynchronous) as manager:
                for tensor in small:
                    dist.reduce_scatter_tensor(tensor, mine(tensor.numel() * n))
            if asynchronous:
                manager.wait()
            for tensor in small:
                equal(tensor, part(added(tensor.numel() * n)))
    # calls of several kinds, as one piece of work with a future
    gathered, total, moved = torch.zeros(2 * n), mine(3), mine(4)
    group._start_coalescing(torch.device("cpu"))
    for call in (lambda: dist.all_gather_into_tensor(gathered, mine(2), async_op=True),
                 lambda: dist.all_reduce(total, async_op=True),
                 lambda: dist.broadcast(moved, 0, async_op=True)):
        call()
    work = group._end_coalescing(torch.device("cpu"))
    work.get_future().wait()
    assert work.is_completed()
    equal(gathered, joined(2))
    equal(total, added(3))
    equal(moved, mine(4, 0))
    # an exception between the two leaves the second one out
    abandoned, total = mine(2), mine(3)
    group._start_coalescing(torch.device("cpu"))
    dist.all_reduce(abandoned, async_op=True)
    group._start_coalescing(torch.device("cpu"))
    dist.all_reduce(total, async_op=True)
    outputs = group._end_coalescing(torch.device("cpu")).get_future().wait()
    assert len(outputs) == 1, outputs
    equal(total, added(3))
    # one of our own ends it at once: the calls after it are of none
    for wrong in (lambda: dist.all_reduce(torch.zeros(8)[::2], async_op=True),
                  lambda: dist.all_gather([mine(3)] * n, mine(2), async_op=True),
                  lambda: dist.reduce_scatter_tensor(mine(3), mine(3 * n + 1), async_op=True)):
        total = mine(3)
        group._start_coalescing(torch.device("cpu"))
        dist.all_reduce(mine(2), async_op=True)
        try:
            wrong()
        except RuntimeError:
            pass
        else:
            raise AssertionError("no error")
        dist.all_reduce(total, async_op=True).wait()
        equal(total, added(3))
        assert group._end_coalescing(torch.device("cpu")).get_future().wait() == []


def messages():
    received = torch.zeros(6)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(6), (rank + 1) % n),
                                    dist.P2POp(dist.irecv, received, (rank - 1) % n)])
    for work in works:
        work.wait()
    equal(received, mine(6, (rank - 1) % n))


def functional():
    group = dist.group.WORLD
    equal(funcol.all_reduce(mine(7), "sum", group) + 0, added(7))
    torch.testing.assert_close(funcol.all_reduce(mine(7), "avg", group) + 0, added(7) / n)
    equal(funcol.all_gather_tensor(mine(3), 0, group) + 0, joined(3))
    equal(funcol.all_gather_tensor(mine(4).reshape(2, 2), 1, group) + 0,
          torch.cat([mine(4, r).reshape(2, 2) for r in range(n)], 1))
    equal(funcol.reduce_scatter_tensor(mine(2 * n), "sum", 0, group) + 0, part(added(2 * n)))
    equal(funcol.all_to_all_single(mine(2 * n), None, None, group) + 0,
          torch.cat([part(mine(2 * n, r)) for r in range(n)]))
    equal(funcol.broadcast(mine(3), n - 1, group) + 0, mine(3, n - 1))
    for got, want in zip(funcol.all_reduce_coalesced([mine(2), mine(5)], "sum", group), (added(2), added(5))):
        equal(got + 0, want)
    for got, want in zip(funcol.all_gather_into_tensor_coalesced([mine(2), mine(5)], group),
                         (joined(2), joined(5))):
        equal(got + 0, want)
    for got, want in zip(funcol.reduce_scatter_tensor_coalesced([mine(n), mine(3 * n)], "sum", [0, 0], group),
                         (part(added(n)), part(added(3 * n)))):
        equal(got + 0, want)


def dtensor():
    mesh = init_device_mesh("cpu", (n,))
    whole = torch.arange(5.0 * 6).reshape(5, 6)  # not a multiple of the ranks: padded
    shard = distribute_tensor(whole, mesh, [Shard(0)])
    equal(shard.full_tensor(), whole)
    equal(shard.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    equal(shard.redistribute(mesh, [Replicate()]).to_local(), whole)
    turned = distribute_tensor(whole.t().contiguous(), mesh, [Replicate()])
    equal((shard @ turned).full_tensor(), whole @ whole.t())
    equal(shard.sum().full_tensor(), whole.sum())


def objects():
    got = [None] * n
    dist.all_gather_object(got, {"rank": rank, "text": "x" * (rank * 1000)})
    assert got == [{"rank": r, "text": "x" * (r * 1000)} for r in range(n)], got
    box = [f"from {rank}"]
    dist.broadcast_object_list(box, n - 1)
    assert box == [f"from {n - 1}"], box
    dist.scatter_object_list(box, [f"to {r}" for r in range(n)] if rank == 0 else None, 0)
    assert box == [f"to {rank}"], box


def many_groups():
    """More groups than a process may have jobs, all there at once, their calls interleaved."""
    groups = [dist.new_group(list(range(n)) if k % 2 else [r for r in range(n) if r % 2 == k // 2 % 2] or [0])
              for k in range(40)]
    works = []
    for k, group in enumerate(groups):
        if dist.get_rank(group) >= 0:
            x = mine(4) + k
            works.append((dist.all_reduce(x, group=group, async_op=True), x, group, k))
    for work, x, group, k in works:
        work.wait()
        equal(x, sum(mine(4, r) + k for r in dist.get_process_group_ranks(group)))
    for group in groups:
        if dist.get_rank(group) >= 0:
            dist.destroy_process_group(group)


COLLECTIVES = {"calls with one tensor": one_tensor, "sums times factors": factors, "coalescing": coalescing,
               "messages": messages, "functional collectives": functional, "DTensor": dtensor,
               "objects": objects, "40 groups": many_groups}


# ---- checkpoints ----

def sharded():
    t = Training(False)
    model = fully_shard(t.model, mesh=init_device_mesh("cpu", (n,)))
    return t, model


def save_and_load():
    t, model = sharded()
    t.steps(model, t.optimizer(model))
    want = flat(model)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=f"{out}/checkpoint-{n}")
    if rank == 0:
        torch.save(want, f"{out}/parameters-{n}")
    dist.barrier()
    for ranks in (1, 2, 4):  # also what jobs before this one have saved
        if not os.path.exists(f"{out}/parameters-{ranks}"):
            continue
        _, other = sharded()
        state = {"model": other.state_dict()}
        checkpoint.load(state, checkpoint_id=f"{out}/checkpoint-{ranks}")
        other.load_state_dict(state["model"])
        equal(flat(other), torch.load(f"{out}/parameters-{ranks}"))


# ---- all of it ----

def attempt(name, function, *args):
    try:
        result = function(*args)
        verdict(name, None)
        return result
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if frame.filename == __file__]
        verdict(name, f"line {ours[-1].lineno if ours else '?'}: {type(error).__name__}: {error}")
        return None


def close_to(ours, theirs):
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def same_bits(results, names):
    for name in names[1:]:
        for a, b in zip(results[names[0]], results[name]):
            assert torch.equal(a, b), f"{name} differs from {names[0]}"


def trained(how, grid):
    return {name: attempt(f"{name} trains{how}", function, Training(grid))
            for name, function in TRAININGS.items()}


def beside():
    """A group of gyre in a job whose default group is Gloo's."""
    group = dist.new_group(backend="gyre")
    for member in (group, None):
        x = mine(4)
        dist.all_reduce(x, group=member)
        equal(x, added(4))


def again():
    """PyTorch gives each the same names in the store. Rank 0 is late: the others must not read its old address."""
    for _ in range(2):
        if rank == 0:
            time.sleep(0.2)
        dist.init_process_group("gyre", store=dist.PrefixStore("again", store), rank=rank, world_size=n,
                                timeout=datetime.timedelta(seconds=10))
        x = mine(4)
        dist.all_reduce(x)
        equal(x, added(4))
        dist.destroy_process_group()


options = gyre_torch.Options(order="exact") if which == "exact" else None
dist.init_process_group("gloo" if which == "gloo" else "gyre", store=dist.PrefixStore("torch", store),
                        rank=rank, world_size=n, pg_options=options, timeout=datetime.timedelta(seconds=30))
if which == "gyre":
    for name, function in COLLECTIVES.items():
        attempt(name, function)
    torch.save(trained("", False), f"{out}/trained-{n}-{rank}")
    attempt("distributed checkpoint", save_and_load)
elif which == "exact":
    exact = trained(", exact", True)
    if rank == 0:
        with open(f"{out}/bits-{n}.json", "w", encoding="utf-8") as file:
            json.dump({name: hashlib.sha256(b"".join(t.numpy().tobytes() for t in result)).hexdigest()
                       for name, result in exact.items() if result}, file)
    attempt("the same bits in all of them, exact arithmetic", same_bits, exact, list(TRAININGS))
    floats = trained(", exact sums of floats", False)
    # hybrid FSDP2 adds in two steps, and rounds after each
    attempt("the same bits by DDP, ZeRO, FSDP and FSDP2, exact sums", same_bits, floats,
            ["DDP", "ZeroRedundancyOptimizer", "FSDP", "FSDP2"])
else:
    theirs = trained(" by Gloo", False)
    ours = torch.load(f"{out}/trained-{n}-{rank}")
    for name in TRAININGS:
        attempt(f"{name}: losses and parameters as Gloo's", close_to, ours[name], theirs[name])
    attempt("a group of gyre in a job of Gloo", beside)
dist.destroy_process_group()
attempt(f"groups one after another on one store, after {which}", again)
verdict(f"the end of {which}", None)
