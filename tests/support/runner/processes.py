# SPDX-License-Identifier: Apache-2.0
"""tests/support/runner/processes.py: runs builds and tests side by side, ends those that are late, and prints
a line for each. One thread, which sleeps until a child ends or a deadline comes."""
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from catalogue import BUILD, MAKE, PHASES, TOP, VENV, Test, Variant, environment_of_builds

LOGS = BUILD / "check/log"
TIMES = BUILD / "check/times.json"
GRACE = 10  # seconds between SIGTERM and SIGKILL
LOOK = 0.5  # seconds over which processors are seen to be idle
SKIPPED = re.compile(r"(?:\[\d+\] )?skipped: (.+)")
TESTED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)  # what tests of signals expect to be able to handle


class Interrupted(Exception):
    pass


class Runner:
    def __init__(self, tests, builds, options):
        self.builds = builds  # in order
        self.options = options
        self.environment = environment_of_builds()
        self.running = {}  # pid: Test or Variant
        self.building = None
        self.passed = self.failed = self.skipped = 0
        self.failures, self.finished = [], []
        self.known = read_times()
        self.busy = 0
        self.more = 0  # what fits besides, since processors are idle
        self.looked = time.monotonic(), seconds_of_processors()
        self.number = 0
        self.scratch = Path(tempfile.mkdtemp(prefix="gyre-check-"))
        self.prefer_own_python()
        self.waiting = sorted(tests, key=self.rank)
        self.signals = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

    def rank(self, test):
        """Phases one after the other; the long tests of a phase first, so that its end is not one test's."""
        return PHASES.index(test.phase), test.alone, self.share(test), -self.known.get(test.name, test.takes)

    def prefer_own_python(self):
        """Tests start many a python3: it is the one that runs this, not a script that looks for one (pyenv's takes 0.1 s)."""
        folder = self.scratch / "bin"
        folder.mkdir()
        (folder / "python3").symlink_to(sys.executable)
        self.environment["PATH"] = f"{folder}{os.pathsep}{self.environment.get('PATH', os.defpath)}"

    # -- processes --

    def spawn(self, what, command, log, environment, niced):
        def prepare():
            os.setpgid(0, 0)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self.signals)
            for number in TESTED:  # nohup and a shell's & leave them ignored
                signal.signal(number, signal.SIG_DFL)
            if niced:
                os.nice(10)

        log.parent.mkdir(parents=True, exist_ok=True)
        what.log, what.began = log, time.monotonic()
        with open(log, "wb") as out:
            what.process = subprocess.Popen(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, env=environment, preexec_fn=prepare)
        self.running[what.process.pid] = what

    def start_test(self, test):
        self.number += 1
        test.number = self.number
        test.folder = self.scratch / str(self.number)
        test.folder.mkdir()
        test.ending = None
        environment = {**self.environment, **test.environment, "TMPDIR": str(test.folder),
                       "RUN_TESTS_NUMBER": str(self.number)}
        self.busy += self.share(test)
        log = log_of(test.name)
        if test.command[0] == VENV and not os.access(VENV, os.X_OK):
            test.command = ["/usr/bin/python3", *test.command[1:]]
        try:
            self.spawn(test, test.command, log, environment, False)
        except OSError as error:
            log.write_text(f"{error}\n")
            test.process = None
            self.busy -= self.share(test)
            shutil.rmtree(test.folder, ignore_errors=True)
            self.report(test, "FAIL", "could not be started", 0)

    def start_build(self, build):
        self.building = build
        build.state = "running"
        command = build.command or [MAKE, f"-j{self.options.jobs}", *build.arguments, *sorted(build.goals)]
        log = log_of(build.label)
        build.ending, build.paused = None, False
        self.spawn(build, command, log, self.environment, bool(self.running or build.key != "main"))

    def pause_build(self, pause):
        build = self.building
        if build and build.paused != pause:
            os.killpg(build.process.pid, signal.SIGSTOP if pause else signal.SIGCONT)
            build.paused = pause

    def share(self, test):
        return min(test.weight, self.options.jobs)

    def start_what_fits(self):
        if not self.building:
            build = next((b for b in self.builds if b.state == "idle"), None)
            if build:
                self.start_build(build)
        tests = [t for t in self.running.values() if isinstance(t, Test)]
        alone = any(t.alone for t in tests)
        # many tests sleep half of their time
        room = self.options.jobs * (3 if self.building else 4) // 2 + self.look_for_room()
        for test in list(self.waiting):
            if alone:
                break
            if test.skip:
                self.waiting.remove(test)
                self.count_skip(test, test.skip)
                continue
            build = self.by_key.get(test.variant)
            if build and build.state != "done":
                continue
            if test.alone:
                # its turn comes when no other test runs or can start
                if not tests:
                    self.waiting.remove(test)
                    self.pause_build(True)
                    self.start_if_built(test)
                    alone = bool(test.process)
                continue
            if self.busy + self.share(test) > room:
                break  # none overtakes: programs of many ranks would wait for the end
            self.waiting.remove(test)
            self.start_if_built(test)
            if test.process:
                tests.append(test)
        if not alone:
            self.pause_build(False)

    def look_for_room(self):
        """Many tests wait for a clock, a disk or each other: more of them fit while processors are idle."""
        (then, used), now = self.looked, time.monotonic()
        if now - then >= LOOK:
            self.looked = now, seconds_of_processors()
            idle = self.options.jobs - (self.looked[1] - used) / (now - then)
            step = 1 if idle > self.options.jobs / 10 else -1 if idle < self.options.jobs / 40 else 0
            self.more = max(0, min(self.more + step, 2 * self.options.jobs))
        return self.more

    def start_if_built(self, test):
        if test.program and not os.access(TOP / test.program, os.X_OK):
            test.log = log_of(test.name)
            test.log.parent.mkdir(parents=True, exist_ok=True)
            test.log.write_text(f"{test.program} was not built\n")
            self.report(test, "FAIL", "not built", 0)
            return
        self.start_test(test)

    @property
    def by_key(self):
        return {b.key: b for b in self.builds}

    def run(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)
        # Orphans of tests become our children: they are found, and none outlives us.
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        try:
            while True:
                self.start_what_fits()
                if not self.running:
                    break
                self.wait()
            if self.waiting:
                raise RuntimeError(f"{len(self.waiting)} tests never came to their turn")
            left = ", ".join(self.left_running())
            if left:
                say(f"FAIL  left running at the end, by a test or a build: {left}")
                self.failed += 1
                self.failures.append(f"left running at the end: {left}")
        except Interrupted as interrupted:
            self.end_all()
            return 128 + interrupted.args[0]
        except BaseException:
            self.end_all()
            raise
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return None

    def wait(self):
        now = time.monotonic()
        limits = [self.limit_of(what) for what in self.running.values()]
        got = signal.sigtimedwait(self.signals, max(0.0, min(min(limits) - now, LOOK if self.waiting else 60.0)))
        if got and got.si_signo != signal.SIGCHLD:
            raise Interrupted(got.si_signo)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            what = self.running.pop(pid, None)
            if what:
                what.process.returncode = os.waitstatus_to_exitcode(status)
                self.ended(what, what.process.returncode, usage)
        now = time.monotonic()
        for what in self.running.values():
            if now >= self.limit_of(what):
                self.send(what, signal.SIGKILL if what.ending else signal.SIGTERM)
                what.ending = now

    def limit_of(self, what):
        """When to send it a signal: SIGTERM at its deadline, SIGKILL some seconds later, and then again."""
        if what.ending:
            return what.ending + GRACE
        return what.began + (what.deadline if isinstance(what, Test) else 3600)

    def send(self, what, number):
        try:
            os.killpg(what.process.pid, number)
            os.killpg(what.process.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def left_running(self, test=None):
        """Processes of an ended test, which are our children now; ended. Without a test: all that are left at the end, also
        those that a test has started without its environment, by which its own are known."""
        names = []
        until = time.monotonic() + 2
        while True:
            pids = [pid for pid in children() if pid not in self.running and (not test or number_of(pid) == test.number)]
            if not pids:
                break
            if time.monotonic() > until:
                for pid in pids:
                    names.append(f"{name_of(pid)} ({pid})")
                    os.kill(pid, signal.SIGKILL)
                until = time.monotonic() + 2
            for pid in pids:
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.01)
        return names

    def ended(self, what, code, usage):
        seconds = time.monotonic() - what.began
        if isinstance(what, Variant):
            self.build_ended(what, code, seconds, usage)
            return
        self.busy -= self.share(what)
        late = what.ending is not None
        left = self.left_running(what)
        shutil.rmtree(what.folder, ignore_errors=True)
        what.cpu = usage.ru_utime + usage.ru_stime
        if late:
            self.report(what, "FAIL", f"code {code}, past its deadline of {what.deadline} s", seconds)
        elif code == 77 and not left and skip_reason(what.log):
            self.count_skip(what, skip_reason(what.log))
        elif code:
            self.report(what, "FAIL", f"code {code}", seconds)
        elif left:
            self.report(what, "FAIL", "left running: " + ", ".join(left), seconds)
        else:
            self.report(what, "ok", skipped_parts(what.log), seconds)

    def build_ended(self, build, code, seconds, usage):
        self.building = None
        if build.command and code == 77 and skip_reason(build.log):
            build.state = "done"
            self.count_skip(build, skip_reason(build.log))
            return
        build.state = "failed" if code else "done"
        build.seconds, build.cpu = seconds, usage.ru_utime + usage.ru_stime
        self.finished.append((seconds, build.cpu, build.phase, build.label, False))
        if not code:
            self.passed += 1
            say(f"ok    {build.label}  {seconds:.2f} s")
            return
        say(f"FAIL  {build.label}  {seconds:.2f} s, code {code}")
        show(build.log)
        self.failed += 1
        self.failures.append(f"{build.label} (code {code})")
        lost = [t for t in self.waiting if t.variant == build.key]
        self.waiting = [t for t in self.waiting if t.variant != build.key]
        if lost:
            say(f"FAIL  {len(lost)} tests need this build and were not run")
            self.failed += len(lost)
            self.failures.append(f"{len(lost)} tests without their build ({build.label})")

    def count_skip(self, test, reason):
        self.skipped += 1
        say(f"skip  {getattr(test, 'name', None) or test.label}  {reason}")

    def report(self, test, verdict, why, seconds):
        self.finished.append((seconds, getattr(test, "cpu", 0), test.phase, test.name, True))
        if verdict == "ok":
            self.passed += 1
            self.known[test.name] = round(seconds, 2)
            say(f"ok    {test.name}  {seconds:.2f} s{', ' + why if why else ''}")
            return
        self.failed += 1
        self.failures.append(f"{test.name} ({why})")
        say(f"FAIL  {test.name}  {seconds:.2f} s, {why}")
        show(test.log)

    def end_all(self):
        """SIGTERM, some seconds, SIGKILL, and then whatever orphan has come to us."""
        for what in self.running.values():
            self.send(what, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while children():
            if time.monotonic() > until:
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            time.sleep(0.02)


def log_of(name):
    return LOGS / (re.sub(r"[^\w.+-]", "_", name) + ".log")


def skip_reason(log):
    """What a log's last line gives as the reason, or None: other programs exit with 77, too (libFuzzer at a crash,
    cmocka with 77 failures, a rank of ucx-run), and those have failed."""
    lines = [line for line in log.read_text(errors="replace").splitlines()
             if line.strip() and not line.startswith("ucx-run: ")]
    found = SKIPPED.match(lines[-1]) if lines else None
    return found.group(1) if found else None


def skipped_parts(log):
    """The parts of a cmocka program that called skip(), or None."""
    names = re.findall(r"^(?:\[\d+\] )?\[  SKIPPED \] (\w+)$", log.read_text(errors="replace"), re.M)
    return "without " + ", ".join(sorted(set(names))) if names else None


def seconds_of_processors():
    """What all processes of this machine have used of the processors that we may use, since it was started."""
    ours = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    with open("/proc/stat", encoding="ascii") as file:
        rows = [line.split() for line in file if line.split()[0] in ours]
    # user, nice, system, then idle and what waits for disks, interrupts, what other machines took
    ticks = sum(int(n) for row in rows for n in row[1:4] + row[6:9])
    return ticks / os.sysconf("SC_CLK_TCK")


def children():
    with open("/proc/thread-self/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def number_of(pid):
    try:
        found = re.search(rb"(?:^|\0)RUN_TESTS_NUMBER=(\d+)", Path(f"/proc/{pid}/environ").read_bytes())
        return int(found.group(1)) if found else None
    except OSError:
        return None


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def say(line):
    print(line, flush=True)


def show(log):
    for line in log.read_text(errors="replace").splitlines()[-200:]:
        say(f"    | {line}")


def read_times():
    try:
        return json.loads(TIMES.read_text())
    except (OSError, ValueError):
        return {}
