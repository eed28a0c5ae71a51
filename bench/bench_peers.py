#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/bench_peers.py: Gyre beside Open MPI, MPICH, Gloo and UCC, on the same work in the same run (`make bench-peers`).

Every contender (contenders.py) is started once for each number of ranks and stays; its ranks run the same loop
(peers_loop.c) and sleep in a read while others are measured. Round by round each cell (collective, bytes, buffers, in cache or
cold) is handed to each contender in turn, so that a machine that drifts drifts for all. A round's figure is the median over
batches of the time per call of the slowest rank; the reported one is the median over rounds. A contender that is much
slower than the cell's best in the first round is not asked again in that cell (its column then rests on one round),
nor in the same cell with its own allocator, where its figure with malloc stands in, marked; one that fails, times out
or computes something wrong is reported with what happened and does not stop the rest.

Standard library only.
"""

import json
import math
import os
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
import machine
import peers_options
import peers_page
import report

DIVIDED = ("reduce_scatter", "all_gather", "all_to_all")
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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


def measure(running, cell, cold, options, seed):
    """One round of a contender in a cell: {"us", "p50_us", "p99_us", ...}; None if it has no such operation.
    cold: bytes through which a rank's buffers move from call to call; 0: they stay in place."""
    kind = cell["buffers"] if running.spec.own else "malloc"
    cores = len(os.sched_getaffinity(0))
    shared = running.n > cores
    line = (
        f"run {cell['collective']} {cell['bytes']} {kind} {cold} {seed} {1000 * options.time} {options.deadline + 5} "
        f"{int(shared)}"
    )
    since, busy = time.monotonic(), machine.busy_seconds() - time.process_time()
    answers = running.ask(line, options.deadline)
    busy, wall = machine.busy_seconds() - time.process_time() - busy, time.monotonic() - since
    if any(words[0] != "ok" for words in answers):
        return None
    pairs = [[pair.split("/") for pair in words[7:]] for words in answers]
    batches = [max(float(ns) for ns, _ in batch) for batch in zip(*pairs)]
    # Where every rank can have a core, a batch in which one lost it to some other process says nothing.
    kept = [ns for ns, batch in zip(batches, zip(*pairs)) if not any(int(taken) for _, taken in batch)]
    one = {
        "us": statistics.median(batches if shared or not kept else kept) / 1000,
        "p50_us": max(float(words[3]) for words in answers) / 1000,
        "p99_us": max(float(words[4]) for words in answers) / 1000,
        # The cores' time that other programs took, where ranks share cores.
        "others": (busy - sum(float(words[6]) for words in answers) / 1e9) / wall / cores if shared else 0.0,
    }
    one = {key: float(f"{value:.4g}") for key, value in one.items()}  # as peers.json has it
    return dict(one, wrong=sum(int(words[5]) for words in answers), disturbed=not shared and not kept)


def make_cells(ranks, options):
    cells = []
    for collective in options.collectives:
        fixed = peers_options.FIXED.get(collective)
        warm, cold = ([fixed], []) if fixed is not None else peers_options.sizes_of(options, ranks)
        for sizes, is_cold in ((warm, False), (cold, True)):
            if collective in DIVIDED:  # every rank has at least one element
                sizes = sorted({max(4 * ranks, size - size % (4 * ranks)) for size in sizes})
            for buffers in ["malloc"] if fixed is not None else options.buffers:
                cells += [
                    {"ranks": ranks, "collective": collective, "bytes": size, "buffers": buffers, "cold": is_cold,
                     "results": {}}
                    for size in sizes
                ]
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
    same = (c for c in cells if all(c[key] == cell[key] for key in ("ranks", "collective", "bytes", "cold")))
    return next((c for c in same if c["buffers"] == "malloc"), None) if cell["buffers"] == "own" else None


def one_round(cells, group, number, options, progress):
    for index, cell in enumerate(cells):
        twin = malloc_twin(cell, cells)
        buffers = cell["ranks"] * (1 if cell["collective"] == "broadcast" else 2)  # that are used
        cold = 2 * options.last_level // buffers if cell["cold"] else 0
        seed, what = number + 31 * index, f"{cell['collective']} {cell['bytes']} B{', cold' if cold else ''}"
        order = group[(index + number) % len(group):] + group[: (index + number) % len(group)]
        for running in order:
            name = running.spec.name
            progress.step(f"{cell['ranks']} ranks, round {number + 1}, {what}, {name}")
            if running.spec.only and cell["collective"] not in running.spec.only:
                continue
            result = cell["results"].setdefault(name, {"rounds": [], "wrong": 0, "error": None, "as_malloc": False})
            if twin and (not running.spec.own or hopeless(name, twin, options)):
                result["as_malloc"] = True
                continue
            if result["error"] or not running.ranks:
                result["error"] = result["error"] or "not running: " + (running.failures or ["?"])[-1]
                continue
            large = cell["bytes"] > peers_options.LARGE and number >= peers_options.LARGE_ROUNDS
            if large or (number and hopeless(name, cell, options)):
                continue
            since = time.monotonic()
            try:
                one = measure(running, cell, cold, options, seed)
                if one and one["disturbed"]:
                    one = measure(running, cell, cold, options, seed)
            except Failed as error:
                result["error"] = str(error)
                print(f"\nbench-peers: {name}, {what}: {error}", file=sys.stderr)
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
    peer's figure is a disturbed one: the true one may be any amount smaller. Where ranks share cores, all figures of
    a cell are disturbed if other programs took much of the cores: the median contender's, for the kernel does not
    count the time of TCP on loopback, Gloo's, in the process."""
    for cell in cells:
        twin = malloc_twin(cell, cells)
        taken = [statistics.fmean(o["others"] for o in r["rounds"]) for r in cell["results"].values() if r["rounds"]]
        crowded = bool(taken) and statistics.median(taken) > goals.OTHERS_MOST
        for name, result in cell["results"].items():
            if result["as_malloc"]:
                result.update({key: twin["results"][name][key] for key in ("rounds", "wrong", "error")})
            for key in ("us", "p50_us", "p99_us"):
                quiet = [r[key] for r in result["rounds"] if not r["disturbed"]]
                result["disturbed"] = bool(result["rounds"]) and (crowded or not quiet)
                values = quiet or [r[key] for r in result["rounds"]]
                result[key] = statistics.median(values) if values else None
        good = {k: r["us"] for k, r in cell["results"].items() if r["us"] is not None and not r["wrong"]}
        peers = {k: us for k, us in good.items() if not k.startswith("gyre")}
        gyre = cell["results"].get("gyre", {})
        cell["best_peer"] = min(peers, key=peers.get) if peers else None
        cell["gyre_us"], cell["gyre_p99_us"] = good.get("gyre"), gyre.get("p99_us")
        cell["ratio"] = peers[cell["best_peer"]] / good["gyre"] if peers and "gyre" in good else None
        cell["undecided"] = cell["ratio"] is not None and cell["results"][cell["best_peer"]]["disturbed"]
        cell["goal"] = goals.goal(cell["ranks"], cell["collective"], cell["bytes"], cell["buffers"])
        cell["misses"] = goals.misses(cell, limits) if "gyre" in good else []


def new_folder(facts):
    """bench/results/DATE-MACHINE, made here; the second of a day gets a number."""
    name = os.path.join(TOP, "bench/results", f"{facts['date'].split()[0]}-{machine.name(facts)}")
    for number in range(1, 1000):
        path = name if number == 1 else f"{name}-{number}"
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            pass
    raise SystemExit(f"bench-peers: {name}-2 to -999 exist; say OUT=DIRECTORY")


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
    group = [Running(spec, n, places, options.work) for spec in chosen]
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


def write(result, directory, only_texts=False):
    """peers.md and index.html; unless only_texts, also peers.json, and machine.json: what was measured of the machine."""
    cells = [cell for cell in result["cells"] if cell["gyre_us"] is not None]
    result["not_first"] = [report.where(cell) for cell in cells if report.is_behind(cell)]
    result["undecided"] = [report.where(cell) for cell in cells if cell["undecided"]]
    result["behind_goal"] = {report.where(cell): cell["misses"] for cell in cells if cell["misses"]}
    texts = {"peers.md": report.markdown(result)}
    if not only_texts:
        texts["peers.json"] = report.as_json(result)
        texts["machine.json"] = json.dumps({k: result[k] for k in ("machine", "limits", "costs")}, indent=1) + "\n"
    for name, text in texts.items():
        path = os.path.join(directory, name)
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(path + ".new", path)
    peers_page.write(result, os.path.join(directory, "index.html"))


def report_again(path, directory):
    """peers.md and index.html anew from the rounds in a peers.json, which is only read; goals as they are now."""
    try:
        with open(path) as f:
            result = json.load(f)
        conclude(result["cells"], result["limits"])
        write(result, directory or os.path.dirname(path) or ".", only_texts=True)
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
    os.makedirs(options.work, exist_ok=True)
    places = {"bin": os.path.abspath(options.bin), "gyre": os.path.abspath(options.gyre)}
    chosen, absent = choose(options, places)
    since = time.monotonic()
    facts = machine.facts(TOP)
    result = {
        "machine": dict(facts, load_before=os.getloadavg()[0]),
        "command": {k: v for k, v in vars(options).items() if k in peers_options.VARIABLES},
        "contenders": {spec.name: {"library": spec.library, "settings": spec.settings} for spec in chosen},
        "absent": absent,
        "limits": {},
        "costs": {},
        "cells": [],
        "failures": [],
        "left": list(options.ranks),
    }
    options.last_level = machine.last_level()
    if not options.no_limits:
        print("bench-peers: measuring the limits of this machine", file=sys.stderr)
        result["limits"] = machine.limits(os.path.join(places["bin"], "limits"), options.time)
        result["costs"] = machine.costs(places["gyre"])
        print("\n### limits of this machine\n\n" + report.limits_text(result["limits"]), flush=True)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
    for n in options.ranks:
        cells, about, failures = run_ranks(n, chosen, options, places, result["limits"])
        result["cells"] += cells
        result["failures"] += failures
        for name, (version, seconds) in about.items():
            entry = result["contenders"][name]
            entry["version"] = version or entry.get("version") or "did not start"
            entry.setdefault("seconds", {})[n] = round(seconds, 1)
        print(report.tables(result, n), flush=True)
        result["left"].remove(n)
        result["machine"]["load_after"] = os.getloadavg()[0]
        result["seconds"] = round(time.monotonic() - since, 1)
        options.out = options.out or new_folder(facts)
        write(result, options.out)  # each time: a run that is ended keeps what it has
    print(report.conclusion(result))
    print(f"\nResults: {os.path.relpath(options.out)}/index.html (plots), peers.md, peers.json, machine.json")
    wrong = sum(r["wrong"] for cell in result["cells"] for name, r in cell["results"].items() if name == "gyre")
    return 1 if wrong or any(cell["gyre_us"] is None for cell in result["cells"] if "gyre" in cell["results"]) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ended)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nbench-peers: interrupted; every contender was ended", file=sys.stderr)
        sys.exit(130)
