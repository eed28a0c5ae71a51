#!/bin/bash
# tests/system/hostile.sh: a job whose every socket strangers keep talking to forms, computes right, and logs little. Its
# secret stands in no argument list, no output and no file.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
[ -x /usr/bin/python3 ] || skip "no /usr/bin/python3"
mkdir "$W/rec"
"$UCX_RUN" -n 3 --record "$W/rec" --timeout 100 "$PERF" all_reduce -b 1K -e 256K -f 16 -n 150 -w 2 -c 1 --transport ucx \
    >"$W/job.out" 2>"$W/job.err" &
launcher=$!
timeout 110 /usr/bin/python3 tests/system/hostile.py $launcher >"$W/hostile.out" 2>&1 &
hostile=$!

secret='' file=''
for _ in $(seq 100); do
    for pid in $(ps -o pid= --ppid $launcher); do
        [ -n "$secret" ] || secret=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^GYRE_SECRET=//p')
    done
    [ ${#secret} -lt 64 ] || break
    sleep 0.05
done
check "there is a secret" [ ${#secret} = 64 ]
echo "${secret:-x}" >"$W/secret"
file=$(echo "$W"/rec/gyre-*.rec)
arguments() {
    local f
    for f in /proc/[0-9]*/cmdline; do
        tr '\0' ' ' 2>/dev/null <"$f"
        echo
    done 2>/dev/null
}
checks=$((checks + 1))
arguments | grep -qF -f "$W/secret" && bad "it is in an argument list"
check "nor in the flight recorder" sh -c "[ -e '$file' ] && ! grep -aq '${secret:-x}' '$file'"
wait $launcher
rc=$?
check "the job ends well" [ $rc = 0 ]
wait $hostile
rc=$?
check "strangers were there: $(cat "$W/hostile.out")" [ $rc = 0 ]
check "every result was right" grep -qE '^# Out of bounds values *: *0 OK' "$W/job.out"
# Each rank has one line for each kind of stranger and one with the numbers, while it joins and after.
# shellcheck disable=SC2016 # awk's variables
check "each kind is logged once" awk '
    { gsub(/ from [^ ]*:[0-9]+:/, ""); gsub(/ process [0-9]+ /, ""); gsub(/[0-9]+ [a-z]/, "N") }
    ++times[$0] > 2 { bad = 1 }
    END { exit bad || NR > 60 }' "$W/job.err"
check "and no secret" sh -c "! grep -q '${secret:-x}' '$W/job.out' '$W/job.err'"
[ "$errors" = 0 ] || cat "$W/job.err" "$W/hostile.out" "$W/job.out"

run "$UCX_RUN" -n 2 --dry-run true
check "--dry-run shows none" sh -c "! grep -qE '[0-9a-f]{64}' '$W/out'"
finish
