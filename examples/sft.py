"""Fine-tunes a Llama on variable-length samples with FSDP2, through Headrace or stock collectives.

    torchrun --nproc-per-node 2 examples/sft.py --engine headrace --strategy lb-mini
    torchrun --nproc-per-node 2 examples/sft.py --engine stock --strategy lb-micro
    python examples/sft.py --engine single

Every engine and strategy sees the same samples in the same steps and takes the gradient of the same
loss: the mean over all predicted tokens of the minibatch.
"""

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sft_checkpoint
import sft_data
import sft_model
import torch
import torch.distributed as dist
import turns
from headrace import trace
from headrace.data import CostModel, minibatches
from rich.progress import Progress
from sft_engines import ENGINES, LOCKSTEP_ENGINES, Engine
from sft_trace import Micro, RankStep, figures, on_rank_0, peak_memory
from torch.distributed.fsdp import MixedPrecisionPolicy

COEFFICIENTS = (
    "quadratic",
    "linear",
    "per_microbatch",
)  # of headrace.data.CostModel, in milliseconds


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--engine", choices=sorted(ENGINES), default="headrace")
    add("--strategy", choices=["none", "lb-micro", "lb-mini"], default="lb-mini")
    add("--data", type=Path, help="folder of text files, or JSON lines with `text` or `messages`")
    add(
        "--tokenizer", type=Path, help="local directory of a Hugging Face tokenizer; default: bytes"
    )
    add("--cap", type=int, default=2048, help="tokens at which a sample is cut; default: 2048")
    add("--max-tokens", type=int, help="most tokens in a microbatch; default: --cap")
    add(
        "--minibatch",
        type=int,
        default=8,
        metavar="SAMPLES",
        help="samples a step, all ranks together; default: 8",
    )
    add("--costs", type=Path, help="JSON with measured cost coefficients, for balancing")
    add("--steps", type=int, default=100, help="default: 100")
    add("--learning-rate", type=float, default=1e-3)
    add("--warm-up", type=int, default=10, metavar="STEPS")
    add("--weight-decay", type=float, default=0.1)
    add("--clip", type=float, default=1.0, help="largest gradient norm")
    add("--seed", type=int, default=0)
    add("--model", type=Path, help="local checkpoint directory; default: random initialisation")
    shape = sft_model.ModelShape()
    add("--hidden", type=int, default=shape.hidden)
    add("--layers", type=int, default=shape.layers)
    add("--heads", type=int, default=shape.heads)
    add("--kv-heads", type=int, default=shape.kv_heads)
    add("--intermediate", type=int, default=shape.intermediate)
    add(
        "--bf16", action="store_true", help="mixed precision: compute in bf16, keep and add in fp32"
    )
    add("--activation-checkpointing", action="store_true")
    add(
        "--worker-threads",
        action="store_true",
        help="Headrace communicates beside the compute, on threads of its own",
    )
    add("--checkpoints", type=Path, help="directory for checkpoints, one at the end")
    add("--save-every", type=int, default=0, metavar="STEPS", help="default: at the end")
    add("--resume", action="store_true", help="go on from the newest checkpoint in --checkpoints")
    add("--stop-after", type=int, metavar="STEPS", help="end as if interrupted there")
    add("--metrics", type=Path, help="JSON lines, one a step")
    add(
        "--timeline",
        type=Path,
        help="JSON lines, one a step, with every rank's microbatches and transfers",
    )
    add("--trace", type=Path, help="the same of all steps, for Perfetto or chrome://tracing")
    add("--turns", type=Path, metavar="SEAT", help="where every step waits for its turn: turns.py")
    add("--threads", type=int, default=1, help="compute threads of each rank")
    options = parser.parse_args(arguments)
    if options.engine in LOCKSTEP_ENGINES and options.strategy == "lb-mini":
        parser.error(
            "--strategy lb-mini gives ranks different microbatch counts, which "
            f"--engine {options.engine} cannot run: take --strategy lb-micro"
        )
    if options.worker_threads and not options.engine.startswith("headrace"):
        parser.error(f"--worker-threads is Headrace's; --engine {options.engine} has none")
    if options.engine == "single" and options.bf16:
        parser.error("--bf16 is FSDP2's mixed precision; --engine single has none")
    if (options.resume or options.save_every) and options.checkpoints is None:
        parser.error("--resume and --save-every need --checkpoints")
    options.max_tokens = options.max_tokens or options.cap
    return options


@contextmanager
def process_group(engine: str) -> Iterator[tuple[int, int]]:
    """This process's rank and the number of ranks; with the gloo group that FSDP2 needs."""
    if engine == "single":
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError("--engine single is one process: start it without torchrun")
        yield 0, 1
        return
    if "RANK" not in os.environ:
        raise ValueError(f"--engine {engine} is started by torchrun --nproc-per-node N")
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def end_process() -> None:
    """Leaves without shutting Python down, once nothing is left to be cleaned up.

    DTensor's caches keep gloo's worker threads alive past destroy_process_group. A worker drops
    a collective's tensors at its own pace; one that needs Python's lock for it while Python shuts
    down aborts the process, which a busy machine shows in one run of ten.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def build_model(options: argparse.Namespace, vocabulary: int) -> torch.nn.Module:
    if options.model:
        model = sft_model.load(options.model, options.cap, vocabulary)
    else:
        shape = sft_model.ModelShape(
            options.hidden,
            options.layers,
            options.heads,
            options.kv_heads,
            options.intermediate,
            vocabulary,
        )
        model = sft_model.build(shape, options.cap, options.seed)
    if options.activation_checkpointing:
        sft_model.checkpoint_activations(model)
    if options.engine != "single":
        low = torch.bfloat16 if options.bf16 else None
        sft_model.shard(model, MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32))
    if options.worker_threads:
        sft_model.prefetch(model)
    return model


def read_costs(path: Path) -> CostModel:
    try:
        facts = json.loads(path.read_text())
        return CostModel(*(float(facts[name]) for name in COEFFICIENTS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--costs {path}: need JSON with {', '.join(COEFFICIENTS)}, as sft_costs.py writes "
            f"({error})"
        ) from error


def predicted_ms(minibatch, engine: str) -> float:
    """What the plan says this minibatch takes, in the cost model's unit: the costliest rank where
    ranks meet once, the sum of each microbatch's costliest rank where they meet in every layer."""
    plan = minibatch.plan
    in_step = engine in LOCKSTEP_ENGINES or (
        engine == "headrace-auto" and plan.equal_counts and plan.recommendation == "lockstep"
    )
    return plan.lockstep.makespan if in_step else plan.on_demand.makespan


def train_step(
    engine: Engine,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    minibatch,
    clip: float,
    mine: RankStep,
) -> float:
    """One optimizer step; returns the gradient norm before clipping."""
    mine.begin_ns, cpu = time.monotonic_ns(), time.process_time_ns()
    with engine.minibatch(minibatch.global_tokens, minibatch):
        for samples in minibatch:
            if not samples and not engine.lockstep:
                continue  # a filler keeps ranks in step; nobody waits for this one
            begin = time.monotonic_ns()
            batch = sft_data.pack(samples)
            engine.backward(sft_model.loss_sum(model, batch))
            lengths = batch["cu_seqlens"].diff().tolist() if samples else []
            mine.micros.append(Micro(begin, time.monotonic_ns(), lengths))
    settled = time.monotonic_ns()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    mine.end_ns, mine.cpu_ns = time.monotonic_ns(), time.process_time_ns() - cpu
    mine.update = (settled, mine.end_ns)
    return norm.item()


def train(options: argparse.Namespace, rank: int, world_size: int) -> None:
    records = (
        sft_data.records_from(options.data) if options.data else sft_data.standard_library_texts()
    )
    costs = read_costs(options.costs) if options.costs else None
    tokenizer = sft_data.load_tokenizer(options.tokenizer)
    samples = sft_data.Samples(records, options.cap, tokenizer)
    model = build_model(options, sft_data.vocabulary(tokenizer))
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=options.learning_rate,
        weight_decay=options.weight_decay,
        fused=True,  # one kernel; a loop over DTensors costs tens of milliseconds
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        functools.partial(
            sft_model.cosine_with_warm_up, warm_up=options.warm_up, steps=options.steps
        ),
    )
    batches = minibatches(
        samples,
        world_size,
        options.max_tokens,
        strategy=options.strategy,
        samples_per_minibatch=options.minibatch,
        rank=rank,
        seed=options.seed,
        length=[samples.length(index) for index in range(len(samples))],
        weight=sft_data.pack.targets,
        cost=costs,
    )
    stateful = {"scheduler": scheduler, "data": batches}
    done = 0
    if options.resume:
        done = sft_checkpoint.resume(options.checkpoints, model, optimizer, stateful)
        if rank == 0:
            print(f"resumed after step {done}", flush=True)
    settings = {"worker_threads": True} if options.worker_threads else {}
    engine = ENGINES[options.engine](model, **settings)
    last = min(options.steps, options.stop_after or options.steps)

    with ExitStack() as open_files:
        out = open_files.enter_context(Output(options, done, last)) if rank == 0 else None
        for step, minibatch in zip(range(done, last), batches.endless(), strict=False):
            turns.take(options.turns)
            mine = RankStep(rank, begin_ns=0)
            norm = train_step(engine, model, optimizer, minibatch, options.clip, mine)
            learning_rate = scheduler.get_last_lr()[0]
            scheduler.step()
            mine.events = engine.drain_events()
            mine.memory = peak_memory()
            everyone = on_rank_0(mine)
            if out and everyone:
                facts = {"learning_rate": learning_rate, "gradient_norm": norm}
                if costs:
                    facts["predicted_ms"] = predicted_ms(minibatch, options.engine)
                out.step(step, engine.loss, minibatch.global_tokens, everyone, facts)
            due = options.save_every and (step + 1) % options.save_every == 0
            if options.checkpoints and (due or step + 1 == options.steps):
                sft_checkpoint.save(options.checkpoints, step + 1, model, optimizer, stateful)
    turns.take(options.turns)  # ending takes time, too
    engine.close()


class Output:
    """Rank 0's progress bar (lines where no terminal shows it), metrics, timeline and trace."""

    def __init__(self, options: argparse.Namespace, done: int, last: int) -> None:
        self._options = options
        self._steps = (done, last)

    def __enter__(self) -> "Output":
        self._files = ExitStack()
        self._metrics = self._open(self._options.metrics)
        self._timeline = self._open(self._options.timeline)
        self._traced: dict[int, list[dict]] = {}  # by rank, written at the end
        self._progress = self._files.enter_context(Progress(disable=not sys.stdout.isatty()))
        done, last = self._steps
        self._task = self._progress.add_task("training", completed=done, total=last)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        if self._options.trace:
            trace.write(self._options.trace, self._traced)

    def _open(self, path: Path | None):
        mode = "a" if self._options.resume else "w"
        return self._files.enter_context(path.open(mode)) if path else None

    def step(
        self, step: int, loss: float, tokens: int, ranks: list[RankStep], facts: dict[str, float]
    ) -> None:
        line = {"step": step, "loss": loss, "tokens": tokens, **figures(ranks, tokens), **facts}
        description = f"loss {loss:.4f}  {line['tokens_per_s']:,.0f} tokens/s"
        self._progress.update(self._task, advance=1, description=description)
        if self._progress.disable:
            print(f"step {step + 1}/{self._steps[1]}  {description}", flush=True)
        if self._metrics:
            print(json.dumps(line), file=self._metrics, flush=True)
        if self._timeline:
            ranks_json = [rank.as_json() for rank in ranks]
            print(json.dumps({"step": step, "ranks": ranks_json}), file=self._timeline, flush=True)
        if self._options.trace:
            for rank in ranks:
                self._traced.setdefault(rank.rank, []).extend(rank.trace_events(step))


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    with process_group(options.engine) as (rank, world_size):
        train(options, rank, world_size)
    end_process()


if __name__ == "__main__":
    main()
