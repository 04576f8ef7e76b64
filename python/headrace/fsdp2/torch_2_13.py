"""What headrace replaces in FSDP2 of torch 2.13, process-wide, for attached parameter groups only.

Replaced: FSDPParamGroup.unshard and wait_for_unshard (the all-gather), the name foreach_reduce in
_fsdp_param_group (the reduce-scatter), and what ends a backward, so that no reduction outlives it:
FSDPState._root_post_backward_final_callback, and _reset_iter_state after an exception. FSDP2's own
hooks, storage, prefetch decisions and gradient accumulation stay in place. A group that is not
attached takes the stock path untouched.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_common import (
    TrainingState,
    _disable_functorch_if_active,
)
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

from headrace.fsdp2.landings import Landings


class Reduction(NamedTuple):
    """What FSDP2 asks of one reduction beside the sum over the shard mesh."""

    orig_dtype: torch.dtype  # of the sharded gradient
    divide_factor: float | None  # set by the user
    all_reduce_group: dist.ProcessGroup | None  # the replicas of HSDP
    all_reduce: bool  # False: keep this rank's partial sum for a later reduction
    partial: torch.Tensor | None  # kept by an earlier reduction
    all_reduce_hook: Callable[[torch.Tensor], None] | None


class Traffic(Protocol):
    """What an attached model's groups call instead of collectives."""

    overlaps: bool  # gathers make progress before they are waited for

    def require_open(self, group: int) -> None:
        """Raises where the group's parameters may not be gathered now."""

    def backward_started(self) -> None: ...

    def start_gather(self, group: int, landings: list[int]) -> None: ...

    def wait_gather(self, group: int) -> None: ...

    def drop_gather(self, group: int) -> None:
        """Returns once nothing writes to the landings any more."""

    def reduce(
        self, group: int, gradients: list[tuple[int, torch.Tensor]], reduction: Reduction
    ) -> torch.Tensor | None:
        """Takes the gradients out of the list as soon as they are consumed. Returns the partial sum
        to keep for a later reduction."""

    def backward_ended(self) -> None:
        """Every `.grad` must be there."""

    def backward_dropped(self) -> None:
        """What a reduction under way would come to must be discarded."""


class _Place(NamedTuple):
    traffic: "weakref.ref[Traffic]"
    group: int
    parameters: dict[FSDPParam, int]  # index in the group
    landings: Landings


_places: WeakKeyDictionary[FSDPParamGroup, _Place] = WeakKeyDictionary()
_owners: WeakKeyDictionary[FSDPParam, FSDPParamGroup] = WeakKeyDictionary()
_stock: dict[str, Any] = {}


def expected_signatures() -> dict[tuple[object, str], str]:
    """Parameter names, in order, of what is replaced or called; none once it is replaced."""
    if _stock:
        return {}
    return {
        (FSDPParamGroup, "unshard"): "self async_op",
        (FSDPParamGroup, "wait_for_unshard"): "self",
        (FSDPParamGroup, "_to_sharded"): "self",
        (FSDPParamGroup, "_to_unsharded"): "self",
        (FSDPParam, "init_all_gather_outputs"): (
            "self all_gather_input_numels all_gather_input_dtypes world_size device"
        ),
        (FSDPParam, "init_unsharded_param"): "self",
        (FSDPParam, "to_sharded_dtensor"): "self tensor",
        (FSDPState, "_lazy_init"): "self",
        (FSDPState, "_reset_iter_state"): "self",
        (FSDPState, "_root_post_backward_final_callback"): "self",
        (_fsdp_param_group, "foreach_reduce"): (
            "fsdp_params unsharded_grads reduce_scatter_group reduce_scatter_stream "
            "reduce_scatter_comm orig_dtype reduce_dtype device gradient_divide_factor "
            "all_reduce_group all_reduce_stream all_reduce_grads partial_reduce_output "
            "all_reduce_hook force_sum_reduction_for_comms"
        ),
        (_fsdp_collectives, "AllGatherResult"): (
            "all_gather_output all_gather_event all_gather_work param_all_gather_input_dtypes "
            "param_all_gather_input_numels all_gather_input_split_sizes"
        ),
    }


def is_attached(group: FSDPParamGroup) -> bool:
    return group in _places


def attach(groups: Sequence[FSDPParamGroup], traffic: Traffic) -> None:
    """Routes the groups through `traffic`, which must be detached before it goes; the first attach
    of the process installs the patches."""
    if not _places:
        _install()
    for index, group in enumerate(groups):
        parameters = {param: i for i, param in enumerate(group.fsdp_params)}
        _places[group] = _Place(weakref.ref(traffic), index, parameters, Landings(group))
        for param in group.fsdp_params:
            _owners[param] = group


def detach(groups: Sequence[FSDPParamGroup]) -> None:
    """Undoes attach; the last detach of the process puts the stock functions back."""
    for group in groups:
        _places.pop(group, None)
        for param in group.fsdp_params:
            _owners.pop(param, None)
    if not _places:
        _uninstall()


def _install() -> None:
    if _stock:
        return
    _stock.update(
        unshard=FSDPParamGroup.unshard,
        wait_for_unshard=FSDPParamGroup.wait_for_unshard,
        foreach_reduce=_fsdp_param_group.foreach_reduce,
        final_callback=FSDPState._root_post_backward_final_callback,
        reset_iter_state=FSDPState._reset_iter_state,
    )
    FSDPParamGroup.unshard = _unshard
    FSDPParamGroup.wait_for_unshard = _wait_for_unshard
    _fsdp_param_group.foreach_reduce = _foreach_reduce
    FSDPState._root_post_backward_final_callback = _final_callback
    FSDPState._reset_iter_state = _reset_iter_state


def _uninstall() -> None:
    if not _stock:
        return
    FSDPParamGroup.unshard = _stock["unshard"]
    FSDPParamGroup.wait_for_unshard = _stock["wait_for_unshard"]
    _fsdp_param_group.foreach_reduce = _stock["foreach_reduce"]
    FSDPState._root_post_backward_final_callback = _stock["final_callback"]
    FSDPState._reset_iter_state = _stock["reset_iter_state"]
    _stock.clear()


class _Gather(dist.distributed_c10d.Work):
    """A gather under way. FSDP2 waits for it itself where it drops a prefetch that nobody used."""

    def __init__(self, place: _Place) -> None:
        super().__init__()
        self._place = place

    def wait(self, *_: Any) -> bool:
        traffic = self._place.traffic()
        if traffic is not None:  # else it is being collected, and has ended all gathers
            traffic.drop_gather(self._place.group)
        self._place.landings.free()
        return True


@_disable_functorch_if_active
def _unshard(self: FSDPParamGroup, async_op: bool = False) -> None:
    """Begins to gather where gathers overlap. Elsewhere it only marks the group: nothing moves
    until it is waited for, so a prefetch costs nothing."""
    place = _places.get(self)
    if place is None:
        return _stock["unshard"](self, async_op)
    in_backward = self._training_state == TrainingState.PRE_BACKWARD
    if in_backward:
        place.traffic().backward_started()
    if self._all_gather_result is not None or self.is_unsharded:
        return None
    if in_backward and not self.unshard_in_backward:
        return None
    traffic = place.traffic()
    traffic.require_open(place.group)
    under_way = None
    if traffic.overlaps:
        traffic.start_gather(place.group, place.landings.allocate())
        under_way = _Gather(place)
    self._all_gather_result = _fsdp_collectives.AllGatherResult(
        all_gather_output=self._all_gather_output,
        all_gather_event=None,
        all_gather_work=under_way,
        param_all_gather_input_dtypes=[],
        param_all_gather_input_numels=[],
        all_gather_input_split_sizes=[],
    )
    return None


@_disable_functorch_if_active
def _wait_for_unshard(self: FSDPParamGroup) -> None:
    place = _places.get(self)
    if place is None:
        return _stock["wait_for_unshard"](self)
    if self._all_gather_result is None:
        return None
    # Written by address: version counters stay as they are, as with the stock copy-out.
    traffic = place.traffic()
    if self._all_gather_result.all_gather_work is None:
        traffic.start_gather(place.group, place.landings.allocate())
    traffic.wait_gather(place.group)
    self._to_unsharded()
    self._all_gather_result = None
    return None


def _foreach_reduce(
    fsdp_params: list[FSDPParam],
    unsharded_grads: list[torch.Tensor],
    reduce_scatter_group: Any,
    reduce_scatter_stream: Any,
    reduce_scatter_comm: Any,
    orig_dtype: torch.dtype | None,
    reduce_dtype: torch.dtype | None,
    device: torch.device,
    gradient_divide_factor: float | None,
    all_reduce_group: Any,
    all_reduce_stream: Any,
    all_reduce_grads: bool,
    partial_reduce_output: torch.Tensor | None,
    all_reduce_hook: Callable[[torch.Tensor], None] | None,
    force_sum_reduction_for_comms: bool = False,
) -> tuple[Any, ...]:
    group = _owners.get(fsdp_params[0])
    if group is None:
        return _stock["foreach_reduce"](
            fsdp_params,
            unsharded_grads,
            reduce_scatter_group,
            reduce_scatter_stream,
            reduce_scatter_comm,
            orig_dtype,
            reduce_dtype,
            device,
            gradient_divide_factor,
            all_reduce_group,
            all_reduce_stream,
            all_reduce_grads,
            partial_reduce_output,
            all_reduce_hook,
            force_sum_reduction_for_comms,
        )
    place = _places[group]
    gradients = [
        (place.parameters[param], grad)
        for param, grad in zip(fsdp_params, unsharded_grads, strict=True)
    ]
    unsharded_grads.clear()  # so that each gradient goes as soon as it has been consumed
    reduction = Reduction(
        orig_dtype or gradients[0][1].dtype,
        gradient_divide_factor,
        all_reduce_group,
        all_reduce_grads,
        partial_reduce_output,
        all_reduce_hook,
    )
    partial = place.traffic().reduce(place.group, gradients, reduction)
    return (None, None, reduce_scatter_stream, None, None, None, partial)


def _final_callback(self: FSDPState) -> None:
    _stock["final_callback"](self)
    for traffic in _traffics(self):
        traffic.backward_ended()


def _reset_iter_state(self: FSDPState) -> None:
    for traffic in _traffics(self):
        traffic.backward_dropped()
    _stock["reset_iter_state"](self)


def _traffics(root: FSDPState) -> set[Traffic]:
    places = [
        _places.get(group)
        for state in root._state_ctx.all_states
        for group in state._fsdp_param_groups
    ]
    found = {place.traffic() for place in places if place is not None}
    return {traffic for traffic in found if traffic is not None}
