"""`headrace balance` plans lengths from a file, and says what is wrong where it cannot."""

import fcntl
import json
import os
import pty
import random
import re
import resource
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from headrace._engine import plan_batch, workload_lengths
from headrace.data import CostModel, Plan, minibatches, plan

PROGRAM = Path(sys.executable).with_name("headrace")
LENGTHS = [8000, 500, 1200, 3000, 700, 6400, 2500, 900, 1500, 4100]
CAP = 8192
STRATEGIES = ["none", "sorted", "lb-micro", "lb-mini", "verl-native", "verl-optimized"]


def run(*arguments: str, given: str | None = None, **options: Any) -> Any:
    return subprocess.run(
        [PROGRAM, "balance", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def balance(*arguments: str, lengths: list[int] | str = LENGTHS, ranks: int = 3) -> str:
    """What it prints of lengths on standard input."""
    text = lengths if isinstance(lengths, str) else "\n".join(map(str, lengths))
    asked = ("--lengths", "-", "--world-size", str(ranks), "--cap", str(CAP))
    result = run(*asked, *arguments, given=text)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def refused(*arguments: str, lengths: str = "1 2 3") -> str:
    asked = ("--lengths", "-", "--world-size", "2", "--cap", "100")
    result = run(*asked, *arguments, given=lengths)
    assert result.returncode != 0
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_makes_the_plan_that_ranks_make(strategy: str) -> None:
    report = json.loads(balance("--strategy", strategy, "--json"))
    (minibatch,) = report["minibatches"]
    assert minibatch["samples"] == list(range(len(LENGTHS)))
    assert minibatch["plan"] == json.loads(plan(LENGTHS, 3, CAP, strategy).to_json())


def test_totals_add_up() -> None:
    report = json.loads(balance("--strategy", "lb-micro", "--alignment", "512", "--json"))
    made = plan(LENGTHS, 3, CAP, "lb-micro", alignment=512)
    micros = [micro for rank in made.ranks for micro in rank]
    totals = report["totals"]
    assert totals["samples"] == len(LENGTHS)
    assert totals["tokens"] == sum(LENGTHS)
    assert totals["microbatches"] == sum(not micro.filler for micro in micros)
    assert totals["fillers"] == sum(micro.filler for micro in micros)
    assert totals["most_a_rank"] == totals["fewest_a_rank"] == len(made.ranks[0])
    aligned = sum(-(-length // 512) * 512 for length in LENGTHS)
    assert totals["cap_use"] == pytest.approx(aligned / (totals["microbatches"] * CAP))
    for mode in ("lockstep", "on_demand"):
        assert totals[mode]["time"] == pytest.approx(getattr(made, mode).makespan)
        assert totals[mode]["waiting"] == pytest.approx(getattr(made, mode).bubble)
        assert totals[mode]["lower_bound"] == pytest.approx(getattr(made, mode).lower_bound)


def test_a_workload_has_lengths_of_its_own() -> None:
    asked = ("--world-size", "4", "--cap", "65536", "--json")
    report = json.loads(run("--lengths", "longalign", *asked).stdout)
    assert report["totals"]["samples"] == 4 * 8
    report = json.loads(
        run("--lengths", "longalign", *asked, "--samples", "50", "--seed", "3").stdout
    )
    lengths = workload_lengths("longalign", 50, 3)
    assert report["minibatches"][0]["plan"] == json.loads(plan(lengths, 4, 65536).to_json())


def test_minibatches_are_cut_and_shuffled_as_in_training() -> None:
    rng = random.Random(1)
    dataset = [range(rng.randint(1, 900)) for _ in range(50)]
    loader = minibatches(dataset, 3, 1000, samples_per_minibatch=16, rank=0, seed=5)
    loader.epoch = 2
    report = json.loads(
        run(
            *("--lengths", "-", "--world-size", "3", "--cap", "1000", "--json"),
            *("--samples-per-minibatch", "16", "--shuffle", "--seed", "5", "--epoch", "2"),
            given="\n".join(str(len(sample)) for sample in dataset),
        ).stdout
    )
    made = list(loader)
    assert [found["samples"] for found in report["minibatches"]] == [m.global_indices for m in made]
    plans = [json.loads(minibatch.plan.to_json()) for minibatch in made]
    assert [found["plan"] for found in report["minibatches"]] == plans
    totals = report["totals"]
    assert (totals["minibatches"], totals["samples"]) == (4, 50)
    times = [min(p["lockstep"]["makespan"], p["on_demand"]["makespan"]) for p in plans]
    assert totals["recommended"]["time"] == pytest.approx(sum(times), rel=0.02)
    waiting = [p[p["recommendation"].replace("-", "_")]["bubble"] for p in plans]
    assert report["worst"] == waiting.index(max(waiting))


def test_verl_native_cuts_the_whole_batch_itself() -> None:
    rng = random.Random(2)
    lengths = [rng.randint(1, 8000) for _ in range(36)]
    arguments = ("--strategy", "verl-native", "--samples-per-minibatch", "12", "--json")
    report = json.loads(balance(*arguments, lengths=lengths))
    made = plan_batch(lengths, 3, 3, CAP, "verl-native")
    assert len(report["minibatches"]) == len(made) == 3
    for found, expected in zip(report["minibatches"], made, strict=True):
        ranks = [
            [
                [found["samples"][piece[0]] for piece in micro["pieces"]]
                for micro in rank["microbatches"]
            ]
            for rank in found["plan"]["ranks"]
        ]
        assert ranks == [[micro.samples for micro in rank] for rank in expected.ranks]
        makespan = Plan.from_json(json.dumps(found["plan"])).lockstep.makespan
        assert makespan == expected.lockstep.makespan
    assert sorted(s for m in report["minibatches"] for s in m["samples"]) == list(range(36))


def test_equal_samples_and_least_microbatches() -> None:
    lengths = [100] * 3 + [10] * 9
    (equal,) = json.loads(balance("--equal-samples", "--json", lengths=lengths))["minibatches"]
    counts = [
        sum(len(micro["pieces"]) for micro in rank["microbatches"])
        for rank in equal["plan"]["ranks"]
    ]
    assert counts == [4, 4, 4]
    (more,) = json.loads(balance("--min-microbatches", "2", "--json", lengths=lengths))[
        "minibatches"
    ]
    assert min(len(rank["microbatches"]) for rank in more["plan"]["ranks"]) == 2


def test_text_says_what_json_says() -> None:
    text = balance("--samples-per-minibatch", "4", "--model", "7B")
    totals = json.loads(balance("--samples-per-minibatch", "4", "--model", "7B", "--json"))[
        "totals"
    ]
    said = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    first = text.splitlines()[0]
    assert first == "lb-mini: 10 samples with 28,800 tokens on 3 ranks, at most 8,192 a microbatch"
    whole = text[: text.index("the worst")]
    assert f"minibatches   {totals['minibatches']}\n" in whole
    assert f"cap use       {100 * totals['cap_use']:.1f} %\n" in whole
    for mode in ("lockstep", "on-demand"):
        found = totals[mode.replace("-", "_")]
        time, bound = found["time"], found["lower_bound"]
        assert time >= bound > 0
        words = f"{mode} {time:.4g} {100 * found['waiting']:.1f} % {bound:.4g}".split()
        words += f"{100 * (time / bound - 1):.1f} %".split()
        assert words in [line.split() for line in whole.splitlines()]
    assert "cost model" in text and "7B: " in text
    assert "the worst is minibatch" in text
    assert "recommended" in said


def bars(text: str) -> dict[int, str]:
    return {
        int(found[1]): found[2]
        for found in re.finditer(r"^rank (\d+) +([#|.]+)  [\d,]+ in \d+$", text, re.MULTILINE)
    }


def test_bars_are_proportional_and_show_microbatches() -> None:
    # With a linear cost ranks 0 to 2 take 80, 40 and 20, in microbatches of 20.
    lengths = "20 20 20 20 20 20 20"
    asked = ("--world-size", "3", "--cap", "20", "--model", "0,1")
    result = run("--lengths", "-", *asked, "--strategy", "none", given=lengths)
    drawn = bars(result.stdout)
    assert sorted(drawn) == [0, 1, 2]
    (width,) = {len(bar) for bar in drawn.values()}
    assert max(len(line) for line in result.stdout.splitlines() if line.startswith("rank")) == 80
    assert [bar.count("|") for bar in drawn.values()] == [3, 2, 2]
    for bar, share in zip(drawn.values(), (1, 2 / 3, 2 / 3), strict=True):
        assert abs(bar.count("#") + bar.count("|") - share * width) <= 1


def on_a_terminal(columns: int, **environment: str) -> str:
    """What it prints where standard output is a terminal that wide."""
    main, other = pty.openpty()
    try:
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        asked = ("--lengths", "/dev/stdin", "--world-size", "2", "--cap", "100")
        subprocess.run(
            [PROGRAM, "balance", *asked],
            input=b"50 30 20",
            stdout=other,
            env={**os.environ, **environment},
            timeout=60,
            check=True,
        )
        os.close(other)
        other = -1
        printed = b""
        with suppress(OSError):  # at the end, since nobody has the other side any more
            while True:
                printed += os.read(main, 1 << 16)
        return printed.decode()
    finally:
        os.close(main)
        if other >= 0:
            os.close(other)


def test_a_terminal_gets_its_width_and_colours_a_pipe_neither() -> None:
    for columns in (60, 120):
        plain = on_a_terminal(columns, NO_COLOR="1").replace("\r", "")
        assert "\x1b" not in plain
        assert {len(line) for line in plain.splitlines() if line.startswith("rank")} == {columns}
        coloured = on_a_terminal(columns, NO_COLOR="").replace("\r", "")
        assert "\x1b[34m" in coloured
        assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert "\x1b" not in balance()


def test_compare_has_a_line_a_strategy() -> None:
    report = json.loads(balance("--compare", "--json"))["strategies"]
    text = balance("--compare").splitlines()
    assert max(map(len, text)) <= 80
    rows = [line.split() for line in text[2:-1]]
    assert [row[0] for row in rows] == list(report) == STRATEGIES
    for name, *words in rows:
        one = json.loads(balance("--strategy", name, "--json"))["totals"]
        assert one == report[name]
        assert f"{one['lockstep']['time']:.3g}" in words
        assert f"{one['on_demand']['time']:.3g}" in words


def test_svg_is_a_picture_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    text = balance("--svg", str(file))
    assert f"picture in {file}" in text
    picture = file.read_text()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert balance("--svg", "-") == picture
    assert "rank 2" in picture and "waiting" in picture
    assert "cannot write" in refused("--svg", str(tmp_path / "no" / "plan.svg"))


@pytest.mark.parametrize(
    ("policy", "tokens", "lost"), [("truncate", 110, 150), ("drop", 10, 250), ("split", 260, 0)]
)
def test_tokens_lost_are_shown(policy: str, tokens: int, lost: int) -> None:
    asked = ("--lengths", "-", "--world-size", "2", "--cap", "100", "--oversize", policy)
    result = run(*asked, given="10 250")
    assert f"with {tokens} tokens" in result.stdout
    assert f"tokens lost   {lost}, to {policy} of 1 sample over the cap\n" in result.stdout
    totals = json.loads(run(*asked, "--json", given="10 250").stdout)["totals"]
    assert (totals["tokens"], totals["tokens_lost"], totals["oversize"]) == (tokens, lost, 1)


def test_nothing_lost_is_not_mentioned() -> None:
    assert "tokens lost" not in balance()


def test_forms_of_input_give_one_plan(tmp_path: Path) -> None:
    forms = {
        "plain.txt": (" ".join(map(str, LENGTHS)), ()),
        "numbers.jsonl": ("\n".join(map(str, LENGTHS)), ()),
        "objects.jsonl": ("\n".join(f'{{"length": {n}}}' for n in LENGTHS), ()),
        "tokens.jsonl": (
            "\n".join(json.dumps({"input_ids": [7] * n, "n": 1}) for n in LENGTHS),
            ("--field", "input_ids"),
        ),
        "table.csv": ("id,length\n" + "\n".join(f"a,{n}" for n in LENGTHS), ()),
        "other.csv": (
            "n_tokens,id\n" + "\n".join(f"{n},a" for n in LENGTHS),
            ("--field", "n_tokens"),
        ),
    }
    printed = set()
    for name, (text, arguments) in forms.items():
        (tmp_path / name).write_text(text)
        asked = ("--lengths", str(tmp_path / name), "--world-size", "3", "--cap", str(CAP))
        result = run(*asked, *arguments)
        assert (result.returncode, result.stderr) == (0, "")
        printed.add(result.stdout)
    assert printed == {balance()}


def test_cost_models_are_those_of_python(tmp_path: Path) -> None:
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 1000,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "points.csv").write_text("tokens,cost\n1,10\n2,21\n3,38\n10,325\n")
    for text in ("7B", "1e-9,2e-6,0.5", f"{tmp_path}", f"{tmp_path}/points.csv"):
        model = json.loads(balance("--model", text, "--json"))["model"]
        assert CostModel(**model) == CostModel.parse(text)
    assert CostModel.parse(str(tmp_path)) == CostModel.from_config(tmp_path)
    assert CostModel.from_config(config) == CostModel.from_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no length in standard input"),
        ("12\nabc\n", "standard input, line 2: 'abc' is not a whole number"),
        ("12\n-7\n", "line 2: -7 is no length"),
        ("12 0", "line 1: 0 is no length"),
        ("12.5", "'12.5' is not a whole number"),
        ("[1, 2]", "is a list"),
        ("id,tokens\na,1\n", "no column 'length'; there are: id, tokens; choose one with --field"),
        ('{"tokens": 3}', "no field 'length'; there are: tokens; choose one with --field"),
        ('{"length": "x"}', "'length' is '\"x\"'"),
        ('{"length": 3', "is not JSON"),
        ("PAR1xxxx", "python -m headrace.lengths"),
        ("99 101", "the sample at index 1 has 101 tokens, more than the cap of 100"),
    ],
)
def test_bad_lengths_are_named(text: str, said: str) -> None:
    assert said in refused(lengths=text)


def test_bad_files_are_named(tmp_path: Path) -> None:
    asked = ("--world-size", "2", "--cap", "100")
    missing = run("--lengths", f"{tmp_path}/none.txt", *asked)
    assert missing.returncode != 0
    assert f"{tmp_path}/none.txt: No such file" in missing.stderr
    folder = run("--lengths", str(tmp_path), *asked)
    assert folder.returncode != 0
    assert f"{tmp_path}: Is a directory" in folder.stderr
    parquet = run("--lengths", "data.parquet", "--field", "ids", *asked)
    assert parquet.returncode != 0
    assert "python -m headrace.lengths data.parquet --column ids |" in parquet.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--strategy", "best"), ["--strategy", "'best'", *STRATEGIES]),
        (("--oversize", "cut"), ["--oversize", "'cut'", "truncate, drop and split"]),
        (("--model", "70B"), ["--model", "'70B'", "1.5B, 7B", "config.json", "quadratic,linear"]),
        (("--alignment", "0"), ["--alignment", "0", "1 or more"]),
        (("--alignment", "101"), ["alignment", "101", "cap of 100"]),
        (("--cap", "many"), ["--cap", "'many'", "1 or more"]),
        (("--world-size", "0"), ["--world-size", "0", "1 to 1048576"]),
        (("--samples-per-minibatch", "-2"), ["--samples-per-minibatch", "-2", "1 or more"]),
        (("--shuffle", "--seed", "x"), ["--seed", "'x'", "0 or more"]),
        (("--seed", "1"), ["--seed", "--shuffle"]),
        (("--epoch", "1"), ["--epoch", "--shuffle"]),
        (("--samples", "5"), ["--samples", "workload", "longalign", "short-sft"]),
        (("--compare", "--svg", "x.svg"), ["--svg", "--compare"]),
        (("--compare", "--strategy", "none"), ["--compare", "--strategy"]),
        (("--lenghts", "x"), ["--lenghts", "--help"]),
    ],
)
def test_wrong_options_are_named_with_what_to_give(
    arguments: tuple[str, ...], said: list[str]
) -> None:
    asked = {"--lengths": "-", "--world-size": "2", "--cap": "100"}
    asked.pop(arguments[0], None)
    given = [word for pair in asked.items() for word in pair]
    result = run(*given, *arguments, given="1 2 3")
    assert result.returncode != 0
    for words in said:
        assert words in result.stderr


def test_all_missing_options_are_listed_at_once() -> None:
    result = run("--cap", "5")
    assert result.returncode != 0
    assert "headrace balance needs --lengths, --world-size; see" in result.stderr


def test_the_manual_shows_what_it_prints() -> None:
    manual = Path(__file__).parents[2] / "docs" / "balance.md"
    shown = re.findall(
        r"^\$ headrace balance (.*)\n((?:.*\n)*?)```$", manual.read_text(), re.MULTILINE
    )
    assert len(shown) == 2
    for arguments, printed in shown:
        assert run(*arguments.split()).stdout == printed


def test_help_has_every_option() -> None:
    text = run("--help").stdout
    for option in (
        *("--lengths", "--field", "--world-size", "--cap", "--strategy", "--model", "--oversize"),
        *("--samples-per-minibatch", "--alignment", "--shuffle", "--seed", "--epoch", "--compare"),
        *("--json", "--svg"),
    ):
        assert option in text


def processor_seconds(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("form", ["plain", "objects", "csv"])
def test_a_million_lines_take_under_a_second_of_a_processor(form: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    lengths = [rng.randint(1, 2000) for _ in range(1_000_000)]
    if form == "plain":
        text = "\n".join(map(str, lengths))
    elif form == "objects":
        text = "\n".join(f'{{"id": {i}, "length": {n}}}' for i, n in enumerate(lengths))
    else:
        text = "id,length\n" + "\n".join(f"{i},{n}" for i, n in enumerate(lengths))
    # The last line is wrong, so that nothing but reading takes time.
    file = tmp_path / "lengths"
    file.write_text(text + "\noops\n")
    before = processor_seconds(resource.RUSAGE_CHILDREN)
    result = run("--lengths", str(file), "--world-size", "8", "--cap", "8192")
    seconds = processor_seconds(resource.RUSAGE_CHILDREN) - before
    last = 1_000_001 + (form == "csv")
    assert f"line {last}: " in result.stderr
    if seconds >= 1.0:  # a slow machine: what does its Python take?
        begin = processor_seconds(resource.RUSAGE_SELF)
        for length in lengths:
            json.loads(f'{{"id": 1, "length": {length}}}')
        assert seconds < processor_seconds(resource.RUSAGE_SELF) - begin
