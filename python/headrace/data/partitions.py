"""Lists dealt into parts of like sums, with the contract of verl's balancing function."""

from collections.abc import Sequence

from headrace._engine import CostModel, plan

_scaled_largest = 2**40  # of values that are no whole numbers, once they are made such


def balanced_partitions(
    seqlen_list: Sequence[float], k_partitions: int, equal_size: bool = False
) -> list[list[int]]:
    """Deals indices of `seqlen_list` into `k_partitions` parts whose sums of values are alike.

    A drop-in for verl's `get_seqlen_balanced_partitions`: same arguments, every index once, each
    part sorted and none empty; with `equal_size` all parts have as many. Values are positive, whole
    or not; a one-dimensional tensor or array will do. Raises AssertionError, as verl does, where
    there are fewer values than parts or equal sizes are impossible.
    """
    values = [float(value) for value in seqlen_list]
    assert len(values) >= k_partitions, (
        f"number of items:[{len(values)}] < k_partitions:[{k_partitions}]"
    )
    assert not equal_size or len(values) % k_partitions == 0, f"{len(values)} % {k_partitions} != 0"
    whole = all(value.is_integer() for value in values)
    scale = 1.0 if whole else _scaled_largest / max(values)
    lengths = [round(value * scale) for value in values]
    made = plan(lengths, k_partitions, sum(lengths), "lb-mini", CostModel(0.0, 1.0))
    return [sorted(s for micro in rank for s in micro.samples) for rank in made.ranks]
