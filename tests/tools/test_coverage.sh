#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/tools/test_coverage.sh: an excuse of tools/coverage.txt excuses one statement, and only while that does not run.
. "$(dirname "$0")/../support/lib.sh"
mkdir -p "$W/tree/room" "$W/tree/tools"
# lines 4, 6 to 8, 10, 12
cat >"$W/tree/room/a.c" <<'END'
int a(int b)
{
    if (b)
        return gyre_fail(1, "one");
    b++;
    return gyre_fail(
        2, "%s: in two "
           "lines", b);
    drop(b);
    return coll_refuse(b);
    check(b);
    return coll_refuse(b);
}
END
cat >"$W/look.py" <<'END'
import importlib.machinery
import importlib.util
import os
import sys
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("coverage", "tools/coverage")
coverage = importlib.util.module_from_spec(importlib.util.spec_from_loader("coverage", loader))
loader.exec_module(coverage)
os.chdir(sys.argv[1])


def look(excuse, ran=()):
    """ran: the lines that did; those of the excuse, and what is wrong with it."""
    with open("tools/coverage.txt", "w", encoding="utf-8") as file:
        file.write(f"room/*.c | {excuse}\n")
    files = {"room/a.c": {at: (int(at in ran), []) for at in (3, 4, 5, 6, 9, 10, 11, 12)}}
    excuses = coverage.Excuses(files)
    print(sorted(excuses.of("room/a.c")), *excuses.stale)


look('"one" | why')
look('"one" | why', [4])
look('"one" | no memory', [4])
look('in two " "lines" | why')
look('in two " "lines" | why', [6])
look("nothing | why")
look("return coll_refuse(b); | why")
look("drop(b); return coll_refuse(b); | why", [9])
look("drop(b); return coll_refuse(b); | why", [9, 10])
END
run python3 "$W/look.py" "$W/tree"
at='tools/coverage.txt:1: '
out_is "excuses, what they match, and what is wrong" "[4]
[4] ${at}room/a.c needs no excuse: \"\"one\"\" ran
[4]
[6, 7, 8]
[6, 7, 8] ${at}room/a.c needs no excuse: \"in two \" \"lines\"\" ran
[] ${at}no statements of room/*.c have \"nothing\" in them, not one
[10, 12] ${at}2 statements of room/*.c have \"return coll_refuse(b);\" in them, not one
[9, 10]
[9, 10] ${at}room/a.c needs no excuse: \"drop(b); return coll_refuse(b);\" ran"
finish
