#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/bench.py: `make bench`: the whole suite of gyre-perf in under five minutes, and a page of plots.

  bench/bench.py [--bin DIR] [--out DIR] [--ranks 2,4] [--quick] [--only SECTION,...] [--budget SECONDS]

Runs gyre-perf step by step with --json, shows a progress bar, and writes OUT/index.html (one file, nothing outside
it), with the raw results beside it in OUT/results.json. --quick: the same page from a few seconds of measuring, to see
that everything works. --budget: then what still runs is ended, the rest left out, and the page says so (285).
Sections: collectives latency init mock overlap bucket order. Exit status: 0; 1: a step failed or some result was
wrong; 2: wrong usage. Needs Python 3.9 or later and nothing else."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time

import bench_page
import bench_sections

COLLECTIVES = "all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all sendrecv".split()
SECTIONS = ["collectives", "latency", "init", "mock", "overlap", "bucket", "order"]
STEP_TIMEOUT = 120


class Step:
    """One run of gyre-perf. `ranks` 0: without a launcher. `weight`: about how many seconds it takes."""

    def __init__(self, section, key, words, ranks, weight):
        self.section, self.key, self.words, self.ranks, self.weight = section, key, words, ranks, weight
        self.seconds = self.code = self.result = None
        self.error = ""

    def command(self, bin_dir, out=None, seconds=STEP_TIMEOUT):
        words = [os.path.join(bin_dir, "gyre-perf")] + self.words + (["--json", out] if out else [])
        if self.ranks:
            words = [
                os.path.join(bin_dir, "ucx-run"),
                "-n",
                str(self.ranks),
                "--timeout",
                f"{seconds:.0f}",
            ] + words
        return words


def collective_steps(n, sizes):
    """sizes: [(options, seconds)]"""
    steps = []
    for options, weight in sizes:
        common = options.split() + ["-c", "1", "--inplace", "0"]
        for coll in COLLECTIVES:
            steps.append(Step("collectives", (coll, n, "gyre"), [coll] + common, n, weight))
        steps.append(
            Step("collectives", ("all_reduce", n, "malloc"), ["all_reduce"] + common + ["-R", "0"], n, weight)
        )
    return steps


def plan_quick(options):
    first, last = options.ranks[0], options.ranks[-1]
    tensors = os.path.join(options.out, "tensors.txt")
    with open(tensors, "w", encoding="utf-8") as f:
        f.write("300\n7\n1200\n64\n900\n")  # a model for bucket
    sizes, both = "-b 8 -e 4K -f 64 -n 5", "--order canonical,fast --inplace 0"
    steps = []
    for n in options.ranks:
        steps += collective_steps(n, [(sizes, 0.3)])
        steps.append(Step("latency", ("latency", n), "latency all_reduce -b 8 -e 4K -f 512 -n 200".split(), n, 0.3))
        steps.append(Step("latency", ("latency", n, "barrier"), "latency barrier -n 200".split(), n, 0.3))
        steps.append(Step("order", ("order", n, "auto"), f"all_reduce {both} {sizes}".split(), n, 0.3))
        steps.append(Step("overlap", ("overlap", n), "overlap all_reduce -b 1K -e 64K -f 64 -n 3".split(), n, 0.3))
    steps.append(Step("order", ("order", last, "ring"), f"all_reduce {both} --algo ring {sizes}".split(), last, 0.3))
    steps.append(Step("init", ("init",), "init --max 4 --starts 1".split(), 0, 0.3))
    steps.append(Step("mock", ("init", "mock"), "init --mock 32 --starts 1".split(), 0, 0.3))
    words = ["bucket", "--model", tensors] + "-b 1K -e 4K -f 4 -n 1".split()
    return steps + [Step("bucket", ("bucket", "quick"), words, first, 0.3)]


def plan(options):
    first, last = options.ranks[0], options.ranks[-1]
    both = "all_reduce --order canonical,fast --inplace 0 -b 8 -e 8M -f 8"
    steps = []
    for n in options.ranks:
        sizes = [("-b 8 -e 256K -f 2 -n 500 -w 20", 0.2 * n), ("-b 512K -e 64M -f 2 -n 9 -w 3", 0.7 * n)]
        steps += collective_steps(n, sizes)
        steps.append(Step("latency", ("latency", n), "latency all_reduce -b 8 -e 4K -f 512".split(), n, 1.2 * n))
        steps.append(Step("latency", ("latency", n, "barrier"), "latency barrier".split(), n, 0.7 * n))
        steps.append(Step("order", ("order", n, "auto"), f"{both} -n 105".split(), n, 0.8 * n))
        steps.append(Step("overlap", ("overlap", n), "overlap all_reduce -b 1K -e 16M -f 8".split(), n, 0.8 * n))
    steps.append(Step("order", ("order", last, "ring"), f"{both} --algo ring -n 63".split(), last, 1.2 * last))
    steps.append(Step("init", ("init",), "init --max 64 --starts 5".split(), 0, 3))
    steps.append(Step("mock", ("init", "mock"), "init --mock 1024 --starts 3".split(), 0, 3))
    for model, sizes, weight in (("bloom", "-b 64K -e 64M -f 4 -n 3", 20), ("gpt2", "-b 4M -e 64M -f 4 -n 1", 20)):
        words = f"bucket --model {model} {sizes}".split()
        steps.append(Step("bucket", ("bucket", model), words, first, weight))
    return steps


class Progress:
    """One line that is written over and over on a terminal; else a line per step."""

    def __init__(self, steps):
        self.total = sum(s.weight for s in steps) or 1.0
        self.steps, self.done, self.began = steps, 0.0, time.monotonic()
        self.live = sys.stderr.isatty()

    def show(self, number, step):
        part = self.done / self.total
        spent = time.monotonic() - self.began
        rest = spent / part * (1 - part) if part > 0.05 else self.total - self.done
        bar = "#" * int(part * 30)
        text = (
            f"[{bar:<30}] {100 * part:3.0f} %  {number}/{len(self.steps)}  {int(spent // 60)}:{int(spent % 60):02d}, "
            f"about {int(rest // 60)}:{int(rest % 60):02d} to go   {' '.join(step.words[:2]) if step else 'done'}"
            f"{f' on {step.ranks} ranks' if step and step.ranks else ''}"
        )
        if self.live:
            sys.stderr.write("\r\x1b[K" + text[:150])
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self):
        if self.live:
            sys.stderr.write("\n")


def run(step, options, number, left):
    """left: seconds until the whole must end."""
    out = os.path.join(options.out, f"step-{number}.json")
    if os.path.exists(out):
        os.remove(out)
    seconds = max(1.0, min(STEP_TIMEOUT, left))
    began = time.monotonic()
    try:
        done = subprocess.run(
            step.command(options.bin, out, seconds),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds + 4,
            text=True,
            errors="replace",
        )
        step.code, step.error = done.returncode, done.stderr.strip()[-2000:]
    except subprocess.TimeoutExpired:
        step.code, step.error = 124, f"it did not end within {seconds:.0f} s"
    except OSError as problem:
        step.code, step.error = 127, str(problem)
    step.seconds = time.monotonic() - began
    if step.code and step.seconds >= left:
        step.code, step.error = None, "cut short: the time was up"
    try:
        with open(out, encoding="utf-8") as f:
            step.result = json.load(f)
        os.remove(out)
    except (OSError, ValueError) as problem:
        if step.code == 0:
            step.code, step.error = 1, f"no results: {problem}"


def parse(arguments):
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(
        prog="bench.py", description="Runs the whole suite of gyre-perf and writes one page of plots."
    )
    parser.add_argument(
        "--bin", default=os.path.join(top, "build", "bin"), help="where gyre-perf and ucx-run are (build/bin)"
    )
    parser.add_argument("--out", default=os.path.join(top, "build", "bench"), help="folder of the page (build/bench)")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks (2,4)")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections: " + " ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that everything works")
    parser.add_argument("--budget", type=float, default=285.0, help="seconds for all of it (285)")
    options = parser.parse_args(arguments)
    try:
        options.ranks = [int(n) for n in options.ranks.replace(",", " ").split()]
    except ValueError:
        parser.error(f"--ranks {options.ranks}: numbers such as 2,4")
    if not options.ranks or len(options.ranks) > 3 or not all(2 <= n <= 64 for n in options.ranks):
        parser.error("--ranks: one to three numbers from 2 to 64")
    options.only = options.only.replace(",", " ").split()
    unknown = [s for s in options.only if s not in SECTIONS]
    if unknown or not options.only:
        parser.error(f"--only: there is no section {' '.join(unknown)}; these are: {' '.join(SECTIONS)}")
    for name in ("gyre-perf", "ucx-run"):
        if not os.access(os.path.join(options.bin, name), os.X_OK):
            parser.error(f"{options.bin} has no {name}; run make first, or say --bin")
    options.top = top
    return options


def main(arguments):
    options = parse(arguments)
    os.makedirs(options.out, exist_ok=True)
    steps = [s for s in (plan_quick if options.quick else plan)(options) if s.section in options.only]
    bar = Progress(steps)
    began = time.monotonic()
    for number, step in enumerate(steps):
        bar.show(number, step)
        left = options.budget - (time.monotonic() - began)
        if left > 0:
            run(step, options, number, left)
        else:
            step.error = "left out: the time was up"
        bar.done += step.weight
    bar.show(len(steps), None)
    bar.end()
    seconds = time.monotonic() - began
    path = os.path.join(options.out, "index.html")
    page = bench_page.Page(options, steps, seconds)
    page.write(path, bench_sections.ALL)
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as f:
        json.dump(
            [
                {
                    "command": shlex.join(s.command("build/bin")),
                    "seconds": s.seconds,
                    "code": s.code,
                    "error": s.error,
                    "result": s.result,
                }
                for s in steps
            ],
            f,
        )
    for step in steps:
        if step.code not in (0, None):
            print(
                f"bench: failed with code {step.code}: {shlex.join(step.command(options.bin))}\n{step.error}",
                file=sys.stderr,
            )
    left_out = sum(s.code is None for s in steps)
    print(f"{len(steps) - left_out} runs in {seconds:.0f} s{f', {left_out} left out' if left_out else ''}: {path}")
    return 1 if any(s.code not in (0, None) for s in steps) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
