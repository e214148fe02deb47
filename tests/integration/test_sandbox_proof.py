"""The proof accepts a correct run, and fails on every kind of damage."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from activity_retention.sandbox.proof import Baseline, Check, Counts, keep_baseline, prove
from activity_retention.sandbox.sample import load_sample
from activity_retention.sandbox.schema import create_schema
from activity_retention.sandbox.server import PrivateServer, private_server

EXPIRED = "status = 'Inactive' AND ended_at < now() - interval '365 days'"
ACTIVE = "(SELECT id FROM user_activity.sessions WHERE status = 'Active')"
YOUNGER = (
    "(SELECT id FROM user_activity.sessions WHERE status = 'Inactive' AND ended_at >= now() - interval '365 days')"
)
ONE_EVENT = "(SELECT min(id::text)::uuid FROM user_activity.action_events WHERE session_id IN {})"
ONE_VIEW = "(SELECT min(id::text)::uuid FROM user_activity.property_object_views WHERE session_id IN {})"


@pytest.fixture(scope="module")
def private(binaries: Path | None) -> Iterator[PrivateServer]:
    """A server with a small sample in the database `sample`."""
    with private_server(binaries) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE sample")
        with psycopg.connect(server.url("sample"), autocommit=True) as connection:
            create_schema(connection)
            load_sample(connection, rows=3000)
        yield server


@pytest.fixture
def connection(private: PrivateServer) -> Iterator[Connection[TupleRow]]:
    name = f"proof_{uuid4().hex}"
    with psycopg.connect(private.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE sample").format(sql.Identifier(name)))
    with psycopg.connect(private.url(name), autocommit=True) as connection:
        yield connection


@pytest.fixture
def baseline(connection: Connection[TupleRow]) -> Baseline:
    [(cutoff,)] = connection.execute("SELECT (now() - interval '365 days')::text")
    return keep_baseline(connection, cutoff)


def drain(connection: Connection[TupleRow], only: str = "true") -> Counts:
    """What a correct run does, with or without a limit."""
    with connection.transaction():
        connection.execute(
            f"CREATE TEMP TABLE gone ON COMMIT DROP AS "
            f"SELECT id FROM user_activity.sessions WHERE {EXPIRED} AND {only}".encode()
        )
        events, views, sessions = (
            connection.execute(
                f"DELETE FROM user_activity.{table} WHERE {key} IN (SELECT id FROM gone)".encode()
            ).rowcount
            for table, key in (
                ("action_events", "session_id"),
                ("property_object_views", "session_id"),
                ("sessions", "id"),
            )
        )
    return Counts(sessions, views, events)


def damage(connection: Connection[TupleRow], statement: str) -> None:
    """Changes exactly some rows, with no key or trigger in the way."""
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")
        assert connection.execute(statement.encode()).rowcount > 0


def failing(checks: tuple[Check, ...]) -> set[str]:
    return {check.name for check in checks if not check.holds}


def test_the_baseline_counts_what_may_go(connection: Connection[TupleRow], baseline: Baseline) -> None:
    assert baseline.expired.sessions > 50
    assert drain(connection) == baseline.expired


def test_a_correct_run_is_accepted(connection: Connection[TupleRow], baseline: Baseline) -> None:
    deleted = drain(connection)
    assert failing(prove(connection, baseline, deleted=deleted)) == set()


def test_a_correct_part_of_a_run_is_accepted(connection: Connection[TupleRow], baseline: Baseline) -> None:
    deleted = drain(connection, "id::text < '8'")
    assert failing(prove(connection, baseline, drained=False, deleted=deleted)) == set()
    assert failing(prove(connection, baseline)) == {"expired sessions that are left"}


def test_no_run_at_all_is_a_correct_part(connection: Connection[TupleRow], baseline: Baseline) -> None:
    assert failing(prove(connection, baseline, drained=False, deleted=Counts(0, 0, 0))) == set()


def test_a_baseline_survives_other_session_settings(connection: Connection[TupleRow], baseline: Baseline) -> None:
    drain(connection)
    connection.execute("SET TimeZone = 'Europe/Moscow'")
    connection.execute("SET IntervalStyle = 'iso_8601'")
    connection.execute("SET DateStyle = 'German'")
    assert failing(prove(connection, baseline)) == set()


@pytest.mark.parametrize(
    ("statement", "caught_by"),
    [
        (
            f"UPDATE user_activity.sessions SET user_id = gen_random_uuid() WHERE id IN {ACTIVE}",
            {"rows of Active sessions"},
        ),
        (
            f"UPDATE user_activity.sessions SET status = 'Inactive', ended_at = now() WHERE id IN {ACTIVE}",
            {
                *("rows of Active sessions", "views of Active sessions", "events of Active sessions"),
                *("rows of younger sessions", "views of younger sessions", "events of younger sessions"),
            },
        ),
        (
            f"UPDATE user_activity.sessions SET ended_at = ended_at + interval '1 us' WHERE id IN {YOUNGER}",
            {"rows of younger sessions"},
        ),
        (
            f"""UPDATE user_activity.action_events SET property_object_view_id = NULL
                 WHERE session_id IN {YOUNGER}""",
            {"events of younger sessions"},
        ),
        (
            f"""UPDATE user_activity.property_object_views SET apply_filter_event_id = NULL
                 WHERE session_id IN {ACTIVE}""",
            {"views of Active sessions"},
        ),
        (
            f"UPDATE user_activity.action_events SET payload = NULL WHERE session_id IN {ACTIVE}",
            {"events of Active sessions"},
        ),
        (
            f"""UPDATE user_activity.property_object_views SET started_at = now()
                 WHERE id = {ONE_VIEW.format(YOUNGER)}""",
            {"views of younger sessions"},
        ),
        (
            f"DELETE FROM user_activity.action_events WHERE id = {ONE_EVENT.format(YOUNGER)}",
            {"events of younger sessions"},
        ),
        (
            f"DELETE FROM user_activity.property_object_views WHERE id = {ONE_VIEW.format(ACTIVE)}",
            {"views of Active sessions"},
        ),
        (
            """DELETE FROM user_activity.sessions WHERE id = (
                   SELECT id FROM user_activity.sessions AS s WHERE status = 'Inactive' AND NOT EXISTS (
                   SELECT FROM user_activity.action_events WHERE session_id = s.id) LIMIT 1)""",
            {"rows of younger sessions"},
        ),
        (
            "UPDATE user_activity.property_object_view_stats SET views_count = views_count + 1",
            {"rows of property_object_view_stats"},
        ),
        (
            """UPDATE user_activity.property_object_view_stats
                  SET total_duration = total_duration - interval '48 hours' + interval '2 days'""",
            {"rows of property_object_view_stats"},
        ),
        (
            "DELETE FROM user_activity.property_object_view_stats",
            {"rows of property_object_view_stats"},
        ),
        (
            """INSERT INTO user_activity.action_events (id, session_id, kind, occurred_at)
               VALUES (gen_random_uuid(), gen_random_uuid(), 'left behind', now())""",
            {"events without their session"},
        ),
        (
            """INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
               VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), now())""",
            {"views without their session"},
        ),
        (
            f"""UPDATE user_activity.action_events SET property_object_view_id = gen_random_uuid()
                 WHERE id = {ONE_EVENT.format(YOUNGER)}""",
            {"events of a missing view", "events of younger sessions"},
        ),
        (
            f"""UPDATE user_activity.property_object_views SET apply_filter_event_id = gen_random_uuid()
                 WHERE id = {ONE_VIEW.format(ACTIVE)}""",
            {"views of a missing event", "views of Active sessions"},
        ),
    ],
)
def test_damage_beside_a_correct_run_is_caught(
    connection: Connection[TupleRow], baseline: Baseline, statement: str, caught_by: set[str]
) -> None:
    drain(connection)
    damage(connection, statement)
    # A deleted row may have been referred to by one that stays.
    assert caught_by <= failing(prove(connection, baseline))


def test_rows_that_swap_their_content_are_caught(connection: Connection[TupleRow], baseline: Baseline) -> None:
    damage(
        connection,
        f"""
        UPDATE user_activity.action_events AS event SET kind = other.kind
          FROM user_activity.action_events AS other
         WHERE event.session_id = other.session_id AND event.session_id IN {YOUNGER}
           AND event.kind <> other.kind
        """,
    )
    assert failing(prove(connection, baseline, drained=False)) == {"events of younger sessions"}


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM user_activity.action_events WHERE id = {ONE_EVENT}",
        f"DELETE FROM user_activity.property_object_views WHERE id = {ONE_VIEW}",
        f"UPDATE user_activity.action_events SET kind = 'altered' WHERE id = {ONE_EVENT}",
    ],
)
def test_an_expired_session_left_without_all_it_had_is_caught(
    connection: Connection[TupleRow], baseline: Baseline, statement: str
) -> None:
    drain(connection, "id::text < '8'")
    expired = f"(SELECT id FROM user_activity.sessions WHERE {EXPIRED})"
    damage(connection, statement.format(expired))
    assert "expired sessions that are left without all they had" in failing(
        prove(connection, baseline, drained=False)
    )


@pytest.mark.parametrize("lie", [(1, 0, 0), (0, 1, 0), (0, 0, -1)])
def test_a_wrong_report_is_caught(
    connection: Connection[TupleRow], baseline: Baseline, lie: tuple[int, int, int]
) -> None:
    done = drain(connection)
    reported = Counts(done.sessions + lie[0], done.property_object_views + lie[1], done.action_events + lie[2])
    assert failing(prove(connection, baseline, deleted=reported)) == {"deleted sessions / views / events"}
