#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/gpu/torch.sh: PyTorch's backend "gyre" on tensors of a device: PyTorch's devices are the emulator's
# (torch/device.cpp), and the package is the product. Bits of the CPU's calls, order of streams, messages, errors, a
# rank that leaves; a library without a device. With TEST_LONG=1 also other numbers of ranks.
# deadline: 500
# takes: 60
. "$(dirname "$0")/../../support/lib.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
to=${TORCH_TO:-$B/python}
there=$(realpath -m "$B/emulated/lib")
[ -e "$there/libemulated.so" ] || skip "no emulated build here: make emulated, with a CUDA toolkit, makes it"
here=$(dirname "$0")/torch
DEADLINE=300
run sh bindings/torch/build "$python" "$B/lib" "$to"
[ "$rc" != 77 ] || skip "$(tail -n 1 "$W/out" | sed 's/^skipped: //')"
check "gyre_torch builds: $(tail -n 5 "$W/err")" [ "$rc" = 0 ]
flags=$(sh bindings/torch/build "$python" flags)
# shellcheck disable=SC2086 # a list of words
run "${CXX:-g++}" -shared -fPIC -O1 -w -isystem "${CUDA_HOME:-/usr/local/cuda}/include" "$here/device.cpp" -L"$there" \
    -lemulated $flags -Wl,-rpath,"$there" -o "$W/emulated_device.so"
check "PyTorch's devices on the emulator build: $(head -n 5 "$W/err")" [ "$rc" = 0 ]
export PYTHONPATH=$to:$W:$here/../.. GYRE_LOG=none OMP_NUM_THREADS=1 USE_LIBUV=0 EMULATED_DEVICES=2 GYRE_CUDA_BLOCKS=2
DEADLINE=120
ranks() { # LIBRARIES N CODE PART...
    local with=$1 n=$2 code=$3 part
    shift 3
    LD_LIBRARY_PATH=$with run "$UCX_RUN" -n "$n" "$python" -W ignore "$here/ranks.py" "$@"
    check "$n ranks, $*: code $rc: $(grep -h FAILED "$W/out" "$W/err" | head -n 1) $(tail -n 2 "$W/err")" \
        [ "$rc" = "$code" ]
    for part; do # the rank that leaves does not get there
        check "$part on $n ranks: all ranks got to the end: $(grep -hv '^$' "$W/err" | head -c 2000 | tr '\n' ' ')" \
            [ "$(grep -c " $part: [0-9]* checks" "$W/out")" = "$([ "$part" = exit ] && echo $((n - 1)) || echo "$n")" ]
    done
}
ranks "$there" 3 1 calls streams messages errors exit
for n in ${TEST_LONG:+2 4}; do
    ranks "$there" "$n" 0 calls streams messages errors
done
[ -z "${TEST_LONG-}" ] || ranks "$there" 1 0 calls streams errors # no messages on device memory to oneself
GYRE_CUDA_PATH=staged ranks "$there" 2 0 calls streams messages
if [ "${flags#-std=c++17}" = "$flags" ]; then # PyTorch 1, which has no device_id, is built as C++17
    ranks "$there" 3 0 bound
fi
if [ -e /dev/nvidiactl ]; then
    leave_out "a library without a device: this machine has one"
else
    ranks '' 2 0 none
fi
finish
