"""Trains one small Llama several ways on the same data and shows what Headrace saves.

    python examples/demo.py                    # two ranks of one thread each
    RANKS=4 python examples/demo.py

Arms: stock FSDP2 over gloo with lb-micro; Headrace in lockstep with lb-micro; Headrace on demand
with none, lb-micro and lb-mini; one process as the reference. All run at once and take turns, one
step each, so that a machine whose speed drifts meets them alike. Prints a table, writes report.html
and demo.json into --out, and exits with 1 where an arm's loss is not the reference's.
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import rich
import sft_data
import torch
from demo_launch import Failure, Launched, end, launch, run_to_end
from demo_report import write_report
from rich import box
from rich.console import Console
from rich.table import Table
from turns import Turns

FIRST_STEP_LIMIT = 1e-5  # relative difference of the loss to the reference
ANY_STEP_LIMIT = 1e-4
BASELINE = "none"  # speedups, measured and predicted, are over on-demand without balancing
REFERENCE = "reference"
SAY_EVERY = 8  # rounds
TABLE_WIDTH = 152  # columns; also where the output is no terminal


@dataclass(frozen=True)
class Arm:
    name: str
    title: str
    engine: str
    strategy: str
    worker_threads: bool = False


ARMS = (
    Arm("stock", "stock FSDP2, lb-micro", "stock", "lb-micro"),
    Arm("lockstep", "Headrace lockstep, lb-micro", "headrace-lockstep", "lb-micro"),
    Arm("none", "Headrace on demand, none", "headrace", "none"),
    Arm("lb-micro", "Headrace on demand, lb-micro", "headrace", "lb-micro"),
    Arm("lb-mini", "Headrace on demand, lb-mini", "headrace", "lb-mini"),
    Arm(REFERENCE, "one process, reference", "single", "none"),
)


@dataclass
class ArmRun:
    """What an arm wrote, one entry a step, warm-up first."""

    arm: Arm
    metrics: list[dict]
    trace: list[dict]
    summary: dict = field(default_factory=dict)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ranks", type=int, default=int(os.environ.get("RANKS", "2")))
    add("--out", type=Path, default=Path("out"))
    add("--data", type=Path, help="folder of text files, or JSON lines with `text` or `messages`")
    add("--steps", type=int, default=30, help="steps that count")
    add("--warm-up-steps", type=int, default=2, help="steps before them")
    add("--samples-per-rank", type=int, default=4, help="of a minibatch, on average")
    add(
        "--cap",
        type=int,
        default=2048,
        help="tokens at which a sample is cut; also a microbatch's limit",
    )
    add("--hidden", type=int, default=128)
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=4)
    add("--intermediate", type=int, default=344)
    add("--seed", type=int, default=0)
    add(
        "--limit",
        type=float,
        default=240.0,
        metavar="SECONDS",
        help="longest the set-up of all arms may take, and each turn",
    )
    options = parser.parse_args()
    if options.ranks < 1:
        parser.error(f"--ranks {options.ranks}: at least one")
    if options.steps < 1 or options.warm_up_steps < 0:
        parser.error("--steps must be at least 1 and --warm-up-steps at least 0")
    return options


def model_arguments(options: argparse.Namespace) -> list[str]:
    names = ("cap", "hidden", "layers", "heads", "intermediate", "seed")
    shape = [f"--{name}={getattr(options, name)}" for name in names]
    return [*shape, f"--kv-heads={options.heads}"]


def measure_costs(options: argparse.Namespace, work: Path) -> dict:
    costs = work / "costs.json"
    arguments = [*model_arguments(options), f"--write={costs}"]
    run_to_end("sft_costs.py", arguments, options.ranks, options.limit, work / "costs.log")
    return json.loads(costs.read_text())


def arm_arguments(arm: Arm, options: argparse.Namespace, data: Path, work: Path) -> list[str]:
    metrics, trace = _files_of(arm, work)
    arguments = [
        *model_arguments(options),
        f"--engine={arm.engine}",
        f"--strategy={arm.strategy}",
        f"--data={data}",
        f"--minibatch={options.samples_per_rank * options.ranks}",
        f"--costs={work / 'costs.json'}",
        f"--steps={options.warm_up_steps + options.steps}",
        f"--metrics={metrics}",
        f"--timeline={trace}",
    ]
    if arm.worker_threads:
        arguments.append("--worker-threads")
    return arguments


def run_arms(
    options: argparse.Namespace, data: Path, work: Path, say: Callable[[str], None]
) -> dict[str, ArmRun]:
    """All arms at once, each in processes of its own, which take turns from step to step."""
    launched: dict[str, Launched] = {}
    try:
        with Turns(options.limit) as turns:
            for arm in ARMS:
                alone = arm.engine == "single"
                seat = turns.seat(arm.name, 1 if alone else options.ranks)
                arguments = [*arm_arguments(arm, options, data, work), f"--turns={seat}"]
                log = work / f"{arm.name}.log"
                ranks = 0 if alone else options.ranks
                launched[arm.name] = launch(arm.name, "sft.py", arguments, ranks, log)
            for done in turns.rounds(lambda name: launched[name].ended()):
                if done % SAY_EVERY == 0:
                    say(f"{done} of {options.warm_up_steps + options.steps} steps of every arm")
    finally:
        end(tuple(launched.values()))
    return {arm.name: ArmRun(arm, *map(_read, _files_of(arm, work))) for arm in ARMS}


def _files_of(arm: Arm, work: Path) -> tuple[Path, Path]:
    return work / f"{arm.name}.metrics.jsonl", work / f"{arm.name}.trace.jsonl"


def _read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def summarise(run: ArmRun, warm_up: int) -> None:
    """Means over the steps that count; memory is the largest."""
    steps = run.metrics[warm_up:]

    def mean(name: str) -> float:
        return sum(step[name] for step in steps) / len(steps)

    total_ms = sum(step["step_ms"] for step in steps)
    predicted = [step["predicted_ms"] for step in steps]
    run.summary = {
        "step_ms": total_ms / len(steps),
        "tokens_per_s": sum(step["tokens"] for step in steps) * 1e3 / total_ms,
        "waiting_ms": mean("waiting_ms"),
        "moving_ms": mean("moving_ms"),
        "update_ms": mean("update_ms"),
        "cpu_ms": mean("cpu_ms"),
        "bytes": mean("bytes"),
        "memory": max(step["memory"] for step in steps),
        "losses": [step["loss"] for step in steps],
        "step_ms_each": [step["step_ms"] for step in steps],
        "predicted_ms": sum(predicted) / len(steps),
    }


def compare(runs: dict[str, ArmRun]) -> None:
    """Speedups over the baseline; loss differences to the reference in every step, warm-up too."""
    base, stock = runs[BASELINE].summary, runs["stock"].summary
    reference = [step["loss"] for step in runs[REFERENCE].metrics]
    for name, run in runs.items():
        summary = run.summary
        losses = [step["loss"] for step in run.metrics]
        differences = [
            abs(loss - right) / abs(right) for loss, right in zip(losses, reference, strict=True)
        ]
        summary["loss_difference"] = {"first": differences[0], "largest": max(differences)}
        summary["loss_differences"] = differences
        summary["speedup"] = base["step_ms"] / summary["step_ms"]
        summary["speedup_over_stock"] = stock["step_ms"] / summary["step_ms"]
        summary["predicted_speedup"] = (
            None if name == REFERENCE else base["predicted_ms"] / summary["predicted_ms"]
        )


def compare_rounds(runs: dict[str, ArmRun]) -> None:
    """Each step's speedup over stock's step of the same round, and the quartiles of these."""
    stock = runs["stock"].summary["step_ms_each"]
    quarters = torch.tensor((0.25, 0.5, 0.75), dtype=torch.float64)
    for run in runs.values():
        both = zip(stock, run.summary["step_ms_each"], strict=True)
        each = torch.tensor([theirs / own for theirs, own in both], dtype=torch.float64)
        run.summary["over_stock_each"] = each.tolist()
        run.summary["over_stock_quartiles"] = each.quantile(quarters).tolist()


def check(runs: dict[str, ArmRun]) -> list[str]:
    """What is wrong with the losses, in sentences."""
    problems = []
    for name, run in runs.items():
        difference = run.summary["loss_difference"]
        if not difference["first"] <= FIRST_STEP_LIMIT:
            problems.append(
                f"{name}: the first step's loss is {difference['first']:.2e} (relative) off the "
                f"reference's, more than {FIRST_STEP_LIMIT:g}"
            )
        if not difference["largest"] <= ANY_STEP_LIMIT:
            problems.append(
                f"{name}: a step's loss is {difference['largest']:.2e} (relative) off the "
                f"reference's, more than {ANY_STEP_LIMIT:g}"
            )
    return problems


def table(runs: dict[str, ArmRun], options: argparse.Namespace) -> Table:
    result = Table(
        title=f"{options.ranks} ranks, {options.steps} steps after "
        f"{options.warm_up_steps} of warm-up",
        box=box.SIMPLE_HEAD,
    )
    result.add_column("arm", no_wrap=True)
    columns = (
        "step\nms",
        "tokens/s",
        "waiting\nms a rank",
        "moved\nMB a step",
        "memory\nMB a rank",
        "loss off\nby",
        "speedup\nover none",
        "predicted",
        "over\nstock",
        "a step: median\n(quartiles)",
    )
    for column in columns:
        result.add_column(column, justify="right")
    for run in runs.values():
        own = run.summary
        predicted = own["predicted_speedup"]
        low, median, high = own["over_stock_quartiles"]
        result.add_row(
            run.arm.title,
            f"{own['step_ms']:.0f}",
            f"{own['tokens_per_s']:,.0f}",
            f"{own['waiting_ms']:.0f}",
            f"{own['bytes'] / 1e6:.0f}",
            f"{own['memory'] / 1e6:.0f}",
            f"{own['loss_difference']['largest']:.0e}",
            f"{own['speedup']:.2f}",
            "-" if predicted is None else f"{predicted:.2f}",
            f"{own['speedup_over_stock']:.2f}",
            f"{median:.2f} ({low:.2f}–{high:.2f})",
        )
    return result


def demo(options: argparse.Namespace) -> int:
    work = options.out / "demo"
    work.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    data = options.data
    if data is None:
        data = work / "data.jsonl"
        sft_data.write_json_lines(sft_data.standard_library_texts(), data)

    def say(what: str) -> None:
        rich.print(f"[dim]{time.monotonic() - begin:5.0f} s[/dim]  {what}")

    say("measuring what samples cost on this machine")
    costs = measure_costs(options, work)
    say("setting all arms up: " + ", ".join(arm.name for arm in ARMS))
    runs = run_arms(options, data, work, say)
    for run in runs.values():
        summarise(run, options.warm_up_steps)
    compare(runs)
    compare_rounds(runs)
    problems = check(runs)

    results = {
        "settings": {
            "ranks": options.ranks,
            "steps": options.steps,
            "warm_up_steps": options.warm_up_steps,
            "samples_per_minibatch": options.samples_per_rank * options.ranks,
            "cap_tokens": options.cap,
            "parameters": costs["parameters"],
            "seed": options.seed,
            "baseline": BASELINE,
        },
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "costs": costs,
        "problems": problems,
        "seconds": time.monotonic() - begin,
        "arms": {name: run.summary for name, run in runs.items()},
    }
    (options.out / "demo.json").write_text(json.dumps(results, indent=1) + "\n")
    report = options.out / "report.html"
    titles = {name: run.arm.title for name, run in runs.items()}
    traces = {name: run.trace[options.warm_up_steps :] for name, run in runs.items()}
    report.write_text(write_report(results, titles, traces), encoding="utf-8")

    Console(width=TABLE_WIDTH).print(table(runs, options))
    say(f"numbers in {options.out / 'demo.json'}, pictures in {report}")
    for problem in problems:
        rich.print(f"[red]wrong:[/red] {problem}")
    return 1 if problems else 0


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends the arms too
    try:
        sys.exit(demo(parse()))
    except (Failure, TimeoutError) as failure:
        print(f"demo: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
