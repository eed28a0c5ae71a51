#!/bin/bash
# tests/system/limits.sh: a machine that gives little: 64 KiB of locked memory, 64 descriptors, a port that is
# taken. It works, or says clearly why not; nothing hangs, nothing is left.
# deadline: 180
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
sweep=(-b 8 -e 1M -f 16 -n 5 -w 1 -c 1)

for transport in shm ucx; do
    run bash -c 'ulimit -l 64; exec "$@"' sh "$UCX_RUN" -n 3 --timeout 25 "$PERF" all_reduce "${sweep[@]}" --transport $transport
    want "RLIMIT_MEMLOCK 64 KiB, $transport" 0
    run bash -c 'ulimit -n 64; exec "$@"' sh "$UCX_RUN" -n 4 --timeout 25 "$PERF" all_reduce "${sweep[@]}" --transport $transport
    want "RLIMIT_NOFILE 64, $transport" 0
done
run bash -c 'ulimit -n 64; exec "$@"' sh "$UCX_RUN" -n 8 --timeout 25 "$PERF" all_reduce "${sweep[@]}"
want "8 ranks with 64 descriptors" 0
# Fewer than anyone can live with: an error, no hang and no crash.
run bash -c 'ulimit -n 9; exec "$@"' sh "$UCX_RUN" -n 2 --timeout 25 "$PERF" all_reduce "${sweep[@]}"
checks=$((checks + 1))
[ "$rc" != 0 ] && [ "$rc" != 124 ] && [ "$rc" -lt 128 ] || bad "9 descriptors: code $rc"
check "9 descriptors: it says so" grep -qiE 'open files|descriptor' "$W/err"

# A port that somebody else listens on.
/usr/bin/python3 -c '
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(100)' >"$W/port" &
holder=$!
until_true 10 test -s "$W/port" || bad "no port was taken"
port=$(cat "$W/port")
GYRE_PORT_RANGE=$port-$port run "$UCX_RUN" -n 2 true
want "ucx-run, port in use" 1 "$port" 'GYRE_PORT_RANGE'
secret=$(printf '%064d' 7)
GYRE_RANK=0 GYRE_SIZE=2 GYRE_ROOT=127.0.0.1:$port GYRE_SECRET=$secret GYRE_INIT_TIMEOUT=5 run "$PERF" all_reduce "${sweep[@]}"
checks=$((checks + 1))
[ "$rc" != 0 ] || bad "rank 0 by hand with a port in use: code 0"
check "rank 0 by hand, port in use: says which" grep -q "$port" "$W/err"
kill "$holder"
wait "$holder" 2>/dev/null

# By hand, without a launcher, and under torchrun's names.
by_hand() { # NAME ENV-OF-RANK-0 ENV-OF-RANK-1
    local name=$1 first
    # shellcheck disable=SC2086 # words
    env $2 timeout 30 "$PERF" all_reduce "${sweep[@]}" >"$W/out0" 2>"$W/err0" &
    first=$!
    # shellcheck disable=SC2086 # words
    run env $3 "$PERF" all_reduce "${sweep[@]}"
    want "$name: rank 1" 0
    wait $first
    rc=$?
    cp "$W/err0" "$W/err"
    want "$name: rank 0" 0
}
port=$(free_port)
common="GYRE_SIZE=2 GYRE_ROOT=127.0.0.1:$port GYRE_SECRET=$secret GYRE_INIT_TIMEOUT=20"
by_hand "GYRE_*" "$common GYRE_RANK=0" "$common GYRE_RANK=1"
port=$(free_port)
common="WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port GYRE_SECRET=$secret GYRE_INIT_TIMEOUT=20"
by_hand "torchrun's names" "$common RANK=0" "$common RANK=1"
finish
