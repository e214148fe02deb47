"""What can go wrong, by what a caller should do about it."""

from dataclasses import dataclass
from typing import Literal

FailureKind = Literal["refused", "transient", "timeout", "terminated", "lock_lost", "poison", "unexpected"]


@dataclass(frozen=True)
class Failure:
    """Why a run failed: its kind, the server's SQLSTATE if it had one, a sentence, and the batch's root ids."""

    kind: FailureKind
    message: str
    sqlstate: str | None = None
    batch_ids: tuple[str, ...] = ()


class RetentionError(Exception):
    """Root of the errors that this package raises on purpose."""


class Refused(RetentionError):
    """Nothing was started and no retry would mend it; `reasons` holds every fault at once (R-CFG-1)."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


class Unreachable(RetentionError):
    """The database could not be reached, for now."""


class RunFailed(RetentionError):
    """A run that had started ended in a controlled failure (R-TXN-2)."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
