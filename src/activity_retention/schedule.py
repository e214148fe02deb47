"""When the job runs: six cron fields, seconds first, in a named zone (R-RUN-1)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile

from cronsim import CronSim, CronSimError

_MOST = 10_000


@dataclass(frozen=True)
class Schedule:
    """A cron expression of five or six fields; five mean second 0. Sunday is 0 or 7."""

    expression: str
    zone: tzinfo

    def __post_init__(self) -> None:
        fields = self.expression.split()
        if len(fields) not in (5, 6):
            raise ValueError(f"it has {len(fields)} fields: write six, seconds first, such as 0 0 3 * * *")
        try:
            next(self.after(datetime.now(self.zone)))
        except (CronSimError, ValueError) as error:
            if str(error) == "Bad day-of-month":
                raise ValueError(
                    "none of its months has such a day: write one that comes, such as 0 0 3 28 2 *, or 0 0 3 L * * "
                    "for the last day of a month"
                ) from None
            raise ValueError(f"{error}: write six cron fields, seconds first, such as 0 0 3 * * *") from None
        except StopIteration:
            raise ValueError("no date ever matches it") from None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Fire times later than `moment`, soonest first, in the schedule's zone."""
        seconds, expression = self.expression.split(maxsplit=1) if self._has_seconds else ("0", self.expression)
        moment = last = moment.astimezone(UTC)
        fires: Iterator[datetime]
        if not seconds.isdecimal():
            fires = CronSim(self.expression, moment.astimezone(self.zone))
        else:
            # With five fields cronsim minds a change of clocks: a night is neither dropped nor doubled.
            minutes = CronSim(expression, (moment - timedelta(minutes=1)).astimezone(self.zone))
            fires = (fire.replace(second=int(seconds)) for fire in minutes)
        for fire in fires:
            # In UTC, since Python compares the two hours of an autumn night by what the clock on the wall says.
            if (instant := fire.astimezone(UTC)) > last:
                last = instant
                yield fire

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """The next `count` fire times after `moment`."""
        return list(islice(self.after(moment), count))

    def between(self, since: datetime, until: datetime) -> list[datetime]:
        """Fire times later than `since` and not later than `until`; the first 10,000 of them, since a clock may
        jump by decades."""
        end = until.astimezone(UTC)
        return list(islice(takewhile(lambda fire: fire.astimezone(UTC) <= end, self.after(since)), _MOST))

    @property
    def _has_seconds(self) -> bool:
        return len(self.expression.split()) == 6
