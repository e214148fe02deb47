"""The series of batches and retries are those of what was committed, and of what was tried again (R-OBS-2)."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag
from typing import get_args

import pytest

from activity_retention.events import BatchCommitted, Event, Retrying, RetryReason
from tests.database import TABLES, Database
from tests.eventually import eventually
from tests.faults.test_lost_answer import line_to
from tests.watched import Watched, lock, poison

RETRIES = get_args(RetryReason)


def test_deleted_rows_and_batches_are_those_that_are_gone(database: Database) -> None:
    watched = Watched(database, batch_size="3", max_batches_per_run="2")
    for number in range(10):
        database.session(views=number % 3, events=number)
    database.session(ended="10 days", views=2, events=2)
    before = database.counts()

    for runs in (1, 2):
        assert watched.run() == "completed"
        gone = tuple(map(int.__sub__, before, database.counts()))
        assert watched.deleted() == gone
        assert [watched.value("deleted_rows_total", table=f"user_activity.{name}") for name in TABLES] == [*gone]
        assert watched.value("batches_processed_total") == watched.value("batch_duration_seconds_count") == 2 * runs

    assert gone == (10, 9, 45)
    assert (watched.value("run_duration_seconds_count"), watched.outcomes()) == (2, {"completed": 2})


def test_a_batch_counts_once_it_is_committed(database: Database) -> None:
    watched = Watched(database, lock_timeout="60s")
    for _ in range(2):
        database.session(views=1, events=1)
    with ThreadPoolExecutor() as pool, database.gate("sessions") as gate:
        run = pool.submit(watched.run)
        eventually(gate.waiting)
        assert watched.deleted() == (0, 0, 0)
        assert (watched.value("batches_processed_total"), watched.value("eligible_backlog")) == (0, 2)
        gate.open()
        run.result()
    assert watched.deleted() == (2, 2, 2)


def test_a_batch_that_was_rolled_back_does_not_count(database: Database) -> None:
    watched = Watched(database, batch_size="2")
    for hours in range(6):
        database.session(ended=f"{9600 - hours} hours", views=1, events=2)
    poison(database)
    before = database.counts()

    assert watched.run(lambda _: False) == "failed"
    assert watched.deleted() == tuple(map(int.__sub__, before, database.counts())) == (4, 4, 8)
    assert (watched.value("batches_processed_total"), watched.value("has_more")) == (2, 1)


def test_a_batch_whose_commit_was_not_answered_is_never_counted_twice(database: Database) -> None:
    """Case D6: nobody can know whether it was committed."""
    for _ in range(8):
        database.session(views=1, events=1)
    lose = Flag()

    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == 2:
            lose.set()

    with line_to(database, lose) as url:
        watched = Watched(database, batch_size="2", database_url=url)
        assert watched.run(lambda _: False, watch) == "completed"

    assert database.counts() == (0, 0, 0)
    assert (watched.deleted(), watched.value("batches_processed_total")) == ((6, 6, 6), 3)
    assert watched.value("batch_retries_total", reason="connection") == 1


def test_a_lock_that_another_took_is_a_reason_to_try_again(database: Database) -> None:
    database.expired(4)
    lose = Flag()

    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted):
            lose.set()
        if isinstance(event, Retrying) and event.reason == "connection":
            eventually(database.lock_is_free)
            lock(database)

    with line_to(database, lose) as url:
        watched = Watched(database, batch_size="2", batch_retries="2", database_url=url)
        assert watched.run(lambda _: False, watch) == "failed"

    assert [watched.value("batch_retries_total", reason=reason) for reason in ("connection", "lock_lost")] == [1, 1]


@pytest.mark.parametrize(
    ("reason", "trouble"),
    [
        ("conflict", "RAISE EXCEPTION 'once' USING ERRCODE = '40001'"),
        ("late_child", "RAISE EXCEPTION 'once' USING ERRCODE = '23503'"),
        ("poison", "RAISE EXCEPTION 'once'"),
        ("too_slow", "PERFORM pg_sleep(60)"),
    ],
)
def test_an_attempt_that_is_made_again_counts_by_its_reason(database: Database, reason: str, trouble: str) -> None:
    watched = Watched(database, batch_timeout="300ms" if reason == "too_slow" else "60s")
    database.expired(2)
    database.execute("CREATE SEQUENCE public.attempts")
    database.before("DELETE", "sessions", f"IF nextval('public.attempts') = 1 THEN {trouble}; END IF")

    assert watched.run(lambda _: False) == "completed"
    assert {each: watched.value("batch_retries_total", reason=each) for each in RETRIES} == {
        each: int(each == reason) for each in RETRIES
    }


def test_locked_rows_count_as_such(database: Database) -> None:
    watched = Watched(database, batch_size="1", lock_timeout="50ms")
    database.session(views=1)
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM user_activity.property_object_views FOR UPDATE")

    watched.run(lambda _: False)
    holder.rollback()

    assert [watched.value("batch_retries_total", reason=reason) for reason in ("locked", "left_locked")] == [1, 1]
