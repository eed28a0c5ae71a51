# SPDX-License-Identifier: Apache-2.0
# gyre/__init__.pyi: types of the package gyre. tests/bindings/python_docs.py compares it with the package.
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple

# One of Op, or an operation of the program's own.
Reduction = int | Operation
# One of Type, or a type of the program's own.
ElementType = int | UserType
# In host memory, with the buffer protocol (numpy.ndarray, bytearray) or DLPack (torch.Tensor).
Array = Any

class Scope(IntEnum):
    OPERATION = 1
    COMMUNICATOR = 2
    PROCESS = 3

class Status(IntEnum):
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
    def scope(self) -> Scope: ...

class Type(IntEnum):
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

class Op(IntEnum):
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

class Order(IntEnum):
    DEFAULT = 0
    CANONICAL = 1
    FAST = 2
    EXACT = 3

class Split(IntEnum):
    HOST = 0
    NUMA = 1
    DEVICE = 2

class Place(NamedTuple):
    host: int
    host_rank: int
    host_size: int
    numa: int
    device: int
    job_rank: int
    device_bus: str
    host_name: str

class Stats(NamedTuple):
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

class Bucket(NamedTuple):
    index: int
    data: Any
    first_tensor: int
    tensors: int
    shard_offset: int
    shard_count: int

class Error(RuntimeError):
    status: Status
    def __init__(self, status: int, text: str) -> None: ...

class Request:
    @property
    def comm(self) -> Comm: ...
    @property
    def makes(self) -> bool: ...
    def wait(self) -> Any: ...
    def test(self) -> bool: ...
    def __await__(self) -> Generator[Any, None, Any]: ...

class Plan:
    def __call__(self) -> None: ...
    def start(self) -> Request: ...
    def set(
        self, *, order: int = 0, algorithm: str | None = None, chunk: int = 0, tag: int = 0
    ) -> None: ...
    def free(self) -> None: ...

class Operation:
    def __init__(self, function: Callable[[Any, Any], object], commutative: bool = False) -> None: ...
    def free(self) -> None: ...

class UserType:
    dtype: Any
    def __init__(self, dtype: Any) -> None: ...
    def __index__(self) -> int: ...
    def free(self) -> None: ...

class Buckets:
    def __init__(
        self, comm: Comm, counts: Sequence[int], type: ElementType, op: Reduction = 0,
        scale: float | None = None, scatter: bool = False, bucket_bytes: int = 0,
        landed: Callable[[Bucket], object] | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def tensor(self, tensor: int) -> Any: ...
    def get(self, index: int) -> Bucket: ...
    def ready(self, tensor: int) -> None: ...
    def progress(self) -> None: ...
    def wait(self) -> None: ...
    def times(self) -> tuple[float, float]: ...

class Memory:
    nbytes: int
    def __init__(self, nbytes: int) -> None: ...
    def array(self, dtype: Any = ...) -> Any: ...
    def peer(self, rank: int) -> Memory: ...
    def put(self, array: Array, rank: int, offset: int = 0) -> None: ...
    def get(self, array: Array, rank: int, offset: int = 0) -> None: ...
    def flush(self, rank: int = -1) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Exact:
    def add(self, x: Array) -> None: ...
    def add_dot(self, x: Array, y: Array) -> None: ...
    def add_norm2(self, x: Array) -> None: ...
    def merge(self, other: Exact) -> None: ...
    def reset(self) -> None: ...
    def all_reduce(self, comm: Comm) -> None: ...
    def iall_reduce(self, comm: Comm) -> Request: ...
    def value(self) -> float: ...

class Comm:
    rank: int
    size: int
    local_rank: int
    local_size: int
    hosts: int
    closed: bool
    def __enter__(self) -> Comm: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def close(self) -> None: ...
    def split(self, color: int, key: int = 0) -> Comm | None: ...
    def split_type(self, type: int, key: int = 0) -> Comm: ...
    def dup(self) -> Comm: ...
    def create_group(self, ranks: Sequence[int], tag: int = 0) -> Comm: ...
    def isplit(self, color: int, key: int = 0) -> Request: ...
    def isplit_type(self, type: int, key: int = 0) -> Request: ...
    def idup(self) -> Request: ...
    def icreate_group(self, ranks: Sequence[int], tag: int = 0) -> Request: ...
    def shrink(self) -> Comm: ...
    def grow(self, newcomers: int) -> Comm: ...
    def address(self) -> str: ...
    def stats(self) -> Stats: ...
    def on_failure(self, function: Callable[[Error], object] | None) -> None: ...
    def set(
        self, *, order: int = 0, leaves: int = 1, algorithm: str | None = None, chunk: int = 0,
        timeout: float = 0.0, tag: int = 0,
    ) -> None: ...
    def abort(self, reason: str | None = None) -> None: ...
    def error(self) -> Error | None: ...
    def progress(self) -> None: ...
    def fileno(self) -> int: ...
    def arm(self) -> bool: ...
    def place(self, rank: int = -1) -> Place: ...
    def alloc_shared(self, nbytes: int) -> Memory: ...
    def all_reduce(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def reduce_scatter(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def reduce_scatterv(
        self, send: Array, recv: Array | None, counts: Sequence[int], op: Reduction = 0,
        scale: float | None = None, type: ElementType | None = None,
    ) -> None: ...
    def reduce(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, root: int = 0,
        scale: float | None = None, type: ElementType | None = None,
    ) -> None: ...
    def scan(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def exscan(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def broadcast(self, buffer: Array, root: int = 0, type: ElementType | None = None) -> None: ...
    def all_gather(self, send: Array | None, recv: Array, type: ElementType | None = None) -> None: ...
    def all_gatherv(
        self, send: Array | None, recv: Array, counts: Sequence[int], displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def gather(
        self, send: Array | None, recv: Array | None = None, root: int = 0, type: ElementType | None = None,
    ) -> None: ...
    def gatherv(
        self, send: Array | None, recv: Array | None = None, counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None, root: int = 0, type: ElementType | None = None,
    ) -> None: ...
    def scatter(
        self, send: Array | None, recv: Array | None, root: int = 0, type: ElementType | None = None,
    ) -> None: ...
    def scatterv(
        self, send: Array | None, recv: Array | None, counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None, root: int = 0, type: ElementType | None = None,
    ) -> None: ...
    def all_to_all(self, send: Array, recv: Array | None = None, type: ElementType | None = None) -> None: ...
    def all_to_allv(
        self, send: Array, send_counts: Sequence[int], recv: Array, recv_counts: Sequence[int],
        send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def barrier(self) -> None: ...
    def send(self, buffer: Array, peer: int, type: ElementType | None = None) -> None: ...
    def recv(self, buffer: Array, peer: int, type: ElementType | None = None) -> None: ...
    def neighbor_exchange(
        self, send: Array, to: Sequence[int], recv: Array, sources: Sequence[int],
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> None: ...
    def iall_reduce(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def ireduce_scatter(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def ireduce_scatterv(
        self, send: Array, recv: Array | None, counts: Sequence[int], op: Reduction = 0,
        scale: float | None = None, type: ElementType | None = None,
    ) -> Request: ...
    def ireduce(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, root: int = 0,
        scale: float | None = None, type: ElementType | None = None,
    ) -> Request: ...
    def iscan(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def iexscan(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def ibroadcast(self, buffer: Array, root: int = 0, type: ElementType | None = None) -> Request: ...
    def iall_gather(self, send: Array | None, recv: Array, type: ElementType | None = None) -> Request: ...
    def iall_gatherv(
        self, send: Array | None, recv: Array, counts: Sequence[int], displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def igather(
        self, send: Array | None, recv: Array | None = None, root: int = 0, type: ElementType | None = None,
    ) -> Request: ...
    def igatherv(
        self, send: Array | None, recv: Array | None = None, counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None, root: int = 0, type: ElementType | None = None,
    ) -> Request: ...
    def iscatter(
        self, send: Array | None, recv: Array | None, root: int = 0, type: ElementType | None = None,
    ) -> Request: ...
    def iscatterv(
        self, send: Array | None, recv: Array | None, counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None, root: int = 0, type: ElementType | None = None,
    ) -> Request: ...
    def iall_to_all(self, send: Array, recv: Array | None = None, type: ElementType | None = None) -> Request: ...
    def iall_to_allv(
        self, send: Array, send_counts: Sequence[int], recv: Array, recv_counts: Sequence[int],
        send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def ibarrier(self) -> Request: ...
    def isend(self, buffer: Array, peer: int, type: ElementType | None = None) -> Request: ...
    def irecv(self, buffer: Array, peer: int, type: ElementType | None = None) -> Request: ...
    def ineighbor_exchange(
        self, send: Array, to: Sequence[int], recv: Array, sources: Sequence[int],
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> Request: ...
    def plan_all_reduce(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...
    def plan_reduce_scatter(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...
    def plan_reduce_scatterv(
        self, send: Array, recv: Array | None, counts: Sequence[int], op: Reduction = 0,
        scale: float | None = None, type: ElementType | None = None,
    ) -> Plan: ...
    def plan_reduce(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, root: int = 0,
        scale: float | None = None, type: ElementType | None = None,
    ) -> Plan: ...
    def plan_scan(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...
    def plan_exscan(
        self, send: Array, recv: Array | None = None, op: Reduction = 0, scale: float | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...
    def plan_broadcast(self, buffer: Array, root: int = 0, type: ElementType | None = None) -> Plan: ...
    def plan_all_gather(self, send: Array | None, recv: Array, type: ElementType | None = None) -> Plan: ...
    def plan_all_gatherv(
        self, send: Array | None, recv: Array, counts: Sequence[int], displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...
    def plan_gather(
        self, send: Array | None, recv: Array | None = None, root: int = 0, type: ElementType | None = None,
    ) -> Plan: ...
    def plan_gatherv(
        self, send: Array | None, recv: Array | None = None, counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None, root: int = 0, type: ElementType | None = None,
    ) -> Plan: ...
    def plan_scatter(
        self, send: Array | None, recv: Array | None, root: int = 0, type: ElementType | None = None,
    ) -> Plan: ...
    def plan_scatterv(
        self, send: Array | None, recv: Array | None, counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None, root: int = 0, type: ElementType | None = None,
    ) -> Plan: ...
    def plan_all_to_all(self, send: Array, recv: Array | None = None, type: ElementType | None = None) -> Plan: ...
    def plan_all_to_allv(
        self, send: Array, send_counts: Sequence[int], recv: Array, recv_counts: Sequence[int],
        send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...
    def plan_barrier(self) -> Plan: ...
    def plan_neighbor_exchange(
        self, send: Array, to: Sequence[int], recv: Array, sources: Sequence[int],
        send_counts: Sequence[int] | None = None, recv_counts: Sequence[int] | None = None,
        send_displs: Sequence[int] | None = None, recv_displs: Sequence[int] | None = None,
        type: ElementType | None = None,
    ) -> Plan: ...

def init(
    *, rank: int = -1, nranks: int = -1, root: str | None = None, secret: str | None = None,
    init_timeout: float = 0.0, progress_thread: int = -1, order: int = 0, leaves: int = 1,
    algorithm: str | None = None, chunk: int = 0, timeout: float = 0.0, tag: int = 0,
) -> Comm: ...
def create(
    all_gather: Callable[[bytes], Sequence[bytes]], rank: int, nranks: int, *, name: str | None = None,
    init_timeout: float = 0.0, progress_thread: int = -1, order: int = 0, leaves: int = 1,
    algorithm: str | None = None, chunk: int = 0, timeout: float = 0.0, tag: int = 0,
) -> Comm: ...
def create_id(
    id: bytes, rank: int, nranks: int, *, name: str | None = None, init_timeout: float = 0.0,
    progress_thread: int = -1, order: int = 0, leaves: int = 1, algorithm: str | None = None,
    chunk: int = 0, timeout: float = 0.0, tag: int = 0,
) -> Comm: ...
def unique_id() -> bytes: ...
def version() -> str: ...
def group() -> AbstractContextManager[None]: ...
def reduce_local(left: Array, right: Array, op: Reduction = 0, type: ElementType | None = None) -> None: ...
def register(array: Array) -> Memory: ...
def wait_any(requests: Sequence[Request]) -> int | None: ...
def wait_all(requests: Iterable[Request]) -> None: ...
def zeros(shape: int | Sequence[int], dtype: Any = ...) -> Any: ...

SUM: Op
PROD: Op
MIN: Op
MAX: Op
AVG: Op
BAND: Op
BOR: Op
BXOR: Op
LAND: Op
LOR: Op
LXOR: Op
MINLOC: Op
MAXLOC: Op
BFLOAT16: Type
FLOAT8_E4M3: Type
FLOAT8_E5M2: Type
