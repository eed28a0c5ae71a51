#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/column.sh: the toy column is printed below its head, for both places, and is in the
# JSON file.
$MAKE build/bin/gyre-perf build/bin/gyre-doctor
build/bin/gyre-perf all_reduce -b 8 -e 64K -f 64 -n 5 --json toy.json | tee toy.out
[ "$(grep -v '^#' toy.out | awk '{ print NF }' | sort -u)" = \
    "$(awk '$2 == "size" { print NF - 1 }' toy.out)" ]
[ "$(awk '$2 == "size"' toy.out | grep -ow toy | wc -l)" = 2 ]
python3 -c 'import json
for row in json.load(open("toy.json"))["results"]:
    assert row["out_of_place"]["toy"] >= 1 and row["in_place"]["toy"] >= 1'
bash tests/system/documents.sh
