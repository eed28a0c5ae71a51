#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bench/test_readme.sh: the README's plot and table are what bench/readme.py makes of the results that
# it names.
. "$(dirname "$0")/../support/lib.sh"
run python3 bench/readme.py --check
want "the README's results" 0

# A copy that is changed is noticed, and mended.
mkdir -p "$W/top/docs/images" || exit 1
cp -r README.md bench "$W/top/"
cp docs/images/all_reduce.svg "$W/top/docs/images/"
copy() { run python3 "$W/top/bench/readme.py" "$@"; }
sed -i 's/^| 4 KiB | [0-9.]*/| 4 KiB | 0.001/' "$W/top/README.md"
copy --check
want "a figure changed by hand" 1 'README.md is not what bench/readme.py makes'
copy
want "made again" 0
check "the same README" cmp README.md "$W/top/README.md"
echo '<!-- -->' >>"$W/top/docs/images/all_reduce.svg"
copy --check
want "a changed plot" 1 'all_reduce.svg is not what'
well_formed() { python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$1"; }
check "the plot is well-formed" well_formed docs/images/all_reduce.svg
finish
