#!/bin/bash
# tests/gpu/gpu_check.sh: what runs on a machine with a GPU one day, here: the bundle is whole, needs nothing of this machine but
# glibc, and says in one line that there is no GPU; and every part of gpu-check runs, with the emulator's programs at small sizes,
# whose results say that they are that.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
[ -x "$B/emulated/bin/gyre-perf" ] || skip "there are no emulated programs: make emulated"
python=$(command -v /usr/bin/python3 || command -v python3)
DEADLINE=150

# --- every part, emulated ---
bash tools/gpu-bundle "$B" --emulated "$W/emulated" || bad "the emulator's programs cannot be laid out"
check "every test is in its list" [ "$(wc -l <"$W/emulated/tests/list")" = "$(find tests/gpu -name "test_*.c" -o -name "mp_*.c" | wc -l)" ]
sed -i '/_device /!d' "$W/emulated/tests/list" # the others have run by themselves
run "$W/emulated/gpu-check" --quick --out "$W/results"
want "every part of gpu-check, emulated" 0
[ "$rc" = 0 ] || cat "$W/out"
check "the text says emulated" grep -q '^EMULATED' "$W/results/gpu-check.txt"
check "and nowhere that a goal is met" sh -c '! grep -qE "^(met|not met|measured) " "$1"' - "$W/results/gpu-check.txt"
check "the text is what was shown" cmp "$W/out" "$W/results/gpu-check.txt"
json() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else 1)' "$@"; }
if [ -n "$python" ]; then
    check "JSON: emulated" json "$W/results/gpu-check.json" 'd["emulated"] and d["quick"] and d["device"].startswith("emulated")'
    check "JSON: nothing wrong" json "$W/results/gpu-check.json" 'd["wrong"] == 0 and d["right"] > 40 and len(d["checks"]) == d["right"] + d["skipped"]'
    check "JSON: no figure of time" json "$W/results/gpu-check.json" 'all(c["figure"] is None or c["unit"] in ("wrong", "largest difference") for c in d["checks"])'
    check "JSON: every part" json "$W/results/gpu-check.json" \
        '{"facts", "kernels", "peers", "gpus-4", "schedules", "all_reduce-2", "all_reduce-4", "registered-2", "broadcast-4", "staged-2", "loss-cpu-gpu", "layouts-fp32", "layouts-bf16", "layouts-experts", "gpt2", "train-demo", "test_device", "mp_device-2"} <= {c["name"] for c in d["checks"] if c["verdict"] in ("passed", "ran")}'
fi

# --- what is wrong shows ---
printf '#!/bin/sh\necho "3 elements are wrong"; exit 1\n' >"$W/wrong"
chmod +x "$W/wrong"
ln -sf "$W/wrong" "$W/emulated/tests/test_device"
run "$W/emulated/gpu-check" --quick --only test_device --out "$W/results"
want "a test that fails" 1
check "it is reported" grep -qE '^failed +test_device +test; exit status 1' "$W/out"
check "with what it said" grep -q '| 3 elements are wrong' "$W/out"
[ -z "$python" ] || check "and is in JSON" json "$W/results/gpu-check.json" '[c["verdict"] for c in d["checks"]] == ["failed"] and d["wrong"] == 1'
printf '#!/bin/sh\nsleep 60\n' >"$W/wrong"
run "$W/emulated/gpu-check" --quick --only test_device --limits 0.07 --out "$W/results"
want "a test that takes too long" 1
check "it is reported, too" grep -qxE 'failed +test_device +test; its time of 2 s was up' "$W/out"
check "what it was" grep -qx -e '---- test_device: tests/many test_device' "$W/results/gpu-check.log"
check "what it cost" grep -qE '^---- test_device: [0-9]+ s, status 124$' "$W/results/gpu-check.log"
run "$W/emulated/gpu-check" --quick --only test_device --seconds 3 --out "$W/results"
want "one that has a goal after it, when the time is over" 1
check "says that" grep -qxE 'failed +test_device +test; cut short: the 3 s were over' "$W/out"

# --- a row that fails does not take the others along; a status alone is no skip; the GPU may be lost ---
many() { # TEXT: instead of every program of tests, but for the one that says whether the GPU is alive
    printf '#!/bin/sh\n[ "$1" != gpu_facts ] || exit 0\n%s\n' "$1" >"$W/many" && chmod +x "$W/many"
    ln -sf "$W/many" "$W/emulated/tests/many"
}
mv "$W/emulated/tests/many" "$W/many.kept"
many 'echo "copy on the device, read and written   10.0 us   4.00 GB/s"; echo "failed: own, bf16: logits [1,2]; cudaMalloc: out of memory"; exit 1'
run "$W/emulated/gpu-check" --quick --only kernels --out "$W/results"
want "a row fails" 1
check "the others count" grep -qE '^ran +kernels +copy on the device' "$W/out"
check "the row is named" grep -qxE 'failed +kernels +own, bf16: logits \[1,2\]; cudaMalloc: out of memory' "$W/out"
[ -z "$python" ] || check "JSON: complete" json "$W/results/gpu-check.json" 'd["complete"] and d["wrong"] == 2 and d["right"] == 1'
many 'echo "all 77 of 77 failed"; exit 77'
run "$W/emulated/gpu-check" --quick --only test_device --out "$W/results"
want "77 without the word is no skip" 1
check "but a failure" grep -qE '^failed +test_device +test; exit status 77$' "$W/out"
many 'echo "skipped: one rank has no group"; exit 77'
run "$W/emulated/gpu-check" --quick --only test_device --out "$W/results"
want "a skip" 0
check "with its reason" grep -qE '^skipped +test_device +test; one rank has no group$' "$W/out"
many 'echo "[1] something fails"; exit 1'
sed -i 's/exit 0/exit 1/' "$W/many"
run "$W/emulated/gpu-check" --quick --only test_ --out "$W/results"
want "the GPU is lost" 1
check "it is reported" grep -qE '^failed +gpu +the GPU still answers; not after test_device; what follows was not run$' "$W/out"
check "nothing follows" [ "$(grep -cE '^(failed|passed|ran) ' "$W/out")" = 2 ]
[ -z "$python" ] || check "JSON: not complete" json "$W/results/gpu-check.json" 'not d["complete"] and d["wrong"] == 2'
rm "$W/emulated/tests/many" && mv "$W/many.kept" "$W/emulated/tests/many"
printf '#!/bin/sh\nsleep 60\n' >"$W/wrong"
mv "$W/emulated/bin/gyre-perf" "$W/perf" && ln -s "$W/wrong" "$W/emulated/bin/gyre-perf"
run "$W/emulated/gpu-check" --quick --only gatherv --seconds 1 --out "$W/results"
want "what comes behind the goals, and for which the time does not suffice" 0
check "is skipped" grep -qE '^skipped +gatherv-4 .*; (cut short|not run): the 1 s were over' "$W/out"
mv "$W/perf" "$W/emulated/bin/gyre-perf"
run "$W/emulated/gpu-check" --list
check "what has goals comes first" sh -c '[ "$(grep -nx "layouts-experts" "$1" | cut -d: -f1)" -lt "$(grep -nx gpus-4 "$1" | cut -d: -f1)" ]' - "$W/out"
run "$W/emulated/gpu-check" --quick --only gpt2-torch --out "$W/results"
check "one part that another one belongs to" grep -q '^skipped *gpt2-torch' "$W/out"
printf '%s\n' '#!/bin/sh' '[ "$GYRE_RANK" != 0 ] || echo " 8 2 float sum -1 1.0 1.0 1.0 3 1.0 1.0 1.0 0 1 1"; exit 1' >"$W/wrong"
ln -sf "$W/wrong" "$W/emulated/bin/gyre-perf"
run "$W/emulated/gpu-check" --quick --only gatherv --out "$W/results"
want "wrong elements" 1
check "are told with their number" grep -qE '^failed +gatherv-4 .*: 3 wrong' "$W/out"
# a run whose losses depend on the number of ranks, and are not the CPU's
cat >"$W/wrong" <<'SH'
#!/bin/sh
size=${GYRE_SIZE:-1}
while [ $# -gt 1 ]; do
    case $1 in
    --log) log=$2 ;;
    --device) [ "$2" = cpu ] || size=2$size ;;
    esac
    shift
done
for step in 1 2 3 4 5; do echo "{\"step\":$step,\"loss\":$size.5,\"loss_hex\":\"0x$size\"}"; done >"$log"
echo '{"weights_hash":"00"}' >>"$log"
SH
ln -sf "$W/wrong" "$W/emulated/bin/gyre-train"
run "$W/emulated/gpu-check" --quick --only layouts-fp32 --only loss-cpu-gpu --out "$W/results"
want "other losses" 1
check "than one rank's" grep -qE '^failed +layouts-fp32 .*; losses or weights differ' "$W/out"
check "than the CPU's" grep -qE '^failed +loss-cpu-gpu .*: 20 largest difference' "$W/out"
run "$W/emulated/gpu-check" --only nonesuch --out "$W/results"
want "no check of that name" 1
run "$W/emulated/gpu-check" --frob
want "wrong usage" 2 'unrecognized arguments: --frob'
sed -i 's/^needs-glibc .*/needs-glibc 99.1/' "$W/emulated/VERSION"
run "$W/emulated/gpu-check" --out "$W/results"
want "glibc too old" 2 'need glibc 99.1 or later.*and here is [0-9.]+'

# --- the bundle ---
if command -v patchelf >/dev/null; then
    run bash tools/gpu-bundle "$B" "$W/bundle"
    want "packing" 0 'MiB of 50'
    mkdir "$W/away" && tar -C "$W/away" -xzf "$W/bundle.tar.gz"
    run env -i "$W/away/bundle/gpu-check" --out "$W/away"
    if [ -e /dev/nvidiactl ]; then
        echo "there is a GPU here: make gpu-check"
    else
        want "no driver" 2 '^gpu-check: nothing to check: no NVIDIA driver'
        check "in one line" [ "$(wc -l <"$W/err") $(wc -c <"$W/out")" = '1 0' ]
        check "and nothing written" [ ! -e "$W/away/gpu-check.json" ]
        run env -i "$W/away/bundle/gpu-first" A --out "$W/away"
        want "no driver for gpu-first" 2 '^gpu-first-A: nothing to check: no NVIDIA driver'
        while read -r name _; do
            run env -i "$W/away/bundle/tests/many" "$name"
            [ "$rc" = 77 ] && grep -q 'no NVIDIA driver' "$W/out" || bad "the bundle's $name: code $rc"
        done <"$W/away/bundle/tests/list"
    fi
    run env -i "$W/away/bundle/bin/ucx-run" -n 2 "$W/away/bundle/bin/gyre-perf" all_reduce -b 8 -e 64K -f 64 -c 1
    want "its programs run" 0
    run env -i GPU_BUNDLE_MIB=1 PATH="$PATH" bash tools/gpu-bundle "$B" "$W/small"
    want "a bundle that is too large" 1 'more than 1; the largest files'
else
    leave_out "the bundle itself: patchelf is not here (sh tools/setup bundle)"
fi
finish
