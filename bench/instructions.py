#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/instructions.py [--bin DIR] [--ranks N] [--bytes N] [COLLECTIVE...]: instructions of one call, on rank 0
(the root) and on rank 1, counted by valgrind's callgrind (`make bench-instructions`).

Counts repeat, also on a machine that is busy, where times do not. One rank runs under callgrind, which counts each
call apart. The least is printed: that call found the other ranks' data there and waited for nobody. Kernel code,
and what an instruction waits for, are not in the count.
"""
import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

CALLS = 500
COLLECTIVES = ["broadcast", "all_reduce", "all_gather", "reduce", "all_to_all", "barrier"]


def count(options, collective, rank, folder):
    """The fewest instructions of a call of `collective` on `rank`."""
    function = f"gyre_{collective}"
    files = os.path.join(folder, f"{collective}.{rank}")
    valgrind = ["valgrind", "--tool=callgrind", f"--toggle-collect={function}", f"--dump-after={function}",
                f"--callgrind-out-file={files}"]
    measured = [os.path.join(options.bin, "gyre-perf"), "latency", collective, "-n", str(CALLS), "-c", "0",
                "-b", options.bytes, "-e", options.bytes]
    program = shlex.join(measured)
    script = f'if [ "$GYRE_RANK" = {rank} ]; then exec {shlex.join(valgrind)} {program}; else exec {program}; fi'
    launcher = [os.path.join(options.bin, "ucx-run"), "-n", str(options.ranks), "/bin/sh", "-c", script]
    # The others spin rather than sleep, so that no call has to wake them.
    done = subprocess.run(launcher, env={**os.environ, "GYRE_SPIN": "50000"}, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"instructions.py: {collective} failed:\n{done.stdout}")
    totals = []
    for name in glob.glob(files + "*"):
        with open(name, encoding="utf-8", errors="replace") as dump:
            totals += [int(n) for n in re.findall(r"^totals: (\d+)", dump.read(), re.MULTILINE)]
        os.remove(name)
    counted = [n for n in totals if n > 0]
    if not counted:
        sys.exit(f"instructions.py: callgrind saw no call of {function}:\n{done.stdout}")
    return min(counted)


def main():
    parser = argparse.ArgumentParser(description="Counts the instructions of one call with valgrind.")
    parser.add_argument("--bin", default="build/bin", help="folder of ucx-run and gyre-perf (build/bin)")
    parser.add_argument("--ranks", type=int, default=2, help="ranks of one host (2)")
    parser.add_argument("--bytes", default="8", help="size, as gyre-perf takes it (8)")
    parser.add_argument("collectives", nargs="*", metavar="COLLECTIVE", help=" ".join(COLLECTIVES))
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("instructions.py: valgrind is not installed: sudo apt-get install valgrind")
    for collective in options.collectives:
        if collective not in COLLECTIVES:
            parser.error(f"{collective} is none of {', '.join(COLLECTIVES)}")
    print(f"instructions of a call of {options.bytes} bytes, {options.ranks} ranks of one host")
    print(f"{'':<12}{'rank 0':>8}{'rank 1':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for collective in options.collectives or COLLECTIVES:
            counts = [count(options, collective, rank, folder) for rank in (0, 1)]
            print(f"{collective:<12}{counts[0]:>8}{counts[1]:>8}", flush=True)


if __name__ == "__main__":
    main()
