"""The advisory lock: one run at a time, and none that goes on without it (cases C1, C9, C10, C16, C18)."""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import structlog
from structlog.testing import capture_logs

from activity_retention.events import BatchCommitted, Began, Event, Finished, Retrying
from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.log import RunLog
from activity_retention.session import Session, open_session
from tests.database import Database
from tests.eventually import eventually

KEY = lock_key(LOCK_NAME)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The connections of the runs to come, in the order in which they are opened."""
    opened: list[Session] = []

    @contextmanager
    def remembered(conninfo: str, **options: object) -> Iterator[Session]:
        with open_session(conninfo, **options) as session:  # type: ignore[arg-type]
            opened.append(session)
            yield session

    monkeypatch.setattr("activity_retention.job.open_session", remembered)
    return opened


def after_batch(number: int, act: Callable[[], object]) -> Callable[[Event], None]:
    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == number:
            act()

    return watch


def take_the_lock(database: Database) -> None:
    other = database.connect()
    eventually(lambda: other.execute("SELECT pg_try_advisory_lock(%s)", [KEY]).fetchone() == (True,))


def test_runs_with_different_keys_take_different_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """case C1: SKIP LOCKED, the second line of defence (R-RUN-5)."""
    for _ in range(12):
        database.session(views=1, events=2)
    names = iter(("one", "another"))
    monkeypatch.setattr("activity_retention.job.lock_name", lambda _: next(names))
    with ThreadPoolExecutor() as pool, database.gate("sessions") as gate:
        runs = [pool.submit(database.run, batch_size="4", lock_timeout="60s") for _ in range(2)]
        eventually(lambda: gate.waiting() == 2)
        gate.open()

        results = [run.result() for run in runs]

    assert [result.outcome for result in results] == ["completed", "completed"]
    assert all(result.rows >= 4 * 4 for result in results)
    assert sum(result.rows for result in results) == 12 * 4
    assert [result.retries for result in results] == [0, 0]
    assert database.counts() == (0, 0, 0)


def test_an_unrelated_holder_of_the_key_is_named_in_the_log(database: Database) -> None:
    """case C16"""
    database.expired(1)
    holder = database.connect()
    holder.execute("SET application_name = 'somebody else'")
    holder.execute("SELECT pg_advisory_lock(%s)", [KEY])

    with capture_logs() as lines:
        result = database.run(watch=RunLog(structlog.get_logger()))

    assert (result.outcome, result.stop_reason, result.has_more) == ("skipped", "locked", None)
    assert database.count("sessions") == 1
    (line,) = [line for line in lines if line["event"].startswith("run skipped")]
    assert line["log_level"] == "warning"
    assert str(KEY) in line["reason"]
    assert f"pid {holder.info.backend_pid}" in line["reason"]
    assert "somebody else" in line["reason"]


def test_a_busy_lock_is_never_waited_for(database: Database) -> None:
    """case C18"""
    take_the_lock(database)
    events: list[Event] = []
    asked: list[float] = []

    def wait(seconds: float) -> bool:
        asked.append(seconds)
        return False

    result = database.run(wait=wait, watch=events.append)

    assert (result.outcome, result.stop_reason, result.retries) == ("skipped", "locked", 0)
    assert asked == []
    assert [type(event) for event in events] == [Began, Finished]


def test_a_lock_that_is_lost_while_the_connection_lives_ends_the_run(
    database: Database, sessions: list[Session]
) -> None:
    """case C9"""
    database.expired(6)

    def lose() -> None:
        sessions[0].connection.execute("SELECT pg_advisory_unlock_all()")
        take_the_lock(database)

    result = database.run(watch=after_batch(1, lose), batch_size="2")

    assert (result.outcome, result.has_more, result.batches_processed) == ("failed", True, 1)
    assert result.failure is not None
    assert result.failure.kind == "lock_lost"
    assert database.count("sessions") == 4


def test_a_terminated_session_whose_lock_another_takes_deletes_nothing_more(database: Database) -> None:
    """case C9"""
    database.expired(6)

    def terminate() -> None:
        (pid,) = database.job_pids()
        database.execute("SELECT pg_terminate_backend(%s)", [pid])
        take_the_lock(database)

    result = database.run(watch=after_batch(1, terminate), batch_size="2")

    assert (result.outcome, result.batches_processed) == ("failed", 1)
    assert result.failure is not None
    assert result.failure.kind in ("terminated", "lock_lost")
    assert database.count("sessions") == 4


def test_a_lost_connection_whose_lock_another_took_ends_the_run(
    database: Database, sessions: list[Session]
) -> None:
    """case C9: the connection breaks, and by the time of the next one somebody else leads."""
    database.expired(6)
    events: list[Event] = []

    def lose() -> None:
        cut(sessions[0])
        take_the_lock(database)

    def watch(event: Event) -> None:
        events.append(event)
        after_batch(1, lose)(event)

    result = database.run(watch=watch, wait=lambda _: False, batch_size="2", batch_retries="2")

    assert (result.outcome, result.batches_processed, result.has_more) == ("failed", 1, True)
    assert result.failure is not None
    assert result.failure.kind == "lock_lost"
    assert database.count("sessions") == 4
    assert result.retries == len([event for event in events if isinstance(event, Retrying)]) == 2


def test_a_lost_connection_is_replaced_and_the_run_goes_on(database: Database, sessions: list[Session]) -> None:
    """case C9: where nobody else took the lock."""
    database.expired(6)

    result = database.run(watch=after_batch(1, lambda: cut(sessions[0])), batch_size="2")

    assert (result.outcome, result.rows, result.batches_processed) == ("completed", 6, 3)
    assert result.retries >= 1
    assert len(sessions) >= 2


def test_between_batches_the_session_is_idle_and_keeps_the_lock(database: Database) -> None:
    """case C10"""
    database.expired(6)
    role = f"ALTER ROLE activity_retention IN DATABASE {database.name} SET"
    database.execute(f"{role} idle_in_transaction_session_timeout = '10ms'")
    database.execute(f"{role} transaction_timeout = '10ms'" if database.server.version >= 17 else "SELECT")
    seen: list[tuple[str, bool]] = []

    def wait(seconds: float) -> bool:
        database.execute("SELECT pg_sleep(0.1)")
        (pid,) = database.job_pids()
        seen.append(
            (database.value("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]), database.lock_is_free())
        )
        return False

    result = database.run(wait=wait, batch_size="2", database_url=database.url("activity_retention"))

    assert (result.outcome, result.rows, result.retries) == ("completed", 6, 0)
    assert len(seen) > 3
    assert set(seen) == {("idle", False)}


def test_a_server_session_that_brings_the_lock_along_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """case C13: handed on by a pooler that did not clean it."""

    @contextmanager
    def unclean(conninfo: str, **options: object) -> Iterator[Session]:
        with open_session(conninfo, **options) as session:  # type: ignore[arg-type]
            session.connection.execute("SELECT pg_advisory_lock(%s)", [KEY])
            yield session

    monkeypatch.setattr("activity_retention.job.open_session", unclean)
    database.expired(1)

    result = database.run()

    assert (result.outcome, database.count("sessions")) == ("refused", 1)
    assert result.failure is not None
    assert str(KEY) in result.failure.message
    assert "pooler" in result.failure.message


def cut(session: Session) -> None:
    """Breaks the line from the client's side, without a word to the server."""
    with socket.socket(fileno=os.dup(session.connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
