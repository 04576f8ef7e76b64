"""An FSDP2 model seen as groups of dimension-0 sharded parameters: what is in it, and whether
headrace can carry it."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
    ProcessGroupAllocAllGather,
    ProcessGroupAllocReduceScatter,
)
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.distributed.tensor import DTensor

from headrace._engine import DType, GroupSpec, ParameterSpec, ShardSource
from headrace.errors import OperationError

dtypes = {torch.float32: DType.float32, torch.bfloat16: DType.bfloat16}

_wrapper_prefixes = ("_orig_mod.", "_checkpoint_wrapped_module.")


class ShardedModel:
    """The root of one fully_shard tree, lazily initialised, resharded, and holding nothing from
    earlier forwards. Group and parameter indices are those of the engine.

    A group that the engine does not carry is an error where `on_demand` alone is wanted, since a
    stock collective would wait for ranks that run another number of microbatches. Otherwise it is
    kept out of `groups`, and why in `fallbacks`: stock collectives carry it.
    """

    def __init__(self, module: nn.Module, on_demand: bool = True) -> None:
        module = getattr(module, "_orig_mod", module)  # torch.compile's wrapper
        if not isinstance(module, FSDPModule):
            raise OperationError(
                f"{type(module).__name__} is not an FSDP2 module: call fully_shard on the model "
                "itself (after its blocks) before headrace.attach"
            )
        self.root: FSDPState = module._get_fsdp_state()
        self.groups: list[FSDPParamGroup] = []
        self.fallbacks: dict[FSDPParamGroup, str] = {}
        self._on_demand_only = on_demand
        self._published: dict[FSDPParam, tuple[object, ...]] = {}
        self._post_forward_meshes: list[FSDPMeshInfo | None] = []

    @property
    def process_group(self) -> dist.ProcessGroup | None:
        """The shard mesh's, where it has one; known before anything is checked."""
        for group in self.root._fsdp_param_groups:
            if isinstance(group.mesh_info, FSDPMeshInfo):
                return group.mesh_info.shard_process_group
        for module in self.root._modules:
            for child in module.modules():
                if isinstance(child, FSDPModule):
                    for group in child._get_fsdp_state()._fsdp_param_groups:
                        if isinstance(group.mesh_info, FSDPMeshInfo):
                            return group.mesh_info.shard_process_group
        return None

    @property
    def replicas(self) -> dist.ProcessGroup | None:
        """With HSDP, the ranks that hold the same shards as this one."""
        mesh = self.groups[0].mesh_info
        return mesh.replicate_process_group if isinstance(mesh, HSDPMeshInfo) else None

    @property
    def replica_count(self) -> int:
        return 1 if self.replicas is None else self.replicas.size()

    @property
    def lockstep_only(self) -> bool:
        """Whether something in the model rules on-demand brackets out."""
        factors = (group.gradient_divide_factor for group in self.groups)
        return bool(self.fallbacks) or any(factor is not None for factor in factors)

    def initialise(self) -> None:
        """FSDP2's lazy init, which an idle rank would never run, then a clean start, then every
        check."""
        if self.root._is_root is False:
            raise OperationError(
                "this module is inside a larger FSDP2 model: attach the root, that is the "
                "outermost module that fully_shard was called on"
            )
        try:
            self.root._lazy_init()
        except (RuntimeError, ValueError, AssertionError, NotImplementedError) as error:
            raise OperationError(f"FSDP2 cannot initialise this model: {error}") from error
        self.groups = [
            group for state in self.root._state_ctx.all_states for group in state._fsdp_param_groups
        ]
        if not self.groups:
            raise OperationError("the model has no sharded parameter: there is nothing to attach")
        leftover = self.leftover()
        if leftover:
            raise OperationError(
                f"parameter '{leftover}' holds an unsharded gradient from "
                "set_requires_gradient_sync(False): finish that accumulation with a synchronised "
                "backward before headrace.attach"
            )
        if not self._on_demand_only:
            self._set_fallbacks_apart()
        self.reset()
        self.check()

    def _set_fallbacks_apart(self) -> None:
        carried: list[FSDPParamGroup] = []
        for group in self.groups:
            try:
                self._check_one([*carried[:1], group])
                carried.append(group)
            except OperationError as reason:
                self.fallbacks[group] = str(reason)
        if not carried:
            raise OperationError(
                "lockstep carries no group of this model: " + next(iter(self.fallbacks.values()))
            )
        self.groups = carried

    # -- names and shapes

    def group_name(self, group: FSDPParamGroup) -> str:
        return _plain_name(group._module_fqn or "") or "root"

    def parameter_name(self, param: FSDPParam) -> str:
        return _plain_name(param._param_fqn or param._module_info.param_name)

    def parameters(self) -> Iterator[tuple[int, int, FSDPParam]]:
        for g, group in enumerate(self.groups):
            for p, param in enumerate(group.fsdp_params):
                yield g, p, param

    def specs(self) -> list[GroupSpec]:
        return [
            GroupSpec(self.group_name(group), [self._spec(param) for param in group.fsdp_params])
            for group in self.groups
        ]

    def _spec(self, param: FSDPParam) -> ParameterSpec:
        rows, *rest = param._orig_size
        row_elements = 1
        for size in rest:
            row_elements *= size
        return ParameterSpec(
            self.parameter_name(param), rows, row_elements, dtypes[_compute_dtype(param)]
        )

    # -- checks

    def check(self) -> None:
        """At attach and at each bracket: raises OperationError naming the first thing that headrace
        does not carry, and what to do about it."""
        self._check_one(self.groups)

    def _check_one(self, groups: list[FSDPParamGroup]) -> None:
        """Each group, and that all lie on one mesh."""
        first = None
        for group in groups:
            self._check_group(group)
            mesh = _mesh_ranks(group.mesh_info)
            if first is not None and mesh != first:
                raise OperationError(
                    f"group '{self.group_name(group)}' is sharded over ranks {mesh} and another "
                    f"over {first}: one engine needs one shard mesh for the whole model"
                )
            first = mesh
            for param in group.fsdp_params:
                self._check_parameter(param)

    def _check_group(self, group: FSDPParamGroup) -> None:
        name = f"group '{self.group_name(group)}'"
        mesh = group.mesh_info
        if not isinstance(mesh, FSDPMeshInfo):
            raise OperationError(
                f"{name} is replicated, not sharded: use fully_shard with a 1-D mesh"
            )
        dimensions = 2 if isinstance(mesh, HSDPMeshInfo) else 1
        if mesh.mesh.ndim != dimensions or mesh.is_spmd_mesh:
            raise OperationError(
                f"{name} is sharded over one dimension of a larger mesh: use a 1-D mesh, or a 2-D "
                "one for HSDP"
            )
        if isinstance(group.offload_policy, CPUOffloadPolicy):
            raise OperationError(
                f"{name} is offloaded to the CPU: remove offload_policy, which headrace "
                "does not support"
            )
        if group.device.type != "cpu":
            raise OperationError(
                f"{name} is on {group.device}: headrace runs on CPU parameters for now"
            )
        if group.gradient_divide_factor is not None and self._on_demand_only:
            raise OperationError(
                f"{name} has set_gradient_divide_factor({group.gradient_divide_factor}): "
                "on-demand mode scales at settle; remove it and scale the loss, or use "
                "engine.backward"
            )
        if not isinstance(group._all_gather_comm, (DefaultAllGather, ProcessGroupAllocAllGather)):
            raise OperationError(
                f"{name} has a custom all-gather ({type(group._all_gather_comm).__name__}), which "
                "would be ignored: remove set_custom_all_gather"
            )
        if not isinstance(
            group._reduce_scatter_comm, (DefaultReduceScatter, ProcessGroupAllocReduceScatter)
        ):
            raise OperationError(
                f"{name} has a custom reduce-scatter "
                f"({type(group._reduce_scatter_comm).__name__}), which would be ignored: remove "
                "set_custom_reduce_scatter"
            )

    def _check_parameter(self, param: FSDPParam) -> None:
        name = f"parameter '{self.parameter_name(param)}'"
        for module, attribute in _places(param):
            if getattr(module, attribute, None) is not param.sharded_param:
                raise OperationError(
                    f"{name} was replaced on its module behind FSDP2's back: change it in place, "
                    "load a state dict, or detach, apply fully_shard again and attach"
                )
        sharded = param.sharded_param
        if param.is_dtensor:
            raise OperationError(
                f"{name} is a DTensor of another mesh (tensor parallel), which headrace "
                "does not support: use fully_shard alone"
            )
        if param.fsdp_placement.dim != 0:
            raise OperationError(
                f"{name} is sharded on dimension {param.fsdp_placement.dim}: headrace needs "
                "dimension 0; change shard_placement_fn"
            )
        if not isinstance(sharded, DTensor):
            raise OperationError(f"{name} is a {type(sharded).__name__} and not a sharded DTensor")
        local = sharded._local_tensor
        if type(local) is not torch.Tensor or hasattr(local, "fsdp_pre_all_gather"):
            raise OperationError(
                f"{name} is a tensor subclass ({type(local).__name__}) or has an FSDP2 all-gather "
                "extension, which headrace does not support: use plain tensors"
            )
        if local.device.type != "cpu":
            raise OperationError(
                f"{name} lies on {local.device}: headrace runs on CPU parameters for now"
            )
        for what, dtype in (("stored", sharded.dtype), ("computed", _compute_dtype(param))):
            if dtype not in dtypes:
                raise OperationError(
                    f"{name} is {what} in {dtype}: headrace carries float32 and bfloat16; "
                    "set param_dtype or convert the model before fully_shard"
                )
        self.check_shard(param)

    def check_shard(self, param: FSDPParam) -> None:
        """That the shard is of the dtype and size that it was attached with: cheap enough for every
        use."""
        dtype, elements = param.sharded_param.dtype, param._sharded_param_data.numel()
        if dtype != param.orig_dtype:
            raise OperationError(
                f"parameter '{self.parameter_name(param)}' was {param.orig_dtype} when FSDP2 "
                f"initialised and is now {dtype}: convert the model before fully_shard, not after"
            )
        expected = param.padded_sharded_param_size.numel()
        if elements != expected:
            raise OperationError(
                f"parameter '{self.parameter_name(param)}' changed its shard's size from "
                f"{expected} to {elements} elements: load a state dict of the same model"
            )

    # -- shards

    def sources(self) -> list[list[ShardSource]]:
        """Where each shard lies now; frozen ones that have not changed since mark_published keep
        what the engine has."""
        return [[self._source(param) for param in group.fsdp_params] for group in self.groups]

    def _source(self, param: FSDPParam) -> ShardSource:
        dtype = dtypes[param.sharded_param.dtype]
        frozen = not param.sharded_param.requires_grad
        if frozen and self._published.get(param) == _content(param):
            return ShardSource(0, dtype)
        return ShardSource(param._sharded_param_data.data_ptr(), dtype)

    def mark_published(self) -> None:
        self._published = {param: _content(param) for _, _, param in self.parameters()}

    def forget_published(self) -> None:
        """The next sources() names every shard."""
        self._published = {}

    def changed(self) -> str | None:
        """The name of a parameter that was written or replaced since mark_published."""
        for _, _, param in self.parameters():
            if param in self._published and self._published[param] != _content(param):
                return self.parameter_name(param)
        return None

    # -- FSDP2's iteration state

    def leftover(self) -> str | None:
        """The name of a parameter whose unsharded gradient was not pushed."""
        for _, _, param in self.parameters():
            unsharded = getattr(param, "_unsharded_param", None)
            pending = unsharded is not None and unsharded.grad is not None
            if pending or param.unsharded_accumulated_grad is not None:
                return self.parameter_name(param)
        return None

    def reset(self) -> None:
        """Every group sharded (root included), prefetches dropped, orders and queues of the
        iteration forgotten, unpushed gradients discarded. A graph that still needs the
        parameters of this bracket can no longer run backward: autograd sees that they have
        changed."""
        self.root._reset_iter_state()
        used = []
        for _, _, param in self.parameters():
            param.unsharded_accumulated_grad = None
            unsharded = getattr(param, "_unsharded_param", None)
            if unsharded is not None:
                unsharded.grad = None
                used.append(unsharded)
        if used:
            torch.autograd.graph.increment_version(used)

    def gather_whole_shards(self) -> None:
        """Integer reshard_after_forward would gather from a smaller mesh: gather from the published
        shards instead, as with True."""
        self._post_forward_meshes = [group.post_forward_mesh_info for group in self.groups]
        for group in self.groups:
            if group._use_post_forward_mesh:
                group.post_forward_mesh_info = group.mesh_info

    def restore_post_forward_meshes(self) -> None:
        for group, mesh in zip(self.groups, self._post_forward_meshes, strict=True):
            if mesh is not None and group.post_forward_mesh_info is group.mesh_info:
                group.post_forward_mesh_info = mesh


def _mesh_ranks(mesh: FSDPMeshInfo) -> list[int]:
    return dist.get_process_group_ranks(mesh.shard_process_group)


def _compute_dtype(param: FSDPParam) -> torch.dtype:
    return param.param_dtype or param.orig_dtype


def _places(param: FSDPParam) -> Iterator[tuple[nn.Module, str]]:
    info = param._module_info
    yield info.module, info.param_name
    yield from zip(info.shared_modules, info.shared_param_names, strict=True)


def _content(param: FSDPParam) -> tuple[object, ...]:
    """Differs when the shard was written through autograd-visible operations, moved or replaced.
    In-place operations count on the DTensor, on its local tensor, or on both."""
    local = param.sharded_param._local_tensor
    return (
        param._sharded_param_data.data_ptr(),
        param.sharded_param._version,
        local._version,
        param._sharded_param_data._version,
        id(param.sharded_param),
    )


def _plain_name(name: str) -> str:
    for prefix in _wrapper_prefixes:
        name = name.replace(prefix, "")
    return name
