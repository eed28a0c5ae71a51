#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/faults/test_rounds.sh: rounds of tests/faults/check that must fail, with ranks that are only statuses and lines
# of output: a rank leaves in another way than its fault allows, nobody is left, a file is left, nothing was sent, a
# round is counted nowhere.
# takes: 2
. "$(dirname "$0")/../support/lib.sh"
unset TRANSPORT FAULTS
cat >"$W/rounds.py" <<'PYTHON'
import importlib.machinery
import importlib.util
import os
import random
import socket
import subprocess
import sys
import types
sys.dont_write_bytecode = True
sys.path[:0] = ["tests/faults", "tests/hosts"]
loader = importlib.machinery.SourceFileLoader("check", "tests/faults/check")
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
loader.exec_module(check)
check.time = types.SimpleNamespace(sleep=lambda _: None, monotonic=iter(range(1 << 30)).__next__)
found = ""
check.lab.nethosts = lambda *words: found if "find" in words else str(os.getpid())


class Job(check.lab.Job):
    """Ranks as (status, output, standard error)."""

    def __init__(self, *ranks):
        self.ranks = {i: types.SimpleNamespace(poll=lambda status=rank[0]: status) for i, rank in enumerate(ranks)}
        self.all = ranks

    def signal(self, rank, number):
        pass

    def text(self, rank):
        return self.all[rank][1]

    def errors(self, rank):
        return self.all[rank][2] if len(self.all[rank]) > 2 else ""


def round_of(*ranks):
    r = check.Round.__new__(check.Round)
    r.rng, r.hosts, r.job = random.Random(1), 2, Job(*ranks)
    r.folder, r.tmp, r.env, r.objects = "/t/files", "/t", {"TMPDIR": "/t/full"}, ""
    return r


def tried(name, wrong, what):
    """wrong: what the complaint has in it; '' if there is none."""
    try:
        what()
        said = ""
    except check.Wrong as error:
        said = str(error)
    print(f"{name}: {'right' if bool(said) == bool(wrong) and wrong in said else said or 'no complaint'}")


def leaves(name, wrong, status, *ranks):
    tried(name, wrong, lambda: round_of(*ranks).leaves([0], status))


SMALLER = "ERROR 1.0 9 rank(s) 0 are only silent: the smaller part must not (GYRE_QUORUM=any)\n"
GOOD, ERROR, END = "GOOD 1.0 1 1\n", "ERROR 1.0 9 rank 1 is dead\n", "END 1.0 0 0\n"
leaves("exit", "", 0, (0, ""))
leaves("exit, a crash", "left with -11, not with 0", 0, (-11, ""))
leaves("killed", "", check.KILLED, (-9, ""))
leaves("not killed", "left with 0, not with -9", check.KILLED, (0, ""))
leaves("gave up", "", check.GAVE_UP, (1, ERROR))
leaves("gave up silently", "rank 0 left with 1", check.GAVE_UP, (1, ""))
leaves("gave up, a crash", "left with -11, not with 1", check.GAVE_UP, (-11, ERROR))
leaves("ended at work", "", check.GAVE_UP, (-9, ""), (None, "", "rank 0 (process 7) stands still at work in the memory\n"))
leaves("killed by nobody", "left with -9, not with 1", check.GAVE_UP, (-9, ""), (None, ""))
tried("one way", "", lambda: round_of((None, GOOD), (1, ERROR)).do_one_way())
tried("one way, a crash", "rank 1 left with -11", lambda: round_of((None, GOOD), (-11, ERROR)).do_one_way())
tried("one way, all crash", "no rank is left", lambda: round_of((-11, ERROR), (-11, ERROR)).do_one_way())
tried("one way, all gave up", "no rank is left", lambda: round_of((1, ERROR), (1, ERROR)).do_one_way())
tried("one way, no quorum", "", lambda: round_of((1, ERROR), (1, SMALLER)).do_one_way())
tried("one way, no quorum and a crash", "rank 0 left with -11", lambda: round_of((-11, ERROR), (1, SMALLER)).do_one_way())
tried("finish", "", lambda: round_of((0, END)).finish([0]))
tried("finish, a crash", "left with -6, not with 0", lambda: round_of((-6, END)).finish([0]))
for found, wrong in (("", ""), ("/t/full/fills", ""), ("/t/full/fills\n/t/full/x", "left: /t/full/x"), ("/t/files/x", "left: /t/files/x")):
    tried("files", wrong, lambda: round_of().nothing_is_left())
listener = socket.create_server(("127.0.0.1", 0))
noise = [sys.executable, "-c", check.NOISE, "1", f"127.0.0.1:{listener.getsockname()[1]}"]
print("garbage:", "right" if subprocess.run(noise, check=False).returncode == 0 else "it was not sent")
listener.close()
print("nobody listens:", "right" if subprocess.run(noise, check=False).returncode == 1 else "no complaint")


class FewLanes:
    """One round of three has ended, one not been begun."""

    def __init__(self, rounds, ended):
        ended(0, '["kill", "one host", "", 1.0, false]', 0)

    def run(self, commands):
        return 1


class ExtinctLanes(FewLanes):
    """No rank is left in 5 rounds of 20."""

    def __init__(self, rounds, ended):
        self.first_open = lambda: 0
        for k in range(20):
            ended(k, '["one-way", "two hosts", "", 1.0, %s]' % ("true" if k < 5 else "false"), 0)

    def run(self, commands):
        return 0


check.Lanes = FewLanes
print("a round that is counted nowhere:", "right" if check.run_rounds(1, range(3), ["kill"], 0) == 1 else "no complaint")
check.Lanes = ExtinctLanes
print("no rank is left too often:", "right" if check.run_rounds(1, range(20), ["one-way"], 0) == 1 else "no complaint")
PYTHON
run /usr/bin/python3 "$W/rounds.py"
want "the rounds" 0
check "all are tried" [ "$(grep -c ': right$' "$W/out")" = 25 ]
check "one round is counted as failed" grep -qx '1 passed, 1 failed' "$W/out"
wrong=$(grep ': ' "$W/out" | grep -vE '^(#|FAILED )|: right$')
check "what fails: $wrong" [ -z "$wrong" ]
finish
