# tests/support/lib.sh: what the shell tests share; sourced. Needs $B, the build directory (default ./build).
# shellcheck shell=bash disable=SC2034 # variables for the tests
# A test calls `check NAME COMMAND...` or `bad "text"`, and ends with `finish`.
set -u
# SPDX-License-Identifier: Apache-2.0
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
B=${B:-$PWD/build}
UCX_RUN=$B/bin/ucx-run
PERF=$B/bin/gyre-perf
W=$(mktemp -d) || exit 1
trap 'rm -rf "$W"' EXIT
errors=0
checks=0

bad() {
    echo "FAILED: $*"
    errors=$((errors + 1))
}
# check NAME COMMAND...: the command must succeed
check() {
    local name=$1
    shift
    checks=$((checks + 1))
    "$@" || bad "$name"
}
# skip REASON: the rest of the test cannot run here; a check that failed before is a failure all the same. The word is
# what tells the runner a skip from a program that happened to exit with 77.
skip() {
    if [ "$errors" != 0 ]; then
        echo "$*, after $errors failed checks"
        exit 1
    fi
    echo "skipped: $*"
    exit 77
}
# leave_out WHAT: it cannot be checked here; the test goes on, and ends as skipped, so that it shows
left_out=''
leave_out() { left_out="$left_out${left_out:+; }$*"; }
# cores_free: whether this machine gives each core to who wants it, as seen by loops of 0.4 s, one per core
cores_free() {
    local used TIMEFORMAT=%U cores
    cores=$(nproc)
    used=$({ time (
        for ((i = 0; i < cores; i++)); do timeout 0.4 bash -c 'while :; do :; done' & done
        wait
    ); } 2>&1)
    awk -v used="${used/,/.}" -v cores="$cores" 'BEGIN { exit !(used > 0.85 * 0.4 * cores) }'
}
# json FILE EXPRESSION: of Python, over d, what is in the file, and r, its results if it has some
json() {
    python3 -S -c 'import json, math, sys; d = json.load(open(sys.argv[1])); r = isinstance(d, dict) and d.get("results")
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2"
}
# page FILE EXPRESSION: of Python, over a page of bench/: `text`, all of it, and `plots`, the data of its plots
page() {
    python3 -S - "$1" "$2" <<'PY'
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
plots = json.loads(re.search(r'<script type="application/json" id="plots">(.*?)</script>', text, re.S).group(1))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}
# timed NAME COMMAND...: a check that depends on free cores: where it fails and others want them, now or when the test
# set $crowded, it is left out
crowded=''
timed() {
    local name=$1
    shift
    checks=$((checks + 1))
    "$@" && return
    if [ -n "$crowded" ] || ! cores_free; then
        leave_out "$name: something else wants the cores"
    else
        bad "$name"
    fi
}
finish() {
    [ "$checks" -gt 0 ] || bad "nothing was checked"
    echo "$checks checks, $errors failed"
    if [ "$errors" = 0 ] && [ -n "$left_out" ]; then
        echo "skipped: $checks checks passed, not checked: $left_out"
        exit 77
    fi
    [ "$errors" = 0 ]
    exit
}

# with_module NAME: prints a python3 that has the module, that of `tools/setup references` or this machine's; where
# none has it, it prints python3 and fails
with_module() {
    local python
    for python in build/venv/bin/python /usr/bin/python3; do
        "$python" -c "import $1" 2>/dev/null && echo "$python" && return
    done
    echo python3
    return 1
}

# run COMMAND...: at most 30 s (or $DEADLINE); leaves $rc, $W/out, $W/err and the time in $ms
run() {
    local from=${EPOCHREALTIME/[.,]/}
    timeout -k 5 "${DEADLINE:-30}" "$@" >"$W/out" 2>"$W/err"
    rc=$?
    ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
}
# want NAME CODE [PATTERN...]: the last run ended with CODE and each PATTERN (grep -E) is in its stderr
want() {
    local name=$1 code=$2 pattern
    shift 2
    checks=$((checks + 1))
    [ "$rc" = "$code" ] || {
        bad "$name: code $rc instead of $code"
        sed 's/^/    err: /' "$W/err" | head -20
    }
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$W/err" || {
            bad "$name: stderr lacks /$pattern/"
            sed 's/^/    err: /' "$W/err" | head -20
        }
    done
}
# resumed LOG STEP RANKS: gyre-train's log says once that the run went on behind that step, on so many ranks
resumed() {
    [ "$(grep -c '"resumed"' "$1")" = 1 ] && grep -qE "^\{\"resumed\": ?$2, ?\"ranks\": ?$3\}" "$1"
}
# out_is NAME TEXT: stdout of the last run, whole
out_is() {
    checks=$((checks + 1))
    [ "$(cat "$W/out")" = "$2" ] || {
        bad "$1: stdout is not what it should be"
        diff <(echo "$2") "$W/out" | head -20
    }
}
sorted_is() {
    sort "$W/out" >"$W/out.sorted" && mv "$W/out.sorted" "$W/out"
    out_is "$@"
}
# nap: 0.02 s without a process, by a pipe that nobody writes to
nap() {
    [ -p "$W/.nap" ] || mkfifo "$W/.nap"
    read -r -t 0.02 <>"$W/.nap" || :
}
# until_true SECONDS COMMAND...: polls
until_true() {
    local left=$(($1 * 50))
    shift
    while ! "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        nap
    done
}
# free_port: prints a free port that no connection of another process can take meanwhile: below the range of the ephemeral ones.
free_port() {
    /usr/bin/python3 -c '
import random, socket
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
while True:
    port = random.randrange(max(1024, low // 2), max(2048, low))
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break'
}
# gone PID: it has ended; waited for or not
gone() {
    local line
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
    line=${line##*) }
    [ "${line%% *}" = Z ]
}
