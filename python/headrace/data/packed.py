"""A microbatch's samples laid end to end as one row, with what a model needs to keep them apart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

IGNORED = -100  # a label that adds nothing to the loss

# An item's own words for "these tokens count": ours and verl's, transformers', TRL's.
MASK_NAMES = ("loss_mask", "assistant_masks", "completion_mask")

_Sample = tuple[torch.Tensor, torch.Tensor]  # tokens; labels, IGNORED where one does not count


@dataclass(frozen=True)
class PackedCollator:
    """Makes a dictionary of tensors of a list of samples, padding nothing between them.

    A sample is a sequence of tokens (list, numpy array, tensor), all of which count; or a mapping
    with `input_ids` and, where not all count, either `labels` (-100 where a token does not count)
    or a mask by one of MASK_NAMES (0 where it does not). With an `attention_mask` of its own only
    the tokens under ones are taken, so rows padded on either side lose their padding. A mapping of
    whole batches, padded or nested tensors with a first dimension of samples, stands for their
    list. An empty list makes one token without a label: a filler that adds exactly 0 to a summed
    loss and to all gradients.

    The result, for T tokens in n samples:

    input_ids, labels, position_ids: (1, T), int64. Positions begin at 0 in each sample.
    cu_seqlens: (n + 1,), int32, where samples begin and the last ends; max_seqlen: int.
    attention_mask: (1, 1, T, T), only where `mask` asks for it.

    shifted: labels[i] is what token i should predict, -100 at each sample's last token: for a loss
        of your own on the logits as they are. False: labels[i] is token i, -100 at each sample's
        first, as models of Hugging Face want them, which shift labels themselves.
    mask: "bool" (True where a token may attend) or "float" (0 there, the lowest fp32 elsewhere):
        causal within each sample. T * T values; kernels for variable lengths take cu_seqlens
        instead, and a loop over samples needs neither.
    multiple: T is filled up to a multiple of this. The padding is one more sample, without labels.
    max_tokens: samples are cut after this many.
    varlen_names: also gives cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k, by which
        transformers' flash attention knows samples apart.
    """

    shifted: bool = True
    mask: str | None = None
    multiple: int = 1
    max_tokens: int | None = None
    pad_token: int = 0
    varlen_names: bool = False

    def __post_init__(self) -> None:
        if self.mask not in (None, "bool", "float"):
            raise ValueError(f"mask={self.mask!r}: None, 'bool' or 'float'")
        if self.multiple < 1:
            raise ValueError(f"multiple must be at least 1, not {self.multiple}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")

    def __call__(self, items: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        samples = [self._sample(item) for item in _items_of(items)]
        if not samples:
            samples = [self._padding(1)]
        tokens = sum(len(ids) for ids, _ in samples)
        if tokens % self.multiple:
            samples.append(self._padding(self.multiple - tokens % self.multiple))
        lengths = torch.tensor([len(ids) for ids, _ in samples])
        ends = lengths.cumsum(0)
        batch = {
            "input_ids": torch.cat([ids for ids, _ in samples])[None],
            "labels": torch.cat([self._labels(labels) for _, labels in samples])[None],
            "position_ids": torch.cat([torch.arange(len(ids)) for ids, _ in samples])[None],
            "cu_seqlens": torch.cat([torch.zeros(1, dtype=torch.int64), ends]).to(torch.int32),
            "max_seqlen": int(lengths.max()),
        }
        if self.mask is not None:
            batch["attention_mask"] = self._mask(lengths)
        if self.varlen_names:
            for side in "qk":
                batch[f"cu_seq_lens_{side}"] = batch["cu_seqlens"]
                batch[f"max_length_{side}"] = batch["max_seqlen"]
        return batch

    def length(self, item: Any) -> int:
        """Tokens that the item takes in a pack."""
        return len(self._sample(item)[0])

    def targets(self, item: Any) -> int:
        """Tokens of the item that count in the loss: labelled ones but its first, which nothing
        predicts. The weight of `minibatches`."""
        return int((self._sample(item)[1][1:] != IGNORED).sum())

    def _sample(self, item: Any) -> _Sample:
        ids, labels = _tokens_and_labels(item)
        if len(ids) == 0:
            raise ValueError("a sample has no tokens: leave it out of the dataset")
        return ids[: self.max_tokens], labels[: self.max_tokens]

    def _padding(self, tokens: int) -> _Sample:
        return torch.full((tokens,), self.pad_token), torch.full((tokens,), IGNORED)

    def _labels(self, labels: torch.Tensor) -> torch.Tensor:
        nothing = torch.tensor([IGNORED])
        return torch.cat((labels[1:], nothing) if self.shifted else (nothing, labels[1:]))

    def _mask(self, lengths: torch.Tensor) -> torch.Tensor:
        sample = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        may = (sample[:, None] == sample[None, :]).tril()[None, None]
        if self.mask == "bool":
            return may
        return torch.zeros(may.shape).masked_fill(~may, torch.finfo(torch.float32).min)


def _items_of(items: Sequence[Any] | Mapping[str, Any]) -> Iterator[Any]:
    if not isinstance(items, Mapping):
        yield from items
        return
    columns = {name: _rows(value) for name, value in items.items()}
    counts = {name: len(rows) for name, rows in columns.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"columns of one batch differ in their numbers of samples: {counts}")
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def _rows(column: Any) -> Sequence[Any]:
    return column.unbind() if isinstance(column, torch.Tensor) else column


def _tokens_and_labels(item: Any) -> _Sample:
    if not isinstance(item, Mapping):
        ids = _integers(item, "a sample")
        return ids, ids
    if "input_ids" not in item:
        raise ValueError(
            f"a sample has no input_ids, only {', '.join(map(str, item)) or 'nothing'}"
        )
    ids = _integers(item["input_ids"], "input_ids")
    labels = ids
    if item.get("labels") is not None:
        labels = _alike(item["labels"], "labels", ids)
    else:
        name = next((name for name in MASK_NAMES if item.get(name) is not None), None)
        if name is not None:
            labels = ids.masked_fill(_alike(item[name], name, ids) == 0, IGNORED)
    if item.get("attention_mask") is not None:
        taken = _alike(item["attention_mask"], "attention_mask", ids) != 0
        ids, labels = ids[taken], labels[taken]
    return ids, labels


def _integers(values: Any, name: str) -> torch.Tensor:
    tensor = values if isinstance(values, torch.Tensor) else torch.tensor(values)
    if tensor.ndim != 1:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: one sample's tokens are a row")
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"{name} has dtype {tensor.dtype}: whole numbers are needed")
    return tensor.to(torch.int64)


def _alike(values: Any, name: str, ids: torch.Tensor) -> torch.Tensor:
    tensor = _integers(values, name)
    if len(tensor) != len(ids):
        raise ValueError(f"{name} has {len(tensor)} values for {len(ids)} tokens")
    return tensor
