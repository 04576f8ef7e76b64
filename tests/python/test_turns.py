"""Turns: the order is kept, nobody steps beside another, and whoever fails is named in time."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402
import demo_figures  # noqa: E402
from demo_launch import Failure, Launched, end  # noqa: E402
from turns import Turns, take  # noqa: E402

# A rank of an arm: writes when its steps begin and end into a file that all share.
RANK = f"""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(EXAMPLES)!r})
import turns
arm, seat, journal, steps, last_words = sys.argv[1:]
journal = os.open(journal, os.O_WRONLY | os.O_APPEND)
for step in range(int(steps)):
    turns.take(Path(seat))
    if step == 2 and last_words:
        print(last_words, flush=True)
        os._exit(3) if last_words == "dies" else time.sleep(60)
    os.write(journal, f"{{step}} {{arm}} begins\\n".encode())
    time.sleep(0.005)
    os.write(journal, f"{{step}} {{arm}} ends\\n".encode())
turns.take(Path(seat))
os.write(journal, f"{{steps}} {{arm}} through\\n".encode())
"""


class Arms:
    """Arms of one rank a process, started by the test in place of torchrun."""

    def __init__(self, turns: Turns, folder: Path) -> None:
        self._turns, self._folder = turns, folder
        self._journal = folder / "journal"
        self._journal.touch()
        self.ranks: dict[str, list[Launched]] = {}

    def start(self, arm: str, ranks: int = 1, steps: int = 4, last_words: str = "") -> None:
        seat = self._turns.seat(arm, ranks)
        words = [sys.executable, "-c", RANK, arm, str(seat), str(self._journal), str(steps)]
        self.ranks[arm] = []
        for rank in range(ranks):
            log = self._folder / f"{arm}.{rank}.log"
            with log.open("w") as output:
                process = subprocess.Popen(
                    [*words, last_words], stdout=output, stderr=subprocess.STDOUT
                )
            self.ranks[arm].append(Launched(arm, process, log))

    def ended(self, arm: str) -> bool:
        return all([rank.ended() for rank in self.ranks[arm]])

    def journal(self) -> list[str]:
        return self._journal.read_text().splitlines()

    def everyone(self) -> list[Launched]:
        return [rank for ranks in self.ranks.values() for rank in ranks]


@contextmanager
def arms_that_take_turns(folder: Path, limit: float = 30.0) -> Iterator[tuple[Turns, Arms]]:
    with Turns(limit) as turns:
        arms = Arms(turns, folder)
        try:
            yield turns, arms
        finally:
            end(arms.everyone())


def of_step(step: int, arm: str, ranks: int, words: tuple[str, ...]) -> list[str]:
    return [f"{step} {arm} {word}" for word in words for _ in range(ranks)]


@pytest.mark.parametrize(
    "ranks", [{"only": 1}, {"only": 3}, {"a": 2, "b": 1, "c": 3}], ids=["one", "one-of-3", "three"]
)
def test_arms_step_in_rotation_and_one_at_a_time(ranks: dict[str, int], tmp_path: Path) -> None:
    with arms_that_take_turns(tmp_path) as (turns, arms):
        for arm, count in ranks.items():
            arms.start(arm, count)
        assert list(turns.rounds(arms.ended)) == [0, 1, 2, 3, 4]
    found, at = arms.journal(), 0
    for step in range(5):
        for arm, count in ranks.items():
            words = ("begins", "ends") if step < 4 else ("through",)
            wanted = of_step(step, arm, count, words)
            assert sorted(found[at : at + len(wanted)]) == wanted
            at += len(wanted)
    assert at == len(found)


def test_an_arm_with_fewer_steps_leaves_the_others_to_go_on(tmp_path: Path) -> None:
    with arms_that_take_turns(tmp_path) as (turns, arms):
        arms.start("short", steps=1)
        arms.start("long", steps=3)
        list(turns.rounds(arms.ended))
    assert [line for line in arms.journal() if "ends" not in line] == [
        "0 short begins",
        "0 long begins",
        "1 short through",
        "1 long begins",
        "2 long begins",
        "3 long through",
    ]


def _kill_between_turns(arms: Arms) -> None:
    arms.ranks["second"][0].process.kill()


@pytest.mark.parametrize(
    ("last_words", "meanwhile", "code"),
    [("dies", None, 3), ("", _kill_between_turns, -9)],
    ids=["on-turn", "off-turn"],
)
def test_a_dead_arm_ends_the_others_and_is_named(
    last_words: str, meanwhile: Callable[[Arms], None] | None, code: int, tmp_path: Path
) -> None:
    with arms_that_take_turns(tmp_path) as (turns, arms):
        arms.start("first", 2)
        arms.start("second", 2, last_words=last_words)
        arms.start("third")
        with pytest.raises(Failure, match=f"(?s)second ended with {code},.*{last_words}$"):
            for done in turns.rounds(arms.ended):
                failing_since = time.monotonic()
                if done == 2 and meanwhile:
                    meanwhile(arms)
        assert time.monotonic() - failing_since < 5
    assert all(rank.process.poll() is not None for rank in arms.everyone())
    assert not any("through" in line for line in arms.journal())


def test_an_arm_that_keeps_its_turn_is_named(tmp_path: Path) -> None:
    with arms_that_take_turns(tmp_path) as (turns, arms):
        arms.start("first")
        arms.start("second", last_words="sleeps")
        with pytest.raises(TimeoutError, match="second: 1 of its ranks did not ask for a turn"):
            for done in turns.rounds(arms.ended):
                if done == 2:  # all are there, and one will sleep
                    turns._limit = 3.0


def test_ranks_that_wait_fail_when_nobody_gives_turns_any_more(tmp_path: Path) -> None:
    with Turns(limit=30.0) as turns:
        arms = Arms(turns, tmp_path)
        arms.start("a", 2)
        assert next(turns.rounds(arms.ended)) == 0  # both wait
    for rank in arms.ranks["a"]:
        assert rank.process.wait(20) == 1
        assert "ConnectionError: no turn was given" in rank.log.read_text()
    with pytest.raises(ConnectionError, match="no turn was given"):
        take(tmp_path / "none")


def test_whoever_waits_uses_no_processor(tmp_path: Path) -> None:
    def used(process: subprocess.Popen) -> int:
        """User and system time so far, in clock ticks, once it sleeps."""
        limit = time.monotonic() + 30
        while True:
            after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            if after_name[0] == "S" or time.monotonic() > limit:
                return int(after_name[11]) + int(after_name[12])
            time.sleep(0.01)

    with arms_that_take_turns(tmp_path) as (turns, arms):
        arms.start("a", 2)
        for done in turns.rounds(arms.ended):
            if done == 1:
                processes = [rank.process for rank in arms.everyone()]
                before = [used(process) for process in processes]
                time.sleep(1.0)
                assert [used(process) for process in processes] == before


def test_without_a_seat_it_is_always_ones_turn() -> None:
    take(None)


# -- what the demo makes of it


def test_each_step_is_compared_with_stocks_of_the_same_round() -> None:
    def run(name: str, step_ms: list[float]) -> demo.ArmRun:
        arm = next(arm for arm in demo.ARMS if arm.name == name)
        return demo.ArmRun(arm, [], [], {"step_ms_each": step_ms})

    runs = {"stock": run("stock", [10.0, 20.0, 30.0]), "none": run("none", [5.0, 20.0, 60.0])}
    demo.compare_rounds(runs)
    assert runs["none"].summary["over_stock_each"] == [2.0, 1.0, 0.5]
    assert runs["none"].summary["over_stock_quartiles"] == [0.75, 1.0, 1.5]
    assert runs["stock"].summary["over_stock_quartiles"] == [1.0, 1.0, 1.0]


def test_a_timeline_leaves_out_the_turns_of_others() -> None:
    def step(begin_ns: int, end_ns: int) -> list[dict]:
        micro = {"begin_ns": begin_ns, "end_ns": end_ns - 100, "lengths": [5]}
        update = (end_ns - 100, end_ns)
        rank = {"begin_ns": begin_ns, "end_ns": end_ns, "update": update, "micros": [micro]}
        return [{**rank, "events": []}]

    picture = demo_figures.timelines([("arm", [step(1000, 2000), step(900_000, 904_000)])])
    ends = [float(x) for x in re.findall(r'<line x1="([\d.]+)"[^>]*#222', picture)]
    width = demo_figures.WIDTH - demo_figures.LEFT - demo_figures.RIGHT
    assert [(x - demo_figures.LEFT) / width for x in ends] == pytest.approx([0.2, 1.0], abs=1e-3)
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', picture)
    assert [float(x) for x, _ in bars][::2] == pytest.approx(
        [demo_figures.LEFT, demo_figures.LEFT + width * 0.2], abs=0.1
    )
