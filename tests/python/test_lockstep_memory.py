"""What a training step in lockstep needs beyond what exists between steps: measured, against the
closed forms of the plan."""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
import torch.nn as nn
from support.models import shard
from support.ranks import Ranks

_width = 2048  # a group's one parameter: 16 MiB in fp32, and one bias
_blocks = 5
_root = 0  # its group's index
_m_mmap_threshold = -3
_mmap_bytes = 1 << 20
_staging_slots = 2  # the plan's default, as are one pass and four transfers a round
_transfers = 4
# Activations, small tensors and what the allocator holds; a group's landings are 16 MiB.
_slack_bytes = 2 << 20


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(_width, _width) for _ in range(_blocks))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return (x * self.scale).sum()


def status_bytes(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)[1]) << 10


@dataclass
class Extra:
    """Bytes over what lies there between two steps, and without the arena."""

    arena: int = 0  # but for the shards that live in it
    peak: int = 0  # of a step's forward and backward
    reducing: int = 0  # the most when a reduction has its gradients; without those reduced before


class Spied:
    """The engine's session; looks at memory when a block's reduction begins. The root's own, of one
    element, comes while the first block still runs."""

    def __init__(self, session: object) -> None:
        self._session = session
        self.held: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def start_reduce_scatter(self, group: int, *arguments: Any, **options: Any) -> int:
        if group != _root:
            self.held.append(status_bytes("VmRSS"))
        return self._session.start_reduce_scatter(group, *arguments, **options)


def extra_of_a_step(rank: int, world: int, local_ranks: int, residence: str | None) -> Extra:
    """Stock without a residence."""
    libc = ctypes.CDLL(None)
    assert libc.mallopt(_m_mmap_threshold, _mmap_bytes) == 1  # freed blocks go back at once
    model = shard(Layers())
    extra, spy = Extra(), None
    if residence is not None:
        engine = headrace.attach(
            model,
            mode="lockstep",
            residence=residence,
            local_ranks=local_ranks,
            keep_freed_pages=False,
        )
        shards = sum(p._local_tensor.untyped_storage().nbytes() for p in model.parameters())
        extra.arena = engine._session.counters().arena_bytes - shards
        spy = engine._lockstep._session = Spied(engine._session)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(4):
        before = status_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
        if spy is not None:
            spy.held = []
        model(torch.full((1, _width), 0.1)).backward()
        if step >= 2:  # first steps touch the arena, and import
            extra.peak = max(extra.peak, status_bytes("VmHWM") - before)
        if step >= 2 and spy is not None:
            held = [
                bytes_now - before - reduced * shard_bytes(world)
                for reduced, bytes_now in enumerate(spy.held)
            ]
            extra.reducing = max(extra.reducing, *held)
        optimizer.step()
        optimizer.zero_grad()
    if residence is not None:
        engine.detach()
    return extra


def shard_bytes(world: int) -> int:
    return -(-_width // world) * (_width + 1) * 4


def outbox_blocks(nodes: int, local_ranks: int, residence: str) -> int:
    """A round stays inside a wave, which is no wider than a node."""
    most = 2 * min(_transfers, local_ranks) if residence == "slot-reuse" else nodes - 1
    return min(nodes - 1, most)


def predicted(world: int, local_ranks: int, residence: str) -> int:
    """The table of engine/plan/lockstep_memory.h for fp32 and adopted shards."""
    nodes, s = world // local_ranks, shard_bytes(world)
    landings = 2 * world * s
    gradients = world * s if residence == "in-place" else 0
    stage = (nodes - 1) * s
    staging = _staging_slots * (local_ranks - 1) * s
    waves = -(-nodes // local_ranks)
    outbox = outbox_blocks(nodes, local_ranks, residence)
    inbox = min(waves, 2) * local_ranks * s
    spare = 2 * s
    reduce_scatter = staging + 2 * outbox * s + inbox + spare
    return landings + gradients + stage + reduce_scatter


@pytest.mark.parametrize(("world", "local_ranks"), [(2, 2), (4, 4), (4, 2), (4, 1)])
def test_a_step_needs_no_more_than_predicted(world: int, local_ranks: int) -> None:
    unsharded, left_behind = world * shard_bytes(world), _blocks * shard_bytes(world)
    found: dict[str | None, int] = {}
    arenas: list[int] = []
    for residence in ("in-place", "slot-reuse", None):
        with Ranks(world) as ranks:  # of their own: the allocator's settings last
            extras = ranks.run(extra_of_a_step, local_ranks, residence)
        arena = max(extra.arena for extra in extras)
        # The sharded gradients stay; the step needs the rest.
        found[residence] = max(extra.peak for extra in extras) + arena - left_behind
        if residence is None:
            continue
        arenas.append(arena)
        limit = predicted(world, local_ranks, residence)
        print(
            f"{world} ranks, {local_ranks} a node, {residence}: {found[residence] / unsharded:.2f} "
            f"NS, of it arena {arena / unsharded:.2f}; predicted {limit / unsharded:.2f}"
        )
        assert found[residence] + left_behind >= unsharded  # or the measurement sees nothing
        assert found[residence] <= limit + _slack_bytes
        # Parameters have gone, and there is one copy of the gradients, wherever it lies.
        output = shard_bytes(world)
        assert max(extra.reducing for extra in extras) <= unsharded + output + _slack_bytes
    print(f"{world} ranks, stock: {found[None] / unsharded:.2f} NS")
    blocks = [
        outbox_blocks(world // local_ranks, local_ranks, r) for r in ("in-place", "slot-reuse")
    ]
    saved = 2 * (blocks[0] - blocks[1]) * shard_bytes(world)
    assert arenas[0] - arenas[1] == pytest.approx(saved, abs=1 << 16)  # and whole pages
    if local_ranks == world:
        assert max(found["in-place"], found["slot-reuse"]) < found[None]
