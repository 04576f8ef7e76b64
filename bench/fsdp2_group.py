"""Gather and push, or all-gather and reduce-scatter in lockstep, of one real FSDP2 parameter group,
through Headrace and stock gloo, in one run.

    torchrun --standalone --nproc-per-node 2 bench/fsdp2_group.py --mib 64 --json
    torchrun --standalone --nproc-per-node 2 bench/fsdp2_group.py --mib 64 --mode lockstep

Both sides run FSDP2's own unshard, reshard and post-backward, so allocation, views and bookkeeping
are in both times; freed memory stays resident for both. A round lasts from the first rank's begin
to the last rank's end. Prints what `headrace bench` prints: one line, or one JSON object a case.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import headrace
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

# Fifteen tensors a layer, in parts of 1,000 of its elements, as in bench/bench_group.cc.
parts = (240, 240, 240, 90, 90, 30, 30, 20, 8, 4, 2, 2, 2, 1, 1)
layers = 2
matrices = 8
row_elements = 1024


# By mode: what the two operations are called. In lockstep there are no brackets.
names = {
    "on-demand": {"gather": "fsdp2_gather", "push": "fsdp2_push"},
    "lockstep": {"gather": "fsdp2_all_gather", "push": "fsdp2_reduce_scatter"},
}

Span = tuple[int, int]  # monotonic nanoseconds, one clock for all processes of a host


class Group(nn.Module):
    """30 bf16 tensors, about `mib` MiB in all."""

    def __init__(self, mib: int) -> None:
        super().__init__()
        elements = mib * 2**20 // 2
        self.tensors = nn.ParameterList()
        for _ in range(layers):
            for i, part in enumerate(parts):
                size = max(1, elements // layers * part // 1000)
                shape = (-(-size // row_elements), row_elements) if i < matrices else (size,)
                self.tensors.append(nn.Parameter(torch.randn(shape).bfloat16()))


def sharded(mib: int) -> FSDPModule:
    torch.manual_seed(0)
    model = fully_shard(Group(mib), mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    model._get_fsdp_state()._lazy_init()
    return model


def group_of(model: FSDPModule):
    return model._get_fsdp_state()._fsdp_param_group


def unshard(model: FSDPModule) -> None:
    group = group_of(model)
    group.unshard()
    group.wait_for_unshard()


def unshard_and_reshard(model: FSDPModule) -> None:
    unshard(model)
    group_of(model).reshard()


def give_gradients(model: FSDPModule, gradients: list[torch.Tensor]) -> None:
    unshard(model)
    for param, gradient in zip(group_of(model).fsdp_params, gradients, strict=True):
        param.unsharded_param.grad = gradient.clone()


def post_backward(model: FSDPModule) -> None:
    group_of(model).post_backward()


def finalise(model: FSDPModule) -> None:
    group_of(model).finalize_backward()
    group_of(model).comm_ctx.reduce_scatter_states.clear()


def timed(work: Callable[[], None]) -> Span:
    dist.barrier()
    begin = time.monotonic_ns()
    work()
    return begin, time.monotonic_ns()


Bracket = Callable[[], AbstractContextManager[None]]


def gather_round(bracket: Bracket, ours: FSDPModule, stock: FSDPModule) -> list[Span]:
    with bracket():
        dist.barrier()  # every rank has published: publishing is not part of a gather
        mine = timed(lambda: unshard_and_reshard(ours))
    return [mine, timed(lambda: unshard_and_reshard(stock))]


def push_round(
    bracket: Bracket, ours: FSDPModule, stock: FSDPModule, gradients: list[torch.Tensor]
) -> list[Span]:
    with bracket():
        give_gradients(ours, gradients)
        mine = timed(lambda: post_backward(ours))
        finalise(ours)
    give_gradients(stock, gradients)
    theirs = timed(lambda: post_backward(stock))
    finalise(stock)
    for a, b in zip(ours.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(a.grad.to_local(), b.grad.to_local(), rtol=2e-2, atol=1e-3)
        a.grad = b.grad = None
    return [mine, theirs]


def milliseconds(rounds: list[list[Span]]) -> list[list[float]]:
    """Every arm's rounds over all ranks."""
    begin, end = torch.tensor(rounds).unbind(-1)
    dist.all_reduce(begin := begin.contiguous(), dist.ReduceOp.MIN)
    dist.all_reduce(end := end.contiguous(), dist.ReduceOp.MAX)
    return ((end - begin).T / 1e6).tolist()


def result(bench: str, mib: int, rounds: list[list[Span]]) -> dict:
    ours, gloo = milliseconds(rounds)

    def spread(values: list[float]) -> list[float]:
        low, middle, high = statistics.quantiles(values, n=4)
        return [round(low / middle, 3), round(high / middle, 3)]

    return {
        "bench": bench,
        "case": {
            "ranks": dist.get_world_size(),
            "mib": mib,
            "tensors": layers * len(parts),
            "dtype": "bfloat16",
        },
        "ms": round(statistics.median(ours), 3),
        "peers": {"gloo": round(statistics.median(gloo), 3)},
        "ratios": {
            "gloo": round(statistics.median(b / a for a, b in zip(ours, gloo, strict=True)), 3)
        },
        "spread": {bench: spread(ours), "gloo": spread(gloo)},
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
        },
        "versions": {"headrace": headrace.__version__, "torch": torch.__version__},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=64, help="size of the unsharded group in MiB")
    parser.add_argument("--mode", choices=names, default="on-demand")
    parser.add_argument(
        "--operations",
        nargs="+",
        choices=names["on-demand"],
        default=list(names["on-demand"]),
        help="push takes about three times the memory of gather",
    )
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds after 3 of warm-up")
    parser.add_argument("--json", action="store_true", help="one JSON object a case and line")
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ours, stock = sharded(options.mib), sharded(options.mib)
    engine = headrace.attach(ours, mode=options.mode)
    evaluation, minibatch = engine.evaluation, engine.minibatch
    if options.mode == "lockstep":
        evaluation = minibatch = nullcontext

    def gather() -> Callable[[], list[Span]]:
        return lambda: gather_round(evaluation, ours, stock)

    def push() -> Callable[[], list[Span]]:
        torch.manual_seed(dist.get_rank())
        sizes = [param._orig_size for param in group_of(stock).fsdp_params]
        gradients = [torch.randn(size).bfloat16() for size in sizes]
        return lambda: push_round(minibatch, ours, stock, gradients)

    prepare = {"gather": gather, "push": push}
    for operation in options.operations:
        run = prepare[operation]()
        name = names[options.mode][operation]
        rounds = [run() for _ in range(3 + options.rounds)][3:]
        line = result(name, options.mib, rounds)
        if dist.get_rank() == 0:
            if options.json:
                print(json.dumps(line), flush=True)
            else:
                ratio = line["ratios"]["gloo"]
                print(
                    f"{name} {options.mib} MiB, {dist.get_world_size()} ranks: "
                    f"{line['ms']:.2f} ms, "
                    f"gloo {line['peers']['gloo']:.2f} ms ({ratio:.2f}x)",
                    flush=True,
                )
    engine.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
