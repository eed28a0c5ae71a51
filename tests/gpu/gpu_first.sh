#!/bin/bash
# tests/gpu/gpu_first.sh: a rehearsal of the first calls on a GPU (tools/gpu-first), on the emulator, with a wrong row, a program that
# hangs, a device that is lost, and a cuBLASLt that is not there: each is reported, and no other result is lost.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
[ -x "$B/emulated/bin/gyre-perf" ] || skip "there are no emulated programs: make emulated"
DEADLINE=100
bash tools/gpu-bundle "$B" --emulated "$W/b" || bad "the emulator's programs cannot be laid out"
printf '%s\n' 'test_language 120' 'test_device 120' 'test_matmul 1' 'test_one_process 120' 'mp_device 120 2' >"$W/b/tests/list"
fake() { # FILE TEXT: a program of the bundle
    rm -f "$W/b/$1"
    printf '#!/bin/sh\n%s\n' "$2" >"$W/b/$1" && chmod +x "$W/b/$1"
}
verdict() { # NAME WHAT: of that row, in $json
    python3 - "$json" "$1" "$2" <<'PY'
import json, sys
rows = json.load(open(sys.argv[1]))["checks"]
print(*sorted({row["verdict"] for row in rows if row["name"] == sys.argv[2] and sys.argv[3] in row["what"]}))
PY
}
is() { # VERDICT NAME WHAT
    check "$2, $3: $1" [ "$(verdict "$2" "$3")" = "$1" ]
}
ended() { # PID: soon
    for _ in 1 2 3 4 5 6 7 8 9; do
        case $(ps -o stat= -p "$1") in '' | Z*) return 0 ;; esac
        sleep 0.2
    done
    return 1
}
complete() { python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["complete"] != (sys.argv[2] == "1"))' "$json" "$1"; }

# --- A, with all that can be wrong but a lost device ---
for name in test_language test_one_process; do fake "tests/$name" 'echo "1 passed"'; done
fake tests/test_device 'echo "3 elements are wrong"; exit 1'
fake tests/test_matmul "sleep 60 & echo \$! >$W/hangs; wait"
fake tests/gpu_peers '[ "$1" != --copy ] || { echo "copy on the device, read and written   5.00 GB/s"; exit; }
echo "all_reduce, 2 ranks, 8 bytes, time   9.10 us at most 15 [9.00 to 9.90]"
echo "elements of every type and size   4.00 wrong at most 0"; exit 1'
fake bin/gyre-perf '[ "$GYRE_RANK" != 0 ] || echo " 8 2 float sum -1 1.0 1.0 1.0 0 1.0 1.0 1.0 0 1 1"'
json=$W/out1/gpu-first-A.json
GYRE_CUBLASLT=$W/none.so run "$W/b/gpu-first" A --quick --out "$W/out1"
want "A with failures" 1
is passed test_language test
is failed test_device test
is failed test_matmul test
check "why: its time" grep -qxE 'failed +test_matmul +test; its time of 1 s was up' "$W/out"
check "nothing of it is left" ended "$(cat "$W/hangs")"
is passed test_one_process test
is failed peers 'elements of every type'
is ran peers '8 bytes, time'
is failed kernels "products by GYRE_CUBLASLT=$W/none.so"
is ran kernels 'own, bf16: square'
is ran kernels 'attention backward'
is failed gpt2 ''
is passed facts 'raw costs'
is passed all_reduce-2 'of bfloat16'
is passed mp_device-2 test
check "A is complete" complete 1
check "the log has all of it" grep -q 'cannot open shared object file' "$W/out1/gpu-first-A.log"

# --- the device is lost; then the program is ended from outside ---
fake tests/gpu_facts '[ "$1" != --alive ] || { echo "the device takes no more work"; exit 1; }'
json=$W/out2/gpu-first-A.json
run "$W/b/gpu-first" A --quick --out "$W/out2"
want "A on a device that is lost" 1
is failed gpu 'still answers'
is '' test_one_process test
check "is not complete" complete 0
fake tests/gpu_facts '[ "$1" = --alive ] || echo "no number   1.2.3 us"'
fake tests/test_device 'echo "1 passed"'
sed -i 's/^test_matmul .*/test_matmul 60/' "$W/b/tests/list"
rm -f "$W/hangs"
json=$W/out3/gpu-first-A.json
"$W/b/gpu-first" A --quick --out "$W/out3" >"$W/out" 2>&1 &
first=$!
for ((i = 0; i < 300; i++)); do [ ! -s "$W/hangs" ] || break; sleep 0.1; done
kill "$first"
wait "$first"
check "ended by a signal" [ $? = 143 ]
is failed facts 'what it printed'
is passed test_device test
check "nothing of it is left" ended "$(cat "$W/hangs")"
check "is not complete" complete 0
check "figures that were measured three times" python3 - "$W/out6" >"$W/out" <<'PY'
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "tools/gpu")
from report import Report
report = Report(sys.argv[1], "r", {}, quick=False, emulated=False)
for figure in 3.0, 9.0, 4.0:
    report.result(None, "part", "time", "measured", figure, "us")
report.close({})
told = json.load(open(sys.argv[1] + "/r.json"))["spread"]
assert told == [dict(name="part", what="time", unit="us", runs=3, median=4.0, min=3.0, max=9.0)], told
assert "[3 to 9], 3 runs" in open(sys.argv[1] + "/r.txt").read()
PY

# --- B: ncu's table; what a sanitizer finds ---
mkdir "$W/tools"
printf '#!/bin/sh\n%s\n' 'cat <<END
==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","square(int)","dram__bytes.sum","byte","1,000,000"
"0","square(int)","gpu__time_duration.sum","ns","2,000"
"1","void norm<(int)4, (bool)1>(float *)","gpu__time_duration.sum","ns","500"
END' >"$W/tools/ncu"
printf '#!/bin/sh\n%s\n' '[ "$2" != racecheck ] || { echo "1 hazard displayed"; exit 9; }' >"$W/tools/compute-sanitizer"
chmod +x "$W"/tools/*
json=$W/out4/gpu-first-B.json
PATH=$W/tools:$PATH run "$W/b/gpu-first" B --quick --out "$W/out4" test_language
want "B" 1
is ran profile square
is ran profile 'norm<4, 1>'
is passed memcheck-test_language test_language
is failed racecheck-test_language test_language
is '' memcheck-test_matmul ''
is skipped torch-profile ''

# --- C: only what processes share ---
fake bin/gyre-train 'while [ $# -gt 1 ]; do [ "$1" != --log ] || log=$2; shift; done
[ "${GYRE_RANK:-0}" != 0 ] || echo "{\"step\":1,\"loss\":2.5,\"loss_hex\":\"0x1\",\"weights_hash\":\"00\"}" >"$log"'
json=$W/out5/gpu-first-C.json
run "$W/b/gpu-first" C --quick --out "$W/out5"
want "C" 0
for name in all_reduce-4 registered-2; do is 'passed ran' "$name" ''; done
is passed layouts-experts 'the bits of one'
is passed mp_device-2 test
is '' test_language ''
run "$W/b/gpu-first" D
want "wrong usage" 2 "invalid choice: 'D'"
finish
