# SPDX-License-Identifier: Apache-2.0
"""setup.py: builds gyre._gyre against the libgyre that pkg-config finds. With GYRE_BUNDLE=1 the package has a
copy of that library; else it loads the installed one."""
import glob
import os
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup


def pkg_config(*what):
    """What pkg-config says of gyre."""
    try:
        done = subprocess.run(["pkg-config", *what, "gyre"], check=True, text=True, capture_output=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or error
        sys.exit(f"gyre: pkg-config {' '.join(what)} gyre failed: {why}\n"
                 "Install Gyre (make install-lib PREFIX=...) and set PKG_CONFIG_PATH to its lib/pkgconfig.")


libdir = pkg_config("--variable=libdir")
bundle = os.environ.get("GYRE_BUNDLE") == "1"
# where the loader looks anyway, as for Debian's package, none
rpath = "$ORIGIN" if bundle else None if re.match(r"(/usr)?/lib(/[^/]*-linux-gnu)?$", libdir) else libdir
for old in glob.glob("gyre/libgyre.so.*"):
    os.remove(old)
if bundle:
    for library in glob.glob(f"{libdir}/libgyre.so.*"):
        shutil.copy(library, "gyre/")
setup(
    version=pkg_config("--modversion"),
    ext_modules=[
        Extension(
            "gyre._gyre",
            sorted(glob.glob("src/*.c")),
            include_dirs=[pkg_config("--variable=includedir")],
            library_dirs=[libdir],
            libraries=["gyre"],
            depends=glob.glob("src/*.h"),
            extra_compile_args=["-std=c17", "-O2", "-fvisibility=hidden"],
            extra_link_args=["-Wl,-rpath," + rpath] if rpath else [],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
