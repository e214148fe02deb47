"""When the job runs: six cron fields, seconds first, in a named zone (R-RUN-1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError


@dataclass(frozen=True)
class Schedule:
    """A cron expression of five or six fields; five mean second 0. Sunday is 0 or 7."""

    expression: str
    zone: ZoneInfo

    def __post_init__(self) -> None:
        fields = self.expression.split()
        if len(fields) not in (5, 6):
            raise ValueError(f"it has {len(fields)} fields: write six, seconds first, such as 0 0 3 * * *")
        try:
            next(self.after(datetime.now(self.zone)))
        except (CronSimError, ValueError) as error:
            raise ValueError(f"{error}: write six cron fields, seconds first, such as 0 0 3 * * *") from None
        except StopIteration:
            raise ValueError("no date ever matches it") from None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Fire times later than `moment`, soonest first, in the schedule's zone."""
        seconds, *minutes_and_up = self.expression.split() if self._has_seconds else ("0", self.expression)
        # With six fields cronsim skips a time that a daylight-saving gap swallows; with five it does not.
        expression = " ".join(minutes_and_up) if seconds == "0" else self.expression
        last = moment
        for fire in CronSim(expression, moment.astimezone(self.zone)):
            if fire > last:
                last = fire
                yield fire

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """The next `count` fire times after `moment`."""
        return list(islice(self.after(moment), count))

    @property
    def _has_seconds(self) -> bool:
        return len(self.expression.split()) == 6
