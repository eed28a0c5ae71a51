# tests/support/measuring.sh: a gyre-perf in the background, whose ranks a test kills or stops; sourced after lib.sh. $launcher is
# the number of its ucx-run.
# shellcheck shell=bash disable=SC2154 # lib.sh's variables
# SPDX-License-Identifier: Apache-2.0

pids_of() { # LAUNCHER: its ranks, in order of rank
    local dir stat
    for dir in /proc/[0-9]*; do
        { read -r stat <"$dir/stat"; } 2>/dev/null || continue
        stat=${stat##*) }
        stat=${stat#* }
        [ "${stat%% *}" = "$1" ] || continue
        tr '\0' '\n' 2>/dev/null <"$dir/environ" | sed -n "s/^GYRE_RANK=\(.*\)/\1 ${dir#/proc/}/p"
    done | sort -n | cut -d' ' -f2
}
ranks_are() { [ "$(pids_of "$launcher" | wc -l)" = "$1" ]; }
# The ranks know each other and measure: what ends one now, ends it in a collective.
measuring() {
    until_true 20 grep -qF '(us)' "$W/out" || bad "the job does not begin to measure"
    sleep 0.3
}
