"""Cases F: what a failed or killed run leaves behind, and how it reports itself."""

import os
import signal
import subprocess
import sys

import pytest

from activity_retention.events import BatchCommitted, Event, Retrying
from activity_retention.policy import USER_ACTIVITY
from tests.database import Database
from tests.eventually import eventually

EVENTS, VIEWS, SESSIONS = USER_ACTIVITY.tables


def poison(database: Database, offset: int) -> str:
    """Lets a table that the policy does not know refer to a session, counted from the oldest."""
    session = database.oldest(offset)
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute("CREATE INDEX ON public.notes (session_id)")
    database.execute("INSERT INTO public.notes VALUES (%s)", [session])
    return str(session)


def objects(database: Database) -> list[tuple[object, ...]]:
    """Everything there is in this database: relations, types, functions, schemas."""
    return database.execute(
        """
        SELECT 'relation', oid::text FROM pg_class UNION ALL
        SELECT 'type', oid::text FROM pg_type UNION ALL
        SELECT 'function', oid::text FROM pg_proc UNION ALL
        SELECT 'schema', nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_%%temp%%'
        ORDER BY 1, 2
        """
    )


def test_ten_failed_runs_leave_no_object_behind(database: Database) -> None:
    """Case F11."""
    database.expired(2)
    poison(database, 0)
    before = objects(database)

    for _ in range(10):
        for _ in range(2):
            database.session(ended="500 days", views=1, events=1)
        result = database.run(batch_size="2")
        assert (result.outcome, result.batches_processed) == ("failed", 1)

    assert objects(database) == before
    assert database.counts() == (2, 0, 0)


class Died(BaseException):
    """What no handler of the job's may catch."""


def test_batches_before_the_death_of_the_process_are_gone_for_good(database: Database) -> None:
    """Case F12."""
    for _ in range(10):
        database.session(views=1, events=2)

    def die(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == 3:
            raise Died

    with pytest.raises(Died):
        database.run(watch=die, batch_size="2")

    assert database.counts() == (4, 4, 8)
    assert eventually(database.lock_is_free)


KILLED = """
import os, signal
from activity_retention import ActivityRetentionJob, load_settings
from activity_retention.events import BatchCommitted

def kill(event):
    if isinstance(event, BatchCommitted) and event.index == 3:
        os.kill(os.getpid(), signal.SIGKILL)

ActivityRetentionJob(load_settings({"batch_size": "2"}).settings, watch=kill).run()
"""


def test_batches_before_a_kill_are_gone_and_the_next_run_takes_the_rest(database: Database) -> None:
    """Case F12: each batch was a transaction of its own."""
    for _ in range(10):
        database.session(views=1, events=2)

    environ = {**os.environ, "ACTIVITY_RETENTION_DATABASE_URL": database.url()}
    process = subprocess.run([sys.executable, "-c", KILLED], env=environ, check=False)

    assert process.returncode == -signal.SIGKILL
    assert database.counts() == (4, 4, 8)
    eventually(database.lock_is_free)
    assert (database.run().outcome, database.counts()) == ("completed", (0, 0, 0))


def test_a_run_that_fails_halfway_is_a_failure_that_counts_what_it_did(database: Database) -> None:
    """Case F15: batch 2 of 3 fails."""
    for hours in range(6):
        database.session(ended=f"{9600 - hours} hours", views=1, events=2)
    culprit = poison(database, 2)

    result = database.run(batch_size="2")

    assert (result.outcome, result.stop_reason, result.has_more) == ("failed", "failed", True)
    assert result.batches_processed == 1
    assert result.deleted == {SESSIONS: 2, VIEWS: 2, EVENTS: 4}
    assert database.counts() == (4, 4, 8)
    assert result.failure is not None
    assert result.failure.kind == "poison"
    assert culprit in result.failure.batch_ids
    assert len(result.failure.batch_ids) == 2


def test_what_follows_a_failed_statement_runs_on_a_clean_transaction(database: Database) -> None:
    """Case F19: the retries and the run by name say what was wrong, never that the transaction was aborted."""
    database.expired(4)
    poison(database, 1)
    states: list[str | None] = []

    def listen(event: Event) -> None:
        if isinstance(event, Retrying):
            states.append(event.sqlstate)

    result = database.run(watch=listen)

    assert states == ["23503", "23503"]
    assert result.failure is not None
    assert result.failure.sqlstate == "23503"
    assert "notes" in result.failure.message
    assert database.lock_is_free()


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "23503", "P0001"])
def test_a_batch_that_fails_once_succeeds_on_the_same_connection(database: Database, sqlstate: str) -> None:
    """Case F19: the failed attempt is rolled back first, whatever the error."""
    for _ in range(3):
        database.session(views=1, events=1)
    database.execute("CREATE SEQUENCE public.attempts")
    database.before(
        "DELETE",
        "sessions",
        f"IF nextval('public.attempts') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '{sqlstate}'; END IF",
    )
    pids: list[int] = []

    result = database.run(watch=lambda _: pids.extend(database.job_pids()))

    assert (result.outcome, result.failure, result.retries) == ("completed", None, 1)
    assert database.counts() == (0, 0, 0)
    assert len(set(pids)) == 1
