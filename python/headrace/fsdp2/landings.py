"""A group's landings: the storage of its unsharded parameters, where FSDP2 keeps them."""

from collections.abc import Sequence

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import (
    FSDPParam,
    alloc_storage,
    free_storage,
)
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup


class Landings:
    """One group's, made at the first use, when FSDP2 knows all dtypes, and then kept: a use only
    gives them memory and takes it away."""

    def __init__(self, group: FSDPParamGroup) -> None:
        self._params: Sequence[FSDPParam] = group.fsdp_params
        self._ranks: int = group.mesh_info.shard_mesh_size
        self._device = group.device
        self._storages: list[tuple[torch.UntypedStorage, int]] = []  # with their bytes

    def allocate(self) -> list[int]:
        """Addresses of all landings, allocated where they are not."""
        if not self._storages:
            self._make()
        for storage, size in self._storages:
            if storage.nbytes() != size:
                storage.resize_(size)
        return [storage.data_ptr() for storage, _ in self._storages]

    def free(self) -> None:
        """Undoes allocate, where no parameter uses the landings."""
        for storage, _ in self._storages:
            storage.resize_(0)

    def _make(self) -> None:
        """The landings and the unsharded parameters in them."""
        # Never as inference tensors, whatever mode the first forward runs in.
        with torch.inference_mode(False):
            for param in self._params:
                param.init_all_gather_outputs(
                    [param._sharded_param_data.numel()],
                    [param.param_dtype or param.orig_dtype],
                    self._ranks,
                    self._device,
                )
                landing = param.all_gather_outputs[0]
                alloc_storage(landing)
                param.init_unsharded_param()
                self._storages.append((landing.untyped_storage(), landing.nbytes))


def move_in(group: FSDPParamGroup, gradients: list[tuple[int, torch.Tensor]]) -> None:
    """Copies each gradient into the landing that its parameter has vacated and lets go of the
    gradient; in the list the copy takes its place. A gradient that does not fit stays where it is.
    """
    for position, (index, gradient) in enumerate(gradients):
        landing = group.fsdp_params[index].all_gather_outputs[0]
        if landing.untyped_storage().size() != 0 or landing.dtype != gradient.dtype:
            continue
        alloc_storage(landing)
        moved = landing[: gradient.numel()].view(gradient.shape)
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(landing):
            moved.copy_(gradient)
        gradients[position] = (index, moved)
        del gradient


def vacate(group: FSDPParamGroup, gradients: list[tuple[int, torch.Tensor]]) -> None:
    """Frees what move_in allocated and lets go of every gradient."""
    for index, gradient in gradients:
        landing = group.fsdp_params[index].all_gather_outputs[0]
        if gradient.data_ptr() == landing.data_ptr():
            free_storage(landing)
    gradients.clear()
