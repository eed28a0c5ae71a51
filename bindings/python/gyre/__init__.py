# SPDX-License-Identifier: Apache-2.0
"""gyre: collectives on NumPy arrays, and on anything with the buffer protocol or DLPack, without copies.

    with gyre.init() as comm:
        x = numpy.full(4, comm.rank + 1.0)
        comm.all_reduce(x)

docs/python.md describes it. Gyre also logs its errors on stderr; GYRE_LOG=none silences that.
"""
import atexit as _atexit
import contextlib as _contextlib
import enum as _enum
import operator as _operator
import os as _os
import typing as _typing

try:
    from . import _gyre
except ImportError as error:
    from ._missing import explain

    raise ImportError(explain(str(error))) from error
from ._gyre import (
    Buckets, Comm, Exact, Memory, Operation, Plan, Request, create, create_id, init, reduce_local, register,
    unique_id, version, wait_any,
)
from ._waiting import wait_in_asyncio


class Scope(_enum.IntEnum):
    """The largest thing that an error kills."""

    OPERATION = 1
    COMMUNICATOR = 2
    PROCESS = 3


class Status(_enum.IntEnum):
    """What a call of Gyre ended with.

    >>> gyre.Status.PEER_DEAD.scope.name
    'COMMUNICATOR'
    """

    INVALID = 100
    TYPE = 101
    OVERFLOW = 102
    OVERLAP = 103
    UNSUPPORTED = 104
    NO_MEMORY = 105
    NOT_FOUND = 106
    IO = 107
    FORMAT = 108
    MISMATCH = 200
    PEER_DEAD = 201
    TIMEOUT = 202
    ABORTED = 203
    TRANSPORT = 204
    SYSTEM = 300
    AUTH = 301
    BOOTSTRAP = 302
    INTERNAL = 303

    @property
    def scope(self) -> Scope:
        """What this error kills."""
        return Scope(self // 100)


class Type(_enum.IntEnum):
    """Element types, for the argument `type`: bytes of an array that are taken as another type."""

    INT8 = 0
    UINT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    UINT64 = 7
    FLOAT16 = 8
    BFLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    BOOL = 12
    COMPLEX64 = 13
    COMPLEX128 = 14
    FLOAT8_E4M3 = 15
    FLOAT8_E5M2 = 16
    FLOAT32_INT32 = 17
    FLOAT64_INT32 = 18
    INT32_INT32 = 19
    INT64_INT32 = 20
    INT16_INT32 = 21


class Op(_enum.IntEnum):
    """Reductions. gyre.SUM is gyre.Op.SUM, and so on."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    LAND = 8
    LOR = 9
    LXOR = 10
    MINLOC = 11
    MAXLOC = 12


class Order(_enum.IntEnum):
    """How the inputs of sums are combined: docs/contract.md."""

    DEFAULT = 0
    CANONICAL = 1
    FAST = 2
    EXACT = 3


class Split(_enum.IntEnum):
    """What the ranks of Comm.split_type have in common."""

    HOST = 0
    NUMA = 1
    DEVICE = 2


class Place(_typing.NamedTuple):
    """Where a rank is; -1: not known. gyre_place_t of gyre/comm.h has the details."""

    host: int
    host_rank: int
    host_size: int
    numa: int
    device: int
    job_rank: int
    device_bus: str
    host_name: str


class Stats(_typing.NamedTuple):
    """What a communicator has counted: gyre_comm_stats_t of gyre/comm.h."""

    operations: int
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    plans_built: int
    allocations: int
    sleeps: int
    shared_bytes: int
    private_bytes: int
    connections: int
    wait_seconds: float
    yields: int
    yield_seconds: float
    sleep_seconds: float


class Bucket(_typing.NamedTuple):
    """A bucket of Buckets. data: a NumPy array; this rank's shard of the result is
    data[shard_offset : shard_offset + shard_count]."""

    index: int
    data: _typing.Any
    first_tensor: int
    tensors: int
    shard_offset: int
    shard_count: int


class Error(RuntimeError):
    """An error of Gyre: its text, and `status`.

    >>> try:
    ...     comm.scan(numpy.ones(1), op=gyre.AVG)
    ... except gyre.Error as error:
    ...     error.status.name
    'INVALID'
    """

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = Status(status)

    def __reduce__(self):
        return Error, (int(self.status), str(self))


SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC = Op
BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2 = Type.BFLOAT16, Type.FLOAT8_E4M3, Type.FLOAT8_E5M2


@_contextlib.contextmanager
def group():
    """The calls in the block are started together at its end; blocking ones have finished there. An exception
    in the block: none is made. It belongs to the thread.

    >>> x = numpy.zeros(1)
    >>> with gyre.group():
    ...     comm.send(numpy.ones(1), (comm.rank + 1) % comm.size)
    ...     comm.recv(x, (comm.rank - 1) % comm.size)
    >>> float(x[0])
    1.0
    """
    _gyre.group_start()
    try:
        yield
    except BaseException:
        _gyre.group_end(True)
        raise
    _gyre.group_end(False)


def wait_all(requests) -> None:
    """Waits for all requests, also after an error; raises the first error.

    >>> gyre.wait_all([comm.ibarrier(), comm.ibarrier()])
    """
    try:
        requests = list(requests)
    except TypeError as error:
        raise TypeError(f"wait_all: requests: {error}") from None
    for i, request in enumerate(requests):
        if not isinstance(request, Request):
            raise TypeError(f"wait_all: requests[{i}] is not a gyre.Request")
    first = None
    for request in requests:
        try:
            request.wait()
        except Error as error:
            first = first or error
    if first is not None:
        raise first


def _dtype(call, dtype):
    import numpy

    try:
        found = numpy.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{call}: dtype: {error}") from None
    if found.hasobject:
        raise TypeError(f"{call}: dtype {found} has Python objects, which are of one process")
    if found.itemsize == 0:
        raise ValueError(f"{call}: dtype {found} has elements of 0 bytes")
    return found


def zeros(shape, dtype=float):
    """A NumPy array in Memory, which collectives on one host read and write without a copy.

    >>> x = gyre.zeros((2, 3), 'f')
    >>> x.shape, float(x.sum())
    ((2, 3), 0.0)
    """
    import numpy

    dtype = _dtype("zeros", dtype)
    try:
        shape = (_operator.index(shape),)
    except TypeError:  # an array has __index__, too
        try:
            shape = tuple(_operator.index(extent) for extent in shape)
        except TypeError as error:
            raise TypeError(f"zeros: shape: {error}") from None
    nbytes = dtype.itemsize
    for extent in shape:
        if extent < 0:
            raise ValueError(f"zeros: shape has {extent}; it must not be negative")
        nbytes *= extent
    return numpy.ndarray(shape, dtype, Memory(nbytes))


def __getattr__(name):  # it needs NumPy, which the rest does not
    if name == "UserType":
        from ._operations import UserType

        globals()[name] = UserType
        return UserType
    raise AttributeError(f"module 'gyre' has no attribute {name!r}")


def _array(memory, dtype=float):
    """The bytes as a NumPy array of one dimension, without a copy.

    >>> gyre.Memory(16).array("i4").size
    4
    """
    import numpy

    dtype = _dtype("array", dtype)
    return numpy.ndarray(memory.nbytes // dtype.itemsize, dtype, memory)


def _enter(comm):
    return comm


def _exit(comm, kind, value, trace):
    if comm.closed:
        return
    if kind is None:
        comm.close()
        return
    try:
        what = str(value).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    except Exception:  # pylint: disable=broad-except # of its __str__
        what = ""
    try:  # the other ranks must not wait for this one; the exception goes on
        comm.abort(f"rank {comm.rank} raised {kind.__name__}: {what}".removesuffix(": "))
        comm.close()
    except (Error, ValueError):
        pass


Comm.__enter__, Comm.__exit__ = _enter, _exit
Request.__await__ = wait_in_asyncio
Memory.array = _array
_atexit.register(_gyre.end)
_os.register_at_fork(after_in_child=_gyre.forked)
