# SPDX-License-Identifier: Apache-2.0
"""gyre._missing: the text of the ImportError when libgyre, or a library that it needs, is not there."""
import re

PACKAGES = {
    "libgyre": ("Gyre's library", "install it (make install-lib), or set LD_LIBRARY_PATH to its folder"),
    "libhwloc": ("a library of hwloc", "Debian: apt install libhwloc15"),
    "libsodium": ("a library of libsodium", "Debian: apt install libsodium23"),
    "libxxhash": ("a library of xxHash", "Debian: apt install libxxhash0"),
}


def explain(text: str, package: str = "gyre") -> str:
    """What to do about the text of the loader."""
    found = re.search(r"((lib\w+)\.so[\w.]*): cannot open shared object", text)
    if found is None:
        return f"{package}: its extension module cannot be loaded: {text}"
    what, remedy = PACKAGES.get(found[2], ("a library", "install the package that has it"))
    return f"{package}: {found[1]}, {what}, is not on this machine: {remedy}"
