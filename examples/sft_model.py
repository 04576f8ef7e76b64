"""The model of examples/sft.py: a Llama whose attention runs a sample at a time in a packed row."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from headrace.data.packed import IGNORED
from sft_data import BYTES
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import repeat_kv

ATTENTION = "per_sample"


def per_sample_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    bounds: tuple[int, ...] = (),
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each sample of a packed row; never a mask over the row.

    query has shape (1, heads, tokens, head size), key and value may have fewer heads. Costs the sum
    of the samples' squares, where a dense mask would cost the square of their sum.
    """
    if not bounds or bounds[-1] != query.shape[2]:
        raise ValueError(f"sample bounds {bounds} do not cover the row's {query.shape[2]} tokens")
    key = repeat_kv(key, query.shape[1] // key.shape[1])
    value = repeat_kv(value, query.shape[1] // value.shape[1])
    outputs = [
        F.scaled_dot_product_attention(
            query[:, :, begin:end],
            key[:, :, begin:end],
            value[:, :, begin:end],
            is_causal=True,
            scale=scaling,
            dropout_p=dropout,
        )
        for begin, end in zip(bounds, bounds[1:], strict=False)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, per_sample_attention)


@dataclass(frozen=True)
class ModelShape:
    """A Llama's shape; the defaults make 3.3 million parameters."""

    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    intermediate: int = 704
    vocabulary: int = BYTES.vocabulary

    def config(self, cap: int) -> LlamaConfig:
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"hidden {self.hidden} must be a multiple of heads {self.heads}, "
                f"and heads of kv heads {self.kv_heads}"
            )
        return LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            intermediate_size=self.intermediate,
            max_position_embeddings=cap,
            tie_word_embeddings=False,
            use_cache=False,
            attn_implementation=ATTENTION,
        )


def build(shape: ModelShape, cap: int, seed: int) -> LlamaForCausalLM:
    """Random weights, the same on every rank for the same seed."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(shape.config(cap)).train()


def load(directory: Path, cap: int, vocabulary: int) -> LlamaForCausalLM:
    """A local checkpoint directory as `save_pretrained` writes it, its tokenizer aside."""
    if not (directory / "config.json").is_file():
        raise ValueError(f"--model {directory}: no config.json there; give a checkpoint directory")
    model = LlamaForCausalLM.from_pretrained(
        directory, attn_implementation=ATTENTION, dtype=torch.float32, local_files_only=True
    )
    model.config.use_cache = False
    if model.config.vocab_size < vocabulary:
        raise ValueError(
            f"--model {directory}: {model.config.vocab_size} tokens in its vocabulary, but "
            f"samples are made of {vocabulary}; --tokenizer gives another tokenizer than bytes"
        )
    if model.config.max_position_embeddings < cap:
        raise ValueError(
            f"--model {directory}: {model.config.max_position_embeddings} positions, "
            f"fewer than --cap {cap}"
        )
    return model.train()


def shard(model: LlamaForCausalLM, policy: MixedPrecisionPolicy) -> None:
    """One FSDP2 group a decoder layer, one for the embedding and one for the last norm and the
    head, so that none of them stays unsharded through the whole step as the root's own would."""
    fully_shard(model.model.embed_tokens, mp_policy=policy)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard([model.model.norm, model.lm_head], mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def prefetch(model: LlamaForCausalLM) -> None:
    """Asks for each layer's parameters while the one before computes, in forward as FSDP2 does it
    by itself in backward."""
    layers = [model.model.embed_tokens, *model.model.layers, model.model.norm]
    for layer, after in zip(layers, layers[1:], strict=False):
        layer.set_modules_to_forward_prefetch([after])


def checkpoint_activations(model: LlamaForCausalLM) -> None:
    """Keeps only each layer's input for the backward; runs its forward again there."""
    model.activation_checkpointing_enable({"use_reentrant": False})


def loss_sum(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """Cross-entropy in nats, fp32, summed over the pack's predicted tokens."""
    logits = model(
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        bounds=tuple(batch["cu_seqlens"].tolist()),
        use_cache=False,
    ).logits
    return F.cross_entropy(
        logits[0].float(), batch["labels"][0], ignore_index=IGNORED, reduction="sum"
    )


def cosine_with_warm_up(step: int, warm_up: int, steps: int, floor: float = 0.1) -> float:
    """Factor on the peak learning rate at `step`, from 0: linear up, then a cosine to `floor`."""
    if step < warm_up:
        return (step + 1) / warm_up
    progress = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))
