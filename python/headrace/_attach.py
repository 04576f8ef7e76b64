"""From an FSDP2 model to an Engine, on every rank of its shard mesh at once."""

import torch
import torch.distributed as dist
from torch import nn

from headrace import _engine, fsdp2
from headrace.engine import Engine
from headrace.errors import HeadraceError, OperationError
from headrace.fsdp2 import fallback
from headrace.fsdp2.sharded_model import ShardedModel
from headrace.lockstep import adoptable, residences
from headrace.mode import Mode
from headrace.rendezvous import Rendezvous, default_group

_accumulations = tuple(_engine.Accumulation.__members__)
_session_modes = {
    Mode.on_demand: _engine.Mode.on_demand,
    Mode.lockstep: _engine.Mode.lockstep,
    Mode.auto: _engine.Mode.both,
}
_session_settings = (
    "silence_seconds",
    "no_progress_seconds",
    "bootstrap_seconds",
    "chunk_bytes",
    "trace_events",
    "local_ranks",
)


def attach(
    model: nn.Module,
    mode: str = "on-demand",
    group: dist.ProcessGroup | None = None,
    *,
    residence: str = "in-place",
    accumulate: str = "arrival",
    keep_freed_pages: bool = True,
    worker_threads: bool = False,
    **config: float,
) -> Engine:
    """Carries `model`'s gathers and reductions through headrace. Call it on every rank of the shard
    mesh, in the same order for several models, after fully_shard and before or between training
    steps.

    `mode` is "on-demand" (ranks meet once a minibatch; every forward and backward lies in a
    bracket), "lockstep" (ranks meet at every layer, as with stock collectives; a loop without
    brackets works unchanged) or "auto" (each bracket goes one of the two ways; see
    Engine.minibatch). In lockstep `residence` says where gradients lie while they are reduced:
    "in-place", where autograd left them, or "slot-reuse", moved into the storage that their
    parameters have vacated, which frees autograd's earlier and needs a smaller outbox where there
    are many nodes; it must agree on every rank.

    `group` is where the ranks meet, by default the shard mesh's own process group; it must hold the
    same ranks. `accumulate` is "arrival" (gradients are added as they arrive: correct to rounding)
    or "reproducible" (the same bits in any order of arrival, for N fp32 accumulators of the shard
    in place of one); it concerns on-demand. `keep_freed_pages` keeps freed memory of the whole
    process resident, without which every gather would fault its pages in again. `worker_threads`
    runs communication beside the compute: gathers that FSDP2 prefetches, pushes, reduce-scatters;
    it must agree on every rank. `config` sets fields of SessionConfig: silence_seconds,
    no_progress_seconds, bootstrap_seconds, chunk_bytes, trace_events, local_ranks (how many ranks
    share a node in lockstep; all of them unless given).

    Raises OperationError, on every rank, where any rank's model cannot be carried. Parameters that
    FSDP2 ignores (ignored_params) stay the loop's business: do not reduce them inside a bracket.
    """
    meeting = group if isinstance(group, dist.ProcessGroup) else default_group()
    sharded, problem = None, None
    try:
        if group is not None and group is not meeting:
            raise OperationError(f"group={group!r}: give a process group, or none")
        hooks = fsdp2.hooks()  # first: another torch may lack what the rest looks at
        way = Mode.parse(mode)
        sharded = ShardedModel(model, on_demand=way is Mode.on_demand)
        meeting = _meeting_group(sharded, group) or meeting
        _check_arguments(residence, accumulate, worker_threads, config)
        sharded.initialise()
        _check_group(sharded, group)
        for param_group in sharded.groups:
            if hooks.is_attached(param_group):
                raise OperationError(
                    "the model is attached already: detach its engine before another attach"
                )
    except Exception as error:  # told to the peers before it is raised here
        problem = error
    rendezvous = Rendezvous(meeting)
    settings = _engine.SessionConfig(rendezvous.rank, rendezvous.world_size)
    for name in _session_settings:
        if name in config and problem is None:
            setattr(settings, name, config[name])
    _agree(rendezvous, problem, settings.bootstrap_seconds)
    settings.accumulate = _engine.Accumulation[accumulate]
    settings.worker_threads = worker_threads
    settings.slot_reuse = residence == "slot-reuse"
    settings.fingerprint = f"headrace={_engine.__version__} torch={torch.__version__} mode={mode}"
    settings.mode = _session_modes[way]
    if way is Mode.lockstep:
        settings.adopted = adoptable(sharded)
    session = _engine.Session.connect(settings, sharded.specs(), rendezvous.exchange)
    if keep_freed_pages:
        _engine.keep_freed_pages()
    fallback.announce(sharded.fallbacks, rendezvous.rank)
    return Engine(
        sharded, session, hooks, int(settings.trace_events), way, residence, worker_threads
    )


def _check_arguments(
    residence: str, accumulate: str, worker_threads: bool, config: dict[str, float]
) -> None:
    if residence not in residences:
        raise OperationError(
            f"residence={residence!r}: gradients are read {' or '.join(map(repr, residences))}"
        )
    if accumulate not in _accumulations:
        raise OperationError(
            f"accumulate={accumulate!r}: choose from {', '.join(map(repr, _accumulations))}"
        )
    if not isinstance(worker_threads, bool):
        raise OperationError(f"worker_threads={worker_threads!r}: is True or False")
    unknown = sorted(set(config) - set(_session_settings))
    if unknown:
        raise OperationError(
            f"unknown setting {', '.join(unknown)}: the settings are {', '.join(_session_settings)}"
        )
    for name, value in config.items():
        try:
            setattr(_engine.SessionConfig(0, 1), name, value)
        except (TypeError, OverflowError):
            raise OperationError(f"{name}={value!r}: is of the wrong type, or too large") from None
        if not value > 0:
            raise OperationError(f"{name}={value}: must be positive")


def _meeting_group(
    sharded: ShardedModel, group: dist.ProcessGroup | None
) -> dist.ProcessGroup | None:
    """The given group, unless it is not where the peers will be."""
    mesh = sharded.process_group
    if group is None or mesh is None:
        return group or mesh
    same = dist.get_process_group_ranks(group) == dist.get_process_group_ranks(mesh)
    return group if same else mesh


def _check_group(sharded: ShardedModel, group: dist.ProcessGroup | None) -> None:
    if group is None:
        return
    given = dist.get_process_group_ranks(group)
    mesh = dist.get_process_group_ranks(sharded.process_group)
    if given != mesh:
        raise OperationError(
            f"group holds ranks {given} and the shard mesh ranks {mesh}: give the group of the "
            "shard mesh, or none"
        )


def _agree(rendezvous: Rendezvous, problem: Exception | None, seconds: float) -> None:
    """Every rank learns whether every rank can go on; raises the own problem or names a peer's."""
    mine = b"" if problem is None else f"{type(problem).__name__}: {problem}".encode()
    try:
        replies = rendezvous.exchange(mine, seconds)
    except HeadraceError:
        if problem is None:
            raise
        replies = []  # the own problem explains more than a peer's absence
    if problem is not None:
        raise problem
    for rank, reply in enumerate(replies):
        if reply:
            raise OperationError(
                f"rank {rank} cannot attach its model: {reply.decode()}", rank=rank
            )
