"""Batches that take too long, and statements that are cancelled (cases A17, D1, D9)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from activity_retention.events import BatchCommitted, Event, Retrying
from activity_retention.job import ActivityRetentionJob
from activity_retention.policy import USER_ACTIVITY
from tests.database import Database
from tests.eventually import eventually


def test_a_roles_own_timeout_does_not_bite(database: Database) -> None:
    """case D1"""
    database.expired(2)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(0.2)")
    role = f"ALTER ROLE activity_retention IN DATABASE {database.name} SET"
    for name in ("statement_timeout", "lock_timeout"):
        database.execute(f"{role} {name} = '50ms'")

    result = database.run(database_url=database.url("activity_retention"))

    assert (result.outcome, result.rows, result.retries) == ("completed", 2, 0)


def test_under_our_own_timeout_the_batch_is_halved_until_it_fits(database: Database) -> None:
    """case D1"""
    database.expired(8)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(0.15)")
    events: list[Event] = []

    result = database.run(watch=events.append, batch_size="8", batch_timeout="400ms")

    sizes = [event.deleted[USER_ACTIVITY.root] for event in events if isinstance(event, BatchCommitted)]
    assert (result.outcome, result.rows, database.count("sessions")) == ("completed", 8, 0)
    assert max(sizes) <= 2
    reasons = {event.reason for event in events if isinstance(event, Retrying)}
    assert reasons == {"too_slow"}
    assert result.retries >= 2


def test_an_oversized_session_gets_more_time_alone_and_all_others_go(database: Database) -> None:
    """case D1, A17: halved down to one, which gets single_timeout."""
    database.expired(6)
    huge = database.oldest(2)
    database.before("DELETE", "sessions", f"IF OLD.id = '{huge}' THEN PERFORM pg_sleep(0.6); END IF")

    result = database.run(batch_size="4", batch_timeout="300ms", single_timeout="60s")

    assert (result.outcome, result.rows, database.count("sessions")) == ("completed", 6, 0)


def test_a_session_too_big_even_alone_fails_the_run_by_name(database: Database) -> None:
    """case D1, A17: bounded, never an endless loop of time-outs; the smaller ones before it are gone."""
    database.expired(6)
    huge = database.oldest(2)
    database.before("DELETE", "sessions", f"IF OLD.id = '{huge}' THEN PERFORM pg_sleep(60); END IF")

    result = database.run(batch_size="2", batch_timeout="400ms", single_timeout="500ms")

    assert (result.outcome, result.has_more, result.rows) == ("failed", True, 2)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.batch_ids) == ("timeout", (str(huge),))
    assert database.count("sessions") == 4


def test_a_slow_batch_is_cut_at_the_end_of_the_run(database: Database) -> None:
    """case D1, A2: the run's own limit is no failure."""
    database.session(views=1, events=1)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(60)")

    result = database.run(max_run_duration="500ms")

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "max_duration", True)
    assert (result.failure, database.counts()) == (None, (1, 1, 1))
    assert result.duration_seconds < 30


@pytest.mark.parametrize("table", ["action_events", "sessions"])
def test_a_statement_is_cancelled_from_another_thread(database: Database, table: str) -> None:
    """case D9: the batch is rolled back whole, the lock is free at once."""
    for _ in range(3):
        database.session(views=1, events=1)
    database.before("DELETE", table, "PERFORM pg_sleep(600)")
    job = ActivityRetentionJob(database.settings(batch_timeout="1h"), watch=lambda _: None)
    with ThreadPoolExecutor() as pool:
        run = pool.submit(job.run)
        eventually(database.is_sleeping)
        job.cancel()

        result = run.result()

    assert (result.outcome, result.stop_reason, result.has_more) == ("cancelled", "cancelled", True)
    assert (result.rows, result.retries, result.failure) == (0, 0, None)
    assert database.counts() == (3, 3, 3)
    assert database.lock_is_free()
    eventually(lambda: database.job_pids() == [])
