"""Conversations: the assistant's tokens are trained and no others, whatever the template."""

from collections.abc import Callable
from typing import Any

import pytest
from headrace.data import PackedCollator
from headrace.data.chat import ByteTokenizer, encode
from support.tokenizers import forgetful, marked, plain, word_tokenizer

conversation = [
    {"role": "system", "content": "a b c"},
    {"role": "user", "content": "hello there"},
    {"role": "assistant", "content": "fine thanks"},
    {"role": "user", "content": "and you ?"},
    {"role": "assistant", "content": "fine ."},
]


def trained(sample: dict[str, list[int]], decode: Callable[[list[int]], Any]) -> list[Any]:
    """The trained runs of tokens, decoded."""
    runs, run = [], []
    for token, counts in zip(sample["input_ids"], sample["loss_mask"], strict=True):
        if counts:
            run.append(token)
        elif run:
            runs.append(run)
            run = []
    return [decode(run) for run in (*runs, run) if run]


@pytest.mark.parametrize("template", [plain, marked], ids=["beginnings", "markers"])
def test_only_what_the_assistant_says_is_trained(template):
    tokenizer = word_tokenizer(template)
    sample = encode(conversation, tokenizer)
    assert trained(sample, tokenizer.convert_ids_to_tokens) == [
        ["fine", "thanks", "</s>"],
        ["fine", ".", "</s>"],
    ]
    whole = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=True)
    assert sample["input_ids"] == whole["input_ids"]


def test_both_ways_agree_and_end_in_the_collators_labels():
    ways = [encode(conversation, word_tokenizer(template)) for template in (plain, marked)]
    assert ways[0] == ways[1]
    batch = PackedCollator(shifted=False)([ways[0]])
    kept = [label for label in batch["labels"][0].tolist() if label != -100]
    assert kept == [
        token
        for token, counts in zip(ways[0]["input_ids"], ways[0]["loss_mask"], strict=True)
        if counts
    ]


def test_a_template_that_rewrites_earlier_turns_is_refused():
    with pytest.raises(ValueError, match="message 2 .*does not merely add.*generation"):
        encode(conversation, word_tokenizer(forgetful))
    once = conversation[:3]
    sample = encode(once, word_tokenizer(forgetful))
    assert sum(sample["loss_mask"]) == 3


def test_options_reach_the_template():
    assert encode(conversation, word_tokenizer(forgetful), chat_template=marked) == encode(
        conversation, word_tokenizer(marked)
    )


def test_bytes_need_no_tokenizer():
    sample = encode(conversation[1:3])
    begin, end = ByteTokenizer.begin, ByteTokenizer.end
    expected = [begin, *b"user\nhello there", end, begin, *b"assistant\nfine thanks", end]
    assert sample["input_ids"] == expected
    assert trained(sample, lambda run: bytes(run[:-1])) == [b"fine thanks"]
    assert sample["loss_mask"][-1] == 1  # its end is trained


def test_a_template_of_no_tokenizer_is_named():
    with pytest.raises(ValueError, match="template"):
        encode(conversation, word_tokenizer(None))
    nothing = (
        "{% generation %}{% endgeneration %}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(ValueError, match="marks no token"):
        encode(conversation, word_tokenizer(nothing))
    with pytest.raises(ValueError, match="first message"):
        encode(conversation[2:], word_tokenizer(plain))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("hello", "not a list"),
        ([], "not a list"),
        (["hello"], "message 0 is str"),
        ([{"content": "a"}], "message 0 has no `role`"),
        ([conversation[1], {"role": "assistant"}], "message 1 has no `content`"),
        ([{"role": "assistant", "content": ["a"]}], "message 0 has no `content` that is text"),
        (conversation[:2], "nothing to train"),
    ],
)
def test_what_is_no_conversation_is_named(messages, words):
    with pytest.raises(ValueError, match=words):
        encode(messages)
