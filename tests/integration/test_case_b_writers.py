"""Writers of child rows beside a run (case B9)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.sql import SQL, Composed

from activity_retention import statements
from activity_retention.events import Event, Retrying
from tests.database import Database
from tests.eventually import eventually

EVENT = """
    INSERT INTO user_activity.action_events (id, session_id, kind, occurred_at)
    VALUES (gen_random_uuid(), %s, 'click', now())
"""


def test_a_writer_waits_for_the_batch_and_is_told_that_its_session_is_gone(database: Database) -> None:
    """case B9"""
    session = database.session(views=1, events=1)
    writer = database.connect()
    # Before any session is deleted: only the pick's own row lock holds the writer up.
    with ThreadPoolExecutor() as pool, database.gate("action_events") as gate:
        run = pool.submit(database.run, lock_timeout="60s")
        eventually(gate.waiting)
        insert = pool.submit(writer.execute, EVENT.encode(), [session])
        eventually(lambda: blocked(database, writer))
        gate.open()

        result = run.result()

        assert (result.outcome, result.retries, database.counts()) == ("completed", 0, (0, 0, 0))
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="action_events_session_fkey"):
            insert.result()


def test_a_child_that_came_before_the_row_lock_and_after_the_snapshot_is_tried_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """case B9: the statement cannot see it, the key can."""
    session = database.session(views=1, events=1)
    guard = database.connect()
    guard.execute("SELECT pg_advisory_lock(7)")
    monkeypatch.setattr("activity_retention.batch.statements.batch", paused_before_its_pick(statements.batch))
    events: list[Event] = []
    with ThreadPoolExecutor() as pool:
        run = pool.submit(database.run, watch=events.append, lock_timeout="60s")
        eventually(lambda: database.value("SELECT count(*) FROM pg_locks WHERE objid = 7 AND NOT granted"))
        database.execute(EVENT, [session])
        guard.close()

        result = run.result()

    assert (result.outcome, result.retries, database.counts()) == ("completed", 1, (0, 0, 0))
    assert [event.reason for event in events if isinstance(event, Retrying)] == ["late_child"]
    assert result.rows == 4


def test_a_session_that_a_writer_is_adding_to_is_left_to_the_next_run(database: Database) -> None:
    """case B9: the other order, the writer was first."""
    busy = database.session(events=1)
    database.session(events=1)
    writer = database.connect(autocommit=False)
    writer.execute(EVENT, [busy])

    first = database.run()
    writer.commit()
    second = database.run()

    assert (first.outcome, first.left_locked, first.rows) == ("completed", True, 2)
    assert (second.outcome, second.left_locked, second.rows) == ("completed", False, 3)


def blocked(database: Database, writer: psycopg.Connection[tuple[object, ...]]) -> bool:
    return bool(database.value("SELECT pg_blocking_pids(%s) <> '{}'", [writer.info.backend_pid]))


def paused_before_its_pick(batch: Callable[..., Composed]) -> Callable[..., Composed]:
    """The batch's statement, which waits on an advisory lock once its snapshot is taken."""
    asked = "pg_try_advisory_xact_lock(%(key)s) AS ok"

    def paused(*arguments: object, **options: object) -> Composed:
        query = batch(*arguments, **options).as_string()
        assert asked in query
        # Composed, as from the real one.
        return SQL(query.replace(asked, f"{asked}, pg_advisory_xact_lock_shared(7)")) + SQL("")

    return paused
