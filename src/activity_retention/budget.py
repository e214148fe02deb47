"""What is left to a run: batches, time, and nobody's wish to stop (R-RUN-3, R-RUN-4)."""

from dataclasses import dataclass
from typing import Literal

StopReason = Literal["empty", "max_batches", "max_duration", "cancelled", "held"]


@dataclass(frozen=True)
class Budget:
    """A run's bounds; `deadline` is on the clock that the run was given, in seconds."""

    max_batches: int
    deadline: float

    def stop(self, batches: int, now: float) -> StopReason | None:
        """Why no further batch may start, or None."""
        if batches >= self.max_batches:
            return "max_batches"
        if now >= self.deadline:
            return "max_duration"
        return None

    def clamp(self, seconds: float, now: float) -> float:
        """`seconds`, but no more than the run has left; at least a millisecond, since 0 means no limit."""
        return max(0.001, min(seconds, self.deadline - now))
