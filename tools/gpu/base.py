# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/base.py: what checks do alike: run a command, read its rows, report what is wrong with it.

Sizes are pairs for size(): the usual one, and that for --quick.
"""
import os
import re

# a row of gpu_facts and gpu_peers: what, figure, unit, perhaps a goal, perhaps the least and the most
ROW = re.compile(
    r"(.*\S) +([\d.]+) (us|ms|%|GB/s|wrong)(?: at (most|least) (\d+))?(?: +\[([\d.]+) to ([\d.]+)\])?")
# a row of gpu_kernels
RATE = re.compile(r"(.*\S) +[\d.]+ us +([\d.]+) ([A-Za-z/]+)(?: +\[([\d.]+) to ([\d.]+)\])?"
                  r"(?: +(\d+) % of the matrix rate(?:, goal (\d+) %.*)?)?")


def rows(pattern, text):
    return [match.groups() for match in map(pattern.fullmatch, text.splitlines()) if match]


def number(text):
    return float(text) if text else None


def between(least, most):
    return (float(least), float(most)) if least else None


class Lost(Exception):
    """The GPU does not answer any more."""


class Base:

    def __init__(self, runner, report, here, work, device, quick, tests):
        """here: the bundle. work: a folder for files in between. device: the GPU's name.
        tests: for sanitizer."""
        self.runner, self.report, self.here, self.work, self.quick = runner, report, here, work, quick
        self.emulated, self.rest, self.sanitized = device.startswith("emulated"), False, tests
        self.path_before = os.environ.get("LD_LIBRARY_PATH", "")
        if report:
            self.result, self.held = report.result, report.held
        self.many, self.copy, self.tokens, self.cublaslt = f"{here}/tests/many", None, None, ""
        self.device = device
        self.tests = []  # name, limit, numbers of ranks
        with open(f"{self.here}/tests/list", encoding="utf-8") as file:
            for line in file:
                name, limit, *numbers = line.split()
                self.tests.append((name, int(limit), [int(n) for n in numbers]))

    def run(self, limit, *command, env=None, grace=0, log=False):
        """The library's deadline comes first, and names the rank that keeps the others waiting. log: also
        what the library decides."""
        more = {"GYRE_TIMEOUT": str(max(int(self.runner.limit(limit) * 2 / 3), 1))}
        if log:
            more["GYRE_LOG"] = "info"
        more = {key: value for key, value in more.items() if key not in os.environ}
        return self.runner.run(limit, command, env, grace, hidden=(self.work, ), more=more)

    def ranks(self, n, limit, *command, env=None, log=False):
        seconds = max(int(self.runner.limit(limit)), 1)
        return self.run(limit, f"{self.here}/bin/ucx-run", "-n", n, "--timeout", seconds, *command, env=env,
                        grace=8, log=log)

    def size(self, usual, quick):
        return quick if self.quick else usual

    def alive(self):
        """A kernel and a copy."""
        return self.runner.run(20, (self.many, "gpu_facts", "--alive"), always=True).status == 0

    def well(self, run, name, what):
        """False: the command has failed or was skipped, which is then reported."""
        over = f"the {self.runner.seconds:g} s were over"
        if run.status is None:
            self.result(run, name, what, "skipped" if self.rest else "not run", note=f"not run: {over}")
            return False
        if run.status == 124 and run.cut and self.rest:
            self.result(run, name, what, "skipped", note=f"cut short: {over}")
            return False
        # a status of 77 alone is no skip: the program says so, and why
        skipped = re.findall(r"^(?:\[\d+\] )?skipped: (.*)", run.text, re.M)
        if run.status == 77 and skipped:
            self.result(run, name, what, "skipped", note=skipped[-1])
            return False
        if run.status == 0:
            return True
        why = f"exit status {run.status}"
        if run.status == 124:
            why = f"cut short: {over}" if run.cut else f"its time of {run.limit:.0f} s was up"
        self.result(run, name, what, "failed", note=why)
        if not self.alive():
            self.result(run, "gpu", "the GPU still answers", "failed",
                        note=f"not after {name}; what follows was not run")
            raise Lost
        return False

    def figures(self, run, name, what):
        """The rows of gpu_facts or gpu_peers, first: one that failed does not take the others along."""
        self.failed_rows(run, name)
        for row, figure, unit, way, goal, least, most in rows(ROW, run.text):
            if unit == "wrong":
                self.report.none_wrong(run, name, row, float(figure))
            elif way:
                self.held(run, name, row, float(figure), unit, way, float(goal), between=between(least, most))
            else:
                self.result(run, name, row, "measured", float(figure), unit, between=between(least, most))
        if self.well(run, name, what):
            self.result(run, name, what, "passed")

    def failed_rows(self, run, name):
        for row, why in re.findall(r"^failed: (.*?)(?:; (.*))?$", run.text, re.M):
            self.result(None, name, row, "failed", note=why)
