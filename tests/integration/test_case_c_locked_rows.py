"""Rows and tables that others hold (cases C2, C5, C8, D11), and the size of a batch under any plan (case C3)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from activity_retention import statements
from activity_retention.batch import Selection
from activity_retention.events import BatchCommitted, Event, Retrying, Started
from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.policy import USER_ACTIVITY
from tests.database import Database
from tests.eventually import eventually

# With these off, DELETE … WHERE id IN (SELECT … LIMIT 5 FOR UPDATE) takes every row of 60, on 15 and on 18.
PLANS = ("hashjoin", "mergejoin", "sort", "material", "hashagg")


def test_a_deadlock_with_a_child_first_writer_is_tried_again(database: Database) -> None:
    """case C2: the writer goes on, the job is the victim, and what it had committed stays."""
    database.expired(2)
    held = database.session(ended="390 days", views=1, events=1)
    wanted = database.session(ended="390 days", views=1, events=1)
    # The job looks for deadlocks soon, the writer never.
    database.execute(f"ALTER ROLE activity_retention IN DATABASE {database.name} SET deadlock_timeout = '20ms'")
    writer = database.connect(autocommit=False)
    writer.execute("SET LOCAL deadlock_timeout = '1h'")
    writer.execute("SELECT FROM user_activity.property_object_views WHERE session_id = %s FOR UPDATE", [held])
    events: list[Event] = []
    with ThreadPoolExecutor() as pool, database.gate("action_events") as gate:
        run = pool.submit(
            database.run,
            watch=events.append,
            batch_size="2",
            lock_timeout="60s",
            database_url=database.url("activity_retention"),
        )
        eventually(gate.waiting)
        insert = pool.submit(
            writer.execute,
            """
            INSERT INTO user_activity.action_events (id, session_id, kind, occurred_at)
            VALUES (gen_random_uuid(), %s, 'click', now())
            """,
            [wanted],
        )
        eventually(
            lambda: database.value("SELECT pg_blocking_pids(%s) <> '{}'", [writer.info.backend_pid]),
        )
        gate.open()
        insert.result()
        writer.commit()

        result = run.result()

    conflicts = [event for event in events if isinstance(event, Retrying)]
    assert conflicts[0].sqlstate == "40P01"
    assert result.retries == len(conflicts)
    assert (result.outcome, result.rows, database.counts()) == ("completed", 2 + 3 + 4, (0, 0, 0))


def test_deadlocks_are_tried_again_a_bounded_number_of_times(database: Database) -> None:
    """case C2: never an endless loop; committed batches are kept."""
    database.expired(6)
    cursed = database.oldest(4)
    database.before(
        "DELETE",
        "sessions",
        f"IF OLD.id = '{cursed}' THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF",
    )

    result = database.run(wait=lambda _: False, batch_size="2", batch_retries="3")

    assert (result.outcome, result.has_more, result.batches_processed) == ("failed", True, 2)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.sqlstate) == ("transient", "40P01")
    assert result.retries == 3
    assert database.count("sessions") == 2


@pytest.mark.parametrize("listed", [False, True])
def test_a_batch_takes_no_more_than_its_size_under_a_hostile_plan(database: Database, listed: bool) -> None:
    """case C3: a re-evaluated LIMIT would take all rows."""
    database.expired(60)
    ids = [row[0] for row in database.execute("SELECT id FROM user_activity.sessions ORDER BY ended_at LIMIT 30")]
    connection = database.connect()
    for plan in PLANS:
        connection.execute(f"SET enable_{plan} = off".encode())
    (cutoff,) = connection.execute("SELECT (now() - interval '365 days')::text").fetchone() or ("",)
    selection = Selection(lock_key(LOCK_NAME), cutoff, size=5)

    row = connection.execute(
        statements.batch(USER_ACTIVITY, listed=listed), {**selection.parameters, "ids": ids}
    ).fetchone()

    assert row is not None
    assert (row[1], row[-1]) == (5, 5)
    assert database.count("sessions") == 55
    assert database.value("SELECT count(*) FROM user_activity.sessions WHERE id = ANY (%s)", [ids]) == 25


def test_every_batch_of_a_run_keeps_to_its_size_under_a_hostile_plan(database: Database) -> None:
    """case C3"""
    for _ in range(12):
        database.session(views=2, events=2)
    for plan in PLANS:
        database.execute(f"ALTER DATABASE {database.name} SET enable_{plan} = off")
    sizes: list[int] = []

    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted):
            sizes.append(event.deleted[USER_ACTIVITY.root])

    result = database.run(watch=watch, batch_size="5")

    assert (result.outcome, sizes) == ("completed", [5, 5, 2])


def test_locked_sessions_are_skipped_counted_and_met_again(database: Database) -> None:
    """case C5"""
    database.expired(10)
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM user_activity.sessions ORDER BY ended_at LIMIT 3 FOR UPDATE")

    first = database.run(batch_size="2")
    holder.rollback()
    second = database.run(batch_size="2")

    assert (first.outcome, first.stop_reason, first.left_locked, first.rows) == ("completed", "empty", True, 7)
    assert (first.eligible_backlog, first.retries) == (10, 0)
    assert (second.outcome, second.left_locked, second.rows) == ("completed", False, 3)
    assert second.eligible_backlog == 3


def test_a_lock_that_is_let_go_during_the_run_leaves_nothing_behind(database: Database) -> None:
    """case C5: the floor of later batches does not pass over it."""
    database.expired(10)
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM user_activity.sessions ORDER BY ended_at LIMIT 3 FOR UPDATE")

    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == 2:
            holder.rollback()

    result = database.run(watch=watch, batch_size="2")

    assert (result.outcome, result.left_locked, result.rows) == ("completed", False, 10)


@pytest.mark.parametrize("table", ["action_events", "property_object_views"])
def test_a_session_with_a_locked_child_is_left_and_all_others_go(database: Database, table: str) -> None:
    """case C5: a child's lock does not show at the session."""
    sessions = [database.session(views=1, events=1) for _ in range(9)]
    holder = database.connect(autocommit=False)
    query = f"SELECT FROM user_activity.{table} WHERE session_id = %s FOR UPDATE"
    holder.execute(query.encode(), [sessions[4]])

    first = database.run(batch_size="4", lock_timeout="50ms", wait=lambda _: False)
    left = database.execute("SELECT id FROM user_activity.sessions")
    holder.rollback()
    second = database.run()

    assert (first.outcome, first.stop_reason, first.left_locked) == ("completed", "empty", True)
    assert (first.rows, left, database.counts()) == (24, [(sessions[4],)], (0, 0, 0))
    assert (second.outcome, second.rows, second.left_locked) == ("completed", 3, False)


@pytest.mark.parametrize("table", ["sessions", "property_object_views", "action_events"])
def test_a_locked_table_ends_the_run_soon_and_nothing_has_changed(database: Database, table: str) -> None:
    """case C8"""
    for _ in range(4):
        database.session(views=1, events=1)
    holder = database.connect(autocommit=False)
    holder.execute(f"LOCK TABLE user_activity.{table} IN ACCESS EXCLUSIVE MODE".encode())

    result = database.run(wait=lambda _: False, lock_timeout="100ms", batch_retries="1")
    holder.rollback()

    assert (result.outcome, result.has_more, result.rows) == ("failed", True, 0)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.sqlstate) == ("transient", "55P03")
    assert result.duration_seconds < 30
    assert database.counts() == (4, 4, 4)


def test_a_childs_table_that_gets_locked_in_mid_run_is_not_tried_session_by_session(database: Database) -> None:
    """case C8: no halving helps against a table lock, and each try waits for lock_timeout."""
    database.expired(64)
    holder = database.connect(autocommit=False)

    def watch(event: Event) -> None:
        if isinstance(event, Started):
            holder.execute("LOCK TABLE user_activity.action_events IN ACCESS EXCLUSIVE MODE")

    result = database.run(watch=watch, wait=lambda _: False, lock_timeout="50ms", batch_retries="2")
    holder.rollback()

    assert (result.outcome, result.rows, database.count("sessions")) == ("failed", 0, 64)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.sqlstate) == ("transient", "55P03")
    assert result.retries == 2


def test_a_table_that_is_locked_for_a_moment_costs_no_more_than_retries(database: Database) -> None:
    """case C8"""
    for _ in range(4):
        database.session(views=1, events=1)
    holder = database.connect(autocommit=False)
    holder.execute("LOCK TABLE user_activity.action_events IN ACCESS EXCLUSIVE MODE")

    def watch(event: Event) -> None:
        if isinstance(event, Retrying):
            holder.rollback()

    result = database.run(watch=watch, lock_timeout="100ms")

    assert (result.outcome, result.left_locked, database.counts()) == ("completed", False, (0, 0, 0))
    assert result.retries >= 1


@pytest.mark.parametrize("lock_timeout", ["50ms", "60s"])
def test_a_blocked_run_ends_at_its_limit(database: Database, lock_timeout: str) -> None:
    """case D11: within the limit and one lock_timeout, which is cut to the time left."""
    database.session(views=1, events=1)
    holder = database.connect(autocommit=False)
    holder.execute("LOCK TABLE user_activity.sessions IN ACCESS EXCLUSIVE MODE")

    result = database.run(max_run_duration="2s", lock_timeout=lock_timeout, batch_retries="1000000")
    holder.rollback()

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "max_duration", True)
    assert (result.rows, result.failure) == (0, None)
    assert 2 <= result.duration_seconds < 30


def test_a_run_that_waits_for_a_child_row_ends_at_its_limit(database: Database) -> None:
    """case D11"""
    database.session(views=1, events=1)
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM user_activity.action_events FOR UPDATE")

    result = database.run(max_run_duration="1s", lock_timeout="60s")
    holder.rollback()

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "max_duration", True)
    assert database.counts() == (1, 1, 1)
    assert 1 <= result.duration_seconds < 30
