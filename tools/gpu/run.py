# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/run.py: commands with a limit of time, whose whole process group ends with them.

Each command writes straight into the log, so that its output is there whatever ends this program.
"""
import os
import signal
import subprocess
import time
from dataclasses import dataclass


@dataclass
class Run:
    command: str  # for people: without the folder's path
    limit: float
    status: object = None  # as a shell has it; 124: the time was up; None: there was no time left to start
    cut: bool = False  # the limit was what was left of all the time
    seconds: float = 0
    line: int = 0  # of the log
    text: str = ""  # what the command printed


class Runner:

    def __init__(self, here, log, seconds, factor):
        """here: the bundle. seconds: for everything. factor: what each limit is multiplied with."""
        self.here, self.seconds, self.factor = here, seconds, factor
        if os.path.exists(log):
            os.remove(log)
        self.log = open(log, "a+b", buffering=0)  # each writer writes at its end
        self.began, self.lines, self.process, self.part, self.times = time.monotonic(), 1, None, "", {}

    def left(self):
        return self.seconds - (time.monotonic() - self.began)

    def limit(self, seconds):
        """Of a command that is to have so many seconds."""
        return min(max(seconds * self.factor, 1), self.left())

    def run(self, limit, command, env=None, grace=0, hidden=(), always=False, more=None):
        """env: variables besides our own; grace: seconds beyond the limit in which the command ends itself.
        hidden: paths that are left out where the command is shown. always: also when all the time is over.
        more: variables that are not shown."""
        command = [str(word) for word in command]
        shown = " ".join([f"{key}={value}" for key, value in (env or {}).items()] + command)
        for path in (self.here, *hidden):
            shown = shown.replace(f"{path}/", "")
        cut = self.limit(limit) < max(limit * self.factor, 1) and not always
        run = Run(shown, limit if always else self.limit(limit), cut=cut, line=self.lines)
        if run.limit <= 0:
            return run
        start = self.write(f"---- {self.part}: {shown}\n")
        since = time.monotonic()
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                            stdout=self.log, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(more or {}), **(env or {})},
                                            preexec_fn=os.setpgrp)
            try:
                run.status = self.process.wait(run.limit + grace)
            except subprocess.TimeoutExpired:
                run.status = 124
            self.end()
        except OSError as error:
            self.write(f"{error}\n")
            run.status = 127
        run.status = 128 - run.status if run.status < 0 else run.status
        run.seconds = time.monotonic() - since
        self.log.seek(start)
        said = self.log.read()
        run.text = said.decode(errors="replace")
        self.lines += said.count(b"\n")
        self.write(("" if said.endswith(b"\n") or not said else "\n") +
                   f"---- {self.part}: {run.seconds:.0f} s, status {run.status}\n")
        self.times[self.part] = self.times.get(self.part, 0) + run.seconds
        return run

    def write(self, text):
        """Into the log. Returns where its end is."""
        self.log.seek(0, os.SEEK_END)
        self.log.write(text.encode())
        self.lines += text.count("\n")
        return self.log.tell()

    def end(self):
        """Ends the process group that is at work, if one is, and what the command has left of it."""
        process, self.process = self.process, None
        if not process:
            return
        for which, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            if process.poll() is None:
                try:
                    os.killpg(process.pid, which)
                    process.wait(seconds)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
