"""The example: packing changes nothing, the data is what it says, runs resume, engines agree."""

import faulthandler
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.ranks import RankPools
from support.tokenizers import save_word_tokenizer
from support.traces import check_format

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402
import sft  # noqa: E402
import sft_data  # noqa: E402
import sft_model  # noqa: E402
from sft_trace import Event, RankStep, figures  # noqa: E402

torch.set_num_threads(1)  # as every rank has; more would spin against them

CAP = 96
TINY = ["--cap", str(CAP), "--hidden", "32", "--layers", "2", "--heads", "4", "--kv-heads", "2"]
TINY += ["--intermediate", "48", "--warm-up", "2", "--minibatch", "6"]


def tiny_model() -> torch.nn.Module:
    shape = sft_model.ModelShape(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48)
    return sft_model.build(shape, CAP, seed=1)


def sample(length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (length,), generator=torch.Generator().manual_seed(seed))


def gradients(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 texts of 5 to 300 bytes, as JSON lines."""
    generator = torch.Generator().manual_seed(7)
    path = tmp_path_factory.mktemp("corpus") / "texts.jsonl"
    texts = []
    for number in range(60):
        length = int(5 + 295 * torch.rand(1, generator=generator).item() ** 2)
        texts.append((f"def function_{number}(x): return x + {number}\n" * 10)[:length].encode())
    sft_data.write_json_lines(texts, path)
    return path


# -- packing

LENGTHS = (40, 1, 7, 96, 2)


@pytest.mark.parametrize("recompute", [False, True], ids=["plain", "activation-checkpointing"])
def test_packing_changes_neither_loss_nor_gradients(recompute: bool) -> None:
    samples = [sample(length, seed) for seed, length in enumerate(LENGTHS)]
    model = tiny_model()
    if recompute:
        sft_model.checkpoint_activations(model)
    packed = sft_model.loss_sum(model, sft_data.pack(samples))
    packed.backward()
    packed_gradients = gradients(model)
    model.zero_grad()
    alone = torch.zeros(())
    for one in samples:
        loss = sft_model.loss_sum(model, sft_data.pack([one]))
        loss.backward()
        alone += loss.detach()
    assert packed.item() == pytest.approx(alone.item(), rel=1e-6)
    difference = (packed_gradients - gradients(model)).norm() / packed_gradients.norm()
    assert difference.item() < 2e-6


def test_the_loss_is_that_of_a_plain_llama_with_its_own_attention() -> None:
    model, one = tiny_model(), sample(50, seed=3)
    ours = sft_model.loss_sum(model, sft_data.pack([one])).item()
    model.set_attn_implementation("eager")
    logits = model(input_ids=one[None]).logits[0]
    theirs = F.cross_entropy(logits[:-1], one[1:], reduction="sum").item()
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_a_packed_sample_sees_nothing_of_its_neighbours() -> None:
    model, kept = tiny_model(), sample(30, seed=1)

    def logits(neighbour: torch.Tensor) -> torch.Tensor:
        batch = sft_data.pack([neighbour, kept])
        bounds = tuple(batch["cu_seqlens"].tolist())
        row = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], bounds=bounds)
        return row.logits[0, len(neighbour) :]

    torch.testing.assert_close(logits(sample(20, seed=2)), logits(sample(33, seed=4)))


def test_bounds_that_do_not_cover_the_row_are_refused() -> None:
    batch = sft_data.pack([sample(10, seed=1)])
    with pytest.raises(ValueError, match=r"\(0, 9\) do not cover the row's 10 tokens"):
        tiny_model()(
            input_ids=batch["input_ids"], position_ids=batch["position_ids"], bounds=(0, 9)
        )


def test_a_filler_adds_exactly_zero() -> None:
    model, filler = tiny_model(), sft_data.pack([])
    loss = sft_model.loss_sum(model, filler)
    loss.backward()
    assert filler["input_ids"].numel() == 1
    assert loss.item() == 0.0
    assert torch.count_nonzero(gradients(model)) == 0


# -- data


def test_the_standard_library_has_its_long_tail() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every file is read
        sizes = sorted(map(len, sft_data.standard_library_texts()))
    assert 4500 < len(sizes) < 7500
    assert 350 < sizes[len(sizes) // 2] < 500
    assert 2500 < sizes[len(sizes) * 9 // 10] < 3600


def test_samples_are_bytes_between_begin_and_end_cut_at_the_cap() -> None:
    samples = sft_data.Samples([b"ab", b"x" * 50], cap=8)
    assert samples[0].tolist() == [sft_data.BYTES.begin, 97, 98, sft_data.BYTES.end]
    assert samples[1].tolist() == [sft_data.BYTES.begin] + [ord("x")] * 7
    assert [samples.length(index) for index in range(2)] == [4, 8]


def test_texts_come_from_folders_and_json_lines(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"second")
    (tmp_path / "a.txt").write_bytes(b"first")
    assert sft_data.records_from(tmp_path) == [b"first", b"second"]
    lines = tmp_path / "lines.jsonl"
    sft_data.write_json_lines(["é".encode(), b"two\nlines"], lines)
    assert sft_data.records_from(lines) == ["é".encode(), b"two\nlines"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"txt": "a"}', "line 2: no JSON object with `text` or `messages`"),
        ("[1]", "line 2: no JSON object"),
        ("nonsense", "line 2: not JSON"),
        ('{"text": 5}', "line 2: `text` is int"),
        ('{"messages": [{"role": "user"}]}', "line 2: message 0 has no `content`"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "line 2: .*nothing to train"),
    ],
)
def test_bad_json_lines_are_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    with pytest.raises(ValueError, match=words):
        sft_data.records_from(path)


CONVERSATION = [
    {"role": "user", "content": "how are you ?"},
    {"role": "assistant", "content": "fine thanks ."},
]


def test_conversations_are_samples_with_loss_on_the_answers(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": CONVERSATION}) + '\n{"text": "hello there"}\n')
    records = sft_data.records_from(path)
    assert records == [CONVERSATION, b"hello there"]
    in_bytes = sft_data.Samples(records, CAP)
    assert [in_bytes.length(index) for index in range(2)] == [45, 13]
    assert sft_data.pack.targets(in_bytes[0]) == len("fine thanks .") + 1
    tokenizer = sft_data.load_tokenizer(save_word_tokenizer(tmp_path / "tokenizer"))
    in_words = sft_data.Samples(records, CAP, tokenizer)
    assert [in_words.length(index) for index in range(2)] == [12, 3]
    assert sft_data.pack.targets(in_words[0]) == 4
    ids = in_words[1]["input_ids"].tolist()
    assert tokenizer.convert_ids_to_tokens(ids) == ["hello", "there", "</s>"]
    assert [sft_data.Samples(records, 5, tokenizer).length(index) for index in range(2)] == [5, 3]
    with pytest.raises(ValueError, match="no such directory"):
        sft_data.load_tokenizer(tmp_path / "none")


def test_the_learning_rate_climbs_then_falls_to_its_floor() -> None:
    factors = [sft_model.cosine_with_warm_up(step, warm_up=4, steps=20) for step in range(21)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert factors[20] == pytest.approx(0.1)


# -- figures


def test_ranks_wait_until_the_last_has_entered_a_collective() -> None:
    early = RankStep(0, begin_ns=0, end_ns=1000, events=[Event("gather", 100, 500, bytes=8)])
    late = RankStep(1, begin_ns=0, end_ns=900, events=[Event("gather", 400, 500, bytes=8)])
    step = figures([early, late], tokens=10)
    assert [early.events[0].waited_ns, late.events[0].waited_ns] == [300, 0]
    assert step["waiting_ms"] == pytest.approx(300e-6 / 2)
    assert step["moving_ms"] == pytest.approx((100 + 100) * 1e-6 / 2)
    assert step["step_ms"] == pytest.approx(1000e-6)
    assert step["bytes"] == 16


# -- training


def train(rank: int, world: int, arguments: list[str]) -> None:
    sft.train(sft.parse(arguments), rank, world)


def losses(path: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


def run(
    pools: RankPools, engine: str, strategy: str, metrics: Path, *more: str, world: int = 2
) -> list[float]:
    arguments = [*TINY, "--engine", engine, "--strategy", strategy, "--metrics", str(metrics)]
    arguments += more
    if engine == "single":
        train(0, 1, arguments)
    else:
        pools.run(world, train, arguments)
    return losses(metrics)


@pytest.fixture(scope="module")
def reference(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    metrics = tmp_path_factory.mktemp("reference") / "metrics.jsonl"
    train(0, 1, [*TINY, *_data(corpus), "--engine", "single", "--metrics", str(metrics)])
    return losses(metrics)


def _data(corpus: Path) -> list[str]:
    return ["--data", str(corpus), "--steps", "12"]  # 10 steps an epoch: goes on into the next


@pytest.mark.parametrize(
    ("engine", "strategy", "world"),
    [
        ("stock", "lb-micro", 2),
        ("stock", "none", 3),
        ("headrace-lockstep", "lb-micro", 2),
        ("headrace-lockstep", "none", 3),
        ("headrace-auto", "lb-micro", 2),
        ("headrace", "none", 2),
        ("headrace", "lb-micro", 2),
        ("headrace", "lb-mini", 2),
        ("headrace", "lb-mini", 3),
    ],
)
def test_every_engine_and_strategy_has_the_reference_losses(
    engine: str,
    strategy: str,
    world: int,
    corpus: Path,
    reference: list[float],
    pools: RankPools,
    tmp_path: Path,
) -> None:
    found = run(pools, engine, strategy, tmp_path / "m", *_data(corpus), world=world)
    assert len(found) == 12
    assert found[0] == pytest.approx(reference[0], rel=1e-5)
    assert found == pytest.approx(reference, rel=1e-4)
    assert reference[-1] < reference[0] - 0.1  # it learns


def test_activation_checkpointing_changes_no_loss(
    corpus: Path, reference: list[float], pools: RankPools, tmp_path: Path
) -> None:
    more = [*_data(corpus), "--activation-checkpointing"]
    found = run(pools, "headrace", "lb-mini", tmp_path / "m", *more)
    assert found == pytest.approx(reference, rel=1e-4)


def test_bf16_stays_within_its_rounding(
    corpus: Path, reference: list[float], pools: RankPools, tmp_path: Path
) -> None:
    found = run(pools, "headrace", "lb-mini", tmp_path / "m", *_data(corpus), "--bf16")
    assert found == pytest.approx(reference, rel=2e-2)


@pytest.mark.parametrize(
    ("engine", "strategy", "tolerance"),
    [("single", "lb-mini", 0.0), ("stock", "lb-micro", 0.0), ("headrace", "lb-mini", 1e-6)],
)
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(
    engine: str, strategy: str, tolerance: float, corpus: Path, pools: RankPools, tmp_path: Path
) -> None:
    """Headrace adds in the order of arrival: equal to rounding, not to the bit."""
    whole = run(pools, engine, strategy, tmp_path / "whole", *_data(corpus))
    checkpoints = ["--checkpoints", str(tmp_path / "checkpoints")]
    parts = [*_data(corpus), *checkpoints, "--save-every", "3"]
    begun = run(pools, engine, strategy, tmp_path / "parts", *parts, "--stop-after", "7")
    assert len(begun) == 7
    both = run(pools, engine, strategy, tmp_path / "parts", *parts, "--resume")
    assert both[:7] == begun
    resumed = both[7:]  # from step 6, where the last checkpoint was made
    assert resumed == pytest.approx(whole[6:], rel=tolerance, abs=0.0)


def test_conversations_train_with_a_local_tokenizer_and_leave_a_trace(
    pools: RankPools, tmp_path: Path
) -> None:
    path, words = tmp_path / "chat.jsonl", ["hello", "there", "fine", "thanks", "a", "b", "c"]
    with path.open("w") as lines:
        for number in range(20):
            answer = " ".join(words[: 1 + number % 7])
            turns = [CONVERSATION[0], {"role": "assistant", "content": answer}]
            print(json.dumps({"messages": turns}), file=lines)
    options = ["--data", str(path), "--steps", "4"]
    options += ["--tokenizer", str(save_word_tokenizer(tmp_path / "tokenizer"))]
    expected = run(pools, "single", "none", tmp_path / "one", *options)
    ways = (("headrace", "lb-mini"), ("headrace", "lb-mini", "--worker-threads"))
    for engine, strategy, *more in (*ways, ("stock", "lb-micro")):
        trace = tmp_path / f"{engine}.json"
        more += ["--trace", str(trace)]
        found = run(pools, engine, strategy, tmp_path / "m", *options, *more)
        assert found == pytest.approx(expected, rel=1e-4)
        complete = check_format(trace, ranks=2)
        for rank in range(2):
            mine = [event["name"] for event in complete if event["pid"] == rank]
            assert [name for name in mine if name.startswith("step")] == [
                f"step {number}" for number in range(4)
            ]
            assert mine.count("update") == 4
            assert {"gather", "push"} <= set(mine)
        assert ("worker" in {event["cat"] for event in complete}) == ("--worker-threads" in more)
        named = {event["args"].get("group") for event in complete} - {None}
        assert len(named) == (4 if engine == "headrace" else 0)  # stock's hooks know no names


def test_a_local_checkpoint_directory_is_trained_further(
    corpus: Path, reference: list[float], pools: RankPools, tmp_path: Path
) -> None:
    shape = sft_model.ModelShape(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48)
    sft_model.build(shape, CAP, seed=0).save_pretrained(tmp_path / "model")
    more = [*_data(corpus), "--model", str(tmp_path / "model")]
    found = run(pools, "single", "none", tmp_path / "m", *more)
    assert found == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "stock", "--strategy", "lb-mini"], "different microbatch counts"),
        (["--engine", "single", "--bf16"], "FSDP2's mixed precision"),
        (["--resume"], "need --checkpoints"),
    ],
)
def test_options_that_cannot_work_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        sft.parse(arguments)
    assert words in capsys.readouterr().err


# -- the demo


@pytest.fixture(scope="module")
def demo_out(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole demo, six launches of a few steps."""
    faulthandler.dump_traceback_later(420, exit=True)  # longer than one test's own limit
    out = tmp_path_factory.mktemp("demo")
    options = ["--steps", "3", "--warm-up-steps", "1", "--cap", "128", "--hidden", "32"]
    options += ["--layers", "2", "--intermediate", "48", "--data", str(corpus), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), *options],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Headrace on demand, lb-mini" in done.stdout
    return out


def test_the_demo_writes_every_arm_with_every_figure(demo_out: Path) -> None:
    results = json.loads((demo_out / "demo.json").read_text())
    arms = ["stock", "lockstep", "none", "lb-micro", "lb-mini", "reference"]
    assert list(results["arms"]) == arms
    for name, arm in results["arms"].items():
        assert arm["step_ms"] > 0 and arm["tokens_per_s"] > 0 and arm["memory"] > 1e7
        assert len(arm["losses"]) == 3
        assert arm["loss_difference"]["largest"] < 1e-4
        if name == "reference":
            assert arm["bytes"] == 0 and arm["predicted_speedup"] is None
        else:
            assert arm["bytes"] > 0 and arm["predicted_speedup"] > 0 and arm["waiting_ms"] >= 0
    assert results["arms"]["none"]["speedup"] == 1.0
    assert results["problems"] == []


def test_the_report_is_one_file_with_pictures(demo_out: Path) -> None:
    page = (demo_out / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4
    for outside in ("http://", "https://", "src=", "<link", "<script", "url("):
        assert outside not in page
    assert "nan" not in page.lower().replace("finance", "")


def test_a_loss_off_the_reference_is_a_problem_in_words() -> None:
    def arm(name: str, found: list[float]) -> demo.ArmRun:
        steps = [{"loss": loss} for loss in found]
        chosen = next(arm for arm in demo.ARMS if arm.name == name)
        return demo.ArmRun(chosen, steps, [], {"step_ms": 1.0, "predicted_ms": 1.0})

    runs = {name: arm(name, [5.0, 4.0]) for name in ("stock", "none", "lb-mini", "reference")}
    demo.compare(runs)
    assert demo.check(runs) == []
    runs["lb-mini"] = arm("lb-mini", [5.0002, 4.0])
    runs["none"] = arm("none", [5.0, 4.001])
    demo.compare(runs)
    problems = demo.check(runs)
    assert any(problem.startswith("lb-mini: the first step's loss") for problem in problems)
    assert any(problem.startswith("none: a step's loss") for problem in problems)
