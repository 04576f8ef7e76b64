"""The balancer beside a Python peer: verl's own Karmarkar-Karp where its wheel is given, otherwise
the same method written plainly below. Ours comes from the lines of `headrace bench balance --json`.

    headrace bench balance --json >lines; python bench/balance_peer.py lines [verl-*.whl] [--json]

Nothing of verl is imported: one function is taken from one file of the wheel. 40 s or so.
"""

from __future__ import annotations

import argparse
import ast
import heapq
import json
import statistics
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace._engine import CostModel, workload_lengths

Partition = Callable[[list[int], int, bool], list[list[int]]]

_module = "verl/utils/seqlen_balancing.py"
_function = "karmarkar_karp"
_seed = 1  # of the lengths, as in balance_bench.cc
_scale = 1e9  # the peers add integers


def verl_partition(wheel: Path) -> Partition:
    """verl's function, compiled from its text; it needs heapq alone."""
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(_module))
    body: list[ast.stmt] = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _function
    ]
    scope: dict[str, Any] = {"heapq": heapq}
    exec(compile(ast.Module(body, type_ignores=[]), f"{wheel.name}/{_module}", "exec"), scope)
    return scope[_function]


def plain_partition(costs: list[int], parts: int, equal_size: bool) -> list[list[int]]:
    """The largest differencing method as it reads, items in lists."""

    def entry(sets: list[tuple[int, list[int]]]) -> tuple[int, int, list[tuple[int, list[int]]]]:
        sets.sort(key=lambda one: one[0], reverse=True)
        return (sets[-1][0] - sets[0][0], next(number), sets)

    number = iter(range(2 * len(costs) + 1))
    order = sorted(range(len(costs)), key=costs.__getitem__)
    row = parts if equal_size else 1
    heap = []
    for begin in range(0, len(order), row):
        sets = [(costs[i], [i]) for i in order[begin : begin + row]]
        heap.append(entry(sets + [(0, []) for _ in range(parts - len(sets))]))
    heapq.heapify(heap)
    while len(heap) > 1:
        _, _, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        pairs = zip(first, reversed(second), strict=True)
        heapq.heappush(heap, entry([(a + b, x + y) for (a, x), (b, y) in pairs]))
    return [items for _, items in heap[0][2]]


def two_level(
    partition: Partition, lengths: list[int], costs: list[int], ranks: int, cap: int
) -> list[list[list[int]]]:
    """A minibatch as verl plans it: as many samples on every rank, then ceil(total / cap)
    microbatches, one more for as long as one breaks the cap."""
    assigned = partition(costs, ranks, True)
    count = max(-(-sum(lengths[i] for i in samples) // cap) for samples in assigned)
    while True:
        plan = [
            [
                [samples[i] for i in part]
                for part in partition([costs[i] for i in samples], count, False)
            ]
            for samples in assigned
        ]
        if all(sum(lengths[i] for i in part) <= cap for rank in plan for part in rank):
            return plan
        count += 1


def milliseconds(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", type=Path, help="of `headrace bench balance --json`")
    parser.add_argument("wheel", type=Path, nargs="?", help="of verl")
    parser.add_argument("--json", action="store_true", help="one JSON object a case and line")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.lines.read_text().splitlines()]
    partition = verl_partition(options.wheel) if options.wheel else plain_partition
    peer = options.wheel.name.removesuffix("-py3-none-any.whl") if options.wheel else "plain_python"
    cost = CostModel.preset("1.5B")

    for line in lines:
        case = line.get("case", {})
        if line["bench"] == "karmarkar_karp" and case["variant"] == "free":
            lengths = workload_lengths("longalign", case["lengths"], _seed)
            costs = [round(cost.sample(length) * _scale) for length in lengths]
            ms = milliseconds(lambda c=costs, p=case["parts"]: partition(c, p, False), rounds=1)
        elif line["bench"] == "plan_minibatch" and case["variant"] in ("lb-micro", "lb-mini"):
            lengths = workload_lengths("longalign", case["lengths"], _seed)
            costs = [round(cost.sample(length) * _scale) for length in lengths]
            ms = milliseconds(
                lambda n=lengths, c=costs, k=case: two_level(partition, n, c, k["ranks"], k["cap"]),
                rounds=15,
            )
        else:
            continue
        ratio = ms / line["ms"]
        if options.json:
            line |= {"peers": {peer: round(ms, 3)}, "ratios": {peer: round(ratio, 1)}}
            line["bench"] += "_python"
            print(json.dumps(line), flush=True)
        else:
            what = ", ".join(f"{name} {value}" for name, value in case.items())
            print(
                f"{line['bench']} {what}: {line['ms']} ms, {peer} {ms:.1f} ms ({ratio:.0f}x)",
                flush=True,
            )


if __name__ == "__main__":
    main()
