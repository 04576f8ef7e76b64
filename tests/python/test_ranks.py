"""What the tests' own ranks promise."""

from pathlib import Path

import torch
import torch.distributed as dist
from support.ranks import Ranks
from torch.distributed.device_mesh import init_device_mesh

_worker = "pt_gloo_runloop"
_operations = 20  # after which every worker of a group has taken one


def workers() -> int:
    names = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return sum(name.strip() == _worker for name in names)


def made(rank: int, world: int) -> tuple[int, int]:
    """Gloo's worker threads, and groups: made in each of the ways that the tests use."""
    default, second = dist.group.WORLD, dist.new_group(list(range(world)))
    alone = init_device_mesh("cpu", (world, 1), mesh_dim_names=("all", "alone")).get_group("alone")
    for group in (default, second, alone):
        assert dist.get_backend(group) == "gloo"
        for _ in range(_operations):
            dist.all_reduce(torch.ones(1), group=group)
    return workers(), len(dist.distributed_c10d._world.pg_map)


def test_each_gloo_group_has_one_worker_so_that_torchs_cannot_race() -> None:
    with Ranks(2) as ranks:
        for threads, groups in ranks.run(made):
            assert threads == groups == 3
