"""Samples for examples/sft.py: text, byte-level tokens, and microbatches packed without padding."""

import ast
import json
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

BEGIN = 256  # bytes are tokens 0 to 255
END = 257
VOCABULARY = 258
IGNORED = -100  # a label that adds nothing to the loss

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


def texts_from(path: Path) -> list[bytes]:
    """A folder of text files, one sample a file in path order; or JSON lines with `text`."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        texts = [file.read_bytes() for file in files]
    elif path.is_file():
        texts = []
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    texts.append(_text_of(line, path, number))
    else:
        raise ValueError(f"--data {path}: no such folder or file")
    texts = [text for text in texts if text]
    if not texts:
        raise ValueError(f"--data {path}: holds no text")
    return texts


def _text_of(line: str, path: Path, number: int) -> bytes:
    try:
        text = json.loads(line)["text"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"--data {path}, line {number}: not JSON with a `text` ({error!r})"
        ) from error
    if not isinstance(text, str):
        raise ValueError(f"--data {path}, line {number}: `text` is {type(text).__name__}, not text")
    return text.encode("utf-8", "surrogateescape")


def write_json_lines(texts: Sequence[bytes], path: Path) -> None:
    """Writes texts so that texts_from(path) gives them back, but for bytes that are no UTF-8."""
    with path.open("w", encoding="utf-8") as lines:
        for text in texts:
            lines.write(json.dumps({"text": text.decode("utf-8", "replace")}) + "\n")


def encode(text: bytes, cap: int) -> torch.Tensor:
    """BEGIN, the bytes, END; cut after `cap` tokens. Shape (tokens,), int64."""
    return torch.tensor([BEGIN, *text[: cap - 1], END][:cap], dtype=torch.int64)


class Samples(Sequence[torch.Tensor]):
    """Token sequences of one corpus, encoded when asked for."""

    def __init__(self, texts: Sequence[bytes], cap: int) -> None:
        if cap < 2:
            raise ValueError(f"cap {cap}: a sample needs two tokens to have anything to predict")
        self._texts = texts
        self._cap = cap

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> torch.Tensor:
        return encode(self._texts[index], self._cap)

    def length(self, index: int) -> int:
        """Tokens of sample `index`, known without encoding it."""
        return min(len(self._texts[index]) + 2, self._cap)


def predicted_tokens(length: int) -> int:
    """Tokens of a sample that count in the loss: all but its first."""
    return length - 1


@dataclass(frozen=True)
class Pack:
    """Samples laid end to end as one row; each attends to itself alone.

    `inputs`, `labels` and `positions` have shape (1, tokens). `labels` are shifted: labels[i] is
    what inputs[i] should predict, IGNORED at each sample's last token. Sample k covers the tokens
    from bounds[k] to bounds[k + 1].
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor
    bounds: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that count in the loss."""
        return self.bounds[-1] - (len(self.bounds) - 1)


def pack(samples: Sequence[torch.Tensor]) -> Pack:
    """Of no samples: a filler of one token that adds exactly 0 to the loss and all gradients."""
    samples = samples or [torch.tensor([BEGIN])]
    bounds = [0]
    for sample in samples:
        bounds.append(bounds[-1] + len(sample))
    ignored = torch.tensor([IGNORED])
    return Pack(
        inputs=torch.cat(list(samples))[None],
        labels=torch.cat([row for sample in samples for row in (sample[1:], ignored)])[None],
        positions=torch.cat([torch.arange(len(sample)) for sample in samples])[None],
        bounds=tuple(bounds),
    )
