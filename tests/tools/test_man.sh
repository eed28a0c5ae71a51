#!/bin/bash
# tests/tools/test_man.sh: manual pages have the prototypes of the headers, defaults and names of the tables, one
# footer, and examples that compile and run. An example without main() is compiled only: it needs a GPU.
# So is that of gyre_train_create(3), whose library is not libgyre: tests/tools/train/test_example.sh runs one.
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
. "$(dirname "$0")/../support/lib.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
[ -n "$python" ] || skip "there is no python3"
man() { "$python" tests/tools/man.py "$@"; }
check "prototypes are those of the headers" man prototypes
if command -v groff >/dev/null; then
    run groff -t -man -Tutf8 -rLL=78n -z docs/man/*.[137]
    check "no warnings on a terminal of 80 columns" [ ! -s "$W/err" ]
else
    leave_out "warnings of pages: there is no groff"
fi
check "titles and references" man pages "$("$B/bin/gyre-doctor" --version | sed 's/.* //')"

run "$B/bin/gyre-doctor" --settings --json -
want "the settings" 0
cp "$W/out" "$W/settings.json"
run "$PERF" --help
cp "$W/out" "$W/perf.txt"
run "$B/bin/gyre-plan" pipeline --schedule all
want "the schedules" 0
awk '/^ *schedule /{on = 1; next} !NF {on = 0} on { print $1 }' "$W/out" >"$W/schedules"
check "there are schedules" [ "$(wc -l <"$W/schedules")" -ge 5 ]
check "defaults" man defaults "$W/settings.json"
check "lists of names" man words "$W/settings.json" "$W/perf.txt" "$W/schedules"

mkdir "$W/examples"
check "each page of section 3 has an example" man examples "$W/examples"
for source in "$W"/examples/*.c; do
    name=$(basename "$source" .c)
    what=(-o "${source%.c}" -L"$B/lib" -lgyre -pthread)
    grep -q '^int main' "$source" && ! grep -q 'gyre/train.h' "$source" || what=(-c -o /dev/null)
    run "${CC:-gcc}" -std=gnu17 -Wall -Wextra -Wpedantic -Werror -Iinclude "$source" "${what[@]}"
    want "the example of $name(3) compiles" 0
    [ -x "${source%.c}" ] || continue
    LD_LIBRARY_PATH=$B/lib run "$UCX_RUN" -n 2 --timeout 20 "${source%.c}"
    want "the example of $name(3) runs" 0
done
finish
