"""The engine as Python sees it: addresses, sizes and streams as integers; no torch."""

from collections.abc import Callable
from enum import Enum

class DType(Enum):
    float32 = 0
    bfloat16 = 1

class BracketKind(Enum):
    minibatch = 0
    evaluation = 1

class ParameterSpec:
    """A parameter of shape (rows, row_elements); dtype is the compute dtype, in which it travels."""

    name: str
    rows: int
    row_elements: int
    dtype: DType
    def __init__(self, name: str, rows: int, row_elements: int, dtype: DType) -> None: ...

class GroupSpec:
    name: str
    parameters: list[ParameterSpec]
    def __init__(self, name: str, parameters: list[ParameterSpec]) -> None: ...

class SessionConfig:
    """Settings of one session; every field has a documented default but rank and world_size."""

    rank: int
    world_size: int
    fingerprint: str  # versions and options that must agree on every rank, as one line "name=value ..."
    silence_seconds: float  # 20: a peer whose heartbeat stops this long is reported
    no_progress_seconds: float  # 1800: longest single wait
    bootstrap_seconds: float  # 60: longest wait for peers at connect
    chunk_bytes: int  # 262144: of fp32 accumulators under one lock
    trace_events: int  # 65536: how many trace events are kept between two drains
    def __init__(self, rank: int, world_size: int) -> None: ...

class ShardSource:
    """Where an owner's rows of one parameter lie now. An address of 0 keeps what the last publish left
    (a frozen shard that did not change)."""

    def __init__(self, address: int, dtype: DType) -> None: ...

class GradientSource:
    """One unsharded contiguous gradient: index of the parameter in its group, address, dtype."""

    def __init__(self, parameter: int, address: int, dtype: DType) -> None: ...

class Settlement:
    """What a minibatch came to, the same on every rank."""

    loss_sum: float
    weight: float
    flags: int
    touched: list[list[bool]]  # [group][parameter]: some rank pushed a gradient

class TraceEvent:
    name: str  # "publish" | "gather" | "push" | "finish" | "settle"
    group: int  # -1 where it concerns no group
    begin_ns: int  # time.monotonic_ns
    end_ns: int
    waited_ns: int
    bytes: int

class Counters:
    """Totals of this rank since connect; bytes count b_p (pad rows included), own shard included."""

    gather_bytes: int
    push_bytes: int
    publish_bytes: int
    gathers: int
    pushes: int
    wait_ns: int
    arena_bytes: int
    trace_dropped: int

class Session:
    """One model's on-demand communication. Calls release the GIL. Not thread-safe: one caller at a time.

    Raises headrace.errors.OperationError (wrong call), PeerError (`.rank` failed, died, was silent or left),
    SessionError, ChannelError; KeyboardInterrupt ends a wait.
    """

    @staticmethod
    def connect(
        config: SessionConfig,
        groups: list[GroupSpec],
        exchange: Callable[[bytes, float], list[bytes]],
    ) -> Session:
        """`exchange(mine, seconds)` returns what every rank gave, in rank order (an all-gather of small blobs).
        Raises where any rank's world size, versions, fingerprint or model differ, naming rank and difference."""

    def open(
        self,
        kind: BracketKind,
        sources: list[list[ShardSource]],
        weight: float = 0.0,
        plan: int = 0,
    ) -> int:
        """Enters a bracket: publishes every group's shard; returns the epoch. `weight` is the global token or sample
        count and `plan` the digest of the balancer's plan, 0 where not given; both must agree on every rank."""

    def gather(self, group: int, landings: list[int]) -> None:
        """Writes the group's unsharded parameters; landings[p] has N * R_p * K_p * itemsize bytes."""

    def push(self, group: int, gradients: list[GradientSource]) -> None:
        """Adds each owner's rows of each gradient to that owner's fp32 accumulator. Sources are free after."""

    def finish(self, loss_sum: float = 0.0, weight: float = 0.0, flags: int = 0) -> None:
        """Leaves the bracket: tells every owner what was sent. After an evaluation bracket nothing else is due.
        `flags` are the caller's bits; settle returns their union over all ranks."""

    def settle(self) -> Settlement:
        """After finish() of a minibatch: waits until every rank's contributions have been added here."""

    def collect(
        self, group: int, parameter: int, address: int, dtype: DType, scale: float, add: bool
    ) -> None:
        """After settle: this rank's rows of the summed gradient times scale, written or added at address."""

    def fail(self, reason: str) -> None:
        """Marks the session failed here; peers raise PeerError with this reason at their next engine call."""

    def check(self) -> None:
        """Raises if a peer has failed, died or fallen silent, or if this session has failed."""

    def close(self) -> None:
        """Leaves the session in good order. Idempotent."""

    def drain_trace(self) -> list[TraceEvent]: ...
    def counters(self) -> Counters: ...
    rank: int
    world_size: int
    epoch: int
    in_bracket: bool

def keep_freed_pages() -> bool:
    """Tells the C library's allocator to keep freed memory resident (mallopt), so that FSDP2's landings are
    not faulted in again at every gather. Process-wide. False where the C library has no such setting."""
