"""The reference schema: its rules, its indexes, and a role that can delete and nothing else."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.errors import CheckViolation, ForeignKeyViolation, InsufficientPrivilege, RestrictViolation
from psycopg.rows import TupleRow

from activity_retention.sandbox.schema import create_schema
from activity_retention.sandbox.server import PrivateServer, private_server
from activity_retention.sql import read_sql


@pytest.fixture(scope="module")
def private(binaries: Path | None) -> Iterator[PrivateServer]:
    with private_server(binaries) as server:
        yield server


@pytest.fixture
def name(private: PrivateServer) -> str:
    name = f"schema_{uuid4().hex}"
    with psycopg.connect(private.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return name


@pytest.fixture
def connection(private: PrivateServer, name: str) -> Iterator[Connection[TupleRow]]:
    with psycopg.connect(private.url(name), autocommit=True) as connection:
        create_schema(connection)
        yield connection


@pytest.fixture
def job(private: PrivateServer, name: str, connection: Connection[TupleRow]) -> Iterator[Connection[TupleRow]]:
    """A connection with no more than the job's own rights, to a session with a view and an event."""
    add_session(connection)
    with psycopg.connect(private.url(name, user="activity_retention"), autocommit=True) as job:
        yield job


def add_session(connection: Connection[TupleRow]) -> None:
    connection.execute("""
        WITH session AS (
            INSERT INTO user_activity.sessions (id, anonymous_id, status, created_at, ended_at)
            VALUES (gen_random_uuid(), gen_random_uuid(), 'Inactive', now(), now()) RETURNING id),
        view AS (
            INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
            SELECT gen_random_uuid(), id, gen_random_uuid(), now() FROM session RETURNING id, session_id)
        INSERT INTO user_activity.action_events (id, session_id, kind, property_object_view_id, occurred_at)
        SELECT gen_random_uuid(), session_id, 'contact-opened', id, now() FROM view
    """)
    connection.execute("""
        UPDATE user_activity.property_object_views
           SET apply_filter_event_id = (SELECT id FROM user_activity.action_events)
    """)


def test_psql_takes_what_the_schema_command_prints(private: PrivateServer, name: str) -> None:
    psql = private.binaries / "psql"
    if not psql.exists():
        pytest.skip("these binaries come without psql")
    printed = "\n".join((read_sql("tables"), read_sql("indexes"), read_sql("role")))
    subprocess.run([psql, "-X", "-v", "ON_ERROR_STOP=1", private.url(name)], input=printed, text=True, check=True)
    with psycopg.connect(private.url(name)) as connection:
        assert connection.execute("SELECT count(*) FROM user_activity.sessions").fetchall() == [(0,)]


def test_every_index_is_made_without_blocking_writers_and_only_once(
    connection: Connection[TupleRow],
) -> None:
    statements = [line for line in read_sql("indexes").splitlines() if line.startswith("CREATE")]
    assert len(statements) == 5
    for statement in statements:
        assert statement.startswith("CREATE INDEX CONCURRENTLY IF NOT EXISTS ")
    [(valid,)] = connection.execute("""
        SELECT count(*) FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON oid = indexrelid
         WHERE relnamespace = 'user_activity'::regnamespace AND relname LIKE '%_idx' AND indisvalid
    """)
    assert valid == 5


def test_the_role_can_be_granted_again(connection: Connection[TupleRow]) -> None:
    connection.execute(read_sql("role"))


@pytest.mark.parametrize(
    ("broken", "constraint"),
    [
        ("'Inactive', NULL, gen_random_uuid()", "sessions_inactive_has_ended"),
        ("'Closed', now(), gen_random_uuid()", "sessions_status_known"),
        ("'Active', NULL, NULL", "sessions_has_owner"),
    ],
)
def test_a_session_against_the_rules_is_refused(
    connection: Connection[TupleRow], broken: str, constraint: str
) -> None:
    with pytest.raises(CheckViolation, match=constraint):
        connection.execute(
            f"""
            INSERT INTO user_activity.sessions (id, created_at, status, ended_at, user_id)
            VALUES (gen_random_uuid(), now(), {broken})
            """.encode()
        )


def test_a_session_with_children_cannot_go_before_them(job: Connection[TupleRow]) -> None:
    with pytest.raises((ForeignKeyViolation, RestrictViolation)):
        job.execute("DELETE FROM user_activity.sessions")


def test_the_role_can_lock_and_delete_sessions_and_their_rows(job: Connection[TupleRow]) -> None:
    assert len(job.execute("SELECT id FROM user_activity.sessions FOR UPDATE SKIP LOCKED").fetchall()) == 1
    job.execute("DELETE FROM user_activity.action_events")
    assert job.execute("SELECT apply_filter_event_id FROM user_activity.property_object_views").fetchall() == [
        (None,)
    ]
    job.execute("DELETE FROM user_activity.property_object_views")
    job.execute("DELETE FROM user_activity.sessions")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM user_activity.property_object_view_stats",
        "UPDATE user_activity.property_object_view_stats SET views_count = 0",
        "DELETE FROM user_activity.property_object_view_stats",
        "UPDATE user_activity.sessions SET ended_at = now()",
        "UPDATE user_activity.action_events SET kind = 'x'",
        "INSERT INTO user_activity.sessions DEFAULT VALUES",
        "TRUNCATE user_activity.action_events",
        "CREATE TABLE user_activity.own ()",
    ],
)
def test_the_role_can_do_nothing_else(job: Connection[TupleRow], statement: str) -> None:
    with pytest.raises(InsufficientPrivilege):
        job.execute(statement.encode())
