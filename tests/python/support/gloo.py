"""Gloo groups whose operations are worked off by one thread.

A gloo group of torch 2.13 has two worker threads, and each assigns the name of the operation that
it has completed to one std::string of the group, with no lock held (ProcessGroupGloo::runLoop). A
name of more than 15 characters lies on the heap: that of the all-gather in DTensor.full_tensor. Two
workers that assign at once free it twice, and the process dies in a later allocation, mostly with
"malloc(): unaligned tcache chunk detected". gloo_race.py shows it with torch alone. A single worker
has nobody to race with, and leaves everything else of the process as it was.
"""

import os
from datetime import timedelta

from torch.distributed import ProcessGroupGloo, Store

_stock_init = ProcessGroupGloo.__init__


def use_one_worker() -> None:
    """For every group that this process makes from now on, over GLOO_SOCKET_IFNAME."""
    ProcessGroupGloo.__init__ = _init_with_one_worker


def _init_with_one_worker(
    self: ProcessGroupGloo, store: Store, rank: int, size: int, timeout: timedelta
) -> None:
    options = ProcessGroupGloo._Options()
    interface = os.environ["GLOO_SOCKET_IFNAME"]
    options._devices = [ProcessGroupGloo.create_device(interface=interface)]
    options._threads = 1
    options._timeout = timeout
    _stock_init(self, store, rank, size, options)
