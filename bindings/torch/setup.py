# SPDX-License-Identifier: Apache-2.0
"""setup.py: builds gyre_torch against the PyTorch of this Python and the libgyre in the folder $GYRE_LIB, of
which the package has a copy. It runs in a clone of Gyre: the headers are those of ../../include."""
import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent


class Build(build_ext):
    def build_extension(self, ext):
        package = Path(self.get_ext_fullpath(ext.name)).parent
        library = os.environ.get("GYRE_LIB", HERE / "../../build/lib")
        command = ["sh", HERE / "build", sys.executable, library, package.parent, "bundle"]
        if subprocess.run(command).returncode:
            sys.exit("gyre_torch: it was not built: the lines above say why. Its library is in the folder "
                     f"{library}: make lib, or set GYRE_LIB")


def required():
    try:
        import torch
    except ImportError:
        sys.exit("gyre_torch: no PyTorch for this Python. Install it, and use pip's --no-build-isolation")
    return torch.__version__.split("+")[0]


header = (HERE / "../../include/gyre/version.h").read_text()
setup(
    name="gyre-torch",
    version=re.search(r'define GYRE_VERSION +"(.*)"', header).group(1),
    description="The backend gyre of torch.distributed",
    license="Apache-2.0",
    packages=["gyre_torch"],
    python_requires=">=3.9",
    # Another PyTorch has other C++ classes.
    install_requires=[f"torch=={required()}"],
    ext_modules=[Extension("gyre_torch._gyre_torch", [])],
    cmdclass={"build_ext": Build},
    # A recent PyTorch finds the backend by its name.
    entry_points={"torch.distributed.backends": ["gyre = gyre_torch:register"]},
)
