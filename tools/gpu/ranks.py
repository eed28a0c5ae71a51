# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/ranks.py: the checks of collectives by gyre-perf, mostly of processes that share the GPU."""
import os
import re
import shutil
import subprocess

from base import ROW, Base, rows

MIB = 1 << 20


class Ranks(Base):

    def perf(self, n, limit, options, env=None):
        """gyre-perf -> the run, its wrong elements (None: it has no rows), and the rows' columns"""
        run = self.ranks(n, limit, f"{self.here}/bin/gyre-perf", *options.split(), "--memory", "cuda",
                         env=env, log=True)
        table = [line.split() for line in run.text.splitlines() if re.match(r" *\d+ ", line)]
        table = [columns for columns in table if len(columns) >= 13]
        found = [float(columns[at]) for columns in table for at in (8, 12) if columns[at] != "-"]
        bad = sum(found) if found else None
        if run.status == 1 and bad:  # wrong elements have a row of their own
            run.status = 0
        return run, bad, table

    def compared(self, n, limit, name, what, options, env=None):
        """Such a run, and a row that no element is wrong. -> the run; time and bus bandwidth of the last row,
        or None"""
        run, bad, table = self.perf(n, limit, options, env)
        if not self.well(run, name, what):
            return run, None, None
        self.report.none_wrong(run, name, what, bad)
        return (run, float(table[-1][5]), float(table[-1][7])) if table else (run, None, None)

    def share(self, n, us, factor):
        """Of the copy rate, in percent, where n ranks move `factor` vectors of 256 MiB each in `us`."""
        if self.copy is None:
            run = self.run(30, self.many, "gpu_peers", "--copy", *self.size((), ("--tiny", )))
            self.copy = next((float(row[1]) for row in rows(ROW, run.text) if row[0].startswith("copy on")),
                             None)
        return round(100 * n * 256 * MIB * factor / (us * 1e3) /
                     self.copy, 1) if us > 0 and self.copy else None

    def all_reduce(self, name):
        n, size = int(name.rpartition("-")[2]), self.size
        what, long, large = f"{n} processes on one GPU", size("256 MiB", "64 KiB"), size(
            "-b 256M -e 256M", "-b 64K -e 64K")
        self.compared(n, 90, name, f"{what}, every type, 8 B to {size('8 MiB', '4 KiB')}",
                      f"all_reduce -d all -b 8 {size('-e 8M -f 32', '-e 4K -f 512')} -n 1 -w 0 -c 1")
        # few rounds and many blocks: ranks take turns on the GPU, each phase of a round a turn
        env = {"GYRE_CUDA_STAGING": size("512M", "16M"), "GYRE_CUDA_BLOCKS": size("64", "24")}
        self.compared(n, 60, name, f"{what}, {long} of bfloat16",
                      f"all_reduce -d bfloat16 {large} -n 2 -w 1 -c 1", env)
        run, us, bus = self.compared(n, 60, name, f"{what}, {long} of float",
                                     f"all_reduce -d float {large} {size('-n 10 -w 2', '-n 2 -w 0')} -c 1",
                                     env)
        if us is not None:  # traffic as gpu_peers counts it
            self.held(run, name, f"{what}, 256 MiB of float, of the copy rate",
                      self.share(n, us, 5 if n == 2 else 5 + 1 / n), "%", "least", 80,
                      f"{us} us, bus bandwidth {bus} GB/s")
        self.short(n, name, f"{what}, 8 bytes", "")

    def short(self, n, name, what, options):
        run, us, _ = self.compared(
            n, 30, name, what,
            f"all_reduce {options} -d float -b 8 -e 8 -c 1 " + self.size("-n 100 -w 10", "-n 2 -w 0"))
        if us is not None:
            self.result(run, name, f"{what}, time", "measured", us, "us")

    def gpus(self, name):
        """Ranks of one process, as programs call them."""
        what = "gyre-perf -g 4: 4 ranks in one process"
        self.compared(
            1, 60, name, f"{what}, every type, 8 B to {self.size('8 MiB', '4 KiB')}",
            f"all_reduce -g 4 -d all -b 8 {self.size('-e 8M -f 32', '-e 4K -f 512')} -n 1 -w 0 -c 1")
        self.short(1, name, f"{what}, 8 bytes, with the launches of all ranks and the wait", "-g 4")

    def schedules(self, name):
        """The host's, by a kernel that waits: ranks of one process, whose kernels run at once."""
        n, long = self.size((4, "256 MiB"), (2, "64 KiB"))
        for algo in ("ring", "tree", "butterfly"):
            what = f"{algo}, {n} ranks of one process"
            self.compared(
                1, 60, name, f"{what}, every type, 64 B to {self.size('8 MiB', '4 KiB')}",
                f"all_reduce -g {n} "
                f"-d all -b 64 {self.size('-e 8M -f 512', '-e 4K -f 64')} -n 1 -w 0 -c 1 --algo {algo}")
            # with --explain the status alone says whether elements are wrong
            run, _, _ = self.perf(
                1, 30, f"all_reduce -g {n} -d float -c 1 --algo {algo} --explain " +
                self.size("-b 256M -e 256M -n 5 -w 1", "-b 64K -e 64K -n 2 -w 0"))
            if not self.well(run, name, f"{what}, {long} of float"):
                continue
            self.result(run, name, f"{what}, {long} of float", "passed", note="every element is right")
            runs = re.search(f" {algo} .*GYRE_ALGO names it", run.text)
            self.result(run, name, f"{what} is what runs", "passed" if runs else "failed",
                        note="" if runs else "--explain does not say so")
            times = [
                float(columns[9]) for columns in map(str.split, run.text.splitlines())
                if len(columns) > 9 and columns[1:3] == ["out", algo]
            ]
            self.result(run, name, f"{what}, time of {long}", "measured", times[0] if times else None, "us")

    def registered(self, name):
        n, large = int(name.rpartition("-")[2]), self.size("-b 256M -e 256M -n 10 -w 2",
                                                           "-b 512K -e 512K -n 2 -w 0")
        what = f"{n} processes on one GPU, registered buffers, {self.size('256 MiB', '512 KiB')} of float"
        run, us, bus = self.compared(n, 60, name, what, f"all_reduce --register -d float {large} -c 1",
                                     {"GYRE_CUDA_BLOCKS": self.size("64", "24")})
        if us is not None:
            self.result(run, name, f"{what}, of the copy rate", "measured", self.share(n, us, 3 - 1 / n), "%",
                        note=f"{us} us, bus bandwidth {bus} GB/s")

    def bus(self, n, name, what, options, env=None):
        run, _, bus = self.compared(n, 30, name, what, options, env)
        if bus is not None:
            self.result(run, name, f"{what}, bus bandwidth", "measured", bus, "GB/s")

    def collective(self, name):
        self.bus(
            4, name, f"4 processes on one GPU, 8 B to {self.size('16 MiB', '4 KiB')}",
            f"{name.rpartition('-')[0]} "
            f"-d bfloat16 -b 8 {self.size('-e 16M -f 128 -n 5', '-e 4K -f 512 -n 1')} -w 1 -c 1")

    def staged(self, name):
        self.bus(
            2, name, "all_reduce of 2 processes through the host (GYRE_CUDA_PATH=staged)",
            "all_reduce -d float -b 8 "
            f"{self.size('-e 64M -f 128 -n 5', '-e 4K -f 512 -n 1')} -w 1 -c 1", {"GYRE_CUDA_PATH": "staged"})

    def test_ranks(self, name):
        test, _, n = name.rpartition("-")
        limit = next(limit for other, limit, _ in self.tests if other == test)
        run = self.ranks(int(n), limit, "--tag", self.many, test)
        if self.well(run, name, f"test, {n} ranks on one GPU"):
            self.result(run, name, f"test, {n} ranks on one GPU", "passed")

    def mps(self, name):
        """Kernels of several processes run at once, and may wait for each other. By a daemon of our own,
        which no other processes find."""
        control = "nvidia-cuda-mps-control"
        what = "all_reduce under MPS, kernels wait (GYRE_CUDA_WAIT=kernel)"
        if self.emulated or not shutil.which(control):
            self.result(
                None, name, what, "skipped",
                note="the emulator has no MPS" if self.emulated else f"{control} is not on this machine")
            return
        folder = f"{self.work}/mps"
        os.makedirs(folder, exist_ok=True)
        env = {
            "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder, "GYRE_CUDA_WAIT": "kernel"
        }
        with open(f"{folder}/begin", "w+", encoding="utf-8") as said:
            begun = subprocess.run([control, "-d"], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                   timeout=20, env=dict(os.environ, **env), check=False).returncode == 0
            said.seek(0)
            why = said.read().strip().rpartition("\n")[2]
        if not begun:
            self.result(None, name, what, "skipped", note=f"its daemon does not start here: {why}")
            return
        try:
            for n in (2, 4, 8):
                options = self.size("-e 256M -f 128 -n 20", "-e 4K -f 512 -n 2")
                run, bad, table = self.perf(n, 30, f"all_reduce -d float -b 8 {options} -w 2 -c 1", env)
                if self.well(run, name, f"{n} processes, {what}"):
                    self.report.none_wrong(run, name,
                                           f"{n} processes, {what}, 8 B to {self.size('256 MiB', '4 KiB')}",
                                           bad)
                if table:
                    self.result(run, name, f"{n} processes, {what}, 8 bytes", "measured", float(table[0][5]),
                                "us", note=f"largest: bus bandwidth {table[-1][7]} GB/s")
        finally:
            subprocess.run([control], input=b"quit\n", timeout=20, env=dict(os.environ, **env), check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
