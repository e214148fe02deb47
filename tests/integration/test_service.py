"""The daemon over a real database, with a clock that runs as fast as it is waited for (R-RUN-1)."""

import itertools
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from activity_retention.config import load_settings
from activity_retention.events import BatchCommitted, Event, Finished, Retrying
from activity_retention.result import RunResult
from activity_retention.service import Service
from activity_retention.settings import Settings
from activity_retention.telemetry import Telemetry
from tests.database import Database

EVENING = datetime(2026, 12, 1, 18, 0, tzinfo=UTC)


@dataclass
class Nights:
    """A service that lives in a time of its own: waiting takes none, and `leap` may make it late."""

    settings: Settings
    start: datetime = EVENING
    end: datetime = EVENING + timedelta(days=1)
    leap: Callable[[datetime, float], float] = lambda _, seconds: seconds
    on_event: Callable[[Event], None] = lambda _: None
    log: CapturingLogger = field(default_factory=CapturingLogger)
    results: list[RunResult] = field(default_factory=list)
    begun: list[datetime] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.moment = self.start
        self.telemetry = Telemetry(self.settings, self.log, traced=False, others=[self.watch])
        self.service = Service(
            self.settings, self.telemetry, self.log, wait=self.wait, now=lambda: self.moment, clock=self.clock
        )

    def serve(self) -> "Nights":
        self.service.serve()
        return self

    def wait(self, seconds: float) -> bool:
        # A microsecond more, since a timedelta rounds what is less to nothing.
        self.moment += timedelta(seconds=self.leap(self.moment, seconds), microseconds=1)
        return self.moment >= self.end

    def clock(self) -> float:
        return (self.moment - self.start).total_seconds()

    def watch(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.results.append(event.result)
            self.begun.append(self.moment)
        self.on_event(event)

    def outcomes(self) -> list[str]:
        return [result.outcome for result in self.results]

    def missed(self, reason: str) -> float:
        return self.metric("ticks_missed_total", reason=reason)

    def metric(self, name: str, **labels: str) -> float:
        value = self.telemetry.metrics.registry.get_sample_value(
            f"activity_retention_{name}", {"policy": "user-activity", **labels}
        )
        assert value is not None
        return value

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [call.kwargs for call in self.log.calls if call.args == (event,)]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize(("month", "day"), [(3, 28), (10, 24), (3, 7), (10, 31)])
def test_one_run_a_date_over_both_changes_of_clocks(database: Database, zone: str, month: int, day: int) -> None:
    """R-RUN-1, case E5: the hour that is missing, and the hour that comes twice, make one run each."""
    start = datetime(2026, month, day, 12, tzinfo=UTC)
    settings = database.settings(time_zone=zone, retention_schedule="0 30 2 * * *")

    nights = Nights(settings, start, start + timedelta(days=3)).serve()

    dates = [moment.astimezone(settings.job.time_zone).date() for moment in nights.begun]
    assert dates == [start.date() + timedelta(days=days) for days in (1, 2, 3)]
    assert nights.outcomes() == ["completed"] * 3


def test_the_next_three_runs_are_logged_at_the_start_and_after_each_run(database: Database) -> None:
    """Case E7."""
    nights = Nights(database.settings(retention_schedule="0 0 3 * * *")).serve()

    (serving,), (waiting,) = nights.logged("serving"), nights.logged("waiting")
    assert serving["next_runs"] == [f"2026-12-0{day}T03:00:00+03:00" for day in (2, 3, 4)]
    assert waiting["next_runs"] == [f"2026-12-0{day}T03:00:00+03:00" for day in (3, 4, 5)]


def test_a_late_tick_still_runs_once(database: Database) -> None:
    """Case E12: the machine slept over its hour."""
    database.session()

    def sleep_over(moment: datetime, seconds: float) -> float:
        return 3 * 3600 if moment.hour == 23 else seconds

    nights = Nights(database.settings(), leap=sleep_over).serve()

    assert nights.outcomes() == ["completed"]
    assert nights.logged("tick late, running now")[0]["late_seconds"] > 3600
    assert (nights.missed("late"), nights.missed("running")) == (0, 0)
    assert database.count("sessions") == 0


def test_a_machine_that_slept_for_days_runs_once_and_counts_the_others(database: Database) -> None:
    """Case E12."""
    sleeps = itertools.chain([3 * 86400.0], itertools.repeat(0.0))

    nights = Nights(
        database.settings(),
        end=EVENING + timedelta(days=3, hours=1),
        leap=lambda _, seconds: next(sleeps) or seconds,
    ).serve()

    assert nights.outcomes() == ["completed"]
    assert nights.missed("late") == 2
    assert [line["count"] for line in nights.logged("ticks missed")] == [2]


def test_a_tick_while_a_run_is_going_is_skipped_and_counted(database: Database) -> None:
    """Case E12: a run of a little more than two periods."""
    database.expired(3)
    nights = Nights(
        database.settings(retention_schedule="0 * * * * *", batch_size="1"), end=EVENING + timedelta(minutes=4)
    )

    def slow(event: Event) -> None:
        if isinstance(event, BatchCommitted):
            nights.moment += timedelta(seconds=45)

    nights.on_event = slow
    nights.serve()

    # Three batches last from minute 1 to 3:15; the ticks of 2 and 3 found a run going.
    assert nights.outcomes()[:1] == ["completed"]
    assert [moment.minute for moment in nights.begun] == [3]
    assert (nights.missed("running"), nights.missed("late")) == (2, 0)
    assert database.count("sessions") == 0


def test_a_failed_run_is_repeated_with_growing_pauses_and_then_waits_for_the_tick(database: Database) -> None:
    """R-RETRY-2: run_retries times, and again the next night."""
    poison(database)

    nights = Nights(database.settings(run_retries="3"), end=EVENING + timedelta(days=2)).serve()

    assert nights.outcomes() == ["failed"] * 8
    pauses = [line["pause_seconds"] for line in nights.logged("run will be repeated")]
    assert len(pauses) == 6
    for first, second, third in (pauses[:3], pauses[3:]):
        assert 15 <= first <= 45
        assert 30 <= second <= 90
        assert 60 <= third <= 180
    assert [moment.astimezone(nights.settings.job.time_zone).hour for moment in nights.begun] == [3] * 8
    assert nights.metric("last_success_timestamp_seconds") == 0
    assert database.count("sessions") == 1


def test_a_repeated_run_that_succeeds_ends_the_matter(database: Database) -> None:
    poison(database)
    nights = Nights(database.settings())

    def mend(event: Event) -> None:
        if isinstance(event, Finished):
            database.execute("DROP TABLE IF EXISTS public.invoices")

    nights.on_event = mend
    nights.serve()

    assert nights.outcomes() == ["failed", "completed"]
    assert database.count("sessions") == 0


def test_no_repetition_is_made_that_would_come_after_the_next_tick(database: Database) -> None:
    poison(database)

    nights = Nights(
        database.settings(retention_schedule="*/10 * * * * *"), end=EVENING + timedelta(seconds=25)
    ).serve()

    assert nights.outcomes() == ["failed", "failed"]
    assert nights.logged("run will be repeated") == []


def test_an_administrators_word_is_obeyed_until_the_next_tick(database: Database) -> None:
    database.session()
    database.before("DELETE", "sessions", "PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(5)")

    nights = Nights(database.settings(), end=EVENING + timedelta(days=2)).serve()

    assert [result.failure and result.failure.kind for result in nights.results] == ["terminated"] * 2
    assert nights.logged("run will be repeated") == []


def test_what_the_database_refuses_is_looked_at_again_at_the_next_tick(database: Database) -> None:
    """A right is missing for a night; nothing ends, and nothing is repeated before the tick."""
    database.session()
    database.execute("REVOKE DELETE ON user_activity.action_events FROM activity_retention")
    nights = Nights(
        database.settings(database_url=database.url("activity_retention")), end=EVENING + timedelta(days=2)
    )
    seen: list[str] = []

    def grant(event: Event) -> None:
        if isinstance(event, Finished):
            seen.extend(nights.service.refusals())
            database.execute("GRANT DELETE ON user_activity.action_events TO activity_retention")

    nights.on_event = grant
    nights.serve()

    assert nights.outcomes() == ["refused", "completed"]
    assert "lacks DELETE" in seen[0]
    assert nights.service.refusals() == ()


def test_a_database_that_is_down_for_a_night_ends_nothing(database: Database, tmp_path: Path) -> None:
    """The first night finds a closed port; by the second one the file of the URL names the database."""
    database.session()
    secret = tmp_path / "database-url"
    secret.write_text(f"postgresql://postgres@127.0.0.1:{closed_port()}/nowhere")
    settings = load_settings({"database_url_file": str(secret), "run_retries": "1"}, environ={}).settings
    nights = Nights(settings, end=EVENING + timedelta(days=2))

    def come_up(event: Event) -> None:
        if isinstance(event, Finished) and len(nights.results) == 2:
            secret.write_text(database.url())

    nights.on_event = come_up
    nights.serve()

    assert nights.outcomes() == ["failed", "failed", "completed"]
    assert nights.metric("batch_retries_total", reason="connection") == 2 * settings.job.batch_retries
    assert database.count("sessions") == 0


def test_a_hold_is_seen_at_once_and_ends_nothing(database: Database, tmp_path: Path) -> None:
    database.session()
    hold = tmp_path / "hold"
    nights = Nights(database.settings(hold_file=str(hold)), end=EVENING + timedelta(days=2))
    assert nights.metric("held") == 0
    hold.touch()
    assert nights.metric("held") == 1

    def lift(event: Event) -> None:
        if isinstance(event, Finished):
            hold.unlink(missing_ok=True)

    nights.on_event = lift
    nights.serve()

    assert nights.outcomes() == ["held", "completed"]
    assert nights.metric("held") == 0


def test_a_loop_or_a_run_that_is_silent_for_too_long_is_not_alive(database: Database) -> None:
    """/livez: a run may be as silent as its longest statement and a minute."""
    database.session()
    nights = Nights(database.settings(single_timeout="10m"))
    assert nights.service.live() == ()
    nights.moment += timedelta(seconds=61)
    assert nights.service.live() == ("the loop has given no sign of life for 61 s",)

    seen: list[tuple[int, int]] = []

    def fall_silent(event: Event) -> None:
        if isinstance(event, BatchCommitted):
            nights.moment += timedelta(minutes=10, seconds=59)
            before = len(nights.service.live())
            nights.moment += timedelta(seconds=2)
            seen.append((before, len(nights.service.live())))

    nights.on_event = fall_silent
    nights.serve()

    assert seen == [(0, 1)]
    assert nights.outcomes() == ["completed"]


def test_a_stop_in_the_middle_of_a_run_ends_the_service(database: Database) -> None:
    """R-RUN-4: between two batches; the committed one stays."""
    database.expired(5)
    nights = Nights(database.settings(batch_size="1"), end=EVENING + timedelta(days=9))

    def stop(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == 2:
            nights.end = nights.moment

    nights.on_event = stop
    nights.serve()

    assert nights.outcomes() == ["cancelled"]
    assert nights.logged("stopped") == [{}]
    assert (database.count("sessions"), database.lock_is_free()) == (3, True)


def test_transient_failures_are_retried_within_the_run(database: Database) -> None:
    session = database.session(events=1)
    blocker = database.connect(autocommit=False)
    blocker.execute("SELECT FROM user_activity.action_events WHERE session_id = %s FOR UPDATE", [session])
    nights = Nights(database.settings(lock_timeout="50ms"))

    def give_way(event: Event) -> None:
        if isinstance(event, Retrying):
            blocker.rollback()

    nights.on_event = give_way
    nights.serve()

    assert nights.outcomes() == ["completed"]
    assert nights.results[0].retries == 1
    assert database.counts() == (0, 0, 0)


def poison(database: Database) -> None:
    """A table that nobody listed keeps a session from going."""
    session = database.session()
    database.execute(
        "CREATE TABLE public.invoices (session_id uuid REFERENCES user_activity.sessions ON DELETE RESTRICT)"
    )
    database.execute("INSERT INTO public.invoices VALUES (%s)", [session])


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
