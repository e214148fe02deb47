"""Which times of a schedule have come."""

from collections.abc import Callable
from datetime import datetime, timedelta

from activity_retention.schedule import Schedule

Now = Callable[[], datetime]

_BACKWARDS = timedelta(days=1)


class Ticks:
    """Hands out each time of `schedule` once, as `now` gets there: late if the machine slept, never twice if the
    clock is set back a little."""

    def __init__(self, schedule: Schedule, now: Now) -> None:
        self._schedule = schedule
        self._now = now
        self._see(now())

    @property
    def following(self) -> datetime:
        """The next time that has not come yet."""
        return self._following

    def left(self) -> float:
        """Seconds until then; negative once it has come."""
        return (self._following - self._now()).total_seconds()

    def passed(self) -> list[datetime]:
        """The times that have come since it was last asked, the latest one last."""
        now = self._now()
        if now < self._seen - _BACKWARDS:
            # The clock had been far ahead, and no tick would come until it is there again.
            self._see(now)
        if now < self._following:
            return []
        ticks = self._schedule.between(self._seen, now)
        self._see(now)
        return ticks

    def _see(self, now: datetime) -> None:
        self._seen = now
        self._following = next(self._schedule.after(now))
