#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/bench_peers.py: Gyre beside Open MPI, MPICH and Gloo, on the same work in the same run (`make bench-peers`).

Every contender (contenders.py) is started once for each number of ranks and stays; its ranks run the same loop
(peers_loop.c) and sleep in a read while others are measured. Round by round each cell (collective, bytes, buffers) is
handed to each contender in turn, so that a machine that drifts drifts for all. A round's figure is the median over
batches of the time per call of the slowest rank; the reported one is the median over rounds. A contender that is much
slower than the cell's best in the first round is not asked again in that cell (its column then rests on one round),
nor in the same cell with its own allocator, where its figure with malloc stands in, marked; one that fails, times out
or computes something wrong is reported with what happened and does not stop the rest.

Standard library only.
"""

import json
import math
import os
import platform
import secrets
import selectors
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import contenders
import goals
import peers_options
import report

DIVIDED = ("reduce_scatter", "all_gather", "all_to_all")
START_S = 60  # for joining the job
RESTARTS = 2  # for a contender that died, per number of ranks


class Failed(Exception):
    """A contender cannot go on; the text says why."""


class Running:
    """A contender that was started with n ranks, and the connections to them."""

    def __init__(self, spec, n, places, log_dir):
        self.spec, self.n, self.places = spec, n, places
        self.out, self.log = log_dir, os.path.join(log_dir, f"{spec.name}-{n}.log")
        self.launchers, self.ranks, self.pids = [], {}, []
        self.version, self.restarts, self.failures = "", 0, []
        self.seconds = 0.0  # that it was measured for
        self.directory = None

    def start(self):
        self.directory = tempfile.mkdtemp(prefix=self.spec.name + "-", dir=self.out)
        name = f"gyre-bench-{os.getpid()}-{secrets.token_hex(8)}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind("\0" + name)
            listener.listen(self.n)
            places = dict(self.places, sock="@" + name, dir=self.directory)
            environment = dict(os.environ, **self.spec.environment)
            with open(self.log, "ab" if self.restarts else "wb") as log:
                for words in contenders.commands(self.spec, self.n, places):
                    self.launchers.append(
                        subprocess.Popen(
                            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                            start_new_session=True,
                        )
                    )
            self._welcome(listener)
        except OSError as error:
            raise Failed(f"could not be started: {error}") from error
        finally:
            listener.close()

    def _welcome(self, listener):
        end = time.monotonic() + START_S
        while len(self.ranks) < self.n:
            listener.settimeout(0.2)
            try:
                connection, _ = listener.accept()
            except socket.timeout:
                if any(p.poll() is not None for p in self.launchers):
                    raise Failed(f"ended before its ranks had joined: {self.last_words()}") from None
                if time.monotonic() > end:
                    raise Failed(f"{len(self.ranks)} of {self.n} ranks joined within {START_S} s") from None
                continue
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            self.pids.append(pid)
            connection.settimeout(10)
            words = connection.makefile("r").readline().rstrip("\n").split(" ", 4)
            if len(words) != 5 or words[0] != "hello" or int(words[2]) != self.n:
                raise Failed(f"a rank said '{' '.join(words)}'")
            self.ranks[int(words[1])] = connection
            self.version = words[4]

    def last_words(self):
        try:
            with open(self.log, errors="replace") as log:
                lines = [line.strip() for line in log.read()[-4000:].splitlines()]
        except OSError:
            return "no output"
        lines = [line for line in lines if line.strip("-")]
        return " / ".join(lines[-3:]) or "no output"

    def ask(self, line, timeout):
        """Sends a line to all ranks and returns their answers as lists of words."""
        answers, pending = {}, {rank: b"" for rank in self.ranks}
        with selectors.DefaultSelector() as selector:
            for rank, connection in self.ranks.items():
                selector.register(connection, selectors.EVENT_READ, rank)
            for rank, connection in self.ranks.items():
                try:
                    connection.sendall(line.encode() + b"\n")
                except OSError as error:
                    raise Failed(f"rank {rank} is gone: {self.last_words()}") from error
            end = time.monotonic() + timeout
            while len(answers) < self.n:
                events = selector.select(max(0.0, end - time.monotonic()))
                if not events:
                    raise Failed(f"{self.n - len(answers)} of {self.n} ranks not done after {timeout:.0f} s")
                for key, _ in events:
                    try:
                        data = key.fileobj.recv(65536)
                    except OSError:
                        data = b""
                    if not data:
                        raise Failed(f"rank {key.data} died: {self.last_words()}")
                    pending[key.data] += data
                    if b"\n" in pending[key.data]:
                        words = pending[key.data].decode(errors="replace").split()
                        if words[0] == "error":
                            raise Failed(f"rank {key.data}: {' '.join(words[1:])}")
                        answers[key.data] = words
                        selector.unregister(key.fileobj)
        return [answers[rank] for rank in sorted(answers)]

    def stop(self, gently):
        """Ends what start() started, and nothing else."""
        if gently:
            for connection in self.ranks.values():
                try:
                    connection.sendall(b"quit\n")
                except OSError:
                    pass
            self._wait(10)
        for launcher in self.launchers:
            if launcher.poll() is None:
                launcher.terminate()
        self._wait(3)
        for pid in self.pids:
            # A number may have passed to someone else: only our own program is ended.
            try:
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("peers-"):
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for launcher in self.launchers:
            try:
                os.killpg(launcher.pid, signal.SIGKILL)
            except OSError:
                pass
            launcher.wait()
        for connection in self.ranks.values():
            connection.close()
        for _ in range(50):  # a rank that is just dying may still write into it
            shutil.rmtree(self.directory, ignore_errors=True)
            if not os.path.exists(self.directory):
                break
            time.sleep(0.1)
        self.launchers, self.ranks, self.pids = [], {}, []

    def _wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(p.poll() is None for p in self.launchers):
            time.sleep(0.02)

    def fail(self, why):
        """Ended; started anew as long as that has some sense."""
        self.failures.append(why)
        self.stop(gently=False)
        if self.restarts < RESTARTS:
            self.restarts += 1
            try:
                self.start()
            except Failed as error:
                self.failures.append(str(error))
                self.stop(gently=False)


def measure(running, cell, budget_us, deadline_s, seed):
    """One round of a contender in a cell: {"us", "p50_us", "p99_us", ...}; None if it has no such operation."""
    kind = cell["buffers"] if running.spec.own else "malloc"
    line = f"run {cell['collective']} {cell['bytes']} {kind} {seed} {budget_us} {deadline_s + 5}"
    answers = running.ask(line, deadline_s)
    if any(words[0] != "ok" for words in answers):
        return None
    wrong = sum(int(words[5]) for words in answers)
    pairs = [[pair.split("/") for pair in words[6:]] for words in answers]
    batches = [max(float(ns) for ns, _ in batch) for batch in zip(*pairs)]
    # Where every rank can have a core, a batch in which one lost it to some other process says nothing.
    kept = [ns for ns, batch in zip(batches, zip(*pairs)) if not any(int(taken) for _, taken in batch)]
    shared = running.n > len(os.sched_getaffinity(0))
    return {
        "us": statistics.median(batches if shared or not kept else kept) / 1000,
        "disturbed": not shared and not kept,
        "p50_us": max(float(words[3]) for words in answers) / 1000,
        "p99_us": max(float(words[4]) for words in answers) / 1000,
        "calls": int(answers[0][1]) * len(batches),
        "singles": int(answers[0][2]),
        "wrong": wrong,
    }


def make_cells(ranks, options):
    cells = []
    for collective in options.collectives:
        sizes = [0] if collective == "barrier" else list(options.sizes)
        if collective in DIVIDED:  # every rank has at least one element
            sizes = sorted({max(4 * ranks, size - size % (4 * ranks)) for size in sizes})
        for buffers in ["malloc"] if collective == "barrier" else options.buffers:
            for size in sizes:
                cells.append(
                    {"ranks": ranks, "collective": collective, "bytes": size, "buffers": buffers, "results": {}}
                )
    return cells


class Progress:
    """Where the run is, on stderr: a line that renews itself on a terminal, else one now and then."""

    def __init__(self, total):
        self.total, self.done, self.since, self.shown = max(total, 1), 0, time.monotonic(), 0.0
        self.live = sys.stderr.isatty()

    def step(self, what):
        self.done += 1
        now = time.monotonic()
        if now - self.shown < (0.2 if self.live else 20.0) and self.done < self.total:
            return
        self.shown = now
        left = (now - self.since) / self.done * (self.total - self.done)
        text = f"{100 * self.done // self.total:3d} %  {what}, about {left:.0f} s left"
        print(f"\r\033[K{text}" if self.live else text, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def end(self):
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def first_best(cell):
    """The best of the first round."""
    return min((r["rounds"][0]["us"] for r in cell["results"].values() if r["rounds"]), default=math.inf)


def hopeless(name, cell, options):
    """So slow in the first round, by its own doing, that more of it would only cost time."""
    rounds = cell["results"].get(name, {"rounds": []})["rounds"]
    if name == "gyre" or not rounds or rounds[0]["disturbed"]:
        return False
    return rounds[0]["us"] > options.give_up * first_best(cell)


def malloc_twin(cell, cells):
    """The same cell with malloc's buffers, for one with the libraries' own, if it is part of the run."""
    same = (c for c in cells if all(c[key] == cell[key] for key in ("ranks", "collective", "bytes")))
    return next((c for c in same if c["buffers"] == "malloc"), None) if cell["buffers"] == "own" else None


def one_round(cells, group, number, options, progress):
    for index, cell in enumerate(cells):
        twin = malloc_twin(cell, cells)
        order = group[(index + number) % len(group):] + group[: (index + number) % len(group)]
        for running in order:
            name = running.spec.name
            progress.step(f"{cell['ranks']} ranks, round {number + 1}, {cell['collective']} {cell['bytes']} B, {name}")
            if running.spec.only and cell["collective"] not in running.spec.only:
                continue
            result = cell["results"].setdefault(name, {"rounds": [], "wrong": 0, "error": None, "as_malloc": False})
            if twin and (not running.spec.own or hopeless(name, twin, options)):
                result["as_malloc"] = True
                continue
            if result["error"] or not running.ranks:
                result["error"] = result["error"] or "not running: " + (running.failures or ["?"])[-1]
                continue
            if number and hopeless(name, cell, options):
                continue
            since = time.monotonic()
            try:
                one = measure(running, cell, options.time * 1000, options.deadline, number + 31 * index)
                if one and one["disturbed"]:
                    one = measure(running, cell, options.time * 1000, options.deadline, number + 31 * index)
            except Failed as error:
                result["error"] = str(error)
                print(f"\nbench-peers: {name}, {cell['collective']} {cell['bytes']} B: {error}", file=sys.stderr)
                running.fail(str(error))
                continue
            finally:
                running.seconds += time.monotonic() - since
            if one is None:
                result["error"] = "has no such operation"
                continue
            result["wrong"] += one["wrong"]
            result["rounds"].append(one)


def conclude(cells, limits):
    """Medians over rounds, the best peer, the ratio and the goal, into each cell. A cell is undecided where the best
    peer's figure is a disturbed one: the true one may be any amount smaller."""
    for cell in cells:
        twin = malloc_twin(cell, cells)
        for name, result in cell["results"].items():
            if result["as_malloc"]:
                result.update({key: twin["results"][name][key] for key in ("rounds", "wrong", "error")})
            for key in ("us", "p50_us", "p99_us"):
                quiet = [r[key] for r in result["rounds"] if not r["disturbed"]]
                result["disturbed"] = bool(result["rounds"]) and not quiet
                values = quiet or [r[key] for r in result["rounds"]]
                result[key] = statistics.median(values) if values else None
        good = {k: r["us"] for k, r in cell["results"].items() if r["us"] is not None and not r["wrong"]}
        peers = {k: us for k, us in good.items() if k != "gyre"}
        gyre = cell["results"].get("gyre", {})
        cell["best_peer"] = min(peers, key=peers.get) if peers else None
        cell["gyre_us"], cell["gyre_p99_us"] = good.get("gyre"), gyre.get("p99_us")
        cell["ratio"] = peers[cell["best_peer"]] / good["gyre"] if peers and "gyre" in good else None
        cell["undecided"] = cell["ratio"] is not None and cell["results"][cell["best_peer"]]["disturbed"]
        cell["goal"] = goals.goal(cell["ranks"], cell["collective"], cell["bytes"], cell["buffers"])
        cell["misses"] = goals.misses(cell, limits) if "gyre" in good else []


def machine():
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), model)
    except OSError:
        pass
    commit = ""
    if shutil.which("git"):
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False).stdout
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit.strip() or "unknown",
        "load_before": os.getloadavg()[0],
    }


def measure_limits(options, places):
    if options.no_limits:
        return {}
    print("bench-peers: measuring the limits of this machine", file=sys.stderr)
    program = os.path.join(places["bin"], "limits")
    done = subprocess.run([program, str(options.time)], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"bench-peers: {program} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def choose(options, places):
    """The contenders that are built and wanted; says how to get those that are not here."""
    chosen, absent = [], {}
    for spec in contenders.CONTENDERS:
        if options.contenders and spec.name not in options.contenders:
            continue
        program, how = contenders.PACKAGES[spec.library]
        if os.access(os.path.join(places["bin"], program), os.X_OK):
            chosen.append(spec)
        else:
            absent[spec.library] = how
    for library, how in absent.items():
        print(f"bench-peers: {library} is not here and left out; get it: {how}", file=sys.stderr)
    unknown = set(options.contenders) - {spec.name for spec in contenders.CONTENDERS}
    if unknown:
        names = " ".join(spec.name for spec in contenders.CONTENDERS)
        raise SystemExit(f"bench-peers: no contender '{' '.join(sorted(unknown))}'; there are: {names}")
    if not chosen:
        raise SystemExit("bench-peers: nobody to measure")
    return chosen, absent


def run_ranks(n, chosen, options, places, limits):
    group = [Running(spec, n, places, options.out) for spec in chosen]
    cells = make_cells(n, options)
    try:
        for running in group:
            try:
                running.start()
            except Failed as error:
                running.failures.append(str(error))
                print(f"bench-peers: {running.spec.name} with {n} ranks: {error}", file=sys.stderr)
                running.stop(gently=False)
        progress = Progress(len(cells) * len(group) * options.rounds)
        for number in range(options.rounds):
            one_round(cells, group, number, options, progress)
        progress.end()
    finally:
        for running in group:
            if running.directory:
                running.stop(gently=sys.exc_info()[0] is None)
    conclude(cells, limits)
    about = {r.spec.name: (r.version, r.seconds) for r in group}
    failures = [{"ranks": n, "contender": r.spec.name, "why": why} for r in group for why in r.failures]
    return cells, about, failures


def report_again(path, directory):
    """peers.md and peers.svg anew from the rounds in a peers.json, which is only read; goals as they are now."""
    try:
        with open(path) as f:
            result = json.load(f)
        conclude(result["cells"], result["limits"])
        report.write(result, directory or os.path.dirname(path) or ".", only_texts=True)
        print(report.conclusion(result))
    except (OSError, ValueError) as error:
        raise SystemExit(f"bench-peers: --report {path}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"bench-peers: --report {path}: no peers.json of this program: {error!r}") from error


def ended(number, frame):
    """The first SIGTERM ends the program; others (timeout(1) sends two) must not cut the clearing up short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    options = peers_options.parse(__doc__)
    if options.report:
        report_again(options.report, options.out)
        return 0
    options.out = options.out or peers_options.OUT
    os.makedirs(options.out, exist_ok=True)
    places = {"bin": os.path.abspath(options.bin), "gyre": os.path.abspath(options.gyre)}
    chosen, absent = choose(options, places)
    since = time.monotonic()
    result = {
        "machine": machine(),
        "command": {k: v for k, v in vars(options).items() if k in peers_options.VARIABLES},
        "contenders": {spec.name: {"library": spec.library, "settings": spec.settings} for spec in chosen},
        "absent": absent,
        "limits": measure_limits(options, places),
        "cells": [],
        "failures": [],
    }
    if result["limits"]:
        print("\n### limits of this machine\n\n" + report.limits_text(result["limits"]), flush=True)
    for n in options.ranks:
        cells, about, failures = run_ranks(n, chosen, options, places, result["limits"])
        result["cells"] += cells
        result["failures"] += failures
        for name, (version, seconds) in about.items():
            entry = result["contenders"][name]
            entry["version"] = version or entry.get("version") or "did not start"
            entry.setdefault("seconds", {})[n] = round(seconds, 1)
        print(report.tables(result, n), flush=True)
    result["machine"]["load_after"] = os.getloadavg()[0]
    result["seconds"] = round(time.monotonic() - since, 1)
    report.write(result, options.out)
    print(report.conclusion(result))
    wrong = sum(r["wrong"] for cell in result["cells"] for name, r in cell["results"].items() if name == "gyre")
    return 1 if wrong or any(cell["gyre_us"] is None for cell in result["cells"] if "gyre" in cell["results"]) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nbench-peers: interrupted; every contender was ended", file=sys.stderr)
        sys.exit(130)
