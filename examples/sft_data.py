"""Samples for examples/sft.py: texts and conversations, their tokens, and packed microbatches."""

import ast
import json
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from headrace.data import PackedCollator, chat

BYTES = chat.ByteTokenizer()

Record = bytes | list[Mapping[str, Any]]  # a text, or the messages of a conversation

pack = PackedCollator(pad_token=BYTES.begin)  # samples laid end to end; of none, a filler

_NOT_SOURCES = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}


def standard_library_texts() -> list[bytes]:
    """Every top-level function and class of Python's standard library but tests, in path order."""
    root = Path(sysconfig.get_path("stdlib"))
    texts, unreadable = [], []
    for path in sorted(root.rglob("*.py")):
        if _NOT_SOURCES.intersection(path.relative_to(root).parts):
            continue
        try:
            texts.extend(_definitions(path.read_bytes()))
        except (OSError, SyntaxError, ValueError) as error:
            unreadable.append(f"{path}: {error}")
    if not texts:
        raise ValueError(f"no functions or classes found below {root}; give texts with --data")
    if unreadable:
        warnings.warn(f"{len(unreadable)} files left out, the first: {unreadable[0]}", stacklevel=2)
    return texts


def _definitions(source: bytes) -> Iterator[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the library's own code: nothing the user can change
        body = ast.parse(source).body
    lines = source.split(b"\n")
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield b"\n".join(lines[node.lineno - 1 : node.end_lineno]) + b"\n"


def records_from(path: Path) -> list[Record]:
    """A folder of text files, one sample a file in path order; or JSON lines, each with `text` or
    with `messages`."""
    records: list[Record] = []
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        records.extend(file.read_bytes() for file in files)
    elif path.is_file():
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    try:
                        records.append(_record_of(line))
                    except ValueError as error:
                        raise ValueError(f"--data {path}, line {number}: {error}") from error
    else:
        raise ValueError(f"--data {path}: no such folder or file")
    records = [record for record in records if record]
    if not records:
        raise ValueError(f"--data {path}: holds no text")
    return records


def _record_of(line: str) -> Record:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(fields, dict) or not ("text" in fields or "messages" in fields):
        raise ValueError("no JSON object with `text` or `messages`")
    if "messages" in fields:
        chat.check(fields["messages"])
        return fields["messages"]
    if not isinstance(fields["text"], str):
        raise ValueError(f"`text` is {type(fields['text']).__name__}, not text")
    return fields["text"].encode("utf-8", "surrogateescape")


def write_json_lines(texts: Sequence[bytes], path: Path) -> None:
    """Writes texts so that records_from(path) gives them back, but for bytes that are no UTF-8."""
    with path.open("w", encoding="utf-8") as lines:
        for text in texts:
            lines.write(json.dumps({"text": text.decode("utf-8", "replace")}) + "\n")


def load_tokenizer(path: Path | None) -> Any:
    """A local directory as transformers' `save_pretrained` writes it; None means bytes."""
    if path is None:
        return None
    if not path.is_dir():
        raise ValueError(f"--tokenizer {path}: no such directory")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def vocabulary(tokenizer: Any) -> int:
    return len(tokenizer) if tokenizer else BYTES.vocabulary


class Samples(Sequence[Any]):
    """The corpus as items of headrace.data's collator, cut after `cap` tokens. Texts of bytes are
    encoded when asked for, everything else at once."""

    def __init__(self, records: Sequence[Record], cap: int, tokenizer: Any = None) -> None:
        if cap < 2:
            raise ValueError(f"cap {cap}: a sample needs two tokens to have anything to predict")
        self._cap = cap
        self._samples = [
            record if _is_lazy(record, tokenizer) else _encode(record, number, cap, tokenizer)
            for number, record in enumerate(records)
        ]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        sample = self._samples[index]
        if isinstance(sample, bytes):
            return torch.tensor(BYTES.text(sample[: self._cap])[: self._cap])
        return sample

    def length(self, index: int) -> int:
        """Tokens of sample `index`."""
        sample = self._samples[index]
        if isinstance(sample, bytes):
            return min(len(sample) + 2, self._cap)
        return len(sample["input_ids"])


def _is_lazy(record: Record, tokenizer: Any) -> bool:
    return tokenizer is None and isinstance(record, bytes)


def _encode(record: Record, number: int, cap: int, tokenizer: Any) -> dict[str, torch.Tensor]:
    if isinstance(record, bytes):
        ids = tokenizer(record.decode("utf-8", "replace"))["input_ids"]
        if tokenizer.eos_token_id is not None and ids[-1:] != [tokenizer.eos_token_id]:
            ids = [*ids, tokenizer.eos_token_id]
        return {"input_ids": torch.tensor(ids[:cap], dtype=torch.int32)}
    try:
        sample = chat.encode(record, tokenizer)
    except ValueError as error:
        raise ValueError(f"--data, conversation {number + 1}: {error}") from error
    return {name: torch.tensor(values[:cap], dtype=torch.int32) for name, values in sample.items()}
