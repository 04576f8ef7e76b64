"""Small models, and what one process in float64 makes of the same data."""

from collections.abc import Callable, Iterable

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Decoder(nn.Module):
    """Token ids to logits. Odd sizes, so that shards are uneven and some are empty."""

    def __init__(
        self, vocabulary: int = 13, width: int = 7, blocks: int = 3, tied: bool = False
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.scale)


def decoder(seed: int = 0, **sizes: int | bool) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(**sizes)


def shard(model: nn.Module, root: dict[str, object] | None = None, **options: object) -> nn.Module:
    """fully_shard on each block and on the model; `root` overrides options for the model."""
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **(options | (root or {})))


def shard_in_bfloat16(model: nn.Module, reduce_dtype: torch.dtype | None = None) -> nn.Module:
    """Computes in bfloat16, logits in float32."""
    policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype)
    root = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype, output_dtype=torch.float32)
    return shard(model, root={"mp_policy": root}, mp_policy=policy)


def samples(
    count: int, seed: int = 1, vocabulary: int = 13, longest: int = 9
) -> list[torch.Tensor]:
    """Token sequences of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(0, vocabulary, (n,), generator=generator) for n in lengths]


def loss_sum(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Next-token loss summed over the sample's ids.numel() - 1 predictions."""
    logits = model(ids[None, :-1])[0]
    return F.cross_entropy(logits, ids[1:], reduction="sum")


def tokens_of(data: Iterable[torch.Tensor]) -> int:
    return sum(ids.numel() - 1 for ids in data)


def reference(
    model: nn.Module,
    data: Iterable[torch.Tensor],
    divisor: float,
    loss: Callable[[nn.Module, torch.Tensor], torch.Tensor] = loss_sum,
) -> dict[str, torch.Tensor | None]:
    """Gradients by name that one process gets in float64 from the sum of losses over `divisor`."""
    model = model.double()
    for ids in data:
        (loss(model, ids) / divisor).backward()
    return {name: param.grad for name, param in model.named_parameters()}


def full_gradients(model: nn.Module) -> dict[str, torch.Tensor | None]:
    """Unsharded gradients by name; a collective."""
    return {
        _plain(name): None if param.grad is None else param.grad.full_tensor()
        for name, param in model.named_parameters()
    }


def assert_same_gradients(
    actual: dict[str, torch.Tensor | None],
    expected: dict[str, torch.Tensor | None],
    relative: float = 1e-5,
) -> None:
    """Relative L2 a parameter; None where None is expected."""
    assert actual.keys() == expected.keys()
    for name, want in expected.items():
        got = actual[name]
        if want is None:
            assert got is None, f"{name} has a gradient that nobody made"
            continue
        assert got is not None, f"{name} has no gradient"
        distance = (got.double() - want.double()).norm()
        assert distance <= relative * want.double().norm() + 1e-12, (
            f"{name}: off by {distance / want.double().norm():.2e} relative"
        )


def unsharded_groups(model: FSDPModule) -> list[str]:
    """The groups that hold unsharded parameters now."""
    states = model._get_fsdp_state()._state_ctx.all_states
    return [
        group._module_fqn or "root"
        for state in states
        for group in state._fsdp_param_groups
        if not group.is_sharded
    ]


def _plain(name: str) -> str:
    return name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "")
