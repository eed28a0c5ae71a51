#!/bin/bash
# tests/gpu/ranks/jobs.sh: whole jobs on device memory, emulated: ranks that die or come too late, and gyre-perf --memory cuda, where
# there is a device and where there is none.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
export GYRE_CUDA_BLOCKS=2

# Without a driver, in every build: one line, and 2.
if ! [ -e /dev/nvidiactl ]; then
    run "$UCX_RUN" -n 2 "$PERF" all_reduce --memory cuda
    want "no device" 2 '^gyre-perf: --memory cuda: '
    check "one line" [ "$(grep -c '^gyre-perf' "$W/err")" = 1 ]
    run "$PERF" all_reduce -g 2
    want "no device for ranks of one process" 2 '^gyre-perf: --ngpus 2: .*; ucx-run -n 2 starts 2 ranks on the host'
fi
run "$PERF" barrier --memory cuda
want "a barrier has no buffers" 2 'a barrier has no buffers'

T=$B/emulated/tests/gpu/ranks/mp_failures
P=$B/emulated/bin/gyre-perf
if ! [ -x "$T" ] || ! [ -x "$P" ]; then
    skip "no emulated build here: make emulated, with a CUDA toolkit, makes it"
fi

for path in direct staged; do
    run "$UCX_RUN" -n 3 --no-kill-on-bad-exit "$T" dying $path
    want "$path: a rank that died is named on the others" 0 '\[0\] error: .*rank 2 died' '\[1\] error: .*rank 2 died'
    GYRE_TIMEOUT=3 run "$UCX_RUN" -n 3 "$T" late $path
    want "$path: a rank that never calls: the others' deadline" 0 'all_reduce .* on device memory\).*did not finish within 3 s' \
        'rank 2'
    GYRE_TIMEOUT=8 run "$UCX_RUN" -n 3 "$T" late $path 50000 1
    want "$path: a rank that never calls: the deadline of gyre_comm_set" 0 'all_reduce .* on device memory\).*did not finish within 1 s' \
        'rank 2'
done
run "$UCX_RUN" -n 2 "$T" held direct
want "a stream with work that does not end" 0 '\[0\] error: .*stream 0x.* of CUDA device 0 has still not ended'

M=$B/emulated/tests/gpu/ranks/mp_messages
run "$UCX_RUN" -n 3 --no-kill-on-bad-exit "$M" dying auto
want "messages: a rank that died is named on the others" 0 '\[0\] error: .*rank 2 died' '\[1\] error: .*rank 2 died'
for wait in auto kernel; do
    GYRE_TIMEOUT=2 run "$UCX_RUN" -n 3 "$M" late $wait
    want "messages, $wait: a rank that neither sends nor receives" 0 'rank 2 #1 .*, on device memory\).* did not finish within 2 s: rank 2'
done

# Where kernels or streams cannot wait for each other.
few=(all_reduce -b 64K -e 64K -n 2 -w 0 -c 1)
run env CUDA_LAUNCH_BLOCKING=1 "$P" "${few[@]}" -g 2
want "a launch that waits for its kernel, ranks of one process" 3 'CUDA_LAUNCH_BLOCKING=1 has each launch wait'
check "one rank waits for nobody" env CUDA_LAUNCH_BLOCKING=1 "$P" "${few[@]}" -g 1 --memory cuda
check "0 is none" env CUDA_LAUNCH_BLOCKING=0 "$P" "${few[@]}" -g 2
O=$B/emulated/tests/gpu/test_one_process_streams
run env -u CUDA_DEVICE_MAX_CONNECTIONS "$O" queues
want "ranks of one process that share queues" 0 '2 ranks share CUDA device 0, .*set CUDA_DEVICE_MAX_CONNECTIONS=32'
run env CUDA_DEVICE_MAX_CONNECTIONS=32 "$O" queues
want "queues of their own" 0
check "queues of their own: no warning" [ ! -s "$W/err" ]
run env CUDA_DEVICE_MAX_CONNECTIONS=1 "$O" queues
want "one queue for two ranks" 1 'gyre_cuda_comms_create: 2 ranks share CUDA device 0, whose streams have 1 queue\(s\) \(CUDA_DEVICE_MAX_CONNECTIONS\)'
run env -u CUDA_DEVICE_MAX_CONNECTIONS EMULATED_DEVICES=2 "$O" queues 0 1 1
want "the device that most ranks share" 0 '2 ranks share CUDA device 1, '
check "a device for each rank" env CUDA_DEVICE_MAX_CONNECTIONS=1 EMULATED_DEVICES=2 "$O" queues 0 1
for path in direct staged; do
    run env -u CUDA_DEVICE_MAX_CONNECTIONS GYRE_CUDA_PATH=$path "$O" job
    want "$path: ranks of a job in one process that share queues" 0 '2 ranks share CUDA device 0, .*set CUDA_DEVICE_MAX_CONNECTIONS=32'
    run env CUDA_LAUNCH_BLOCKING=1 CUDA_DEVICE_MAX_CONNECTIONS=32 GYRE_CUDA_PATH=$path "$O" job
    want "$path: ranks of a job in one process, and launches that wait" 1 'rank 0: several ranks of a process: CUDA_LAUNCH_BLOCKING=1 has each launch wait'
done
run env EMULATED_WAITS=0 GYRE_LOG=info "$UCX_RUN" -n 2 "$P" "${few[@]}" --memory cuda
want "a driver whose streams do not wait" 0 'cuStreamWaitValue32 on CUDA device 0: error 801: kernels wait instead' 'one device; kernels wait'
run env EMULATED_WAITS=0 GYRE_CUDA_WAIT=stream "$UCX_RUN" -n 2 "$P" "${few[@]}" --memory cuda
checks=$((checks + 1))
[ "$rc" != 0 ] && grep -q 'GYRE_CUDA_WAIT=stream: the driver does not let streams of CUDA device 0 wait' "$W/err" || bad "streams that cannot wait, asked for"

# The same from device memory between hosts, with a UCX that passes for one that can (it reads device memory, as an adapter does).
T=$B/emulated/tests/gpu/ranks/mp_wire
for ranks in 1 2; do
    EMULATED_GUARD=0 run "$UCX_RUN" -n 4 --no-kill-on-bad-exit "$T" dying $ranks
    want "$ranks ranks per host: a rank that died is named on the others" 0 '\[0\] error: .*rank 3\)? died' '\[1\] error: .*rank 3\)? died'
    # the deadline is that of gyre_finalize, too, which waits until the streams of all have ended
    EMULATED_GUARD=0 GYRE_TIMEOUT=5 run "$UCX_RUN" -n 4 "$T" late $ranks
    want "$ranks ranks per host: a rank that never calls" 0 'did not finish within 5 s' 'rank 3'
    checks=$((checks + 1))
    ! grep 'did not finish' "$W/err" | grep -qv 'rank 3' || bad "$ranks ranks per host: an error that names a rank that waits itself"
done
T=$B/emulated/tests/gpu/ranks/mp_failures

export GYRE_CUDA_WAIT=kernel # as ranks with devices of their own do by default
run "$UCX_RUN" -n 3 --no-kill-on-bad-exit "$T" dying direct
want "kernels wait: a rank that died is named on the others" 0 '\[0\] error: .*rank 2 died' '\[1\] error: .*rank 2 died'
run "$UCX_RUN" -n 3 --no-kill-on-bad-exit "$T" dying direct 301
want "LL: a rank that died is named on the others" 0 '\[0\] error: .*rank 2 died' '\[1\] error: .*rank 2 died'
GYRE_TIMEOUT=2 run "$UCX_RUN" -n 3 "$T" late direct 301
want "LL: a rank that never calls" 0 'all_reduce .* on device memory\).*did not finish within 2 s' 'rank 2'
GYRE_TIMEOUT=2 run "$UCX_RUN" -n 3 "$T" late direct
want "kernels wait: a rank that never calls" 0 'all_reduce .* on device memory\).*did not finish within 2 s' 'rank 2'
run "$UCX_RUN" -n 3 --no-kill-on-bad-exit "$B/emulated/tests/gpu/ranks/mp_schedule" dying
want "in the middle of a ring: a rank that died is named on the others" 0 '\[0\] error: .*rank 2 died' '\[1\] error: .*rank 2 died'
unset GYRE_CUDA_WAIT

perf() { # OPTIONS...
    run "$UCX_RUN" -n 3 "$P" "$@" --memory cuda -n 2 -w 1 --json "$W/json"
    want "gyre-perf $*" 0
    check "$*: no wrong element" grep -q 'Out of bounds values : 0 OK' "$W/out"
    check "$*: the memory is in the JSON" grep -q '"memory": *"cuda"' "$W/json"
}
for collective in all_reduce reduce_scatterv all_gather broadcast reduce gatherv scatter alltoallv sendrecv neighbor_exchange; do
    perf $collective -b 1 -e 32K -f 32 -d half
done
perf all_reduce -b 4K -e 4K -o all -d bfloat16 -m 2
perf all_reduce -b 4K -e 4K --streams 2
GYRE_CUDA_PATH=staged perf all_reduce -b 1 -e 32K -f 32
perf all_reduce -b 4 -e 1M -f 512 --explain
check "--explain tells one shot from two" [ "$(grep -cE ' (one|two)_shot ' "$W/out")" -ge 4 ]
check "and why" grep -q 'all ranks share one device' "$W/out"
# Ranks of this process.
one() { # OPTIONS...
    run timeout 60 "$P" "$@" -n 2 -w 1 --json "$W/json"
    want "gyre-perf $*" 0
    check "$*: no wrong element" grep -q 'Out of bounds values : 0 OK' "$W/out"
}
for collective in all_reduce reduce_scatter all_gatherv broadcast gather scatterv alltoall sendrecv neighbor_exchange; do
    one $collective -g 4 -b 1 -e 32K -f 32 -r all
done
check "the number of ranks is in the JSON" grep -q '"ngpus": *4' "$W/json"
EMULATED_DEVICES=2 one all_reduce -g 3 -b 4K -e 4K -o all -d half -m 2
check "ranks are dealt out to the devices" grep -qE 'Rank +2 .* device +0 ' "$W/out"
one all_reduce -g 2 -b 4K -e 4K --explain
check "how they reach each other is told" grep -q 'all ranks are in one process and share one device; kernels wait' "$W/out"
EMULATED_DEVICES=4 EMULATED_SWITCH=0 one all_reduce --order fast -g 4 -b 1M -e 1M --explain
check "the order of sums is known to them" grep -q ' ring .*not all joined alike' "$W/out"
EMULATED_DEVICES=4 EMULATED_SWITCH=0 one all_reduce -g 4 -b 1M -e 1M --explain
check "which is canonical by default" grep -q ' butterfly ' "$W/out"
for ranks in 0 65 x; do
    run "$P" all_reduce -g $ranks
    want "-g $ranks" 2 "ngpus $ranks: wants a whole number from 1 to 64"
done
run "$P" latency all_reduce -g 2
want "latency is of processes" 2 'latency: -g: ranks of one process'
run "$UCX_RUN" -n 2 "$P" all_reduce -g 2
want "not with several processes" 2 'all ranks are in one process then, and this job has 2'

# How ranks reach each other: devices of their own, devices that cannot map each other's memory, several hosts.
EMULATED_DEVICES=3 perf all_reduce -b 8K -e 32K -f 4 --explain
check "kernels wait for ranks on devices of their own" grep -q "map each other's memory; kernels wait" "$W/out"
check "short ones have a flag in every store, in two blocks here" grep -q ' ll .*LL up to 8192 bytes for each rank (GYRE_CUDA_LL)' "$W/out"
check "and longer ones work in shots" grep -q ' one_shot .*every two GPUs are joined alike' "$W/out"
EMULATED_DEVICES=3 GYRE_CUDA_LL=0 perf all_reduce -b 4 -e 4 --explain
check "unless that is turned off" grep -q ' one_shot ' "$W/out"
run env EMULATED_DEVICES=2 GYRE_CUDA_LL=17K "$UCX_RUN" -n 2 "$P" all_reduce --memory cuda -b 4K -e 4K
want "beyond what its memory has room for" 3 'GYRE_CUDA_LL=17K is not in 0\.\.16384 bytes'
EMULATED_DEVICES=3 EMULATED_SWITCH=0 perf broadcast -b 1M -e 1M --explain
check "a ring is for GPUs that no switch joins" grep -q ' ring .*not all joined alike' "$W/out"
EMULATED_DEVICES=3 EMULATED_SWITCH=0 GYRE_CUDA_ALGO=shots perf broadcast -b 1M -e 1M --explain
check "unless shots are asked for" grep -q ' direct .*GYRE_CUDA_ALGO=shots' "$W/out"
# How many blocks a kernel has, by the clock of the memory, where GYRE_CUDA_BLOCKS does not say it.
for clock in 400000:8 1200000:24 0:24 1:4 100000000:64; do
    EMULATED_MEMORY_CLOCK=${clock%:*} GYRE_CUDA_BLOCKS=0 perf all_reduce -b 2M -e 2M --explain
    check "$clock: that many blocks" grep -qE " two_shot .* cuda +${clock#*:} +x1 " "$W/out"
done
run "$UCX_RUN" -n 2 bash -c '[ "$GYRE_RANK" = 0 ] || export EMULATED_MEMORY_CLOCK=400000; GYRE_CUDA_BLOCKS=0 exec "$0" "$@"' "$P" all_reduce \
    --memory cuda -b 1M -e 1M -n 1 -w 0 --explain
want "devices that differ" 0
check "the least of their blocks" grep -qE " cuda +8 +x1 " "$W/out"
run env GYRE_CUDA_BLOCKS=65 "$UCX_RUN" -n 2 "$P" "${few[@]}" --memory cuda
want "more blocks than there are regions" 3 'GYRE_CUDA_BLOCKS=65 is not in 0\.\.64'
# Ranks that share a device have a part of it each, and a tree needs two blocks.
EMULATED_PROCESSORS=64 perf all_reduce -b 4K -e 64K -f 16 --algo tree --explain
check "a schedule that is named runs" grep -q ' tree .*GYRE_ALGO names it' "$W/out"
EMULATED_PROCESSORS=3 GYRE_CUDA_WAIT=kernel perf all_reduce -b 4K -e 4K --algo tree --explain
check "else it is told what it needs" grep -q ' one_shot .*no kernel runs tree for this: it needs 2 blocks' "$W/out"
perf all_reduce -b 4K -e 4K --algo shared --explain
check "shared is what shots are" grep -q ' one_shot .*GYRE_ALGO names it' "$W/out"
GYRE_CUDA_ALGO=schedule perf all_reduce -b 4K -e 4K --explain
check "why a short one is in shots" grep -q ' one_shot .*shorter than 1 MiB' "$W/out"
GYRE_CUDA_ALGO=schedule perf alltoall -b 4M -e 4M --explain
check "why another operation is" grep -q ' direct .*no schedule is chosen for this operation' "$W/out"
for setting in GYRE_CUDA_ALGO=shots GYRE_CUDA_BLOCKS=3 GYRE_CUDA_LL=2K GYRE_CUDA_ONE_SHOT=2K GYRE_CUDA_ENGINES=8M; do
    run "$UCX_RUN" -n 2 bash -c '[ "$GYRE_RANK" = 0 ] || export '$setting'; exec "$0" "$@"' "$P" all_reduce --memory cuda -b 4K -e 4K
    want "$setting on one rank" 3 'GYRE_CUDA_ALGO, .*must be the same on all ranks, but rank'
done
EMULATED_DEVICES=3 EMULATED_PEERS=0 perf reduce_scatter -b 4K -e 4K --explain
check "without peer access all is staged, and why" grep -q ' staged .*cannot map memory of rank' "$W/out"
perf sendrecv -b 64K -e 128K -f 2 --explain
check "messages go from device to device" grep -q ' peers .*from device memory to device memory' "$W/out"
check "long ones by copy engines" grep -q ' engines .* peers ' "$W/out"
GYRE_HOST_RANKS=2 UCX_NET_DEVICES=lo perf alltoallv -b 4K -e 64K -f 16
GYRE_HOST_RANKS=2 UCX_NET_DEVICES=lo perf sendrecv -b 64K -e 64K
perf neighbor_exchange -b 128K -e 256K -f 2 --explain
check "a neighbour's block is half the size" [ "$(grep -c ' kernel .* peers ' "$W/out") $(grep -c ' engines .* peers ' "$W/out")" = "1 1" ]
perf neighbor_exchange -b 4K -e 4K --persistent
finish
