# SPDX-License-Identifier: Apache-2.0
# tests/support/language.sh: what the tests of a binding for a language have in common. They source it after lib.sh; page,
# operations and heat are of compiled ones, which have compiled $W/operations and $W/heat.
# shellcheck shell=bash

# installs DOCUMENT: installs Gyre by the page's own commands, in a home of this test; P: where
installs() {
    local home=$HOME
    export HOME=$W/home
    # shellcheck disable=SC2034 # for the test
    P=$HOME/gyre
    sed -n '/^    make install/,/^$/s/^    //p' "$1" >"$W/install"
    check "$1 installs, and sets paths" [ "$(cut -d' ' -f1 "$W/install" | tr '\n' ' ')" = 'make export ' ]
    DEADLINE=240 run bash -c "${MAKE:-make}$(sed -n '1s/^make//p' "$W/install")"
    want "the first command of $1" 0
    eval "$(sed -n 2p "$W/install")"
    HOME=$home
}

# page DOCUMENT LANGUAGE SOURCE: the first example of the page, by its own commands, prints what the page says.
page() {
    sed -n "/^\`\`\`$2/,/^\`\`\`/p" "$1" | sed '1d;/^```/,$d' >"$W/$3"
    run bash -c "cd '$W' && $(grep -m1 '^    g' "$1")"
    want "the command of $1" 0
    run bash -c "cd '$W' && $(grep -m1 '^    ucx-run' "$1")"
    want "the example of $1" 0
    out_is "the example of $1" "$(sed -n 's/^It prints `\(.*\)`\. .*/\1/p' "$1")"
}

# reached PAGE: the page names each function of the headers, but for gyre/cuda.h, that the binding does not call. stdin:
# those that it calls.
reached() {
    sort -u >"$W/called"
    sed -n '/^GYRE_API/s/.*\(gyre_[a-z0-9_]*\)(.*/\1/p' include/gyre/{bucket,collectives,comm,exact,plan,status,types,version}.h |
        sort -u >"$W/public"
    check "functions of the headers: $(wc -l <"$W/public")" [ "$(wc -l <"$W/public")" -gt 130 ]
    local name missing=''
    for name in $(comm -23 "$W/public" "$W/called"); do
        grep -q "\`$name\`" "$1" || missing="$missing $name"
    done
    check "neither called nor named in $1:$missing" [ -z "$missing" ]
}

# missing FILE: a libgyre that needs a library of hwloc that is not there
missing() {
    echo 'int nothing;' >"$W/nothing.c"
    ${CC:-gcc} -shared -Wl,-soname,libhwloc.so.77 -o "$W/libhwloc.so.77" "$W/nothing.c"
    ${CC:-gcc} -shared -Wl,-soname,libgyre.so.0 -Wl,--no-as-needed -o "$1" "$W/nothing.c" "$W/libhwloc.so.77"
    rm "$W/libhwloc.so.77"
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
