# SPDX-License-Identifier: Apache-2.0
# tests/support/language.sh: what the tests of a binding for a compiled language have in common. They source it after
# lib.sh, and have compiled $W/operations and $W/heat.
# shellcheck shell=bash

# page DOCUMENT LANGUAGE SOURCE: the first example of the page, by its own commands, prints what the page says.
page() {
    sed -n "/^\`\`\`$2/,/^\`\`\`/p" "$1" | sed '1d;/^```/,$d' >"$W/$3"
    run bash -c "cd '$W' && $(grep -m1 '^    g' "$1")"
    want "the command of $1" 0
    run bash -c "cd '$W' && $(grep -m1 '^    ucx-run' "$1")"
    want "the example of $1" 0
    out_is "the example of $1" "$(sed -n 's/^It prints `\(.*\)`\. .*/\1/p' "$1")"
}

# Every call against reference values.
operations() {
    for n in 1 2 3; do
        run "$UCX_RUN" -n $n --timeout 25 "$W/operations"
        want "every call on $n" 0
        check "every call on $n: $(cat "$W/out")" grep -q ' checks, 0 failed$' "$W/out"
    done
}

# The heat equation prints what examples/heat.c does.
heat() {
    for n in 1 2 3; do
        run "$UCX_RUN" -n $n --timeout 25 "$B/examples/heat" 65 48 60
        want "heat in C on $n" 0
        as_in_c=$(cat "$W/out")
        run "$UCX_RUN" -n $n --timeout 25 "$W/heat" 65 48 60
        want "heat on $n" 0
        out_is "heat on $n prints what it prints in C" "$as_in_c"
    done
}
