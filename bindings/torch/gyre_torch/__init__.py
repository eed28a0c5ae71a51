# SPDX-License-Identifier: Apache-2.0
"""PyTorch's collectives on CPU tensors by Gyre.

    import gyre_torch
    torch.distributed.init_process_group("gyre")

Importing this module registers the backend "gyre". docs/pytorch.md has the details.
"""
import atexit
import sys
from dataclasses import dataclass

import torch.distributed as dist

from . import _gyre_torch

__all__ = ["Options"]

# At the end of the process the other ranks are given so long to end their groups, too.
_END_S = 60.0


@dataclass(frozen=True)
class Options:
    """pg_options of init_process_group and new_group: the same on all ranks of the group.

    order: of sums: "canonical", "fast" or "exact"; "": the setting GYRE_ORDER.
    algorithm: as GYRE_ALGO; "": that setting. chunk: bytes of a pipeline's pieces; 0: GYRE_CHUNK.
    """

    order: str = ""
    algorithm: str = ""
    chunk: int = 0


def _create(group, options):
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise TypeError(f"init_process_group: pg_options is of type {type(options).__name__}: "
                        "the backend gyre takes gyre_torch.Options")
    # The name of a group may differ between ranks: the store has a prefix for each.
    return _gyre_torch.ProcessGroupGyre(group.store, group.group_rank, group.group_size,
                                        group.timeout.total_seconds(), "torch", options.order,
                                        options.algorithm, options.chunk)


def _end():
    failing = getattr(sys, "last_value", None) is not None
    _gyre_torch.close_all(failing, 1.0 if failing else _END_S)


if dist.is_available():
    if "devices" in dist.Backend.register_backend.__code__.co_varnames:
        dist.Backend.register_backend("gyre", _create, extended_api=True, devices=["cpu"])
    else:
        dist.Backend.register_backend("gyre", _create, extended_api=True)
    atexit.register(_end)
