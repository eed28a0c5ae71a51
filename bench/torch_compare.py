# SPDX-License-Identifier: Apache-2.0
"""bench/torch_compare.py: every rank of make bench-torch: the backend gyre next to Gloo, in turns in one job.

Prints tables in markdown: the median time of each call, as the slowest rank sees it, by Gloo and by Gyre, and
what Gloo takes divided by what Gyre takes. Short calls are timed in batches, one call after the other, since a
rank that is done waits in Gyre for the others, and would take a core from Gloo's threads after each call.
Variables: ROUNDS (30), SECONDS (of a row, at most; 2), MAX_BYTES (64 MiB).
"""
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gyre_torch

torch.set_num_threads(1)
ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "30")), float(os.environ.get("SECONDS", "2"))
MAX_BYTES = int(os.environ.get("MAX_BYTES", 64 << 20))
dist.init_process_group("gyre")
rank, n = dist.get_rank(), dist.get_world_size()
GROUPS = {"gloo": dist.new_group(backend="gloo"), "gyre": dist.new_group()}
ratios = []
BATCH_S, BATCH_MOST = 4e-3, 100


def turns(calls):
    """Median seconds of each call. The ranks begin each batch together, and the slowest rank's time counts."""
    times = {name: [] for name in calls}
    batch = dict.fromkeys(calls, 1)
    begin = time.monotonic()
    for turn in range(ROUNDS + 2):
        for name, call in calls.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(batch[name]):
                call()
            took = torch.tensor([(time.perf_counter() - start) / batch[name], time.monotonic() - begin])
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if turn >= 2:  # the first ones set up
                times[name].append(float(took[0]))
            else:
                batch[name] = max(1, min(BATCH_MOST, int(BATCH_S / float(took[0]))))
        if turn >= 7 and float(took[1]) > SECONDS:
            break
    return {name: statistics.median(of) for name, of in times.items()}


def row(label, medians, to=ratios):
    to.append(medians["gloo"] / medians["gyre"])
    if rank == 0:
        print(f"| {label} | " + " | ".join(f"{medians[name] * 1e6:,.1f}" for name in ("gloo", "gyre")) +
              f" | {to[-1]:.2f} |", flush=True)


def collectives(count):
    """For tensors of count floats, count a multiple of n: name: call(group)."""
    x, y = torch.ones(count), torch.ones(count)
    parts, others = list(torch.ones(count).chunk(n)), list(torch.ones(count).chunk(n))
    one = torch.ones(count // n)
    return {
        "all_reduce": lambda g: dist.all_reduce(x.zero_(), group=g),
        "broadcast": lambda g: dist.broadcast(x, 0, g),
        "reduce": lambda g: dist.reduce(x.zero_(), 0, group=g),
        "all_gather": lambda g: dist.all_gather(parts, one, g),
        "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(x, one, g),
        "reduce_scatter": lambda g: dist.reduce_scatter(one, parts, group=g),
        "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(one, x, group=g),
        "gather": lambda g: dist.gather(one, parts if rank == 0 else None, 0, g),
        "scatter": lambda g: dist.scatter(one, parts if rank == 0 else None, 0, g),
        "all_to_all": lambda g: dist.all_to_all(others, parts, g),
        "all_to_all_single": lambda g: dist.all_to_all_single(y, x, group=g),
    }


def head(what):
    if rank == 0:
        print(f"\n| {what} | Gloo, us | Gyre, us | ratio |\n| --- | --- | --- | --- |", flush=True)


def steps(kind):
    """A training step of each backend's own model: 4 layers of 512 x 512 and 32 samples a rank."""
    calls = {}
    for name, group in GROUPS.items():
        torch.manual_seed(1)
        layers = [torch.nn.Linear(512, 512) for _ in range(4)]
        model = torch.nn.Sequential(*layers)
        if kind == "DDP":
            model = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
        else:
            from torch.distributed.device_mesh import DeviceMesh
            from torch.distributed.fsdp import fully_shard

            mesh = DeviceMesh.from_group(group, "cpu")
            for layer in layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(32, 512)

        def step(model=model, optimizer=optimizer, x=x):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()

        calls[name] = step
    row(f"{kind} step", turns(calls), [])


if rank == 0:
    with open("/proc/loadavg", encoding="utf-8") as file:
        print(f"PyTorch {torch.__version__}, {n} ranks on {os.cpu_count()} cores, load {file.read().split()[0]}, "
              f"{time.strftime('%Y-%m-%d')}")
head("bytes of a rank's larger tensor")
sizes = [8]
while sizes[-1] * 8 <= MAX_BYTES:
    sizes.append(sizes[-1] * 8)
for size in sizes + [MAX_BYTES] * (sizes[-1] < MAX_BYTES):
    for name, call in collectives(max(n, size // 4 // n * n)).items():
        try:
            row(f"{name}, {size}",
                turns({backend: lambda group=group: call(group) for backend, group in GROUPS.items()}))
        except RuntimeError as error:
            if rank == 0:
                print(f"| {name}, {size} | not by Gloo: {str(error).splitlines()[0][:60]} | | |")
head("4 layers of 512 x 512, 32 samples")
for kind in ("DDP",) if torch.__version__.startswith("1.") else ("DDP", "FSDP2"):
    steps(kind)
if rank == 0 and ratios:
    print(f"\nCollectives: {len(ratios)} rows, Gloo takes {statistics.median(ratios):.2f} times as long in the "
          f"median, {min(ratios):.2f} times in the worst row")
dist.destroy_process_group()
