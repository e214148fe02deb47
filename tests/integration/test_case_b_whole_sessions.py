"""No session is ever left without the children it had (case B7); the kill itself is in tests/faults."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from activity_retention.job import ActivityRetentionJob
from tests.database import Database
from tests.eventually import eventually

VIEWS, EVENTS = 2, 3


def add_sessions(database: Database, count: int) -> list[UUID]:
    return [database.session(views=VIEWS, events=EVENTS) for _ in range(count)]


def test_a_cap_leaves_whole_sessions(database: Database) -> None:
    """case B7"""
    add_sessions(database, 5)

    result = database.run(batch_size="2", max_batches_per_run="2")

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "max_batches", True)
    assert database.counts() == (1, VIEWS, EVENTS)


def test_a_cancelled_batch_leaves_whole_sessions(database: Database) -> None:
    """case B7, D9: cancelled between the deletion of children and of their parents."""
    sessions = add_sessions(database, 6)
    job = ActivityRetentionJob(database.settings(batch_size="2", lock_timeout="60s"), watch=lambda _: None)
    with ThreadPoolExecutor() as pool, database.gate("sessions", sessions[2]) as gate:
        run = pool.submit(job.run)
        eventually(gate.waiting)
        job.cancel()

        result = run.result()

    assert (result.outcome, result.stop_reason, result.has_more) == ("cancelled", "cancelled", True)
    assert result.batches_processed == 1
    assert result.failure is None
    assert database.counts() == (4, 4 * VIEWS, 4 * EVENTS)
    assert database.lock_is_free()


def test_a_failed_batch_leaves_whole_sessions(database: Database) -> None:
    """case B7: the parents' deletion fails after that of the children."""
    sessions = add_sessions(database, 4)
    database.before("DELETE", "sessions", f"IF OLD.id = '{sessions[3]}' THEN RAISE EXCEPTION 'no'; END IF")

    result = database.run(batch_size="2")

    assert (result.outcome, database.counts()) == ("failed", (2, 2 * VIEWS, 2 * EVENTS))
