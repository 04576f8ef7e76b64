"""Lists dealt into parts of like sums, with the contract of verl's balancing function."""

from collections.abc import Sequence

from headrace._engine import karmarkar_karp


def balanced_partitions(
    seqlen_list: Sequence[float], k_partitions: int, equal_size: bool = False
) -> list[list[int]]:
    """Deals indices of `seqlen_list` into `k_partitions` parts whose sums of values are alike, by
    the largest differencing method of Karmarkar and Karp.

    A drop-in for verl's `get_seqlen_balanced_partitions`: same arguments, every index once, each
    part sorted and none empty; with `equal_size` all parts have as many. Values are finite and not
    negative, whole or not; a one-dimensional tensor or array will do. Raises AssertionError, as
    verl does, where there are fewer values than parts or equal sizes are impossible.
    """
    values = [float(value) for value in seqlen_list]
    assert len(values) >= k_partitions, (
        f"number of items:[{len(values)}] < k_partitions:[{k_partitions}]"
    )
    assert not equal_size or len(values) % k_partitions == 0, f"{len(values)} % {k_partitions} != 0"
    parts = [sorted(part) for part in karmarkar_karp(values, k_partitions, equal_size)]
    assert all(parts), f"the {parts.index([])}-th partition is empty"
    return parts
