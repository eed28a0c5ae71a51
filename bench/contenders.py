# SPDX-License-Identifier: Apache-2.0
"""bench/contenders.py: who is measured by bench_peers.py, and with which settings. One row, one contender.

A row says how its ranks are started and what is set for them; nothing about a library stands anywhere else. `{bin}`
is the directory of the built programs, `{gyre}` that of Gyre's tools, `{n}` the number of ranks, `{sock}` the address
that the ranks connect to, `{dir}` a temporary directory of this contender, `{rank}` (with per_rank) the rank.
"""

import os
from dataclasses import dataclass, field

# What the programs are built with; the first name of each list must be there, and comes with these Debian packages.
PACKAGES = {
    "Gyre": ("peers-gyre", "`make bench-peers` builds it"),
    "Open MPI": ("peers-openmpi", "apt-get install openmpi-bin libopenmpi-dev"),
    "MPICH": ("peers-mpich", "apt-get install mpich libmpich-dev"),
    "Gloo": ("peers-gloo", "apt-get install libgloo-dev"),
    "UCC": ("peers-ucc", "no Debian package; build github.com/openucx/ucc so that `pkg-config ucc` finds it"),
}


@dataclass(frozen=True)
class Contender:
    name: str  # its column
    library: str  # a key of PACKAGES
    settings: str  # what is set, for the reader of the tables
    command: tuple  # of the launcher, or of each rank where per_rank
    environment: dict = field(default_factory=dict)
    own: bool = True  # it has an allocator of its own
    per_rank: bool = False  # no launcher: the orchestrator starts each rank
    only: tuple = ()  # the collectives that the settings touch; elsewhere it would be the same as the row before
    bind: tuple = ()  # added where every rank can have a core

    @property
    def program(self):
        return PACKAGES[self.library][0]


# Under root Open MPI wants to be told twice that this is meant; --oversubscribe only allows more ranks than cores, and
# Open MPI then yields while it waits, by itself.
OMPI = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "{n}")
OMPI_END = ("{bin}/peers-openmpi", "{sock}")
MPICH = ("mpirun.mpich", "-n", "{n}")
MPICH_END = ("{bin}/peers-mpich", "{sock}")
GLOO = ("{bin}/peers-gloo", "{sock}", "{rank}", "{n}", "{dir}")

GYRE = ("{gyre}/ucx-run", "-n", "{n}", "{bin}/peers-gyre", "{sock}")

# Rows of Gyre come first; the one that is compared is "gyre".
CONTENDERS = [
    Contender("gyre", "Gyre", "defaults: canonical order, bits that depend on inputs and ranks alone", GYRE),
    Contender(
        "gyre-exact",
        "Gyre",
        "GYRE_ORDER=exact: the correctly rounded sum",
        GYRE,
        {"GYRE_ORDER": "exact"},
        only=("all_reduce", "reduce_scatter"),
    ),
    Contender("ompi", "Open MPI", "defaults: ob1 over vader (one copy through CMA), coll/tuned", OMPI + OMPI_END),
    Contender(
        "ompi-ucx",
        "Open MPI",
        "point to point over UCX",
        OMPI + ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any")
        + ("--mca", "opal_common_ucx_devices", "any") + OMPI_END,
    ),
    Contender(
        "ompi-sm",
        "Open MPI",
        "coll/sm, the collectives over shared memory that it ships at priority 0",
        OMPI + ("--mca", "coll_sm_priority", "95") + OMPI_END,
        only=("all_reduce", "reduce_scatter", "broadcast", "barrier"),
    ),
    Contender("mpich", "MPICH", "defaults", MPICH + MPICH_END),
    Contender(
        "mpich-rg",
        "MPICH",
        "release-gather collectives over shared memory from the first call on; bound to cores where they suffice",
        MPICH + MPICH_END,
        {
            "MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "0",
            "MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather",
            "MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM": "release_gather",
            "MPIR_CVAR_REDUCE_POSIX_INTRA_ALGORITHM": "release_gather",
            "MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM": "release_gather",
        },
        bind=("-bind-to", "core"),
    ),
    Contender("gloo", "Gloo", "defaults: TCP on loopback, ring", GLOO + ("ring",), own=False, per_rank=True),
    Contender(
        "gloo-bcube",
        "Gloo",
        "TCP on loopback, all_reduce as bcube",
        GLOO + ("bcube",),
        own=False,
        per_rank=True,
        only=("all_reduce",),
    ),
    Contender(
        "ucc",
        "UCC",
        "defaults: collectives over UCX",
        ("{bin}/peers-ucc", "{sock}", "{rank}", "{n}", "{dir}"),
        own=False,
        per_rank=True,
    ),
]


def commands(contender, n, places):
    """One command line, or one for each rank."""
    words = contender.command
    if contender.bind and n <= len(os.sched_getaffinity(0)):
        words = words[:1] + contender.bind + words[1:]
    ranks = range(n) if contender.per_rank else [0]
    return [[word.format(n=n, rank=rank, **places) for word in words] for rank in ranks]
