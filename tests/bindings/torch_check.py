# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/torch_check.py: what a rank of PyTorch's backend counts and compares; the first difference ends it."""
import sys

import torch

checks = 0
who = "a rank"  # of the program, for what it says


def check(what, got, want=True, same=torch.equal):
    """Counts. same: how tensors of one type are compared."""
    global checks
    checks += 1
    if isinstance(want, torch.Tensor):
        good = got.dtype == want.dtype and same(got, want)
    else:
        good = got == want
    if not good:
        sys.exit(f"FAILED: {who}: {what}: {got} instead of {want}")


def raises(what, text, function):
    """The call raises an error whose text has `text`."""
    global checks
    checks += 1
    try:
        function()
    except (RuntimeError, TypeError, ValueError) as error:
        if text in str(error):
            return
        sys.exit(f"FAILED: {who}: {what}: the error is '{error}', without '{text}'")
    sys.exit(f"FAILED: {who}: {what}: no error")
