# SPDX-License-Identifier: Apache-2.0
# tests/support/train.sh: runs of gyre-train in a folder of the test's own, to which it goes; sourced. The test sets
# `common`, the arguments of every run.
# shellcheck shell=bash disable=SC2154 # common: the test's
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
seq 1 4000 >text

train() { "$B/bin/gyre-train" "${common[@]}" "$@" >out.log 2>&1 || { cat out.log; return 1; }; }
refused() { # TEXT arguments: the run is refused, with that text
    local text=$1
    shift
    if "$B/bin/gyre-train" "${common[@]}" "$@" >out.log 2>&1 || ! grep -qF -- "$text" out.log; then
        echo "not refused with '$text': $*"
        cat out.log
        return 1
    fi
}
