"""The daemon: wait for the tick, run, remember the outcome, go on (R-RUN-1)."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from activity_retention.drain import Clock, Wait, pause_before
from activity_retention.events import Event
from activity_retention.job import ActivityRetentionJob
from activity_retention.metrics import MissedReason
from activity_retention.result import RunResult
from activity_retention.settings import Settings
from activity_retention.telemetry import Telemetry
from activity_retention.ticks import Now, Ticks

_UPCOMING = 3
# Waiting is done in slices, since a machine may sleep and a clock may be set.
_SLICE = 10.0
_SILENCE = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 900.0
# Replicas come to a tick as far apart as their clocks and connections are. One that has little to do keeps the lock
# so long, or half of the time to the next tick, that the others find it held (case C19).
_HOLD_LOCK = 5.0


def utc_now() -> datetime:
    return datetime.now(UTC)


class Service:
    """Runs the job at every tick of its schedule until `wait` says stop; nothing that a run meets ends it.

    `wait(seconds)` answers True once the service shall stop, `now` is the time of day, `clock` counts seconds.
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        logger: Any,
        *,
        wait: Wait,
        now: Now = utc_now,
        clock: Clock = time.monotonic,
    ) -> None:
        self._job_settings = settings.job
        self._telemetry = telemetry
        self._logger = logger
        self._wait = wait
        self._now = now
        self._clock = clock
        self._job = ActivityRetentionJob(settings, watch=self._watch)
        self._ticks = Ticks(settings.job.schedule, now)
        self._beat = clock()
        self._running = False
        self._refusals: tuple[str, ...] = ()

    def serve(self) -> None:
        """Returns once `wait` has said stop."""
        self._announce("serving")
        while ticks := self._next_ticks():
            self._miss("late", ticks[:-1])
            self._at_tick(ticks[-1])
            self._announce("waiting")
        self._logger.info("stopped")

    def cancel(self) -> None:
        """Cancels the statement that is running, from another thread."""
        self._job.cancel()

    def live(self) -> Sequence[str]:
        """What speaks against the loop being alive: a silence longer than any of its steps may take."""
        job = self._job_settings
        most = _SILENCE + (max(job.batch_timeout, job.single_timeout).total_seconds() if self._running else 0.0)
        silent = self._clock() - self._beat
        who = "the run" if self._running else "the loop"
        return (f"{who} has given no sign of life for {silent:.0f} s",) if silent > most else ()

    def refusals(self) -> Sequence[str]:
        """Why the run of the last tick was refused, empty if it was not."""
        return self._refusals

    def _next_ticks(self) -> list[datetime]:
        """The times of the schedule that have come, of which the last one counts; empty to stop."""
        while not self._pause(min(max(self._ticks.left(), 0.0), _SLICE)):
            if ticks := self._ticks.passed():
                return ticks
        return []

    def _at_tick(self, tick: datetime) -> None:
        """A run, and after a failed one a few more as long as no other tick comes (R-RETRY-2)."""
        late = (self._now() - tick).total_seconds()
        if late > _SLICE:
            self._logger.warning("tick late, running now", tick=tick.isoformat(), late_seconds=round(late))
        for attempt in range(1, self._job_settings.run_retries + 2):
            result = self._run()
            if not _worth_a_retry(result) or attempt > self._job_settings.run_retries:
                return
            pause = pause_before(attempt, _FIRST_PAUSE, _LONGEST_PAUSE)
            if pause >= self._ticks.left():
                return
            self._logger.warning(
                "run will be repeated",
                run_id=str(result.run_id),
                attempt=attempt,
                pause_seconds=round(pause, 1),
            )
            if self._pause_for(pause) or self._ticks.left() <= 0:
                return

    def _run(self) -> RunResult:
        self._running = True
        try:
            hold_lock = min(_HOLD_LOCK, max(0.0, self._ticks.left()) / 2)
            result = self._job.run(wait=self._pace, clock=self._clock, hold_lock=hold_lock)
        finally:
            self._running = False
        self._skip_ticks()
        failure = result.failure
        self._refusals = (
            tuple(f"the last run was refused: {line}" for line in failure.message.splitlines())
            if failure and failure.kind == "refused"
            else ()
        )
        return result

    def _pace(self, seconds: float) -> bool:
        self._skip_ticks()
        return self._pause(seconds)

    def _skip_ticks(self) -> None:
        """A tick that comes while a run is going is not made up for (case E12)."""
        self._miss("running", self._ticks.passed())

    def _miss(self, reason: MissedReason, ticks: Sequence[datetime]) -> None:
        if ticks:
            self._telemetry.metrics.missed(reason, len(ticks))
            self._logger.warning("ticks missed", reason=reason, count=len(ticks), last=ticks[-1].isoformat())

    def _pause_for(self, seconds: float) -> bool:
        end = self._clock() + seconds
        while (left := end - self._clock()) > 0:
            if self._pause(min(left, _SLICE)):
                return True
        return False

    def _pause(self, seconds: float) -> bool:
        self._beat = self._clock()
        return self._wait(seconds)

    def _watch(self, event: Event) -> None:
        self._beat = self._clock()
        self._telemetry.watch(event)

    def _announce(self, what: str) -> None:
        job = self._job_settings
        fires = job.schedule.upcoming(self._now(), _UPCOMING)
        self._logger.info(
            what,
            policy=job.policy,
            schedule=job.retention_schedule,
            time_zone=job.time_zone.key,
            dry_run=job.dry_run,
            next_runs=[fire.isoformat() for fire in fires],
        )


def _worth_a_retry(result: RunResult) -> bool:
    """An administrator's word is obeyed until the next tick."""
    return result.outcome == "failed" and (result.failure is None or result.failure.kind != "terminated")
