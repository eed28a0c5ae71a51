#!/bin/bash
# tests/system/container.sh: what a container may forbid or limit: memfd_create, membarrier and process_vm_readv (seccomp), memory and
# time of processors (control groups), the set of processors, a home that can be written, huge pages. Jobs run and results are
# right; gyre-doctor has a line for each.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
export XDG_CACHE_HOME=$W/cache

# job NAME RANKS KINDS COMMAND...: `COMMAND... ucx-run` has right results, from these kinds of memory (0: malloc, 1: windows)
job() {
    local name=$1 ranks=$2 kinds=$3 kind
    shift 3
    for kind in $kinds; do
        run "$@" "$UCX_RUN" -n "$ranks" --bind none --timeout 25 "$PERF" all_reduce -b 8 -e 1M -f 32 -n 5 -w 1 -c 1 -R "$kind"
        want "$name, -R $kind" 0
        check "$name, -R $kind: right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
    done
}
# line NAME PATTERN COMMAND...: `COMMAND... gyre-doctor` has such a line, and nothing that is required is missing
line() {
    local name=$1 pattern=$2
    shift 2
    run "$@" "$B/bin/gyre-doctor"
    want "$name: gyre-doctor" 0
    check "$name: gyre-doctor says so: $(grep -E "^  . ${pattern%% *}" "$W/out" | head -3)" grep -qE "^  $pattern" "$W/out"
}

# --- seccomp ---
run "${CC:-gcc}" -std=c17 -D_GNU_SOURCE -O1 -I. -o "$W/forbid" tests/system/forbid.c
check "forbid compiles: $(cat "$W/err")" [ "$rc" = 0 ]
if "$W/forbid" -- true; then
    job "without memfd_create" 3 "0 1" env GYRE_TRANSPORT=shm "$W/forbid" memfd_create --
    line "without memfd_create" '! memfd windows *memfd_create: Operation not permitted; files without a name' "$W/forbid" memfd_create --
    job "without membarrier" 3 1 "$W/forbid" membarrier --
    line "without membarrier" '- membarrier *not to be had' "$W/forbid" membarrier --
    job "without CMA" 3 0 env GYRE_TRANSPORT=shm "$W/forbid" process_vm_readv process_vm_writev --
    line "without CMA" '- CMA *process_vm_readv: Operation not permitted' "$W/forbid" process_vm_readv --
    job "without any" 4 "0 1" env GYRE_TRANSPORT=shm "$W/forbid" memfd_create membarrier process_vm_readv process_vm_writev ptrace --
    GYRE_JOB=nomemfd$$ "$W/forbid" memfd_create -- "$PERF" all_reduce -b 8 -e 8 -n 1000000000 >/dev/null 2>&1 &
    alone=$!
    shown() { "$B/bin/gyre-doctor" --job nomemfd$$ >/dev/null 2>&1; }
    check "without memfd_create: gyre-doctor --job finds the rank" until_true 10 shown
    kill "$alone"
    wait "$alone" 2>/dev/null
    # A /dev/shm that is too small, as a container's 64 MiB may be: the next folder has room. None has: an error.
    space=(unshare -m)
    [ "$(id -u)" = 0 ] || space=(unshare -rm)
    if "${space[@]}" mount -t tmpfs -o size=64k none /dev/shm 2>/dev/null; then
        small='mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
        job "no memfd_create, no room in /dev/shm" 2 1 "$W/forbid" memfd_create -- "${space[@]}" bash -c "$small" sh
        # The build may lie below /tmp: by relative names, and without exec, which would make them absolute.
        none='cd "$0" && for d in /dev/shm /tmp /var/tmp; do mount -t tmpfs -o size=64k none $d || exit 99; done; "$@"'
        run "$W/forbid" memfd_create -- "${space[@]}" bash -c "$none" "$B/bin" ./ucx-run -n 2 --timeout 25 ./gyre-perf all_reduce
        checks=$((checks + 1))
        [ "$rc" != 0 ] && [ "$rc" -lt 124 ] || bad "no memfd_create, no room anywhere: code $rc"
        check "no room anywhere: it says so" grep -q 'cannot make the shared segment of 2 ranks' "$W/err"
    else
        leave_out "a small /dev/shm: no tmpfs may be mounted here"
    fi
else
    leave_out "what seccomp forbids: there may be no filter here"
fi

# --- a home that cannot be written ---
nohome=(env -u XDG_CACHE_HOME HOME=/dev/null)
job "no home" 2 1 "${nohome[@]}"
check "no home: not worth a word" [ ! -s "$W/err" ]
line "no home" '- tuning cache *.*/gyre/tune-[0-9a-f]+ cannot be written: Not a directory' "${nohome[@]}"

# --- the set of processors: ranks of a host, and of two, that may use different ones ---
read -ra cpus < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
if [ "${#cpus[@]}" -ge 2 ]; then
    one="${cpus[0]}" other="${cpus[1]}"
    sets="case \$GYRE_RANK in 0) set=$one;; 1) set=$one,$other;; *) set=$other;; esac; exec taskset -c \$set \"\$@\""
    for hosts in 0 2; do
        for collective in all_reduce scan; do
            GYRE_HOST_RANKS=$hosts run "$UCX_RUN" -n 4 --bind none --timeout 25 bash -c "$sets" sh \
                "$PERF" $collective -b 8 -e 1M -f 32 -n 3 -w 1 -c 1
            want "different processors, $collective, GYRE_HOST_RANKS=$hosts" 0
            check "different processors, $collective: right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
        done
    done
    [ "$(lscpu -p=CORE | grep -v '^#' | sort -u | wc -l)" -lt 2 ] ||
        line "a part of the processors" '- CPU set *this process may use 1 of [0-9]+ cores' taskset -c "$one"
else
    leave_out "different processors: there is one"
fi

# --- control groups ---
# group CONTROLLER: makes $group with that controller
group() {
    group=/sys/fs/cgroup/$1/gyre-test.$$
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        group=/sys/fs/cgroup/gyre-test.$$
        grep -qw "$1" /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || return 1
    fi
    mkdir "$group" 2>/dev/null
}
# put TEXT FILE...: writes to those of the files that there are, of version 1 or 2
put() {
    local text=$1 file
    shift
    for file in "$@"; do
        [ ! -e "$group/$file" ] || echo "$text" >"$group/$file" || return
    done
}
end_group() { until_true 5 rmdir "$group" 2>/dev/null || bad "$group stays"; }
inside=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"')
if group memory; then
    check "a limit of memory" put $((64 << 20)) memory.limit_in_bytes memory.max
    job "64 MiB" 4 "0 1" "${inside[@]}" "$group"
    line "64 MiB" '! memory limit *this container may use 64' "${inside[@]}" "$group"
    end_group
else
    leave_out "a limit of memory: control groups may not be made here"
fi
if group cpu; then
    check "half a processor" put 50000 cpu.cfs_quota_us && put '50000 100000' cpu.max
    job "half a processor" 3 1 "${inside[@]}" "$group"
    line "half a processor" '! CPU quota *this container may use 0.5 of' "${inside[@]}" "$group"
    end_group
else
    leave_out "a limit of processor time: control groups may not be made here"
fi

# --- huge pages: Gyre takes none, so there may be none ---
[ ! -d /sys/kernel/mm/hugepages/hugepages-2048kB ] || line "huge pages" '  huge pages *[0-9]+ of 2 MiB, [0-9]+ free' env
finish
