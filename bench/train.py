#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/train.py: `make bench-train`: a training step by Gyre, by plain C loops with OpenMP, and by PyTorch.

Two shapes (--shape): the demo's, and GPT-2 of 124M parameters with 1,024 positions; fp32, AdamW with clipping. Each contender
makes the same step, in turns, for some rounds; a figure is the median over the steps of all rounds. Loops and PyTorch begin with
the same weights and see the same tokens: their losses must agree. The newest PyTorch, with its compiler, takes part where
`make check-torch` has installed it in BUILD/torch/venv.

--bf16: Gyre with `--precision bf16` and products of either type, and PyTorch with autocast to bfloat16.
"""
import argparse
import array
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTBOOK, REORDERED = "plain loops, textbook order", "the same, -ffast-math"
BLAS, COMPILED = "vectorised order, -ffast-math, BLAS", "PyTorch {}, compiled"
# contenders of Gyre: name -> (ranks, options)
OURS = {"Gyre, 2 ranks": (2, []), "Gyre, 1 rank of 2 threads": (1, [])}
BF16, TILES = ["--precision", "bf16"], ["--precision", "bf16", "--matmul-type", "bf16"]
OURS_BF16 = {"Gyre, 2 ranks, bf16 products": (2, TILES), "Gyre, 1 rank of 2 threads, bf16 products": (1, TILES),
             "Gyre, 2 ranks, fp32 products": (2, BF16)}


@dataclass
class Shape:
    """As plain_gpt.c has it. loops: name -> (program, options). goals: what Gyre is to be faster by; docs/performance.md says
    why ten times is out of reach beside loops that the compiler may reorder. steps: of a run, by contender; two warm up."""
    name: str
    layers: int
    heads: int
    channels: int
    seq: int
    batch: int
    vocab: int
    rounds: int
    loops: dict
    goals: dict
    steps: dict

    def sizes(self):
        """Of one layer's weights."""
        c = self.channels
        return [c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c, 4 * c * c, c]


SHAPES = [
    Shape("demo", 4, 4, 128, 64, 12, 256, 5,
          {TEXTBOOK: ("demo", ["--textbook"]), REORDERED: ("demo-fast-math", ["--textbook"]),
           "vectorised order, -ffast-math": ("demo-fast-math", []), BLAS: ("demo-fast-math", ["--blas"])},
          {TEXTBOOK: 10.0, REORDERED: 10.0, "vectorised order, -ffast-math": 10.0, "PyTorch": 1.3},
          {"Gyre": 60, "loops": 8, "PyTorch": 20}),
    Shape("124M", 12, 12, 768, 1024, 2, 50257, 2,
          {BLAS: ("124M-fast-math", ["--blas"])}, # without a BLAS a step takes minutes
          {BLAS: 1.2, COMPILED: 1.5},
          {"Gyre": 4, "loops": 4, "PyTorch": 4}),
]


def write_inputs(shape, folder, steps):
    """Small random weights (gains 1), the same million again and again, and tokens with something to learn in them."""
    chance = random.Random(1)
    some = array.array("f", (chance.gauss(0.0, 0.05) for _ in range(1000003)))
    paths = os.path.join(folder, "weights"), os.path.join(folder, "tokens")
    c = shape.channels
    with open(paths[0], "wb") as out:
        def row(size):
            if size <= 4 * c:
                array.array("f", [0.0] * size).tofile(out)
            for at in range(0, size if size > 4 * c else 0, len(some)):
                some[:size - at].tofile(out)
        def gain():
            array.array("f", [1.0] * c).tofile(out)
        for _ in range(shape.layers):
            for i, size in enumerate(shape.sizes()):
                gain() if i in (0, 6) else row(size)
        row(shape.vocab * c), row(shape.seq * c), gain(), row(c)
    tokens = array.array("i")
    for _ in range(steps * shape.batch):
        start, pace = chance.randrange(shape.vocab), chance.randrange(1, 4)
        tokens.extend((start + pace * i) % shape.vocab for i in range(shape.seq + 1))
    with open(paths[1], "wb") as out:
        tokens.tofile(out)
    return list(paths)


def output(command, **more):
    """A program's lines; None if PyTorch is not there."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False, **more)
    if done.returncode and "No module named 'torch'" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(f"bench-train: {' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout.splitlines()


def pairs(lines):
    """[(loss, seconds)]"""
    return [tuple(float(word) for word in line.split()) for line in lines]


def gyre(build, shape, folder, ranks, more):
    log, text = os.path.join(folder, "log"), os.path.join(folder, "text")
    if not os.path.exists(text):
        chance = random.Random(2)
        with open(text, "w", encoding="ascii") as out:
            out.write("".join(chr(chance.randrange(32, 127)) for _ in range(200000)))
    launch = [build + "/bin/ucx-run", "-n", str(ranks)] if ranks > 1 else [] # which would bind a lone rank to one core
    output([*launch, build + "/bin/gyre-train", "--data", text, "--layers", str(shape.layers),
            "--heads", str(shape.heads), "--hidden", str(shape.channels), "--seq", str(shape.seq), "--batch", str(shape.batch),
            "--steps", str(shape.steps["Gyre"]), "--vocab", str(shape.vocab), "--threads", str(2 // ranks), "--eval-every", "0",
            "--eval-sequences", "1", "--sample-tokens", "0", "--report", "none", "--progress", "none", "--peak-flops", "1",
            "--log", log, *more])
    with open(log, encoding="utf-8") as out:
        steps_of = [json.loads(line) for line in out]
    return [(s["loss"], s["compute_s"] + s["exposed_s"]) for s in steps_of if "loss_hex" in s]


def compare(runs, allowed):
    """Ends the program if a contender that began with the same weights learns otherwise."""
    first, *others = ((name, steps) for name, steps in runs.items() if not name.startswith("Gyre"))
    for name, steps in others:
        for i, (a, b) in enumerate(zip(first[1], steps)):
            if abs(a[0] - b[0]) > allowed * abs(a[0]):
                raise SystemExit(f"bench-train: step {i + 1}: {name} has loss {b[0]}, {first[0]} {a[0]}")


def one_round(build, shape, folder, inputs, newest, bf16):
    """name -> [(loss, seconds)], without the steps that warm up."""
    environment = dict(os.environ, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    runs = {name: gyre(build, shape, folder, ranks, more) for name, (ranks, more) in (OURS_BF16 if bf16 else OURS).items()}
    for name, (program, more) in ({} if bf16 else shape.loops).items():
        runs[name] = pairs(output([f"{build}/bench/plain_gpt-{program}", *more, *inputs, str(shape.steps["loops"])], env=environment))
    for python, more in ((sys.executable, []), (newest, []), (newest, ["--compile"])):
        command = [python, os.path.join(HERE, "torch_gpt.py"), shape.name, *more, *(["--bf16"] if bf16 else []), *inputs,
                   str(shape.steps["PyTorch"])]
        lines = output(command, env=environment) if os.path.exists(python) else None
        if lines:
            version = lines[0].split("+")[0]
            runs[COMPILED.format(version) if more else f"PyTorch {version}"] = pairs(lines[1:])
    compare(runs, 1e-2 if bf16 else 1e-3)
    return {name: steps[2:] for name, steps in runs.items()}


def goal_of(shape, name):
    """Of the compiled PyTorch, whatever its version, and of the one without."""
    word = COMPILED if name.endswith(", compiled") else "PyTorch" if name.startswith("PyTorch") else name
    return shape.goals.get(word)


def bench(build, shape, rounds, bf16):
    """Prints the table, and returns it."""
    seconds = {}
    newest = f"{build}/torch/venv/bin/python"
    with tempfile.TemporaryDirectory(prefix="gyre-bench-train-") as folder:
        inputs = write_inputs(shape, folder, max(shape.steps.values()))
        for _ in range(rounds):
            for name, steps in one_round(build, shape, folder, inputs, newest, bf16).items():
                seconds.setdefault(name, []).extend(s for _, s in steps)
    tokens = shape.batch * shape.seq
    result = {name: {"tokens_per_s": tokens / statistics.median(all_of), "step_ms": 1e3 * statistics.median(all_of)}
              for name, all_of in seconds.items()}
    ours = max(one["tokens_per_s"] for name, one in result.items() if name.startswith("Gyre"))
    print(f"{shape.name}: {shape.layers} layers, {shape.heads} heads, {shape.channels} channels, {shape.batch} x {shape.seq} tokens, "
          f"{shape.vocab} ids{', bf16' if bf16 else ''}\n")
    print(f"| {'contender, 2 cores':35} | step, ms | tokens/s | Gyre is faster by | goal |\n| --- | ---: | ---: | ---: | --- |")
    for name, one in result.items():
        one["ratio"], goal = ours / one["tokens_per_s"], None if bf16 else goal_of(shape, name)
        said = f"{goal:g}: {'met' if one['ratio'] >= goal else 'missed'}" if goal else ""
        print(f"| {name:35} | {one['step_ms']:8.1f} | {one['tokens_per_s']:8.0f} | {one['ratio']:.2f} | {said} |", flush=True)
    if not any(name.startswith("PyTorch") for name in result):
        print("PyTorch is not here: apt-get install python3-torch")
    if not os.path.exists(newest):
        print("The newest PyTorch, with its compiler, is not here: make check-torch installs it")
    print()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, help="default: 5 for the demo, 2 for 124M")
    parser.add_argument("--shape", choices=[shape.name for shape in SHAPES], help="default: both")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    result = {shape.name: bench(options.build, shape, options.rounds or shape.rounds, options.bf16)
              for shape in SHAPES if options.shape in (None, shape.name)}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)


if __name__ == "__main__":
    main()
