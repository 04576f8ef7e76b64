"""The engine as Python sees it: addresses, sizes and streams as integers; no torch."""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

class DType(Enum):
    float32 = 0
    bfloat16 = 1

class BracketKind(Enum):
    minibatch = 0
    evaluation = 1

class Accumulation(Enum):
    """In which order an owner adds what ranks push to it."""

    arrival = 0
    reproducible = 1

class ParameterSpec:
    """A parameter of shape (rows, row_elements); dtype is the compute dtype, as it travels."""

    name: str
    rows: int
    row_elements: int
    dtype: DType
    def __init__(self, name: str, rows: int, row_elements: int, dtype: DType) -> None: ...

class GroupSpec:
    name: str
    parameters: list[ParameterSpec]
    def __init__(self, name: str, parameters: list[ParameterSpec]) -> None: ...

class Mode(Enum):
    on_demand = 0
    lockstep = 1
    both = 2

class SessionConfig:
    """Settings of one session; every field has a documented default but rank and world_size."""

    rank: int
    world_size: int
    fingerprint: str  # what must agree on every rank, as one line "name=value ..."
    silence_seconds: float  # 20: a peer whose heartbeat stops this long is reported
    no_progress_seconds: float  # 1800: longest single wait
    bootstrap_seconds: float  # 60: longest wait for peers at connect
    chunk_bytes: int  # 65536: of fp32 accumulators under one lock
    accumulate: Accumulation  # arrival; must agree on every rank
    slot_reuse: bool  # False: in lockstep, gradients are moved into landings before they are read
    worker_threads: bool  # False: gathers and pushes run beside the caller; must agree
    mode: Mode  # on_demand
    local_ranks: int  # 0: all; ranks that share a node, in lockstep
    adopted: list[bool]  # by group: in lockstep, whether shards live in the arena
    trace_events: int  # 65536: how many trace events are kept between two drains
    def __init__(self, rank: int, world_size: int) -> None: ...

class ShardSource:
    """Where an owner's rows of one parameter lie now. An address of 0 keeps what the last publish
    left (a frozen shard that did not change)."""

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
    name: str  # "publish" | "gather" | "push" | "finish" | "settle" | "wait" | ...
    thread: str  # "caller" | "worker" | "pusher"
    group: int  # -1 where it concerns no group
    begin_ns: int  # time.monotonic_ns
    end_ns: int
    waited_ns: int
    bytes: int

class Counters:
    """Totals of this rank since connect; bytes count b_p, pad rows and own shard included."""

    gather_bytes: int
    push_bytes: int
    publish_bytes: int
    gathers: int
    pushes: int
    wait_ns: int  # the caller was held up, by peers or by its own workers
    worker_ns: int  # workers were in operations
    hidden_ns: int  # of that while the caller was not waiting for a worker
    arena_bytes: int
    trace_dropped: int

class Session:
    """One model's on-demand communication. Calls release the GIL. Not thread-safe: one caller at a
    time.

    Raises headrace.errors.OperationError (wrong call), PeerError (`.rank` failed, died, was silent
    or left), SessionError, ChannelError; KeyboardInterrupt ends a wait.
    """

    @staticmethod
    def connect(
        config: SessionConfig,
        groups: list[GroupSpec],
        exchange: Callable[[bytes, float], list[bytes]],
    ) -> Session:
        """`exchange(mine, seconds)` returns what every rank gave, in rank order (an all-gather of
        small blobs). Raises where any rank's world size, versions, fingerprint or model differ,
        naming rank and difference."""

    def open(
        self,
        kind: BracketKind,
        sources: list[list[ShardSource]],
        weight: float = 0.0,
        plan: int = 0,
        in_step: bool = False,
    ) -> int:
        """Enters a bracket: publishes every group's shard; returns the epoch. `weight` is the
        global token or sample count and `plan` the digest of the balancer's plan, 0 where not
        given; both must agree on every rank. A bracket in step, for lockstep, publishes nothing
        (no sources) and begins when every rank has entered it."""

    def start_gather(self, group: int, landings: list[int]) -> None:
        """Begins to write the group's unsharded parameters; landings[p] has N * R_p * K_p items.
        Several groups may be under way. Without worker threads nothing moves before the wait.
        Memory given to a call is the session's until the wait for it returns, or finish, fail or
        close."""

    def wait_gather(self, group: int) -> None:
        """Ends what start_gather or start_all_gather began. An interrupted wait leaves it under
        way."""

    def push(self, group: int, gradients: list[GradientSource]) -> int:
        """Adds each owner's rows of each gradient to that owner's fp32 accumulator. Returns the
        ticket for wait_pushed; without worker threads sources are free already."""

    def pushed(self) -> int:
        """The ticket up to which all pushes and reduce-scatters have happened."""

    def wait_pushed(self, ticket: int) -> None:
        """Returns once that is so for the ticket."""

    def finish(self, loss_sum: float = 0.0, weight: float = 0.0, flags: int = 0) -> None:
        """Leaves the bracket: tells every owner what was sent. After an evaluation bracket nothing
        else is due. `flags` are the caller's bits; settle returns their union over all ranks."""

    def settle(self) -> Settlement:
        """After finish() of a minibatch: waits until every rank's contributions have been added
        here."""

    def collect(
        self, group: int, parameter: int, address: int, dtype: DType, scale: float, add: bool
    ) -> None:
        """After settle: this rank's rows of the summed gradient times scale, written or added at
        address."""

    def start_all_gather(self, group: int, shards: list[ShardSource], landings: list[int]) -> None:
        """In lockstep: begins to write the group's unsharded parameters, wait_gather ends it;
        shards are not looked at where the group is adopted. Every rank begins the same collectives
        in the same order; without worker threads the order of the waits counts."""

    def start_reduce_scatter(
        self,
        group: int,
        gradients: list[GradientSource],
        output: int,
        alpha: float,
        accumulate: bool = False,
        earlier: bool = False,
    ) -> int:
        """In lockstep: writes alpha times the sum over all ranks of this rank's rows of each
        gradient to `output` (packed_elements fp32, parameter p at packed_offsets[p]), or adds
        it. Every rank gives the same parameters, and the same answer to whether the caller goes
        on adding to gradients of earlier calls. Returns the ticket for wait_pushed."""

    def resident(self, group: int) -> list[object]:
        """Where an adopted group's shards lie, padded: one array of bytes (DLPack) a parameter,
        which keeps the arena mapped."""

    def packed_elements(self, group: int) -> int: ...
    def packed_offsets(self, group: int) -> list[int]: ...
    def fail(self, reason: str) -> None:
        """Marks the session failed here; peers raise PeerError with this reason at their next
        engine call."""

    def check(self) -> None:
        """Raises if a peer has failed, died or fallen silent, or if this session has failed."""

    def close(self) -> None:
        """Leaves the session in good order. Idempotent."""

    def drain_trace(self) -> list[TraceEvent]: ...
    def counters(self) -> Counters: ...
    rank: int
    world_size: int
    accumulation: Accumulation
    epoch: int
    in_bracket: bool

def keep_freed_pages() -> bool:
    """Tells the C library's allocator to keep freed memory resident (mallopt), so that FSDP2's
    landings are not faulted in again at every gather. Process-wide. False where the C library has
    no such setting."""

class CommunicationModel:
    """What communication adds to a step's compute where it is not hidden, in the cost model's unit:
    gathers and pushes (on demand), all-gathers and reduce-scatters (lockstep) of one microbatch,
    and what a minibatch costs beside. "auto" then compares whole step times."""

    gather: float
    push: float
    on_demand_minibatch: float
    all_gather: float
    reduce_scatter: float
    lockstep_minibatch: float
    def __init__(
        self,
        *,
        gather: float = 0.0,
        push: float = 0.0,
        on_demand_minibatch: float = 0.0,
        all_gather: float = 0.0,
        reduce_scatter: float = 0.0,
        lockstep_minibatch: float = 0.0,
    ) -> None: ...

class CostModel:
    """quadratic * s^2 + linear * s for a sample of s tokens, plus per_microbatch for each
    microbatch that holds a sample. Plans depend on ratios alone, so any unit will do."""

    quadratic: float
    linear: float
    per_microbatch: float
    def __init__(self, quadratic: float, linear: float, per_microbatch: float = 0.0) -> None: ...
    @staticmethod
    def preset(name: str) -> CostModel:
        """Published fits: "1.5B" or "7B"."""

    @staticmethod
    def from_shape(
        *,
        hidden: int,
        layers: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        intermediate: int,
        vocabulary: int,
    ) -> CostModel:
        """Floating-point operations of forward and backward of a decoder with gated MLPs."""

    @staticmethod
    def from_config(config: str | os.PathLike[str] | dict[str, Any]) -> CostModel:
        """from_shape of a Hugging Face config.json, of the one in a folder, or of what it holds."""

    @staticmethod
    def fit(points: Sequence[tuple[int, float]], with_microbatch: bool = False) -> CostModel:
        """Least squares through measured (tokens, cost) of microbatches with one sample each."""

    @staticmethod
    def parse(text: str) -> CostModel:
        """What `headrace balance --model` takes: a preset, coefficients as
        "quadratic,linear[,per_microbatch]", a config.json or its folder, or a file of measured
        tokens,cost."""

    def sample(self, tokens: int) -> float: ...

class Piece:
    """Tokens [begin, begin + tokens) of a sample; all of it unless the sample was truncated or
    split."""

    sample: int
    begin: int
    tokens: int

class Microbatch:
    """Without pieces it is a filler: weight zero, keeps a rank in step in lockstep."""

    pieces: list[Piece]
    samples: list[int]
    tokens: int
    cost: float
    filler: bool

class Prediction:
    """Compute alone: makespan in the cost model's unit, bubble as a share of all ranks' time, 0
    to 1. No plan of the same samples under the same cap and groups has a makespan below
    lower_bound."""

    makespan: float
    bubble: float
    lower_bound: float

class Plan:
    """One minibatch: which rank trains which samples in which microbatch; the same on all ranks."""

    strategy: str
    cap: int
    world_size: int
    ranks: list[list[Microbatch]]  # [rank], in order of execution
    rank_costs: list[float]
    oversize: list[int]  # samples changed by the oversize policy, ascending
    tokens: int
    tokens_lost: int
    lockstep: Prediction
    on_demand: Prediction
    recommendation: str  # "lockstep" | "on-demand"
    equal_counts: bool  # lockstep can run it as it is
    def digest(self, keys: Sequence[int] = ()) -> int:
        """64 bits over every microbatch of every rank, and over what the samples stand for
        outside the plan."""

    def padded_for_lockstep(self) -> Plan:
        """The same plan with fillers at the end of ranks that have fewer microbatches than
        others."""

    def to_json(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Plan: ...

def plan(
    lengths: Sequence[int],
    world_size: int,
    cap: int,
    strategy: str = "lb-mini",
    cost: CostModel | None = None,
    *,
    oversize: str = "error",
    alignment: int = 1,
    least_gain: float = 0.02,
    labels: Sequence[int] = (),
    groups: Sequence[int] = (),
    equal_samples: bool = False,
    min_microbatches: int = 0,
    communication: CommunicationModel | None = None,
) -> Plan:
    """Plans one minibatch under a hard cap of tokens a microbatch; strategy "none", "sorted",
    "lb-micro", "lb-mini", "verl-native" or "verl-optimized", oversize "error", "truncate", "drop"
    or "split", cost the "1.5B" preset unless given. Errors name `labels`, where given, instead of
    indices.

    groups: one id a sample: samples of one id stay on one rank.
    equal_samples: as many samples on every rank, give or take one; OperationError where groups
        prevent it.
    min_microbatches: of every rank; fillers where a rank has fewer samples.
    communication: what the recommendation adds to compute; nothing unless given."""

def plan_batch(
    lengths: Sequence[int],
    minibatches: int,
    world_size: int,
    cap: int,
    strategy: str = "lb-mini",
    cost: CostModel | None = None,
    *,
    oversize: str = "error",
    alignment: int = 1,
    least_gain: float = 0.02,
    labels: Sequence[int] = (),
    groups: Sequence[int] = (),
    equal_samples: bool = False,
    min_microbatches: int = 0,
    communication: CommunicationModel | None = None,
) -> list[Plan]:
    """Plans a batch that is trained in several minibatches; samples of the plans are indices in the
    batch. Minibatches are consecutive samples (or groups), except under "verl-native", which first
    levels the whole batch over the ranks and cuts each rank's samples then."""

def karmarkar_karp(costs: Sequence[float], parts: int, equal_size: bool = False) -> list[list[int]]:
    """Indices of `costs` in parts of nearly equal sums, by the largest differencing method;
    costliest part first. With equal_size the parts' lengths differ by one at most."""

def workloads() -> list[str]:
    """Names of the synthetic workloads."""

def workload_lengths(workload: str, count: int, seed: int = 0) -> list[int]:
    """Sample lengths in tokens that look like those of a real training set; the same for the same
    seed on every platform."""

class Permutation:
    """A uniform order of 0 to size - 1 that depends on size, seed and epoch alone, on every
    platform."""

    def __init__(self, size: int, seed: int, epoch: int) -> None: ...
    def __len__(self) -> int: ...
    def slice(self, begin: int, end: int) -> list[int]: ...
