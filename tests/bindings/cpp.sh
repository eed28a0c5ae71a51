#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/cpp.sh: gyre/gyre.hpp as installed: the page's commands and example as written, every call against reference values
# on 1, 2 and 3 ranks, the heat equation as in C; every call is clean as C++20 with g++ and as C++17 with clang++ (TEST_LONG=1: both with both).
# deadline: 300
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/language.sh"
installs docs/cpp.md
check "the header is installed" [ -e "$P/include/gyre/gyre.hpp" ]
strict='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'
# compile PROGRAM SOURCE FLAGS...
compile() {
    local program=$1 source=$2
    shift 2
    # shellcheck disable=SC2086,SC2046 # lists of words
    DEADLINE=60 run g++ $strict "$@" "$source" $(pkg-config --cflags --libs gyre) -o "$program"
    want "$source $*" 0
}

page docs/cpp.md cpp sum.cpp

compile "$W/operations" tests/bindings/operations.cpp -std=c++20 -O0
operations
compile "$W/heat" examples/heat.cpp -std=c++17 -O0 -ffp-contract=off
heat

# An error that nobody catches in time does not make the others wait.
cat >"$W/throws.cpp" <<'CPP'
#include <cstdio>
#include <vector>
#include <gyre/gyre.hpp>
int main()
{
    try {
        gyre::Communicator world = gyre::Communicator::init();
        std::vector<int> x(2 + static_cast<std::size_t>(world.rank()) % 2), y(2);
        world.all_reduce(x, y, gyre::Op::sum);
    } catch (const gyre::Error &error) {
        std::fprintf(stderr, "status %d: %s\n", static_cast<int>(error.status()), error.what());
        return 0;
    }
    return 1;
}
CPP
compile "$W/throws" "$W/throws.cpp" -std=c++17 -O0
run "$UCX_RUN" -n 2 --timeout 25 "$W/throws"
want "an exception on one rank" 0 'status 100: gyre: all_reduce: send has 3 elements, it must have 2' \
    'status 203: gyre: all_reduce: .*an exception left the scope'
check "an exception on one rank: $ms ms" [ "$ms" -lt 20000 ]

# A communicator may outlive the job: its destructor has nothing to do, and says nothing.
cat >"$W/outlives.cpp" <<'CPP'
#include <gyre/gyre.hpp>
int main()
{
    gyre::Communicator world = gyre::Communicator::init(), twin = world.dup();
    twin.barrier();
    world.finalize();
}
CPP
compile "$W/outlives" "$W/outlives.cpp" -std=c++17 -O0
run "$UCX_RUN" -n 2 --timeout 25 "$W/outlives"
want "a communicator that outlives the job" 0
check "a communicator that outlives the job: $(cat "$W/err")" [ ! -s "$W/err" ]

# A finalize that fails has ended the communicator: its destructor has nothing to do, and says nothing.
cat >"$W/ends.cpp" <<'CPP'
#include <cstdio>
#include <gyre/gyre.hpp>
int main()
{
    gyre::Communicator world = gyre::Communicator::init();
    try {
        if (world.rank() == 0)
            world.finalize();
        else
            world.barrier();
    } catch (const gyre::Error &error) {
        std::printf("%s\n", world ? "open" : "ended");
        std::fputs("from here on nothing is wrong\n", stderr);
    }
}
CPP
compile "$W/ends" "$W/ends.cpp" -std=c++17 -O0
run env GYRE_LOG=error "$UCX_RUN" -n 2 --no-kill-on-bad-exit --timeout 25 "$W/ends"
want "a finalize that fails" 0 'called barrier' 'from here on'
check "a finalize that fails ends it: $(cat "$W/out")" [ "$(sort "$W/out" | xargs)" = 'ended open' ]
check "a finalize that fails is no error of the destructor: $(cat "$W/err")" bash -c '! grep -q "gyre_finalize.*ended\|has ended" "$0"' "$W/err"

# What must not compile: a function of each, a line each, all in one file.
printf '#include <list>\n#include <gyre/gyre.hpp>\n' >"$W/no.cpp"
lines=2
texts=()
refused() { # TEXT BODY
    texts[++lines]=$1
    printf 'inline void f%s(gyre::Communicator &c) { %s }\n' $lines "$2" >>"$W/no.cpp"
}
refused 'must outlive it' 'std::vector<int> s(1); (void)c.iall_reduce(s, std::vector<int>(1), gyre::Op::sum);'
refused 'same element type' 'std::vector<int> s(1); std::vector<float> r(1); c.all_reduce(s, r, gyre::Op::sum);'
refused "one of Gyre's" 'std::vector<long double> s(1); c.broadcast(s, 0);'
refused "one of Gyre's" 'std::vector<__int128> s(1); c.broadcast(s, 0);'
refused "one of Gyre's" 'gyre::Buckets<unsigned __int128> b(c, {}, gyre::Op::sum);'
refused 'contiguous container' 'std::list<double> s(1); c.all_reduce(s, gyre::Op::sum);'
refused 'contiguous container' 'std::vector<bool> s(1); c.all_reduce(s, gyre::Op::lor);'
refused 'contiguous container' 'double *s = nullptr; c.broadcast(s, 0);'
refused 'must not be const' 'const std::vector<double> s(1); c.all_reduce(s, gyre::Op::sum);'
refused 'not a value' 'c.all_reduce(3.0, gyre::Op::sum);'
refused 'deleted' 'gyre::Communicator d = c;'
refused 'ambiguous' 'std::vector<int> s(1), r(2); c.all_gatherv(s, r, {0, 2});'
run g++ -std=gnu++17 -fsyntax-only -I"$P/include" "$W/no.cpp"
want "must not compile" 1
# said LINE TEXT: an error has the text, and that line of no.cpp is what it is about
said() {
    awk -v line="$1" -v text="$2" 'match($0, /no\.cpp:[0-9]+/) { at = substr($0, RSTART + 7, RLENGTH - 7) }
        at == line && index($0, text) { found = 1 } END { exit !found }' "$W/err"
}
for line in "${!texts[@]}"; do
    check "must not compile, '${texts[line]}': $(sed -n "${line}p" "$W/no.cpp")" said "$line" "${texts[line]}"
done

reached docs/cpp.md < <(grep -o 'gyre_[a-z0-9_]*' bindings/cpp/gyre/gyre.hpp)

for compiler in ${TEST_LONG:+'g++ 17' 'clang++ 20'} 'clang++ 17'; do # g++ as C++20 has compiled it
    command -v "${compiler% *}" >/dev/null || {
        leave_out "no ${compiler% *}"
        continue
    }
    # shellcheck disable=SC2086 # a list of words
    run "${compiler% *}" "-std=c++${compiler#* }" $strict -fsyntax-only -I"$P/include" tests/bindings/operations.cpp
    want "$compiler" 0
done
finish
