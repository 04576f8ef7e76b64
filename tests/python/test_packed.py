"""PackedCollator: a row of samples trains as its samples do one by one."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from headrace.data import PackedCollator
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)

lengths = (7, 1, 12, 3)
samples = [
    torch.randint(0, 64, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in lengths
]
prompts = (2, 0, 11, 3)  # tokens of each sample that are not trained; of the last, all


def items() -> list[dict[str, Any]]:
    masks = [[0] * p + [1] * (n - p) for n, p in zip(lengths, prompts, strict=True)]
    return [{"input_ids": s, "loss_mask": m} for s, m in zip(samples, masks, strict=True)]


def llama(attention: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        max_position_embeddings=64,
        use_cache=False,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config).train()


def loss_sum(model: LlamaForCausalLM, batch: dict[str, Any]) -> torch.Tensor:
    names = ("input_ids", "position_ids", "attention_mask")
    logits = model(**{name: batch[name] for name in names if name in batch}).logits
    return F.cross_entropy(logits[0], batch["labels"][0], ignore_index=-100, reduction="sum")


def gradients(model: LlamaForCausalLM) -> torch.Tensor:
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    model.zero_grad()
    return flat


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize(
    ("attention", "mask"), [("eager", "float"), ("sdpa", "float"), ("sdpa", "bool")]
)
def test_a_pack_has_the_loss_and_gradients_of_its_samples_one_by_one(attention, mask, multiple):
    model = llama(attention)
    packed = loss_sum(model, PackedCollator(mask=mask, multiple=multiple)(items()))
    packed.backward()
    found = gradients(model)
    alone = torch.zeros(())
    for sample, prompt in zip(samples, prompts, strict=True):
        ids = torch.tensor(sample)
        logits = model(input_ids=ids[None]).logits[0]
        first = max(prompt, 1)
        if first < len(ids):
            loss = F.cross_entropy(logits[first - 1 : -1], ids[first:], reduction="sum")
            loss.backward()
            alone += loss.detach()
    assert packed.item() == pytest.approx(alone.item(), rel=1e-5)
    expected = gradients(model)
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_hugging_faces_own_loss_on_unshifted_labels_is_the_same():
    model = llama("sdpa")
    batch = PackedCollator(shifted=False, mask="bool")(items())
    names = ("input_ids", "position_ids", "attention_mask", "labels")
    theirs = model(**{name: batch[name] for name in names}, num_items_in_batch=1).loss
    ours = loss_sum(model, PackedCollator(mask="bool")(items()))
    assert theirs.item() == pytest.approx(ours.item(), rel=1e-6)


def test_a_filler_adds_exactly_zero_to_loss_and_gradients():
    model = llama("sdpa")
    batch = PackedCollator(mask="bool")([])
    assert batch["input_ids"].shape == (1, 1)
    loss = loss_sum(model, batch)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.count_nonzero(gradients(model)) == 0


def test_its_fields():
    batch = PackedCollator(multiple=4, varlen_names=True)([[5, 6, 7], [8, 9]])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 0, 0, 0]]
    assert batch["labels"].tolist() == [[6, 7, -100, 9, -100, -100, -100, -100]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
    assert batch["cu_seqlens"].tolist() == [0, 3, 5, 8]
    assert batch["cu_seqlens"].dtype == torch.int32
    assert batch["max_seqlen"] == 3
    assert "attention_mask" not in batch
    assert batch["cu_seq_lens_q"] is batch["cu_seq_lens_k"] is batch["cu_seqlens"]
    unshifted = PackedCollator(shifted=False)([[5, 6, 7], [8, 9]])
    assert unshifted["labels"].tolist() == [[-100, 6, 7, -100, 9]]


def test_the_mask_is_causal_within_each_sample():
    may = PackedCollator(mask="bool")([[5, 6], [7, 8, 9]])["attention_mask"]
    expected = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).tril().bool()
    assert torch.equal(may, expected[None, None])
    adds = PackedCollator(mask="float")([[5, 6], [7, 8, 9]])["attention_mask"]
    assert torch.equal(adds == 0, may)
    assert adds[~may].unique().tolist() == [torch.finfo(torch.float32).min]


def rows(kind: Any) -> list[dict[str, Any]]:
    return [{name: kind(values) for name, values in item.items()} for item in items()]


def padded(side: str) -> dict[str, torch.Tensor]:
    """verl's way: a batch of rows of one width, padding on either side."""
    width = max(lengths) + 2
    before = [width - n if side == "left" else 0 for n in lengths]

    def column(values: list[list[int]], fill: int) -> torch.Tensor:
        filled = torch.full((len(lengths), width), fill)
        for row, (n, skip, value) in enumerate(zip(lengths, before, values, strict=True)):
            filled[row, skip : skip + n] = torch.tensor(value)
        return filled

    return {
        "input_ids": column(samples, 63),
        "attention_mask": column([[1] * n for n in lengths], 0),
        "loss_mask": column([item["loss_mask"] for item in items()], 0),
    }


def nested() -> dict[str, torch.Tensor]:
    return {
        name: torch.nested.nested_tensor(
            [row[name] for row in rows(torch.tensor)], layout=torch.jagged
        )
        for name in ("input_ids", "loss_mask")
    }


@pytest.mark.parametrize(
    "form",
    [
        lambda: rows(torch.tensor),
        lambda: rows(np.array),
        lambda: [
            {"input_ids": s, "labels": [-100] * p + s[p:]}
            for s, p in zip(samples, prompts, strict=True)
        ],
        lambda: [{"input_ids": i["input_ids"], "completion_mask": i["loss_mask"]} for i in items()],
        lambda: [{"input_ids": i["input_ids"], "assistant_masks": i["loss_mask"]} for i in items()],
        lambda: padded("left"),
        lambda: padded("right"),
        nested,
        lambda: {name: [item[name] for item in items()] for name in ("input_ids", "loss_mask")},
    ],
    ids=["tensors", "numpy", "labels", "trl", "transformers", "left", "right", "nested", "columns"],
)
def test_items_of_every_form_make_the_same_batch(form):
    expected = PackedCollator()(items())
    found = PackedCollator()(form())
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(value)), name


@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_plain_token_lists_count_every_token(kind):
    batch = PackedCollator()([kind(sample) for sample in samples])
    assert int((batch["labels"] != -100).sum()) == sum(lengths) - len(lengths)


def test_lengths_and_targets_are_those_of_the_pack():
    for most in (None, 5):
        collator = PackedCollator(max_tokens=most)
        for item in items():
            batch = collator([item])
            assert collator.length(item) == batch["input_ids"].numel() <= (most or 99)
            assert collator.targets(item) == int((batch["labels"] != -100).sum())


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"ids": [1]}, "no input_ids, only ids"),
        ({"input_ids": []}, "no tokens"),
        ({"input_ids": [1, 2], "labels": [1]}, "labels has 1 values for 2 tokens"),
        ({"input_ids": [[1, 2]]}, r"shape \(1, 2\)"),
        ({"input_ids": [0.5]}, "dtype torch.float32"),
    ],
)
def test_items_that_are_no_samples_are_named(item, words):
    with pytest.raises(ValueError, match=words):
        PackedCollator()([item])


def test_settings_that_mean_nothing_are_named():
    for setting, words in (
        ({"mask": "int"}, "'int'"),
        ({"multiple": 0}, "0"),
        ({"max_tokens": 0}, "0"),
    ):
        with pytest.raises(ValueError, match=words):
            PackedCollator(**setting)
    with pytest.raises(ValueError, match="'loss_mask': 1"):
        PackedCollator()({"input_ids": [[1], [2]], "loss_mask": [[1]]})
