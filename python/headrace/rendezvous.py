"""An all-gather of small blobs over a process group's store: how ranks meet before the engine is
wired."""

import time

import torch.distributed as dist
from torch.distributed import distributed_c10d

from headrace.errors import OperationError, PeerError

_poll_seconds = (0.001, 0.05)  # first and longest pause between two looks at the store


class Rendezvous:
    """One attach on every rank of `group`. Needs no collective, so a rank that fails can still say
    so.

    Keys are unique to this attach: each rank counts its own attaches in the store, and all ranks of
    a group attach in the same order.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank: int = group.rank()
        self.world_size: int = group.size()
        self._store = distributed_c10d._world.pg_map[group][1]
        attach = self._store.add(f"headrace/attaches/{self.rank}", 1)
        self._prefix = f"headrace/{attach}"
        self._round = 0

    def exchange(self, mine: bytes, seconds: float) -> list[bytes]:
        """What every rank gave, in rank order. Raises PeerError naming the ranks missing after
        `seconds`."""
        keys = [f"{self._prefix}/{self._round}/{rank}" for rank in range(self.world_size)]
        self._round += 1
        self._store.set(keys[self.rank], mine)
        self._wait(keys, seconds)
        return [self._store.get(key) for key in keys]

    def _wait(self, keys: list[str], seconds: float) -> None:
        # Looked at in turns, so that Ctrl-C works and no half-read reply is left behind.
        deadline = time.monotonic() + seconds
        pause, longest = _poll_seconds
        while not self._store.check(keys):
            if time.monotonic() > deadline:
                missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
                raise PeerError(
                    f"rank {self.rank} waited {seconds:g} s at attach for rank(s) "
                    f"{', '.join(map(str, missing))}: call headrace.attach on every rank of the "
                    "shard mesh, or raise bootstrap_seconds",
                    rank=missing[0] if missing else -1,
                )
            time.sleep(pause)
            pause = min(2 * pause, longest)


def default_group() -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise OperationError(
            "no process group: call torch.distributed.init_process_group (or use torchrun) and "
            "fully_shard before headrace.attach"
        )
    return distributed_c10d._get_default_group()
