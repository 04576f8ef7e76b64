#!/usr/bin/env python3
"""Measures what on-demand saves at each minibatch size (docs/replay.md), by `headrace replay`."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = os.environ.get("HEADRACE", Path(sys.executable).with_name("headrace"))
WORKLOADS = ("longalign", "swe-smith", "rollouts")
STEPS = {1: 12, 2: 10, 4: 8, 8: 5, 16: 3}  # by samples a rank: about as long each
ON_DEMAND, LOCKSTEP = "on-demand lb-mini", "lockstep lb-micro"
VERL, PACKED = "lockstep verl-native", "packed lb-micro"
PUBLISHED_PEAK = 1.36


def measure(workload: str, samples: int, communication: float) -> dict[str, Any]:
    """One case, as `headrace replay` gives it, with its workload."""
    command = [PROGRAM, "replay", "--lengths", workload, "--samples-per-rank", str(samples)]
    command += ["--steps", str(STEPS[samples]), "--communication", str(communication), "--json"]
    for arm in (ON_DEMAND, LOCKSTEP, VERL, PACKED):
        command += ["--arm", arm.replace(" ", ":")]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return {"workload": workload, **json.loads(result.stdout)}


def arms(case: dict[str, Any]) -> dict[str, Any]:
    return {arm["name"]: arm for arm in case["arms"]}


def gain(case: dict[str, Any], slow: str, measured: str = "total_ms") -> float:
    """How many times as long as on-demand's the steps of `slow` take."""
    return arms(case)[slow][measured] / arms(case)[ON_DEMAND][measured]


def table(cases: list[dict[str, Any]]) -> None:
    print(
        "| lengths | samples a rank | on-demand step, ms | over ideal | comm. / compute | hidden "
        "| lockstep over its ideal | on-demand over lockstep | predicted | share "
        "| over verl-native | predicted | over packed |"
    )
    print("|---|" + "---:|" * 12)
    for case in cases:
        on_demand, lockstep = arms(case)[ON_DEMAND], arms(case)[LOCKSTEP]
        measured, predicted = gain(case, LOCKSTEP), gain(case, LOCKSTEP, "ideal_total_ms")
        print(
            f"| {case['workload']} | {case['samples_per_rank']} | {on_demand['step_ms']:.0f} "
            f"| {on_demand['over_ideal']:.3f} | {on_demand['communication_over_compute']:.1%} "
            f"| {on_demand['overlap']:.0%} | {lockstep['over_ideal']:.3f} | {measured:.2f} "
            f"| {predicted:.2f} | {measured / predicted:.3f} | {gain(case, VERL):.2f} "
            f"| {gain(case, VERL, 'ideal_total_ms'):.2f} | {gain(case, PACKED):.2f} |"
        )


def plot(cases: list[dict[str, Any]], picture: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"  # the same file from the same figures
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(WORKLOADS), figsize=(11, 3.4), sharey=True)
    for axis, workload in zip(axes, WORKLOADS, strict=True):
        rows = [case for case in cases if case["workload"] == workload]
        samples = [case["samples_per_rank"] for case in rows]
        for slow, colour in ((LOCKSTEP, "tab:blue"), (VERL, "tab:orange")):
            axis.plot(samples, [gain(c, slow) for c in rows], "o-", color=colour, label=slow)
            ideal = [gain(c, slow, "ideal_total_ms") for c in rows]
            axis.plot(samples, ideal, ":", color=colour, label=f"{slow}, compute alone")
        axis.axhline(PUBLISHED_PEAK, color="grey", linewidth=0.8, label="published peak")
        axis.set_xscale("log", base=2)
        axis.set_xticks(samples, [str(count) for count in samples])
        axis.set_title(workload)
        axis.set_xlabel("samples a rank")
    axes[0].set_ylabel("step time over on-demand's")
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize="small")
    figure.savefig(picture, metadata={"Date": None})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("measure", help="a few minutes a workload; appends")
    verb.add_argument("figures", type=Path)
    verb.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    verb.add_argument(
        "--communication",
        type=float,
        default=0.25,
        help="over compute, as calibrated with all ranks communicating at once (default: 0.25)",
    )
    verb = verbs.add_parser("table", help="the tables of docs/replay.md")
    verb.add_argument("figures", type=Path)
    verb = verbs.add_parser("plot", help="needs matplotlib")
    verb.add_argument("figures", type=Path)
    verb.add_argument("picture")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.verb == "measure":
        with options.figures.open("a") as out:
            for workload in options.workloads or WORKLOADS:
                for samples in STEPS:
                    case = measure(workload, samples, options.communication)
                    print(json.dumps(case), file=out, flush=True)
        return
    cases = [json.loads(line) for line in options.figures.read_text().splitlines()]
    if options.verb == "table":
        table(cases)
    else:
        plot(cases, options.picture)


if __name__ == "__main__":
    main()
