#!/bin/bash
# tests/tools/test_gyre_doctor.sh: what gyre-doctor's help promises, also on machines with little.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
D=$B/bin/gyre-doctor
unset "${!GYRE_@}"

json() { # EXPRESSION: a Python expression over d, the JSON of the last run, that must be true
    python3 -S -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else 1)' "$W/out" "$1"
}

# --- the report ---
run "$D"
want "report" 0
for section in Machine 'Between processes of this host' Network Limits GPUs Software 'Gyre will use'; do
    check "section $section" grep -qx "$section" "$W/out"
done
for name in Gyre kernel cores memory 'memfd windows' "windows' pages" membarrier CMA 'ptrace scope' 'locked memory' 'open files' /dev/shm hwloc \
    UCX jansson libsodium xxHash OpenBLAS PMIx 'RDMA devices\|RDMA ' 'CUDA' 'reduction kernels'; do
    check "line $name" grep -q "^  . $name" "$W/out"
done
check "windows were tried" grep -q 'memfd windows *work' "$W/out"
check "it says so when all is there" grep -q 'Everything required is there' "$W/out"
check "stderr is quiet" [ ! -s "$W/err" ]

# --- a machine that says little ---
HWLOC_SYNTHETIC='pack:1 [numa] [numa] core:2 pu:1' run "$D"
check "caches" grep -qx '    caches  *L1 unknown, L2 unknown, L3 unknown' "$W/out"
check "memory" grep -qx '    memory  *unknown' "$W/out"

# --- JSON ---
run "$D" --json -
want "--json -" 0
check "JSON" json 'd["ok"] and d["version"] and len(d["findings"]) > 20'
check "JSON findings" json 'all(set(f) == {"section", "name", "state", "value", "advice"} for f in d["findings"])'
check "JSON settings" json 'any(s["name"] == "GYRE_TIMEOUT" and s["value"] == "300" for s in d["settings"])'
run "$D" --json "$W/report.json"
want "--json FILE" 0
check "nothing on stdout beside it" [ ! -s "$W/out" ]
cp "$W/report.json" "$W/out"
check "JSON file" json 'd["ok"]'
run "$D" --json "$W/no/such/folder.json"
want "--json into nowhere" 1 "no/such/folder.json"
GYRE_JOB=$'caf\xe9' run "$D" --settings --json -
want "a value that is not UTF-8" 0
check "it is written all the same" json '[s["value"] for s in d["settings"] if s["name"] == "GYRE_JOB"] == ["caf?"]'

# --- settings ---
GYRE_CHUNK=64K GYRE_SECRET=0123456789abcdef run "$D" --settings
want "--settings" 0
check "a heading" grep -qE '^NAME +VALUE +DEFAULT +UNIT +SOURCE +MEANING$' "$W/out"
check "one row for each" [ "$(grep -c '^GYRE_' "$W/out")" = "$(grep -c '^SETTING(' base/settings/table.def)" ]
check "meanings are wrapped" [ "$(awk '!/^GYRE_SECRET/ && length > 165' "$W/out" | wc -l)" = 0 ]
check "and lines of a meaning are in its column" [ "$(grep -c '^ ' "$W/out")" -gt 10 ]
check "value, default and source" grep -qE '^GYRE_CHUNK +64K +0 +bytes +environment ' "$W/out"
check "defaults" grep -qE '^GYRE_TIMEOUT +300 +300 +s +default ' "$W/out"
check "the secret is not shown" sh -c '! grep -q 0123456789abcdef "$1"' - "$W/out"
GYRE_TIMEOUT=soon run "$D" --settings
want "a malformed value" 1 'GYRE_TIMEOUT="soon"' 'seconds'
GYRE_TIMEUOT=5 run "$D" --settings
want "an unknown name" 0 'GYRE_TIMEUOT' 'did you mean GYRE_TIMEOUT\?'
GYRE_FOO=1 run "$D" --settings
want "a name that is near to none" 0 'GYRE_FOO is not a setting of Gyre and is ignored \(gyre-doctor'
GYRE_TRANSPORT=ucx GYRE_KERNELS=scalar run "$D"
want "forced settings" 0
check "forced transport" grep -q 'ranks of one host *ucx (GYRE_TRANSPORT=ucx)' "$W/out"
check "forced kernels" grep -q 'reduction kernels *scalar' "$W/out"

# --- ranks that differ ---
cat >"$W/odd" <<'EOF'
#!/bin/bash
if [ "$GYRE_RANK" = 1 ]; then
    ulimit -n 300
    export GYRE_CHUNK=64K GYRE_ORDER=exact GYRE_TRANSPORT=ucx UCX_TLS=tcp,self OMP_PLACES=
fi
exec "$@"
EOF
chmod +x "$W/odd"
run "$B/bin/ucx-run" -n 2 "$D" --compare
want "ranks that are alike" 0
check "it says how many things" grep -qE '^2 ranks were compared: [0-9]+ things are alike, 0 differ\.$' "$W/out"
run "$B/bin/ucx-run" -n 3 "$W/odd" "$D" --compare
want "a rank that differs" 1
check "limits" grep -qE '^    300 descriptors .*  rank 1 \(' "$W/out"
check "settings by which collectives fail" grep -qE '^    64K  rank 1 \(' "$W/out"
check "the others' value" sh -c 'grep -A1 "GYRE_ORDER$" "$1" | grep -qE "^    canonical  ranks 0 .*, 2 "' - "$W/out"
check "the environment" sh -c 'grep -A2 "UCX_TLS$" "$1" | grep -qE "^    tcp,self  rank 1 "' - "$W/out"
check "an empty value is not an absent one" sh -c 'grep -A2 "OMP_PLACES$" "$1" | grep -q "^    (empty)  rank 1 "' - "$W/out"
check "nothing else" grep -qE '^3 ranks were compared: [0-9]+ things are alike, 8 differ\.$' "$W/out"
run "$B/bin/ucx-run" -n 3 "$W/odd" "$D" --compare --json "$W/compared.json"
want "--compare --json" 1
cp "$W/compared.json" "$W/out"
check "its JSON" json 'd["ranks"] == len(d["hosts"]) == 3 and d["alike"] > 50 and [v["ranks"] for e in d["differences"] \
    if e["name"] == "Settings: GYRE_CHUNK" for v in e["values"]] == [[0, 2], [1]]'
run "$D" --compare
want "one rank" 0
check "it says what to do" grep -q 'ucx-run -n' "$W/out"

# --- usage ---
run "$D" --help
want "--help" 0
check "help names every flag" [ "$(grep -cE -- '--(settings|compare|json|help|version)' "$W/out")" -ge 5 ]
run "$D" --version
want "--version" 0
run "$D" --nonsense
want "an unknown flag" 2 'unknown option --nonsense'
run "$D" --seting
want "a slip in a flag" 2 'unknown option --seting .did you mean --settings.'
run "$D" --job --settings
want "two questions" 2 'different questions'
run "$D" --settings --record "$W"
want "a folder without --job" 2 '--record is for --job'
run "$D" --json
want "a missing value" 2 json
run "$D" extra
want "an argument" 2 extra
run sh -c '"$1" --settings >/dev/full' - "$D"
want "a full disk" 1 'standard output'

# --- machines with little ---
run sh -c 'ulimit -n 64 && exec "$1"' - "$D"
want "64 descriptors" 0
check "it says that they are few" grep -q '! open files *64 ' "$W/out"
run sh -c 'ulimit -l 64 && exec "$1"' - "$D"
want "64 KiB of locked memory" 0
check "it says that it is little" grep -q 'locked memory *64 KiB' "$W/out"
check "and what to do" grep -q 'ulimit -l unlimited' "$W/out"
run env -i "$D"
want "an empty environment" 0
printf 'gyre-tune 1\nbusy 1.8 2 1764283000\ncost line 60\n' >"$W/busy"
run env GYRE_TUNE="$W/busy" "$D"
want "numbers of a busy machine" 0
check "it says so" grep -q -- '- tuning, busy *others had the cores: measured in 1.8 times the time' "$W/out"

# --- the manual page ---
for flag in settings compare json help version; do
    check "man page: --$flag" grep -q -- "-$flag" docs/man/gyre-doctor.1
done
finish
