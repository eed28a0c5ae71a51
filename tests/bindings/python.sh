#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/python.sh: the wheel of the package gyre in a fresh virtual environment: collectives compared with NumPy
# on 1 to 3 ranks, the examples of the docstrings and of docs/python.md, with TEST_LONG=1 its commands
# that install the package, a rank that dies, a library that is missing.
# deadline: 240
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/language.sh"
python=/usr/bin/python3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || skip "no Python of 3.11 or later"
for module in venv setuptools wheel pip numpy; do
    "$python" -c "import $module" 2>/dev/null || skip "no $module for $python"
done
[ -e "/usr/include/python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/Python.h" ] || skip "no python3-dev"
! nm -D "$B"/lib/libgyre.so.? | grep -qE '__(asan|tsan)_init' || skip "a build with a sanitizer"

DEADLINE=120
run env PYTHON=$python bindings/python/make-wheel "$B" "$W"
want "the wheel is built" 0
wheel=$(tail -n 1 "$W/out")
check "for every Python from 3.11 on: $wheel" [ "${wheel#*-cp311-abi3-linux_}" != "$wheel" ]
run "$python" -m venv --system-site-packages --without-pip "$W/venv"
want "a virtual environment" 0
run "$python" -m pip --disable-pip-version-check --python "$W/venv/bin/python" install --quiet --no-index --no-deps "$wheel"
want "the wheel is installed" 0

DEADLINE=60
export GYRE_LOG=none
ranks() { # N ARGUMENT...
    run "$UCX_RUN" --no-kill-on-bad-exit -n "$1" "$W/venv/bin/python" -X faulthandler "${@:2}"
    want "$*: $(grep -v '^ucx-run' "$W/out" | head -c 1500)" 0
}
for n in 1 2 3; do
    ranks $n tests/bindings/python_ranks.py
    check "all ranks of $n have checked" [ "$(grep -c 'checks, 0 failed' "$W/out")" = $n ]
    ranks $n tests/bindings/python_docs.py
done
ranks 3 tests/bindings/python_ranks.py kill
run "$UCX_RUN" -n 3 "$W/venv/bin/python" tests/bindings/python_ranks.py leave
want "a rank that raises: $(head -c 600 "$W/out")" 0

# docs/python.md: its programs, and what it says that they print
programs() { # NAME: the block of docs/python.md that begins with "# NAME"
    sed -n "/^# $1\$/,/^\`\`\`\$/p" docs/python.md | sed '$d' >"$W/$1"
    [ -s "$W/$1" ]
}
for name in mean.py own.py tasks.py; do
    check "docs/python.md has $name" programs $name
    run "$UCX_RUN" -n 2 "$W/venv/bin/python" "$W/$name"
    want "$name" 0
    sort -u "$W/out" >"$W/lines"
    sed -n "/^    \$ ucx-run -n 2 python3 $name\$/,/^\$/p" docs/python.md | sed -n 's/^    \([^$].*\)/\1/p' | sort -u >"$W/said"
    check "what $name prints: $(diff "$W/said" "$W/lines" | head -5)" cmp -s "$W/said" "$W/lines"
done
# Its commands that install the package, as written, in a copy, since pip leaves files there. setuptools and wheel are those of
# this machine: else pip would need a network.
if [ -n "${TEST_LONG:-}" ]; then
    mkdir "$W/tree" "$W/bin" "$W/home"
    for entry in *; do
        [ "$entry" = bindings ] || ln -s "$(realpath "$entry")" "$W/tree/$entry"
    done
    cp -a bindings "$W/tree/"
    ln -sfn "$(realpath "$B")" "$W/tree/build"
    printf '#!/bin/sh\nexec %s -m pip --python "%s/fresh/bin/python" "$@"\n' "$python" "$W" >"$W/bin/pip"
    chmod +x "$W/bin/pip"
    "$python" -m venv --system-site-packages --without-pip "$W/fresh"
    sed -n '/^## Install$/,/^The package/s/^    \$ //p' docs/python.md >"$W/install"
    check "docs/python.md installs: $(cat "$W/install")" grep -q '^pip install ./bindings/python$' "$W/install"
    DEADLINE=240 run env -C "$W/tree" HOME="$W/home" PATH="$W/bin:$PATH" PIP_NO_BUILD_ISOLATION=0 PIP_NO_INDEX=1 bash -e "$W/install"
    want "the commands of docs/python.md" 0
    run "$UCX_RUN" -n 2 "$W/fresh/bin/python" "$W/mean.py"
    want "mean.py with what pip has installed: $(head -c 300 "$W/out")" 0
    check "which is not the wheel" bash -c '! compgen -G "$0/fresh/lib/python3.*/site-packages/gyre/libgyre.so.*"' "$W"
fi

reached docs/python.md < <(nm -D --undefined-only "$W"/venv/lib/python3.*/site-packages/gyre/_gyre*.so | grep -o 'gyre_[a-z0-9_]*')

# A copy of the package whose libgyre needs a library that is not there.
cp -R "$W"/venv/lib/python3.*/site-packages/gyre "$W/gyre"
echo 'int nothing;' >"$W/nothing.c"
${CC:-gcc} -shared -Wl,-soname,libucp.so.77 -o "$W/libucp.so.77" "$W/nothing.c"
${CC:-gcc} -shared -Wl,-soname,libgyre.so.0 -Wl,--no-as-needed -o "$W/gyre/libgyre.so.0" "$W/nothing.c" "$W/libucp.so.77"
rm "$W/libucp.so.77"
run env PYTHONPATH="$W" "$W/venv/bin/python" -c 'import gyre'
want "a machine without UCX" 1 'ImportError: gyre: libucp.so.77, a library of UCX, is not on this machine: .*apt install libucx0'

# Without a wheel: the source package finds the installed library, or says what is missing.
cp -R bindings/python "$W/package"
run env -C "$W/package" PKG_CONFIG_LIBDIR=/nonexistent "$W/venv/bin/python" setup.py --version
want "no gyre.pc" 1 'gyre: pkg-config .* gyre failed' 'make install-lib'
finish
