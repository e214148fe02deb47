"""Cases A: what a long backlog, a slow row or a missing index does to a run."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL

from activity_retention import statements
from activity_retention.doctor import Finding
from activity_retention.events import BatchCommitted, Event, Warned
from activity_retention.policy import USER_ACTIVITY, Table
from activity_retention.sandbox.sample import load_expired
from activity_retention.session import Connection, open_session
from tests.database import Database
from tests.eventually import eventually

VIEW_INDEX = "user_activity.action_events_property_object_view_id_idx"
EVENTS, VIEWS, SESSIONS = USER_ACTIVITY.tables


@pytest.fixture
def pinned(database: Database) -> Iterator[Connection]:
    with open_session(
        database.url(),
        application_name="a case",
        statement_timeout=timedelta(seconds=60),
        lock_timeout=timedelta(seconds=5),
    ) as session:
        yield session.connection


@pytest.fixture
def old_snapshot(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Another session's long transaction over a backlog of 30,000: nothing deleted now can be vacuumed."""
    load_expired(database.connect(), 30_000, views_per_session=0, events_per_session=0)
    connection = database.connect(autocommit=False)
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT count(*) FROM user_activity.sessions")
    yield connection
    connection.rollback()


def buffers_of_pick(connection: Connection, floor: str | None) -> int:
    """Pages that a pick of ten touches, in a transaction that is rolled back: few enough for the way to the first
    of them to show."""
    query = SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ") + statements.pick(
        USER_ACTIVITY, floor=floor is not None
    )
    with connection.transaction(force_rollback=True):
        row = connection.execute(query, {"cutoff": "now", "floor": floor, "size": 10}).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_the_pick_of_a_late_batch_costs_as_much_as_that_of_an_early_one(
    database: Database, pinned: Connection, old_snapshot: psycopg.Connection[Any]
) -> None:
    """Case A1: without a floor each pick walks the dead index entries of all batches before it."""
    with_floor, without = {}, {}

    def measure(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index in (1, 23):
            row = old_snapshot.execute(
                "SELECT ended_at::text FROM user_activity.sessions ORDER BY ended_at OFFSET %s LIMIT 1",
                [1000 * event.index - 1],
            ).fetchone()
            assert row is not None
            with_floor[event.index + 1] = buffers_of_pick(pinned, row[0])
            without[event.index + 1] = buffers_of_pick(pinned, None)

    result = database.run(watch=measure, batch_size="1000", max_batches_per_run="24")

    assert result.batches_processed == 24
    assert with_floor[24] < with_floor[2] * 1.5
    assert without[24] > without[2] * 5


def test_a_run_reads_each_index_entry_a_few_times_however_many_batches_it_takes(
    database: Database, old_snapshot: psycopg.Connection[Any]
) -> None:
    """Case A1 over the job itself: once for the backlog, once for the batches, and once more for the last look
    without a floor. Without the floor thirty batches would read 465,000 entries."""
    query = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'sessions_inactive_ended_at_idx'"
    before = database.value(query)

    result = database.run(batch_size="1000")

    assert (result.outcome, result.stop_reason, result.batches_processed) == ("completed", "empty", 30)
    assert old_snapshot.execute("SELECT count(*) FROM user_activity.sessions").fetchone() == (30_000,)
    read = eventually(lambda: max(0, database.value(query) - before - 60_000)) + 60_000
    assert read < 5 * 30_000


def test_the_floor_is_forgotten_with_the_run(database: Database) -> None:
    """Case A1: what a run passed over is seen again by the next."""
    database.expired(6)
    oldest = database.oldest()
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM user_activity.sessions WHERE id = %s FOR UPDATE", [oldest])

    first = database.run(batch_size="2")
    holder.rollback()
    second = database.run(batch_size="2")

    assert (first.rows, first.left_locked) == (5, True)
    assert (second.rows, second.left_locked, database.count("sessions")) == (1, False, 0)


def test_a_batch_that_outlives_the_runs_time_is_cut_and_rolled_back_whole(database: Database) -> None:
    """Case A2: the limit bounds the statement as well, not only the moments between batches."""
    for minutes in range(8):
        database.session(ended=f"{400 * 24 * 60 - minutes} minutes", views=1, events=2)
    database.before("DELETE", "sessions", f"IF OLD.id = '{database.oldest(5)}' THEN PERFORM pg_sleep(20); END IF")

    result = database.run(batch_size="2", max_run_duration="3s")

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "max_duration", True)
    assert (result.batches_processed, result.failure) == (2, None)
    assert result.deleted == {SESSIONS: 4, VIEWS: 4, EVENTS: 8}
    assert database.counts() == (4, 4, 8)
    assert database.lock_is_free()


def test_rows_that_are_slow_throughout_end_the_run_at_its_limit(database: Database) -> None:
    """Case A2: earlier batches stay, the backlog remains."""
    database.expired(400)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(0.02)")

    result = database.run(batch_size="10", max_run_duration="2s")

    assert (result.outcome, result.stop_reason, result.has_more) == ("completed", "max_duration", True)
    assert 0 < result.rows < 400
    assert result.rows == 10 * result.batches_processed
    assert database.count("sessions") == 400 - result.rows


def warned(database: Database) -> list[Finding]:
    """What a run warns of."""
    found: list[Finding] = []

    def listen(event: Event) -> None:
        if isinstance(event, Warned) and isinstance(event.finding, Finding):
            found.append(event.finding)

    assert database.run(watch=listen).outcome == "completed"
    return found


def test_the_reference_schema_has_every_index_that_a_run_needs(database: Database) -> None:
    """Case A3: two of its indexes are partial, WHERE the column IS NOT NULL."""
    assert warned(database) == []


@pytest.mark.parametrize(
    ("index", "table", "column"),
    [
        ("action_events_property_object_view_id_idx", "action_events", "property_object_view_id"),
        ("property_object_views_apply_filter_event_id_idx", "property_object_views", "apply_filter_event_id"),
        ("action_events_session_id_idx", "action_events", "session_id"),
        ("property_object_views_session_id_idx", "property_object_views", "session_id"),
    ],
)
def test_a_missing_index_is_warned_of_with_the_statement_that_mends_it(
    database: Database, index: str, table: str, column: str
) -> None:
    """Case A3."""
    database.execute(f"DROP INDEX user_activity.{index}")

    (finding,) = warned(database)
    assert finding.level == "warning"
    assert f"user_activity.{table}" in finding.message
    assert column in finding.message

    database.execute(finding.mend)
    assert warned(database) == []


@pytest.mark.parametrize(
    ("substitute", "serves"),
    [
        ("(property_object_view_id)", True),
        ("(property_object_view_id, kind)", True),
        ("(property_object_view_id) WHERE property_object_view_id IS NOT NULL", True),
        ("USING hash (property_object_view_id)", True),
        ("(kind, property_object_view_id)", False),
        ("(kind) INCLUDE (property_object_view_id)", False),
        ("(property_object_view_id) WHERE kind = 'click'", False),
        ("((property_object_view_id::text))", False),
        ("USING brin (occurred_at)", False),
    ],
)
def test_only_an_index_that_leads_with_the_column_and_holds_every_reference_serves(
    database: Database, substitute: str, serves: bool
) -> None:
    """Cases A3 and D4."""
    database.execute(f"DROP INDEX {VIEW_INDEX}")
    database.execute(f"CREATE INDEX ON user_activity.action_events {substitute}")

    assert [finding.id for finding in warned(database)] == ([] if serves else ["foreign_key_without_index"])


def test_an_invalid_index_does_not_serve(database: Database) -> None:
    """Case A3: CREATE INDEX CONCURRENTLY leaves one behind when it fails."""
    database.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [VIEW_INDEX])

    assert [finding.id for finding in warned(database)] == ["foreign_key_without_index"]


def test_a_batch_without_the_index_is_bounded(database: Database) -> None:
    """Case A3: slow is not endless."""
    database.execute(f"DROP INDEX {VIEW_INDEX}")
    load_expired(database.connect(), 200, views_per_session=2, events_per_session=2)

    assert database.run(max_run_duration="30s").outcome == "completed"


UPDATED = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = %s"
DELETED = "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = %s"


def test_rows_that_refer_to_each_other_go_without_being_updated_first(database: Database) -> None:
    """Case A5: deleted in statements of their own, the SET NULL keys would update them a moment before."""
    loaded = load_expired(
        database.connect(), 300, views_per_session=3, events_per_session=4, views_filled=1, events_filled=1
    )

    result = database.run(batch_size="100")

    assert (result.outcome, database.counts()) == ("completed", (0, 0, 0))
    assert result.deleted == {
        SESSIONS: loaded.sessions,
        VIEWS: loaded.property_object_views,
        EVENTS: loaded.action_events,
    }
    for table, count in ((VIEWS, 900), (EVENTS, 1200)):
        eventually(lambda table=table, count=count: database.value(DELETED, [table.name]) == count)  # type: ignore[misc]
        assert database.value(UPDATED, [table.name]) == 0


@pytest.mark.parametrize("first", [VIEWS, EVENTS])
def test_separate_statements_do_update_them(database: Database, first: Table) -> None:
    """Case A5, the contrast: otherwise the counter above would prove nothing."""
    load_expired(database.connect(), 10, views_per_session=3, events_per_session=4, views_filled=1, events_filled=1)
    second = EVENTS if first == VIEWS else VIEWS

    database.execute(f"DELETE FROM {first}")

    eventually(lambda: database.value(UPDATED, [second.name]) > 0)


def test_a_status_bound_as_a_parameter_would_lose_the_partial_index(database: Database, pinned: Connection) -> None:
    """Case A9: the literal is what a generic plan can match with the index's condition."""
    load_expired(database.connect(), 2000, views_per_session=0, events_per_session=0)

    def plan(condition: str) -> str:
        with pinned.transaction(force_rollback=True):
            pinned.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            pinned.execute(
                f"""
                PREPARE pick (text) AS
                SELECT id FROM user_activity.sessions
                 WHERE {condition} AND ended_at < now() - interval '365 days'
                 ORDER BY ended_at LIMIT 500 FOR UPDATE SKIP LOCKED
                """.encode()
            )
            rows = pinned.execute("EXPLAIN EXECUTE pick ('Inactive')").fetchall()
            pinned.execute("DEALLOCATE pick")
        return "\n".join(line for (line,) in rows)

    assert "sessions_inactive_ended_at_idx" in plan("status = 'Inactive'")
    assert "sessions_inactive_ended_at_idx" not in plan("status = $1")


def test_nothing_is_prepared_however_often_it_runs(pinned: Connection) -> None:
    """Case A9: psycopg would prepare at the sixth execution, and the server might then take a generic plan."""
    query = statements.pick(USER_ACTIVITY, floor=True)
    for _ in range(12):
        pinned.execute(query, {"cutoff": "now", "floor": "-infinity", "size": 1})

    assert pinned.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_a_plan_cache_mode_that_the_role_forces_does_not_bite(database: Database) -> None:
    """Case A9."""
    database.execute(f"ALTER DATABASE {database.name} SET plan_cache_mode = force_generic_plan")
    with open_session(
        database.url(),
        application_name="case A9",
        statement_timeout=timedelta(seconds=60),
        lock_timeout=timedelta(seconds=5),
    ) as session:
        assert session.connection.execute("SHOW plan_cache_mode").fetchone() == ("auto",)


@pytest.mark.parametrize(
    ("sessions", "capped"),
    [
        pytest.param(4, False, id="less than the cap"),
        pytest.param(6, True, id="just the cap"),
        pytest.param(8, True, id="a batch more"),
        pytest.param(800, True, id="far more"),
    ],
)
def test_a_capped_run_differs_from_a_drained_one_and_says_how_much_there_was(
    database: Database, sessions: int, capped: bool
) -> None:
    """Case A13: one batch left and fifty million do not look the same."""
    database.expired(sessions)

    result = database.run(batch_size="2", max_batches_per_run="3")

    assert (result.stop_reason, result.has_more) == (("max_batches", True) if capped else ("empty", False))
    assert (result.eligible_backlog, result.backlog_exact) == (sessions, True)
    assert database.count("sessions") == max(0, sessions - 6)
