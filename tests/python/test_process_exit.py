"""How a process that ends leaves its peers: in good order, or with its reason."""

import os
import subprocess
import sys
import time
from pathlib import Path

import headrace
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from headrace.errors import PeerError
from support import exits
from support.models import decoder, loss_sum, samples, shard

data = samples(2)


def attached(rank: int, store: str) -> tuple[headrace.Engine, nn.Module]:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = shard(decoder())
    return headrace.attach(model), model


def step(engine: headrace.Engine, model: nn.Module, rank: int) -> float:
    with engine.minibatch(samples=2):
        engine.backward(loss_sum(model, data[rank]))
    return engine.report.loss


def survive(engine: headrace.Engine, model: nn.Module, rank: int) -> None:
    try:
        step(engine, model, rank)
    except PeerError as error:
        print("PeerError", error.rank, error)


def raises_between_brackets(rank: int, store: str) -> None:
    engine, model = attached(rank, store)
    step(engine, model, rank)
    if rank == 1:
        raise ValueError("the loader is gone")
    survive(engine, model, rank)


def ends_without_detach(rank: int, store: str) -> None:
    """The last bracket is an evaluation that rank 1 sits out and leaves at once."""
    engine, model = attached(rank, store)
    step(engine, model, rank)
    with engine.evaluation(), torch.no_grad():
        if rank == 0:
            time.sleep(1)
            model(data[0][None])
    print("done")


def exits_inside(rank: int, store: str) -> None:
    engine, model = attached(rank, store)
    if rank == 1:
        with engine.minibatch(samples=2):
            sys.exit(3)
    survive(engine, model, rank)


def forks(rank: int, store: str) -> None:
    engine, model = attached(rank, store)
    step(engine, model, rank)
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print("loss", step(engine, model, rank))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exits")
    names = [
        f.__name__ for f in (raises_between_brackets, ends_without_detach, exits_inside, forks)
    ]
    subprocess.run(
        [sys.executable, exits.__file__, str(folder), __name__, *names], timeout=110, check=True
    )
    return folder


def outcome(folder: Path, name: str, rank: int) -> tuple[int, str]:
    return int((folder / f"{name}.{rank}.code").read_text()), (
        folder / f"{name}.{rank}"
    ).read_text()


def test_an_exception_that_ends_a_process_between_brackets_is_named_at_the_peer(
    ended: Path,
) -> None:
    code, text = outcome(ended, "raises_between_brackets", 1)
    assert code == 1 and "the loader is gone" in text
    code, text = outcome(ended, "raises_between_brackets", 0)
    assert code == 0 and "PeerError 1 " in text and "ValueError: the loader is gone" in text


def test_ranks_that_end_without_detach_leave_in_good_order(ended: Path) -> None:
    for rank in range(2):
        assert outcome(ended, "ends_without_detach", rank) == (0, "done\n")


def test_a_process_that_exits_inside_a_bracket_is_named(ended: Path) -> None:
    assert outcome(ended, "exits_inside", 1)[0] == 3
    code, text = outcome(ended, "exits_inside", 0)
    assert code == 0 and "PeerError 1 " in text and "SystemExit" in text


def test_a_forked_child_ends_without_touching_the_session(ended: Path) -> None:
    for rank in range(2):
        code, text = outcome(ended, "forks", rank)
        assert code == 0 and text.startswith("loss"), text
