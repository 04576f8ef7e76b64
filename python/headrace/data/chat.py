"""Samples of conversations: their tokens, and which of them the assistant said.

A conversation is a list of messages, each a mapping with a `role` and a `content`. Everything that
the template adds to make a reader of one role see another's turn is context; what an assistant's
turn itself holds, its end included, is trained.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
Sample = dict[str, list[int]]  # input_ids, and loss_mask of 1 where a token is trained

_marked = re.compile(r"\{%-?\s*generation\s*-?%\}")
_assistant = "assistant"


class ByteTokenizer:
    """Bytes are tokens 0 to 255. Needs no file; for tests, examples and measurements."""

    begin = 256
    end = 257
    vocabulary = 258

    def text(self, text: bytes) -> list[int]:
        return [self.begin, *text, self.end]

    def chat(self, messages: Sequence[Message]) -> Sample:
        """Each message is `begin`, its role, a line break, its content, `end`."""
        ids: list[int] = []
        mask: list[int] = []
        for message in messages:
            role, said = message["role"], [*_as_bytes(message["content"]), self.end]
            head = [self.begin, *_as_bytes(f"{role}\n")]
            ids += head + said
            mask += [0] * len(head) + [int(role == _assistant)] * len(said)
        return {"input_ids": ids, "loss_mask": mask}


def encode(messages: Sequence[Message], tokenizer: Any = None, **template_options: Any) -> Sample:
    """One conversation as a sample for PackedCollator: loss on the assistant's turns alone.

    tokenizer: one of transformers with a chat template; ByteTokenizer's unless given.
    template_options: for its apply_chat_template, such as tools= or chat_template=.

    Where the template marks what the assistant generates ({% generation %}), those tokens are
    trained. Otherwise an assistant's turn is what the template adds to the conversation before it,
    the generation prompt included. That needs each beginning of a conversation to be the beginning
    of its tokens; a template that writes earlier turns differently later is refused.
    """
    check(messages)
    if tokenizer is None:
        return ByteTokenizer().chat(messages)
    named = {name: template_options.get(name) for name in ("chat_template", "tools")}
    template = tokenizer.get_chat_template(**named)
    if _marked.search(template) and getattr(tokenizer, "is_fast", False):
        made = _apply(tokenizer, messages, template_options, return_assistant_tokens_mask=True)
        sample = {"input_ids": made["input_ids"], "loss_mask": made["assistant_masks"]}
        if not any(sample["loss_mask"]):
            raise ValueError("the template's {% generation %} marks no token of this conversation")
        return sample
    return _by_beginnings(tokenizer, messages, template_options)


def check(messages: Any) -> None:
    """Raises ValueError that says what is wrong with a conversation."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise ValueError("`messages` is not a list of messages")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ValueError(f"message {number} is {type(message).__name__}, not an object")
        if not isinstance(message.get("role"), str):
            raise ValueError(f"message {number} has no `role`")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"message {number} has no `content` that is text")
    if not any(message["role"] == _assistant for message in messages):
        raise ValueError(f"no message has the role {_assistant!r}, so there is nothing to train")


def _by_beginnings(
    tokenizer: Any, messages: Sequence[Message], options: Mapping[str, Any]
) -> Sample:
    whole = list(_apply(tokenizer, messages, options)["input_ids"])
    mask = [0] * len(whole)
    for number, message in enumerate(messages):
        if message["role"] != _assistant:
            continue
        if number == 0:
            raise ValueError("the first message is the assistant's: there is nothing before it")
        before = _apply(tokenizer, messages[:number], options, add_generation_prompt=True)
        through = _apply(tokenizer, messages[: number + 1], options)
        begin, end = len(before["input_ids"]), len(through["input_ids"])
        if whole[:begin] != list(before["input_ids"]) or whole[:end] != list(through["input_ids"]):
            raise ValueError(
                f"with message {number} the chat template does not merely add to what comes "
                "before it, so the assistant's tokens cannot be told from others: give a "
                "chat_template with {% generation %} markers"
            )
        mask[begin:end] = [1] * (end - begin)
    return {"input_ids": whole, "loss_mask": mask}


def _apply(
    tokenizer: Any, messages: Sequence[Message], options: Mapping[str, Any], **more: Any
) -> Mapping[str, Any]:
    return tokenizer.apply_chat_template(
        list(messages), tokenize=True, return_dict=True, **{**options, **more}
    )


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
