"""Trainings that take turns, one step each, so that a machine whose speed drifts meets them alike.

Who compares them (demo.py) holds `Turns`. Every rank of an arm calls `take` before each step and
once more before it ends; an arm's turn is over when all its ranks ask for the next. Whoever waits
is blocked in the kernel and uses no processor.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

LONGEST_WAIT = 1800.0  # seconds a rank waits, for the turns of all other arms together
LOOK_EVERY = 0.2  # seconds between two looks at whether an arm has ended


def take(seat: Path | None) -> None:
    """Gives this rank's turn back and blocks until its arm has the next one. Without a seat it is
    always this rank's turn. ConnectionError where nobody gives turns any more."""
    if seat is None:
        return
    with socket.socket(socket.AF_UNIX) as mine:
        mine.settimeout(LONGEST_WAIT)
        try:
            mine.connect(str(seat))
            given = mine.recv(1)
        except OSError as error:
            raise ConnectionError(f"no turn was given at {seat}: {error}") from error
    if not given:
        raise ConnectionError(f"no turn was given at {seat}: whoever gave them has ended")


class Turns:
    """Gives turns to arms in the order in which they got their seats. On leaving the context every
    rank that waits for a turn fails."""

    def __init__(self, limit: float) -> None:
        """`limit` is in seconds, for all arms to be set up and for each turn."""
        self._limit = limit
        self._folder = TemporaryDirectory(prefix="headrace-turns-")
        self._seats: dict[str, _Seat] = {}

    def __enter__(self) -> "Turns":
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self._seats.values():
            seat.close()
        self._folder.cleanup()

    def seat(self, arm: str, ranks: int) -> Path:
        """A seat for `take`, to be had before the arm's ranks start."""
        path = Path(self._folder.name) / arm
        self._seats[arm] = _Seat(path, ranks)
        return path

    def rounds(self, ended: Callable[[str], bool]) -> Iterator[int]:
        """Until all arms have ended. Yields 0 when all wait for their first turn, then the number
        of rounds when each has had as many turns. `ended(arm)` is called often and raises where an
        arm has failed. TimeoutError names an arm that exceeds the limit."""
        deadline = time.monotonic() + self._limit
        going = [arm for arm in self._seats if self._gather(arm, ended, deadline)]
        number = 0
        while going:
            yield number
            for arm in tuple(going):
                self._seats[arm].give()
                if not self._gather(arm, ended, time.monotonic() + self._limit):
                    going.remove(arm)
            number += 1

    def _gather(self, arm: str, ended: Callable[[str], bool], deadline: float) -> bool:
        """Blocks until all ranks of the arm wait for a turn; False where it has ended instead."""
        seat = self._seats[arm]
        while True:
            over = [name for name in self._seats if ended(name)]  # of all: any may have failed
            if arm in over or not seat.missing:
                return arm not in over
            if time.monotonic() > deadline:
                late = f"{seat.missing} of its ranks did not ask for a turn"
                raise TimeoutError(f"{arm}: {late} within {self._limit:g} s")
            seat.admit(LOOK_EVERY)


class _Seat:
    """The socket at which an arm's ranks wait, each with a connection that lasts for one turn."""

    def __init__(self, path: Path, ranks: int) -> None:
        self._ranks = ranks
        self._waiting: list[socket.socket] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(ranks)

    @property
    def missing(self) -> int:
        return self._ranks - len(self._waiting)

    def admit(self, seconds: float) -> None:
        """The next rank, if it comes within `seconds`."""
        self._door.settimeout(seconds)
        with suppress(TimeoutError):
            self._waiting.append(self._door.accept()[0])

    def give(self) -> None:
        for rank in self._waiting:
            with suppress(ConnectionError):  # it died: its arm's end tells
                rank.send(b"!")
            rank.close()
        self._waiting.clear()

    def close(self) -> None:
        for connection in (self._door, *self._waiting):
            connection.close()
