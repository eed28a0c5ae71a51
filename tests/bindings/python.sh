#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/python.sh: the wheel of the package gyre in a fresh virtual environment: collectives compared with NumPy
# on 1 to 3 ranks, the examples of the docstrings and of docs/python.md, with TEST_LONG=1 its commands
# that install the package and run the first program, in an environment without this machine's packages, a rank that dies, a library that is missing.
# deadline: 480
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
run env PYTHON=$python CFLAGS=-O0 bindings/python/make-wheel "$B" "$W"
want "the wheel is built" 0
wheel=$(tail -n 1 "$W/out")
check "for every Python from 3.11 on: $wheel" [ "${wheel#*-cp311-abi3-linux_}" != "$wheel" ]
run "$python" -m venv --system-site-packages --without-pip "$W/venv"
want "a virtual environment" 0
run "$python" -m pip --disable-pip-version-check --python "$W/venv/bin/python" install --quiet --no-index --no-deps "$wheel"
want "the wheel is installed" 0

if python_with=$(with_module ml_dtypes); then
    "$python_with" -c 'import ml_dtypes; print(ml_dtypes.__path__[0])' >"$W/ml_dtypes"
    ln -s "$(cat "$W/ml_dtypes")" "$W"/venv/lib/python3.*/site-packages/
    run "$W/venv/bin/python" -c 'import ml_dtypes'
    want "ml_dtypes can be imported" 0
else
    leave_out "arrays of ml_dtypes: it is not installed (tools/setup references)"
fi

DEADLINE=60
export GYRE_LOG=none
ranks() { # N ARGUMENT...
    run "$UCX_RUN" --no-kill-on-bad-exit -n "$1" "$W/venv/bin/python" -X faulthandler "${@:2}"
    want "$*: $(grep -v '^ucx-run' "$W/out" | head -c 1500)" 0
}
for n in 1 2 3; do
    ranks $n tests/bindings/python_ranks.py
    check "all ranks of $n have checked" [ "$(grep -c 'checks, 0 failed' "$W/out")" = $n ]
    [ -z "${TEST_LONG:-}" ] && [ $n = 2 ] || ranks $n tests/bindings/python_docs.py
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
# Its commands that install the package, and those of the first program, as written, in a copy of the tree, since pip leaves
# files there. The virtual environment sees nothing of this machine's packages. What pip would download is here as wheels
# of what is installed: else it would need a network.
# wheels FOLDER NAME...: packages of this machine as wheels
wheels() {
    "$python" - "$@" <<'PY'
import importlib.metadata
import os
import sys
import zipfile

for name in sys.argv[2:]:
    about = importlib.metadata.distribution(name)
    top = os.path.dirname(__import__(name).__path__[0])
    info = f"{name}-{about.version}.dist-info"
    with zipfile.ZipFile(f"{sys.argv[1]}/{name}-{about.version}-py3-none-any.whl", "w") as wheel:
        for part in {"setuptools": ["setuptools", "pkg_resources", "_distutils_hack"]}.get(name, [name]):
            for folder, _, files in os.walk(os.path.join(top, part), followlinks=True):
                if "__pycache__" not in folder and "/tests" not in folder:
                    for file in files:
                        wheel.write(os.path.join(folder, file), os.path.relpath(os.path.join(folder, file), top))
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {about.version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", about.read_text("entry_points.txt") or "")
        wheel.writestr(f"{info}/RECORD", "")
PY
}
if [ -n "${TEST_LONG:-}" ] && ! "$python" -c 'import ensurepip; ensurepip.version()' 2>/dev/null; then
    leave_out "the commands of docs/python.md: no ensurepip (python3-venv)"
elif [ -n "${TEST_LONG:-}" ]; then
    mkdir "$W/tree" "$W/home" "$W/wheels" "$W/bin"
    printf '#!/bin/sh\nexec %s "$@"\n' "$python" >"$W/bin/python3" # of which the packages are
    chmod +x "$W/bin/python3"
    for entry in *; do
        [ "$entry" = bindings ] || ln -s "$(realpath "$entry")" "$W/tree/$entry"
    done
    cp -a bindings "$W/tree/"
    ln -sfn "$(realpath "$B")" "$W/tree/build"
    wheels "$W/wheels" numpy setuptools wheel
    sed -n '/^## Install$/,/^The package/s/^    \$ //p' docs/python.md | sed "s|^make |${MAKE:-make} |" >"$W/install"
    check "docs/python.md installs: $(cat "$W/install")" grep -qF "pip install './bindings/python[numpy]'" "$W/install"
    cp "$W/mean.py" "$W/tree/"
    grep -m1 '^    \$ ucx-run -n 2 python3 mean.py$' docs/python.md | sed 's/^    \$ //' >>"$W/install"
    DEADLINE=400 run env -u PYTHONPATH -C "$W/tree" HOME="$W/home" PATH="$W/bin:$PATH" PIP_NO_INDEX=1 PIP_FIND_LINKS="$W/wheels" bash -e "$W/install"
    want "the commands of docs/python.md" 0
    check "and its first program runs: $(tail -n 3 "$W/out")" [ "$(grep -c 'the mean is 499.5$' "$W/out")" = 2 ]
    check "which is not the wheel" bash -c '! compgen -G "$0/home/venv/lib/python3.*/site-packages/gyre/libgyre.so.*"' "$W"
fi

reached docs/python.md < <(nm -D --undefined-only "$W"/venv/lib/python3.*/site-packages/gyre/_gyre*.so | grep -o 'gyre_[a-z0-9_]*')

# A copy of the package whose libgyre needs a library that is not there.
cp -R "$W"/venv/lib/python3.*/site-packages/gyre "$W/gyre"
missing "$W/gyre/libgyre.so.0"
run env PYTHONPATH="$W" "$W/venv/bin/python" -c 'import gyre'
want "a machine without hwloc" 1 'ImportError: gyre: libhwloc.so.77, a library of hwloc, is not on this machine: .*apt install libhwloc15'

# Without a wheel: the source package finds the installed library, or says what is missing.
cp -R bindings/python "$W/package"
run env -C "$W/package" PKG_CONFIG_LIBDIR=/nonexistent "$W/venv/bin/python" setup.py --version
want "no gyre.pc" 1 'gyre: pkg-config .* gyre failed' 'make install-lib'
finish
