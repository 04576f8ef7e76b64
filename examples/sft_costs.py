"""Measures what samples of different lengths cost to train, and fits the balancer's cost model.

    torchrun --nproc-per-node 2 examples/sft_costs.py --write costs.json
    torchrun --nproc-per-node 2 examples/sft.py --costs costs.json ...

All ranks measure at once, as in training, with the engine that will train.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import sft
import sft_data
import sft_model
import torch
import torch.distributed as dist
from headrace.data import CostModel
from sft_engines import ENGINES, Engine

SHARES_OF_CAP = (32, 16, 8, 4, 2, 1)  # lengths measured: cap / 32 to cap


def parse() -> tuple[argparse.Namespace, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, required=True, help="where to put the coefficients")
    parser.add_argument("--rounds", type=int, default=5, help="the median counts, after one more")
    own, others = parser.parse_known_args()
    return own, sft.parse(others)


def measure(engine: Engine, model: torch.nn.Module, length: int) -> float:
    """Milliseconds of one microbatch with one sample of `length` tokens."""
    generator = torch.Generator().manual_seed(length)
    sample = torch.randint(0, model.config.vocab_size, (length,), generator=generator)
    with engine.minibatch(sft_data.pack.targets(sample), plan=0):
        begin = time.monotonic_ns()
        engine.backward(sft_model.loss_sum(model, sft_data.pack([sample])))
        took = (time.monotonic_ns() - begin) / 1e6
    model.zero_grad()
    return took


def medians(engine: Engine, model: torch.nn.Module, lengths: list[int], rounds: int) -> list[float]:
    """Of each length; a round measures all, so that a slow moment meets them alike."""
    times = [[measure(engine, model, length) for length in lengths] for _ in range(1 + rounds)]
    return [statistics.median(column) for column in zip(*times[1:], strict=True)]


def mean_over_ranks(values: list[float]) -> list[float]:
    if not dist.is_initialized():
        return values
    together = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(together)
    return (together / dist.get_world_size()).tolist()


def main() -> None:
    own, options = parse()
    torch.set_num_threads(options.threads)
    with sft.process_group(options.engine) as (rank, _):
        tokenizer = sft_data.load_tokenizer(options.tokenizer)
        model = sft.build_model(options, sft_data.vocabulary(tokenizer))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        engine = ENGINES[options.engine](model)
        lengths = sorted({max(2, options.cap // share) for share in SHARES_OF_CAP})
        times = mean_over_ranks(medians(engine, model, lengths, own.rounds))
        engine.close()
        if rank == 0:
            points = list(zip(lengths, times, strict=True))
            cost = CostModel.fit(points, with_microbatch=True)
            facts = {
                "quadratic": cost.quadratic,
                "linear": cost.linear,
                "per_microbatch": cost.per_microbatch,
                "unit": "ms",
                "points": points,
                "parameters": parameters,
            }
            own.write.write_text(json.dumps(facts) + "\n")
    sft.end_process()


if __name__ == "__main__":
    main()
