#!/bin/bash
# tests/tools/test_gyre_doctor_job.sh: gyre-doctor --job: a rank that computes, one that is stopped, a job whose every
# process was killed, a folder without room for the recorder.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
DOCTOR=$B/bin/gyre-doctor
started=()
# shellcheck disable=SC2154 # W: lib.sh
trap 'for p in ${started[@]+"${started[@]}"}; do kill -9 "$p" 2>/dev/null; done; rm -rf "$W"' EXIT
check "the program that gets stuck" gcc -std=c17 -O1 -Iinclude tests/tools/stuck.c -L"$B/lib" -lgyre -Wl,-rpath,"$B/lib" -o "$W/stuck"
mkdir "$W/rec"

# job ARGS...: starts a job with its recorder below $W/rec; leaves $launcher, $file and $id
job() {
    rm -f "$W"/rec/*
    # a stopped rank is to stay until we have looked at it
    GYRE_HEARTBEAT=0 "$UCX_RUN" -n 4 --bind none --record "$W/rec" --timeout 50 "$W/stuck" "$@" >"$W/job.out" 2>&1 &
    launcher=$!
    started+=("$launcher")
    for _ in $(seq 300); do
        file=$(echo "$W"/rec/gyre-*.rec)
        # stuck once that has been so for long enough to be called so
        [ ! -e "$file" ] || ! "$DOCTOR" --job "$file" 2>/dev/null | grep -q 'culprit: rank 2 .* 3 others' || break
        sleep 0.1
    done
    id=${file##*/gyre-}
    id=${id%%.*}
}
end_job() {
    kill -9 "$launcher" 2>/dev/null
    wait "$launcher" 2>/dev/null
}
# says NAME PATTERN: in what gyre-doctor printed last
says() {
    checks=$((checks + 1))
    grep -qE -- "$2" "$W/out" || {
        bad "$1: no /$2/ in"
        sed 's/^/    out: /' "$W/out"
    }
}

job compute
run "$DOCTOR" --job
want "list" 0
says "the job is listed" "^$id +4 +4 .*$W/rec/"
run "$DOCTOR" --job "${id:0:8}"
want "a rank that computes" 0
says "who is there" "^job $id: 4 ranks, 4 alive; .*by ucx-run \(pid $launcher\)"
says "what a rank does" ' 0 .* in all_reduce #22 \(count 1, double, sum, tag 100\) for [0-9.]+ s'
says "what it did" 'before: broadcast #21 \(count 1, double, root 0, tag 100\); all_reduce #20 .* and 13 like it before'
check "no call is older than the job" awk '
    $1 == "job" { match($0, /[0-9.]+ s ago/); age = substr($0, RSTART) + 0 }
    match($0, /for [0-9.]+ s$/) && substr($0, RSTART + 4) + 0 > age { bad = 1 }
    END { exit !age || bad }' "$W/out"
says "who waits" '^  0-1, 3 -> 2$'
says "culprit" 'culprit: rank 2 on .* has not entered all_reduce #22 .* 3 others wait for .* computing .* last call was all_reduce #20 \(count 1, double, sum, tag 102\)'
pid=$(awk '$1 == 2 {print $2}' "$W/out")
kill -STOP "$pid"
run "$DOCTOR" --job "$id"
says "a stopped rank" "culprit: rank 2 .* its process $pid is stopped \(SIGSTOP"
run "$DOCTOR" --job "$id" --json -
check "JSON" python3 -c '
import json, sys
job = json.load(open(sys.argv[1]))
assert job["culprit"] == 2 and job["size"] == 4 and len(job["ranks"]) == 4, job
assert [call["tag"] for call in job["ranks"][3]["calls"]] == [103] * 16, job
assert job["ranks"][2]["process"] == "stopped" and job["ranks"][0]["waits_for"] == [2], job' "$W/out"
# everybody dies, ucx-run first; the file is what is left
end_job
for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.05
done
run "$DOCTOR" --job "$file"
want "all dead" 0
says "nobody lives" "^job $id: 4 ranks, 0 alive; .*\(pid $launcher, gone\)"
says "the culprit is still known" 'culprit: rank 2 .* has not entered all_reduce #22 .* since .* all ended together'
run "$DOCTOR" --job "$id" --record "$W/rec"
says "found by its folder" 'culprit: rank 2'

# One rank is killed: the launcher has seen it, and keeps the file.
job sleep
run "$DOCTOR" --job "$id"
says "a rank that sleeps" 'culprit: rank 2 .* sleeps, in the program'
kill -9 "$(awk '$1 == 1 {print $2}' "$W/out")"
wait "$launcher" 2>/dev/null
check "the recorder is kept, and said" grep -q "the flight recorder is kept: gyre-doctor --job $file" "$W/job.out"
check "ucx-run says in which call it was" grep -qE "^ucx-run: rank 1 .* killed by signal 9 .* while in all_reduce #22 \(count 1, double, sum, tag 101\)" "$W/job.out"
run "$DOCTOR" --job "$file"
says "a killed rank" 'culprit: rank 1 on .*: it was killed by signal 9 .*, in all_reduce #22'

# Two hosts, which are this one by other names, and their recorders in one folder. The clock of ranks counts from a host's
# start: the host of the rank that failed first has been up for 10000 s more.
rm -f "$W"/rec/*
printf '#!/bin/sh\nshift\nexec sh -c "exec $*"\n' >"$W/rsh"
chmod +x "$W/rsh"
run "$UCX_RUN" --rsh "$W/rsh" -H 127.0.0.2,127.0.0.3 --kill-grace 20 --record "$W/rec" \
    sh -c '[ $RANK = 1 ] || exit 5; until grep -q "code 5" "$0/err"; do sleep 0.05; done; exit 6' "$W"
want "two ranks fail, one after the other" 5
check "another host's clock" python3 - "$W"/rec/gyre-*.node0.rec <<'END'
import struct, sys
with open(sys.argv[1], "r+b") as file: # comm_recorder_head_t, and the one slot of rank 0
    slot = struct.unpack("<8s2I4i", file.read(32))[2]
    end = 4096 + 32 + 16 * 40 + 512 + 8
    for at in 32, end:
        file.seek(at)
        time, = struct.unpack("<q", file.read(8))
        assert time > 0 and end + 8 <= 4096 + slot, (time, slot)
        file.seek(at)
        file.write(struct.pack("<q", time + 10000 * 10**9))
END
run "$DOCTOR" --job "$(echo "$W"/rec/gyre-*.node0.rec)" --record "$W/rec"
says "both hosts are read" '^job .*: 2 ranks, 0 alive'
says "who failed first, by the clock on the wall" 'culprit: rank 0 on .*: it exited with code 5'

# Many ranks, each in a call and waiting for the next one: work that grows with the cube of their number takes minutes here.
check "a job of many ranks" python3 - "$(echo "$W"/rec/gyre-*.node1.rec)" "$W/rec/gyre-many.rec" <<'END'
import struct, sys
ranks = 4000
head = bytearray(open(sys.argv[1], "rb").read(4096)) # as above
slot = struct.unpack_from("<I", head, 12)[0]
struct.pack_into("<2i", head, 16, ranks, ranks)
struct.pack_into("<64s", head, 88, b"many")
with open(sys.argv[2], "wb") as file:
    file.write(head)
    for r in range(ranks):
        file.write((struct.pack("<I2iIq2i", 2, r, 1000 + r, 1, 1, (r + 1) % ranks, 0)
            + struct.pack("<I4BiIQ4I", 5, 1, 7, 0, 0, -1, 77, 4, 1, 9, 0, 0)).ljust(slot, b"\0"))
END
run "$DOCTOR" --job "$W/rec/gyre-many.rec"
want "a job of many ranks" 0
check "each is printed once" [ "$(grep -cE '^  [0-9]+ -> [0-9]+$' "$W/out")" = 4000 ]

# Two processes have the recorder of another version open: one line says so, and it is no job of the list.
{ head -c 8 "$W/rec/gyre-many.rec" && printf '\2' && tail -c +10 "$W/rec/gyre-many.rec"; } >"$W/gyre-newer.rec"
exec 9<"$W/gyre-newer.rec"
run "$DOCTOR" --job
want "another version" 0 "job many .* version 2 .* version 1"
check "one line" [ "$(grep -c 'version 2' "$W/err")" = 1 ]
run "$DOCTOR" --job "$W/gyre-newer.rec"
want "a file of another version" 1 "job many .* version 2"
check "one line, too" [ "$(wc -l <"$W/err")" = 1 ]
exec 9<&-

# A job that ends well leaves no file.
rm -f "$W"/rec/*
run "$UCX_RUN" -n 2 --record "$W/rec" "$PERF" all_reduce -b 8 -e 8 -n 5
want "ends well" 0
check "no file stays" [ -z "$(ls "$W/rec")" ]

# Two jobs to which nobody gave an id, both of one rank that computes.
for _ in 1 2; do
    "$W/stuck" compute 0 &
    started+=("$!")
done
for _ in $(seq 300); do
    run "$DOCTOR" --job
    [ "$(grep -cE '^job-[0-9a-f]{8} +1 +1 ' "$W/out")" -lt 2 ] || break
    sleep 0.1
done
says "two jobs are two lines" '^job-[0-9a-f]{8} +1 +1 '
run "$DOCTOR" --job job
want "an id that both begin with" 1 "several jobs begin with 'job': job-"
for p in "${started[@]: -2}"; do
    kill -9 "$p"
    wait "$p" 2>/dev/null
done

# Two jobs of one secret to which nobody gave an id: both wait for a rank 0 that is not there.
for _ in 1 2; do
    GYRE_RANK=1 GYRE_SIZE=2 GYRE_ROOT=127.0.0.1:1 GYRE_SECRET=$(printf '%064d' 7) "$W/stuck" 2>/dev/null &
    started+=("$!")
done
for _ in $(seq 20); do
    run "$DOCTOR" --job job-9ae2ab53 # by that secret
    ! grep -q 'both rank 1' "$W/out" || break
    sleep 0.1
done
says "two jobs of one id" "verdict: processes [0-9]+ and [0-9]+ are both rank 1: .* GYRE_JOB"
for p in "${started[@]: -2}"; do
    kill -9 "$p"
    wait "$p" 2>/dev/null
done

# What is wrong is said.
run "$DOCTOR" --job nosuchjob
want "no such job" 1 "no job 'nosuchjob'"
run "$DOCTOR" --job /etc/passwd
want "no recorder" 1 'is not a flight recorder'
run "$DOCTOR" --job "$W/nosuchfile"
want "no file" 1 'No such file'

# A full disk: one warning, and the job runs.
space=(unshare -m)
[ "$(id -u)" = 0 ] || space=(unshare -rm)
if "${space[@]}" mount -t tmpfs -o size=4k none "$W/rec" 2>/dev/null; then
    # shellcheck disable=SC2016 # the inner shell's variables
    run "${space[@]}" sh -c 'mount -t tmpfs -o size=4k none "$0" && "$@"' "$W/rec" "$UCX_RUN" -n 2 --record "$W/rec" \
        "$PERF" all_reduce -b 8 -e 1K -n 5 -c 1
    want "full disk" 0 'No space left on device; it stays in memory'
    check "one warning" [ "$(grep -c 'flight recorder' "$W/err")" = 1 ]
fi
finish
