"""What the engine raises, by the largest thing that the error breaks."""


class HeadraceError(RuntimeError):
    """Base of all. `rank` is the rank at fault or -1, `code` an errno or 0."""

    def __init__(self, message: str, rank: int = -1, code: int = 0) -> None:
        super().__init__(message)
        self.rank = rank
        self.code = code


class OperationError(HeadraceError):
    """This call was wrong; the session is as it was."""


class ChannelError(HeadraceError):
    """The link to one peer does not work."""


class PeerError(HeadraceError):
    """A peer died, was silent, left early or reported a failure; the session is over."""


class SessionError(HeadraceError):
    """This rank's session is over."""
