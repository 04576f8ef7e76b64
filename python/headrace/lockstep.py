"""Lockstep traffic of one attached model: every rank in every collective, layer by layer."""

from contextlib import suppress
from typing import NamedTuple

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

from headrace._engine import GradientSource, Session, ShardSource
from headrace.errors import HeadraceError
from headrace.fsdp2 import landings, reduction
from headrace.fsdp2.gradients import dense
from headrace.fsdp2.residence import Residence, same_dtype
from headrace.fsdp2.sharded_model import ShardedModel, dtypes

residences = ("in-place", "slot-reuse")


def adoptable(model: ShardedModel) -> list[bool]:
    """By group: whether its shards can live in the arena, since they travel as they are stored."""
    return [all(same_dtype(param) for param in group.fsdp_params) for group in model.groups]


class _Reduction(NamedTuple):
    """One under way, with all that it reads and writes."""

    ticket: int
    group: int
    gradients: list[tuple[int, torch.Tensor]]
    readable: list[tuple[int, torch.Tensor]]  # the same, as the engine reads them
    packed: torch.Tensor
    params: list[FSDPParam]
    offsets: list[int]  # of their rows in packed
    request: reduction.Request
    zero: bool  # whatever the sum is
    average_replicas: bool


class Lockstep:
    """`residence` says where gradients lie while they are read: "in-place" where autograd left
    them, or "slot-reuse", moved into the landings that their parameters have vacated, so that
    autograd's memory is free before the reduction begins. With `adopt`, shards that travel as they
    are stored live in the arena. With `overlaps`, a reduction is under way until the next one, or
    until it is waited for.
    """

    def __init__(
        self,
        model: ShardedModel,
        session: Session,
        residence: str,
        adopt: bool,
        overlaps: bool = False,
    ) -> None:
        self._model = model
        self._session = session
        self._overlaps = overlaps
        self._under_way: _Reduction | None = None
        self._slot_reuse = residence == "slot-reuse"
        self._residences: list[Residence | None] = [None] * len(model.groups)
        if adopt:
            for g, wanted in enumerate(adoptable(model)):
                if wanted:
                    self._residences[g] = _residence(model, session, g)
                    self._residences[g].adopt()

    def start_gather(self, group: int, addresses: list[int]) -> None:
        if self._under_way is not None and self._under_way.group == group:
            self.end_reduction()  # its gradients may lie in these landings
        params = self._model.groups[group].fsdp_params
        for param in params:
            self._model.check_shard(param)
        residence = self._residences[group]
        if residence is not None:
            residence.adopt()
        shards = [
            ShardSource(param._sharded_param_data.data_ptr(), dtypes[param.sharded_param.dtype])
            for param in params
        ]
        self._session.start_all_gather(group, shards, addresses)

    def reduce(
        self,
        group: int,
        gradients: list[tuple[int, torch.Tensor]],
        request: reduction.Request,
        alpha: float,
        average_replicas: bool,
    ) -> torch.Tensor | None:
        """`alpha` times the sum over the shard mesh, then what FSDP2 asks beside it. An `alpha` of
        0 gives zeros whatever the gradients hold."""
        self.end_reduction()
        param_group = self._model.groups[group]
        if self._slot_reuse and param_group.is_sharded:
            landings.move_in(param_group, gradients)
        readable = [(i, dense(self._model, group, i, gradient)) for i, gradient in gradients]
        whole = request.all_reduce_group is not None or request.all_reduce_hook is not None
        elements = self._session.packed_elements(group)
        # Between blocks and in pad rows nothing is written; who reads the whole must find zeros.
        packed = torch.zeros(elements) if whole else torch.empty(elements)
        sources = [GradientSource(i, g.data_ptr(), dtypes[g.dtype]) for i, g in readable]
        params = [param_group.fsdp_params[i] for i, _ in gradients]
        offsets = self._session.packed_offsets(group)
        # A rank that steps its optimizer earlier than its peers has no gradients where they do.
        earlier = request.partial is not None or any(
            param.sharded_param.grad is not None for param in params
        )
        ticket = self._session.start_reduce_scatter(
            group, sources, packed.data_ptr(), alpha, earlier=earlier
        )
        self._under_way = _Reduction(
            ticket,
            group,
            gradients,
            readable,
            packed,
            params,
            [offsets[i] for i, _ in gradients],
            request,
            alpha == 0,
            average_replicas,
        )
        keeps_partial = request.all_reduce_group is not None and not request.all_reduce
        if self._overlaps and not keeps_partial:
            return None
        return self.end_reduction()

    def end_reduction(self) -> torch.Tensor | None:
        """Waits for the reduction that is under way, if any, and ends it in `.grad`. Returns the
        partial sum where that is what was asked for."""
        ending = self._under_way
        if ending is None:
            return None
        self._session.wait_pushed(ending.ticket)  # where this raises, it may still be under way
        self._under_way = None
        ending.readable.clear()
        landings.vacate(self._model.groups[ending.group], ending.gradients)
        if ending.zero:
            ending.packed.zero_()
        return reduction.finish(
            ending.params, ending.offsets, ending.packed, ending.request, ending.average_replicas
        )

    def discard_reduction(self) -> None:
        """Returns once what is under way, if anything, has ended and come to nothing."""
        if self._under_way is not None:
            with suppress(HeadraceError):  # the next call tells
                self._session.wait_pushed(self._under_way.ticket)
            self.drop_reduction()

    def drop_reduction(self) -> None:
        """The session has ended: what was under way comes to nothing."""
        if self._under_way is not None:
            self._under_way.readable.clear()
            landings.vacate(self._model.groups[self._under_way.group], self._under_way.gradients)
            self._under_way = None

    def leave(self) -> None:
        """Gives every shard ordinary memory again."""
        for residence in self._residences:
            if residence is not None:
                residence.leave()
        self._residences = []


def _residence(model: ShardedModel, session: Session, group: int) -> Residence:
    params = model.groups[group].fsdp_params
    blocks = []
    for param, block in zip(params, session.resident(group), strict=True):
        flat = torch.from_dlpack(block).view(param.sharded_param.dtype)
        blocks.append(flat)
    return Residence(params, blocks)
