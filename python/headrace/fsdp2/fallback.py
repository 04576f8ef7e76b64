"""Groups that stock collectives carry beside an attached model's others."""

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup


def announce(reasons: Mapping[FSDPParamGroup, str], rank: int) -> None:
    """One warning, on rank 0, that names every group and why."""
    if reasons and rank == 0:
        warnings.warn(
            "stock collectives carry what headrace does not: " + "; ".join(reasons.values()),
            stacklevel=4,
        )


@contextmanager
def summing(groups: Collection[FSDPParamGroup], wanted: bool) -> Iterator[None]:
    """Makes stock reductions sum, as the bracket's own scaling rule needs, and afterwards divide as
    before."""
    before = [(g.gradient_divide_factor, g.force_sum_reduction_for_comms) for g in groups]
    if wanted:
        for group in groups:
            group.gradient_divide_factor = 1.0
            group.force_sum_reduction_for_comms = True
    try:
        yield
    finally:
        if wanted:
            for group, (factor, force) in zip(groups, before, strict=True):
                group.gradient_divide_factor = factor
                group.force_sum_reduction_for_comms = force
