"""The pages for users of other libraries do what they say: their code runs as it stands there."""

import json
import re
from pathlib import Path

import pytest
from support.recipes import run, script_of

# What the page on TRL leaves to its reader.
_conversations = """
from support.tokenizers import marked, word_tokenizer
tokenizer = word_tokenizer(marked)
words = ["fine", "thanks", "a", "b", "c"]
conversations = [
    {"messages": [
        {"role": "user", "content": "how are you ?"},
        {"role": "assistant", "content": " ".join(words[: 1 + i % 5] * (1 + i % 3))},
    ]}
    for i in range(40)
]
"""
_print_history = """
import json
print("history", json.dumps([line["loss"] for line in trainer.state.log_history if "loss" in line]))
"""


def test_plain_fsdp2(tmp_path: Path) -> None:
    printed = run(script_of("tutorials/fsdp2.md"), tmp_path, ranks=2)
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", printed)]
    assert len(losses) == 2
    assert 2 < losses[1] < losses[0] < 5  # ln 64 = 4.2: it begins to learn


@pytest.fixture(scope="module")
def trl_losses(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """Of one process and of two ranks."""
    script = _conversations + script_of("tutorials/trl.md") + _print_history
    found = []
    for ranks in (1, 2):
        printed = run(script, tmp_path_factory.mktemp("trl"), ranks)
        found.append(json.loads(re.findall(r"history (.*)", printed)[0]))
    return found


def test_trls_trainer_learns_the_same_on_one_rank_and_on_two(trl_losses: list[list[float]]) -> None:
    one, two = trl_losses
    assert len(one) == 6
    assert two == pytest.approx(one, rel=1e-5)
    assert one[-1] < one[0] - 0.5


def test_verl(tmp_path: Path) -> None:
    printed = run(script_of("tutorials/verl.md"), tmp_path)
    assert "0 samples lost" in printed


def test_the_data_page(tmp_path: Path) -> None:
    """Without torchrun: it shows what each rank gets."""
    printed = run(script_of("data.md"), tmp_path)
    assert printed.count("rank 0 of 2") == printed.count("rank 1 of 2") == 2
    assert "resumed" in printed
