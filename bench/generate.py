#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/generate.py: `make bench-generate`: what the trainer's bits cost gyre-generate: --order canonical and fast, in turns.

A GPT-2 of 124M parameters with random weights, fp32. Each round runs both orders once, the first of them in turns; a figure is
the median over the rounds, with the least and the most in brackets. The output is the table of docs/generate.md.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

ORDERS = "canonical", "fast"
SHAPE = {"full": "--layers 12 --hidden 768 --heads 12 --seq 1024 --vocab 50257",
         "tiny": "--layers 1 --hidden 32 --heads 2 --seq 64 --vocab 256"}
GENERATE = ("--tokenizer", "bytes", "--prompt", "Once upon", "--tokens", "40", "--top-k", "1")


def model(build, shape, folder):
    """A file of random weights."""
    path = os.path.join(folder, "g.safetensors")
    text = os.path.join(folder, "text")
    with open(text, "w", encoding="ascii") as out:
        out.write("Once upon a time there was a text of some length. " * 1000)
    subprocess.run([f"{build}/bin/gyre-train", "--data", text, "--tokenizer", "bytes", *SHAPE[shape].split(), "--steps", "0",
                    "--eval-sequences", "1", "--sample-tokens", "0", "--report", "none", "--save", path],
                   check=True, stdout=subprocess.DEVNULL)
    return path


def measure(build, path, order, heads):
    """(seconds of set-up, tokens per second)"""
    done = subprocess.run([f"{build}/bin/gyre-generate", "--load", path, "--heads", heads, *GENERATE, "--order", order],
                          check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    said = re.search(r"([\d.]+) tokens/s \(set-up ([\d.]+) s\)", done.stderr)
    return float(said[2]), float(said[1])


def figures(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shape", choices=SHAPE, default="full")
    options = parser.parse_args()
    heads = re.search(r"--heads (\d+)", SHAPE[options.shape])[1]
    got = {order: [] for order in ORDERS}
    with tempfile.TemporaryDirectory() as folder:
        path = model(options.build, options.shape, folder)
        for turn in range(options.rounds):
            for order in ORDERS if turn % 2 == 0 else ORDERS[::-1]:
                got[order].append(measure(options.build, path, order, heads))
    print(f"`gyre-generate --load g.safetensors {' '.join(GENERATE)}`, {options.rounds} rounds in turns "
          f"at a load of {os.getloadavg()[0]:.1f}: medians (least to most)\n")
    print("| `--order` | set-up, s | tokens/s |\n| --- | --- | --- |")
    for order in ORDERS:
        setup, rate = zip(*got[order])
        print(f"| `{order}` | {figures(setup)} | {figures(rate)} |")


if __name__ == "__main__":
    sys.exit(main())
