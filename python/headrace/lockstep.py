"""Lockstep traffic of one attached model: every rank in every collective, layer by layer."""

import torch

from headrace._engine import GradientSource, Session, ShardSource
from headrace.fsdp2 import landings, reduction
from headrace.fsdp2.gradients import dense
from headrace.fsdp2.residence import Residence, same_dtype
from headrace.fsdp2.sharded_model import ShardedModel, dtypes

residences = ("in-place", "slot-reuse")


def adoptable(model: ShardedModel) -> list[bool]:
    """By group: whether its shards can live in the arena, since they travel as they are stored."""
    return [all(same_dtype(param) for param in group.fsdp_params) for group in model.groups]


class Lockstep:
    """`residence` says where gradients lie while they are read: "in-place" where autograd left
    them, or "slot-reuse", moved into the landings that their parameters have vacated, so that
    autograd's memory is free before the reduction begins. With `adopt`, shards that travel as they
    are stored live in the arena.
    """

    def __init__(self, model: ShardedModel, session: Session, residence: str, adopt: bool) -> None:
        self._model = model
        self._session = session
        self._slot_reuse = residence == "slot-reuse"
        self._residences: list[Residence | None] = [None] * len(model.groups)
        if adopt:
            for g, wanted in enumerate(adoptable(model)):
                if wanted:
                    self._residences[g] = _residence(model, session, g)
                    self._residences[g].adopt()

    def all_gather(self, group: int, addresses: list[int]) -> None:
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
        self._session.all_gather(group, shards, addresses)

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
        param_group = self._model.groups[group]
        if self._slot_reuse and param_group.is_sharded:
            landings.move_in(param_group, gradients)
        readable = [(i, dense(self._model, group, i, gradient)) for i, gradient in gradients]
        indices = [index for index, _ in gradients]
        whole = request.all_reduce_group is not None or request.all_reduce_hook is not None
        elements = self._session.packed_elements(group)
        # Between blocks and in pad rows nothing is written; who reads the whole must find zeros.
        packed = torch.zeros(elements) if whole else torch.empty(elements)
        sources = [GradientSource(i, g.data_ptr(), dtypes[g.dtype]) for i, g in readable]
        params = [param_group.fsdp_params[i] for i in indices]
        # A rank that steps its optimizer earlier than its peers has no gradients where they do.
        earlier = request.partial is not None or any(
            param.sharded_param.grad is not None for param in params
        )
        self._session.reduce_scatter(group, sources, packed.data_ptr(), alpha, earlier=earlier)
        del readable
        landings.vacate(param_group, gradients)
        if alpha == 0:
            packed.zero_()
        offsets = self._session.packed_offsets(group)
        return reduction.finish(
            params,
            [offsets[i] for i in indices],
            packed,
            request,
            average_replicas,
        )

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
