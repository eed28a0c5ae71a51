#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/torch.sh: PyTorch's backend "gyre": each call next to Gloo, types, operations, asynchronous
# work, training by DDP and ZeRO with the same losses, errors that end at once; the example of docs/pytorch.md.
# With TEST_LONG=1 also on 1 and 2 ranks, and the example by torchrun.
# deadline: 600
# takes: 60
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/language.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
to=${TORCH_TO:-$B/python}
[ -e "$B/lib/libgyre-malloc.so" ] || skip "a build with a sanitizer, which Python does not have"
DEADLINE=500 run sh bindings/torch/build "$python" "$B/lib" "$to"
[ "$rc" != 77 ] || skip "$(tail -n 1 "$W/out" | sed 's/^skipped: //')"
check "gyre_torch builds: $(tail -n 5 "$W/err")" [ "$rc" = 0 ]
export PYTHONPATH=$to GYRE_LOG=none OMP_NUM_THREADS=1
export USE_LIBUV=0 # PyTorch's store of Debian 13 has none
ranks() { # N CODE PART...
    local n=$1 code=$2 part
    shift 2
    DEADLINE=180 run "$UCX_RUN" -n "$n" "$python" -W ignore tests/bindings/torch_ranks.py "$@"
    check "$n ranks: code $rc: $(grep -h FAILED "$W/out" "$W/err" | head -n 1) $(tail -n 2 "$W/err")" \
        [ "$rc" = "$code" ]
    for part; do # the rank that leaves does not get there
        check "$part on $n ranks: all ranks got to the end" \
            [ "$(grep -c " $part: [0-9]* checks" "$W/out")" = "$([ "$part" = exit ] && echo $((n - 1)) || echo "$n")" ]
    done
}
DEADLINE=60 run g++ -std=c++17 -Wall -Wextra -Werror -Ibindings/torch -Iinclude tests/bindings/torch_engine.cpp \
    bindings/torch/engine.cpp -L"$B/lib" -lgyre -Wl,-rpath,"$B/lib" -pthread -o "$W/engine"
want "the engine without PyTorch" 0
DEADLINE=60 run "$UCX_RUN" -n 1 "$W/engine"
want "its operations: $(cat "$W/out")" 0
ranks 3 1 calls errors training exit
ranks 2 0 early
for n in ${TEST_LONG:+1 2}; do
    ranks "$n" 0 calls errors training
done

# A copy of the package whose libgyre needs a library that is not there.
cp -R "$to/gyre_torch" "$W/gyre_torch"
missing "$W/libgyre.so.0"
run env LD_LIBRARY_PATH="$W" PYTHONPATH="$W" "$python" -c 'import gyre_torch'
want "a machine without hwloc" 1 'ImportError: gyre_torch: libhwloc.so.77, a library of hwloc, is not on this machine: .*apt install libhwloc15'

# The first example of the page, as written
sed -n '/^    # example.py$/,/^$/p' docs/pytorch.md | sed 's/^    //' >"$W/example.py"
check "the page has an example" grep -q init_process_group "$W/example.py"
port=$(free_port)
torchrun="$python tests/launch/torchrun --nproc_per_node 2 --master_addr 127.0.0.1 --master_port $port"
for start in "$UCX_RUN -n 2 $python" ${TEST_LONG:+"$torchrun"}; do
    # shellcheck disable=SC2086 # a list of words
    DEADLINE=60 run $start "$W/example.py"
    check "the example by $start: code $rc: $(tail -n 3 "$W/err")" [ "$rc" = 0 ]
    check "what it prints by $start: $(cat "$W/out")" [ "$(grep -c 'tensor(\[3., 3.\])' "$W/out")" = 2 ]
done
finish
