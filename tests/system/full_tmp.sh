#!/bin/bash
# tests/system/full_tmp.sh: with /tmp and /dev/shm full to the last byte, or no place for flight recorders, a job runs all the same.
# Needs a mount namespace: root's, or a user namespace where those are permitted.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
sweep=(-b 8 -e 1M -f 16 -n 5 -w 1 -c 1)
space=(unshare -m)
[ "$(id -u)" = 0 ] || space=(unshare -rm)
mounts='mount -t tmpfs -o size=64k none /tmp && mount -t tmpfs -o size=64k none /dev/shm'
why=$("${space[@]}" sh -c "$mounts" 2>&1) || skip "no tmpfs may be mounted here (${space[*]}): ${why//$'\n'/; }"

# The build itself may lie below /tmp: by relative names, and without exec, which would make them absolute.
run "${space[@]}" bash -c 'cd "$0" || exit 99
    '"$mounts"' || exit 99
    dd if=/dev/zero of=/tmp/full bs=1k 2>/dev/null; dd if=/dev/zero of=/dev/shm/full bs=1k 2>/dev/null
    if echo x >/tmp/more; then exit 98; fi 2>/dev/null
    "$@"' "$B/bin" ./ucx-run -n 3 --timeout 25 ./gyre-perf all_reduce "${sweep[@]}"
want "full /tmp and /dev/shm" 0
check "every result was right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"

# A rank that no launcher made a flight recorder for tells of the folder, once, and works.
run env GYRE_RECORD=/nonexistent "$B/bin/gyre-perf" all_reduce -b 8 -e 8 -n 5 -w 1
want "no folder for the flight recorder" 0 'warning: the flight recorder /nonexistent/.* could not be made: No such file'
check "once" [ "$(grep -c 'flight recorder' "$W/err")" = 1 ]
finish
