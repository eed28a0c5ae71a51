# SPDX-License-Identifier: Apache-2.0
"""PyTorch's collectives by Gyre, on tensors of the CPU and of CUDA devices.

    import gyre_torch
    torch.distributed.init_process_group("gyre")

Importing this module registers the backend "gyre". docs/pytorch.md has the details.
"""
import atexit
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist

try:
    from . import _gyre_torch
except ImportError as error:
    from ._missing import explain

    raise ImportError(explain(str(error), "gyre_torch")) from error

__all__ = ["Options"]

# At the end of the process the other ranks are given so long to end their groups, too.
_END_S = 60.0


@dataclass(frozen=True)
class Options:
    """pg_options of init_process_group and new_group: the same on all ranks of the group.

    A group without options has those of the default group.

    order: of sums: "canonical", "fast" or "exact"; "": the setting GYRE_ORDER.
    algorithm: as GYRE_ALGO; "": that setting. chunk: bytes of a pipeline's pieces; 0: GYRE_CHUNK.
    """

    order: str = ""
    algorithm: str = ""
    chunk: int = 0

    def __post_init__(self):
        for name, kind in (("order", str), ("algorithm", str), ("chunk", int)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"gyre_torch.Options: {name} is of type {type(value).__name__}: "
                                f"it must be {kind.__name__}")
        if self.chunk < 0:
            raise ValueError(f"gyre_torch.Options: chunk is {self.chunk}: it must not be negative")


def _default():
    """The default group's part, if this backend makes it."""
    try:
        group = dist.distributed_c10d._get_default_group()
        if hasattr(group, "_get_backend"):  # PyTorch 2
            parts = [group._get_backend(device) for device in group._device_types]
            return next((part for part in parts if isinstance(part, _gyre_torch.ProcessGroupGyre)), None)
    except (RuntimeError, ValueError):
        return None
    return group if isinstance(group, _gyre_torch.ProcessGroupGyre) else None


def _create(group, options):
    if not isinstance(options, (Options, type(None))):
        raise TypeError(f"init_process_group: pg_options is of type {type(options).__name__}: "
                        "the backend gyre takes gyre_torch.Options")
    settings = options and _gyre_torch.Settings(options.order, options.algorithm, options.chunk)
    ranks = group.global_ranks_in_group  # of the default group: none
    return _gyre_torch.ProcessGroupGyre(group.store, group.group_rank, group.group_size,
                                        group.timeout.total_seconds(), settings,
                                        _default() if ranks else None, ranks)


def _end():
    failing = getattr(sys, "last_value", None) is not None
    _gyre_torch.close_all(failing, 1.0 if failing else _END_S)


def register():
    """Registers the backend with torch.distributed: importing the module does, once."""
    if not dist.is_available() or hasattr(dist.Backend, "GYRE"):
        return
    devices = {"devices": ["cpu", "cuda"]} if "devices" in dist.Backend.register_backend.__code__.co_varnames else {}
    dist.Backend.register_backend("gyre", _create, extended_api=True, **devices)
    atexit.register(_end)


register()
