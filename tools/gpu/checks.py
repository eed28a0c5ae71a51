# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/checks.py: all checks of gpu-check, in order, and those of one process.

A check is a method that takes the check's name.
"""
import glob
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass

from base import RATE, between, rows
from ranks import Ranks
from training import Training

SANITIZERS = ("memcheck", "initcheck", "synccheck", "racecheck")
COLLECTIVES = (
    "reduce_scatter all_gather broadcast reduce gather scatter all_to_all sendrecv neighbor_exchange "
    "reduce_scatterv all_gatherv gatherv scatterv all_to_allv").split()


def find_cublaslt():
    """cuBLASLt is too large for the bundle: the machine's own, where the loader, the toolkit or Python's
    packages have it, after the bundle's libraries, which are in RPATH. -> where it is; "": nowhere."""
    named = os.environ.get("GYRE_CUBLASLT")
    if named:
        return f"GYRE_CUBLASLT={named}"
    try:
        known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=20, check=False,
                               env=dict(os.environ,
                                        PATH=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")).stdout
    except (OSError, subprocess.SubprocessError):
        known = ""
    found = re.search(r"libcublasLt\.so\.1[23] .*=> (.*)", known)
    if found:
        return found[1]
    for place in ("/usr/local/cuda/lib64", "/usr/local/cuda-1[23]*/lib64",
                  sysconfig.get_paths()["purelib"] + "/nvidia/*/lib"):
        for file in sorted(glob.glob(place + "/libcublasLt.so.1[23]")):
            before = os.environ.get("LD_LIBRARY_PATH")
            os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (os.path.dirname(file), before)))
            return file
    return ""


@dataclass
class Check:
    name: str
    method: object  # takes the name
    rest: bool = False  # no goal stands on it: skipped when the time is over
    asked: bool = False  # only if it is asked for by its name


class Checks(Training, Ranks):

    def all(self):
        """Every check, from the bottom up: what later ones stand on comes first."""
        alone = [name for name, _, numbers in self.tests if not numbers]
        ranks = [(name, numbers) for name, _, numbers in self.tests if numbers]
        first = [name for name in ("test_language", "test_device", "test_matmul", "test_attention")
                 if name in alone]
        last = [name for name in ("test_graphs", "test_stage", "test_one_process", "test_one_process_streams",
                                  "test_one_process_failures") if name in alone]
        goals = [("machine", self.machine), ("facts", self.facts)]
        goals += [(name, self.test) for name in first + [n for n in alone if n not in first + last] + last]
        goals += [("kernels", self.kernels), ("peers", self.peers), ("gpt2", self.gpt2),
                  ("gpt2-torch", self.gpt2_torch)]
        goals += [(f"all_reduce-{n}", self.all_reduce) for n in self.size((2, 4, 8), (2, 4))]
        goals += [("loss-cpu-gpu", self.loss)]
        goals += [(f"layouts-{kind}", self.layouts) for kind in ("fp32", "bf16", "experts")]
        rest = [("gpus-4", self.gpus), ("schedules", self.schedules)]
        rest += [(f"registered-{n}", self.registered) for n in (2, 4)]
        rest += [("gpt2-50257", self.gpt2_odd), ("train-demo", self.demo)]
        rest += [(f"{name}-{numbers[0]}", self.test_ranks) for name, numbers in ranks]
        rest += [(f"{name}-4", self.collective) for name in self.size(COLLECTIVES, ("broadcast", "gatherv"))]
        rest += [("staged-2", self.staged), ("mps", self.mps)]
        if not self.quick:
            rest += [(f"{name}-{n}", self.test_ranks) for name, numbers in ranks for n in numbers[1:]]
        asked = [("profile", self.profile), ("torch-profile", self.torch_profile)]
        asked += [(f"{tool}-{test}", self.sanitizer) for tool in SANITIZERS
                  for test in self.sanitized or alone]
        found = [Check(*check) for check in goals] + [Check(*check, rest=True) for check in rest]
        return found + [Check(*check, rest=True, asked=True) for check in asked]

    def machine(self, name):
        """What the log should have of GPU and machine, and whether products have cuBLASLt."""
        for command in (("nvidia-smi", "-q"), ("nvidia-smi", "topo", "-m"),
                        (f"{self.here}/bin/gyre-doctor", )):
            if shutil.which(command[0]):
                self.run(20, *command)
        where = self.cublaslt
        self.result(
            None, name, "cuBLASLt", "passed" if where else "skipped", note=where or "not on this machine: "
            "products are Gyre's own, and shares of the matrix rate are of theirs")

    def facts(self, name):
        """Raw costs of this GPU."""
        run = self.run(40, self.many, "gpu_facts", *self.size((), ("--tiny", )))
        self.figures(run, name, "raw costs")

    def test(self, name):
        limit = next(limit for test, limit, _ in self.tests if test == name)
        run = self.run(min(limit, 30), self.many, name)
        if self.well(run, name, "test"):
            self.result(run, name, "test", "passed", note=run.text.strip().rpartition("\n")[2])

    def kernels(self, name):
        """Rates of copies, products and attention: a row of gpu_kernels each."""
        what = "rates of copies, products and attention"
        run = self.run(120, self.many, "gpu_kernels", *self.size((), ("--tiny", )))
        self.failed_rows(run, name)
        for row, rate, unit, least, most, share, goal in rows(RATE, run.text):
            if row.startswith("copy on the device"):
                self.copy = float(rate)
            if goal:
                self.held(run, name, f"{row}, {rate} {unit}", float(share), "% of the matrix rate", "least",
                          float(goal))
            else:
                self.result(run, name, row, "measured", float(rate), unit,
                            note=f"{share} % of the matrix rate" if share else "",
                            between=between(least, most))
        for output, gradients in set(
                re.findall(r"^wgmma and mma.sync differ by (\S+) of the output, (\S+) of the", run.text, re.M)):
            self.result(run, name, "attention by wgmma against mma.sync", "measured",
                        note=f"they differ by {output} of the output, {gradients} of the gradients")
        if self.copy is None and run.status is not None:
            self.result(run, "copy-rate", "device copies", "failed", None, "GB/s", "",
                        "gpu_kernels printed none")
        if self.well(run, name, what):
            by = re.findall(r"^products: (.*)", run.text, re.M)
            self.result(run, name, what, "passed", note=f"products by {by[-1]}" if by else "")

    def peers(self, name):
        """Ranks of one process."""
        for n in self.size((2, 4, 8), (2, 4)):
            run = self.run(50, self.many, "gpu_peers", "--ranks", n, *self.size((), ("--tiny", )))
            self.figures(run, name, f"all_reduce and reduce_scatter of {n} ranks in one process")

    def sanitizer(self, name):
        """One process, no collectives: ranks of one process would wait for each other (docs/gpu.md)."""
        tool, _, test = name.partition("-")
        what, program = f"{test} under compute-sanitizer, {tool}", shutil.which("compute-sanitizer")
        if not program:
            self.result(None, name, what, "skipped", note="compute-sanitizer is not on this machine")
            return
        run = self.run(90, program, "--tool", tool, "--error-exitcode", 9, "--print-limit", 20, self.many,
                       test)
        if self.well(run, name, what):
            self.result(run, name, what, "passed", note="".join(run.text.strip().splitlines()[-1:]))
