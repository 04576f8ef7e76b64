"""One minibatch of a decoder in a bracket, and what calls on the way raise."""

from collections.abc import Callable
from typing import Any

import headrace
import torch
import torch.nn as nn

from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    samples,
    tokens_of,
)

data = samples(6)
total = tokens_of(data)


def step(engine: headrace.Engine, model: nn.Module, rank: int, world: int) -> None:
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))


def assert_still_right(engine: headrace.Engine, model: nn.Module, rank: int, world: int) -> None:
    """The next minibatch gives the gradients of the model's parameters as they are now."""
    plain = decoder()
    with torch.no_grad():
        for param, shard_ in zip(plain.parameters(), model.parameters(), strict=True):
            param.copy_(shard_.full_tensor())
    model.zero_grad()
    step(engine, model, rank, world)
    assert_same_gradients(full_gradients(model), reference(plain, data, total))


def caught(function: Callable[[], Any]) -> tuple[str, str, int]:
    """Class, text and rank of what a call raises; empty where it returns."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "rank", -1)
    return "", "", -1
