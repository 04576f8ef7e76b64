"""A group's landings: the storage of its unsharded parameters, where FSDP2 keeps them."""

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import alloc_storage, free_storage
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup


def allocate(group: FSDPParamGroup) -> list[int]:
    """Addresses of all landings, allocated where they are not."""
    addresses = []
    # Made once and kept, so never as inference tensors, whatever mode the first forward runs in.
    with torch.inference_mode(False):
        for param in group.fsdp_params:
            param.init_all_gather_outputs(
                [param._sharded_param_data.numel()],
                [param.param_dtype or param.orig_dtype],
                group.mesh_info.shard_mesh_size,
                group.device,
            )
            landing = param.all_gather_outputs[0]
            alloc_storage(landing)
            addresses.append(landing.data_ptr())
    return addresses


def free(group: FSDPParamGroup) -> None:
    """Undoes allocate, where no parameter uses the landings."""
    for param in group.fsdp_params:
        free_storage(param.all_gather_outputs[0])


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
