"""Trains one small Llama several ways on the same data and shows what Headrace saves.

    python examples/demo.py                    # two ranks of one thread each
    RANKS=4 python examples/demo.py

Arms: stock FSDP2 over gloo with lb-micro; Headrace in lockstep with lb-micro; Headrace on demand
with none, lb-micro and lb-mini; one process as the reference. Prints a table, writes report.html
and demo.json into --out, and exits with 1 where an arm's loss is not the reference's.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import rich
import sft_data
import torch
from demo_report import write_report
from rich import box
from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent
FIRST_STEP_LIMIT = 1e-5  # relative difference of the loss to the reference
ANY_STEP_LIMIT = 1e-4
BASELINE = "none"  # speedups, measured and predicted, are over on-demand without balancing
REFERENCE = "reference"
TABLE_WIDTH = 132  # columns; also where the output is no terminal


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
    add("--limit", type=float, default=240.0, metavar="SECONDS", help="longest an arm may take")
    options = parser.parse_args()
    if options.ranks < 1:
        parser.error(f"--ranks {options.ranks}: at least one")
    if options.steps < 1 or options.warm_up_steps < 0:
        parser.error("--steps must be at least 1 and --warm-up-steps at least 0")
    return options


class Failure(Exception):
    """Something the user should read without a traceback."""


def launch(script: str, arguments: list[str], ranks: int, limit: float, log: Path) -> None:
    """Runs a script of this folder, by torchrun where `ranks` is not 0; at most `limit` seconds."""
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(EXAMPLES / script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"{script} was ended after {limit:.0f} s; its output: {log}") from None
        finally:
            _end(process)
    if code != 0:
        raise Failure(f"{script} ended with {code}, see {log}:\n{_first_words(log)}")


def _first_words(log: Path, lines: int = 30) -> str:
    """What the ranks said last before the launcher reported their end."""
    said = log.read_text(errors="replace").splitlines()
    launcher = [n for n, line in enumerate(said) if "torch/distributed/elastic" in line]
    end = launcher[0] if launcher else len(said)
    return "\n".join(said[max(0, end - lines) : end])


def _end(process: subprocess.Popen) -> None:
    """Ends the launcher; it ends its ranks when told to, so it gets time for that first."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def model_arguments(options: argparse.Namespace) -> list[str]:
    names = ("cap", "hidden", "layers", "heads", "intermediate", "seed")
    shape = [f"--{name}={getattr(options, name)}" for name in names]
    return [*shape, f"--kv-heads={options.heads}"]


def measure_costs(options: argparse.Namespace, work: Path) -> dict:
    costs = work / "costs.json"
    arguments = [*model_arguments(options), f"--write={costs}"]
    launch("sft_costs.py", arguments, options.ranks, options.limit, work / "costs.log")
    return json.loads(costs.read_text())


def run_arm(arm: Arm, options: argparse.Namespace, data: Path, work: Path) -> ArmRun:
    metrics, trace = work / f"{arm.name}.metrics.jsonl", work / f"{arm.name}.trace.jsonl"
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
    ranks = options.ranks
    if arm.engine == "single":
        ranks = 0
    launch("sft.py", arguments, ranks, options.limit, work / f"{arm.name}.log")
    return ArmRun(arm, _read(metrics), _read(trace))


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
    )
    for column in columns:
        result.add_column(column, justify="right")
    for run in runs.values():
        own = run.summary
        predicted = own["predicted_speedup"]
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
    runs: dict[str, ArmRun] = {}
    for arm in ARMS:
        say(arm.title)
        runs[arm.name] = run_arm(arm, options, data, work)
        summarise(runs[arm.name], options.warm_up_steps)
    compare(runs)
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
    try:
        sys.exit(demo(parse()))
    except Failure as failure:
        print(f"demo: {failure}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
