"""Lengths of a Parquet file's samples, one a line, for `headrace balance --lengths -`.

python -m headrace.lengths data.parquet --column input_ids | headrace balance --lengths - ...
"""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any


def lengths_of(path: str, column: str) -> Iterator[list[int]]:
    """A column's lengths, batch by batch: items of its lists, or its whole numbers as they are.
    ValueError where the file, the column or a value has none."""
    try:
        import pyarrow.compute as compute
        import pyarrow.parquet as parquet
        import pyarrow.types as types
    except ImportError as error:
        raise ValueError(f"reading Parquet needs pyarrow; pip install pyarrow ({error})") from None
    try:
        file = parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    schema = file.schema_arrow
    if column not in schema.names:
        raise ValueError(
            f"{path}: there is no column '{column}'; there are: {', '.join(schema.names)}"
        )
    kind = schema.field(column).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list and not types.is_integer(kind):
        raise ValueError(
            f"{path}: the column '{column}' holds {kind}; lengths come from whole numbers or from "
            "lists to count, such as token ids"
        )
    row = 0
    for batch in file.iter_batches(columns=[column]):
        values: Any = batch.column(0)
        found = (compute.list_value_length(values) if is_list else values).to_pylist()
        if None in found:
            raise ValueError(
                f"{path}: the column '{column}' has no value in row {row + found.index(None)}"
            )
        row += len(found)
        yield found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.lengths",
        description="Prints the length of each sample of a Parquet file, one a line.",
    )
    parser.add_argument("file")
    parser.add_argument(
        "--column",
        default="input_ids",
        help="lists whose items are counted, or whole numbers (default: input_ids)",
    )
    arguments = parser.parse_args()
    try:
        for batch in lengths_of(arguments.file, arguments.column):
            sys.stdout.write("".join(f"{length}\n" for length in batch))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away; the interpreter must not flush to it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ValueError as error:
        print(f"headrace.lengths: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
