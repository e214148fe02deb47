"""Sample data: the size that was asked for, the same for the same seed, and whole."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from activity_retention.sandbox.sample import BULK, Sample, load_expired, load_sample
from activity_retention.sandbox.schema import create_schema
from activity_retention.sandbox.server import private_server

NewDatabase = Callable[[], Connection[TupleRow]]

# Timestamps as distances from the newest, so that loads at different moments compare.
CONTENT = """
    SELECT id::text, user_id::text, anonymous_id::text, status, NULL::uuid, NULL::jsonb,
           created_at - max(created_at) OVER () AS at, ended_at - max(ended_at) OVER () AS until
      FROM user_activity.sessions
    UNION ALL
    SELECT id::text, session_id::text, property_object_id::text, NULL, apply_filter_event_id, NULL,
           started_at - max(started_at) OVER (), duration
      FROM user_activity.property_object_views
    UNION ALL
    SELECT id::text, session_id::text, NULL, kind, property_object_view_id, payload,
           occurred_at - max(occurred_at) OVER (), NULL
      FROM user_activity.action_events
    UNION ALL
    SELECT property_object_id::text, views_count::text, NULL, NULL, NULL, NULL, NULL, total_duration
      FROM user_activity.property_object_view_stats
    ORDER BY 1
"""


@pytest.fixture(scope="module")
def new_database(binaries: Path | None) -> Iterator[NewDatabase]:
    """Makes databases with the reference schema and no rows."""
    with private_server(binaries) as server:
        opened: list[Connection[TupleRow]] = []

        def create() -> Connection[TupleRow]:
            name = f"sample_{uuid4().hex}"
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            opened.append(psycopg.connect(server.url(name), autocommit=True))
            create_schema(opened[-1])
            return opened[-1]

        yield create
        for connection in opened:
            connection.close()


@pytest.fixture(scope="module")
def mixed(new_database: NewDatabase) -> tuple[Connection[TupleRow], Sample]:
    connection = new_database()
    return connection, load_sample(connection, rows=2 * BULK)


def value(connection: Connection[TupleRow], query: str) -> int:
    [(number,)] = connection.execute(query.encode())
    return int(number)


def count(connection: Connection[TupleRow], table: str, condition: str = "true") -> int:
    return value(connection, f"SELECT count(*) FROM user_activity.{table} WHERE {condition}")


def keys_and_indexes(connection: Connection[TupleRow]) -> list[TupleRow]:
    return connection.execute("""
        SELECT conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint
         WHERE connamespace = 'user_activity'::regnamespace
        UNION ALL
        SELECT indexname, indexdef, true FROM pg_indexes WHERE schemaname = 'user_activity'
         ORDER BY 1, 2
    """).fetchall()


def test_it_has_about_the_rows_that_were_asked_for(mixed: tuple[Connection[TupleRow], Sample]) -> None:
    connection, sample = mixed
    assert sample.rows == pytest.approx(2 * BULK, rel=0.15)
    assert sample.sessions == count(connection, "sessions")
    assert sample.property_object_views == count(connection, "property_object_views")
    assert sample.action_events == count(connection, "action_events")


def test_about_two_fifths_of_it_are_expired(mixed: tuple[Connection[TupleRow], Sample]) -> None:
    connection, sample = mixed
    expired = count(connection, "sessions", "status = 'Inactive' AND ended_at < now() - interval '365 days'")
    assert expired == pytest.approx(sample.sessions * 0.4, rel=0.1)


@pytest.mark.parametrize(
    "kind",
    [
        "user_id IS NOT NULL AND anonymous_id IS NULL",
        "user_id IS NULL AND anonymous_id IS NOT NULL",
        "user_id IS NOT NULL AND anonymous_id IS NOT NULL",
        "status = 'Active' AND created_at < now() - interval '365 days'",
        "status = 'Active' AND ended_at < now() - interval '365 days'",
        "status = 'Active' AND created_at > now() - interval '30 days'",
        "NOT EXISTS (SELECT FROM user_activity.action_events WHERE session_id = sessions.id)",
        "(SELECT count(*) FROM user_activity.action_events WHERE session_id = sessions.id) > 1000",
    ],
)
def test_it_has_sessions_of_every_kind(mixed: tuple[Connection[TupleRow], Sample], kind: str) -> None:
    assert count(mixed[0], "sessions", kind) > 0


def test_references_are_filled_for_a_part_and_stay_within_a_session(
    mixed: tuple[Connection[TupleRow], Sample],
) -> None:
    connection, sample = mixed
    inside = """
        SELECT count(*) FROM user_activity.action_events AS event
          JOIN user_activity.property_object_views AS view
            ON {} AND view.session_id = event.session_id
    """
    of_events = value(connection, inside.format("view.id = event.property_object_view_id"))
    of_views = value(connection, inside.format("event.id = view.apply_filter_event_id"))
    assert of_events == count(connection, "action_events", "property_object_view_id IS NOT NULL")
    assert of_views == count(connection, "property_object_views", "apply_filter_event_id IS NOT NULL")
    assert 0 < of_events < sample.action_events
    assert 0 < of_views < sample.property_object_views


def test_the_stats_count_every_view(mixed: tuple[Connection[TupleRow], Sample]) -> None:
    [(differing,)] = mixed[0].execute("""
        SELECT count(*)
          FROM user_activity.property_object_view_stats AS stats
          FULL JOIN (SELECT property_object_id, count(*) AS views, sum(duration) AS total
                       FROM user_activity.property_object_views
                      GROUP BY property_object_id) AS counted USING (property_object_id)
         WHERE (stats.views_count, stats.total_duration) IS DISTINCT FROM (counted.views, counted.total)
    """)
    assert differing == 0


def test_nothing_comes_of_age_within_half_an_hour_of_loading(new_database: NewDatabase) -> None:
    connection = new_database()
    load_sample(connection, rows=3000)
    a_minute_for_the_load = 60
    oldest_minute = "SELECT max(extract(epoch FROM now() - ended_at)::bigint % 3600) FROM user_activity.sessions"
    assert value(connection, oldest_minute) <= 1800 + a_minute_for_the_load


def test_the_same_seed_makes_the_same_rows(new_database: NewDatabase) -> None:
    first, second, other = new_database(), new_database(), new_database()
    load_sample(first, rows=3000, seed=7)
    load_sample(second, rows=3000, seed=7)
    load_sample(other, rows=3000, seed=8)
    content = first.execute(CONTENT).fetchall()
    assert content == second.execute(CONTENT).fetchall()
    assert content != other.execute(CONTENT).fetchall()


def test_a_bulk_load_gives_back_every_key_and_index(new_database: NewDatabase) -> None:
    connection = new_database()
    before = keys_and_indexes(connection)
    assert load_expired(connection, BULK // 12 + 1).rows >= BULK
    assert keys_and_indexes(connection) == before


def test_a_small_load_waits_for_no_reader(new_database: NewDatabase) -> None:
    connection = new_database()
    with psycopg.connect(connection.info.dsn) as reader:
        reader.execute("SELECT FROM user_activity.sessions")
        connection.execute("SET lock_timeout = '5s'")
        assert load_expired(connection, 10).rows == 120


def test_expired_sessions_are_equal_and_oldest_first(new_database: NewDatabase) -> None:
    connection = new_database()
    sample = load_expired(connection, 100)
    assert sample == Sample(sessions=100, property_object_views=300, action_events=800)
    assert count(connection, "sessions", "status = 'Inactive'") == 100
    assert count(connection, "action_events", "property_object_view_id IS NOT NULL") == 300
    assert count(connection, "property_object_views", "apply_filter_event_id IS NOT NULL") == 100
    ended = [at for (at,) in connection.execute("SELECT ended_at FROM user_activity.sessions ORDER BY ctid")]
    assert ended == sorted(set(ended))
    assert count(connection, "sessions", "ended_at < now() - interval '400 days'") == 100


def test_expired_sessions_can_be_shaped(new_database: NewDatabase) -> None:
    connection = new_database()
    load_expired(connection, 10, views_per_session=0, events_per_session=0, ended_ago="2 days")
    load_expired(
        connection,
        10,
        views_per_session=2,
        events_per_session=4,
        views_filled=1,
        events_filled=0,
        seed=2,
    )
    assert count(connection, "sessions", "ended_at > now() - interval '3 days'") == 10
    assert count(connection, "property_object_views", "apply_filter_event_id IS NOT NULL") == 20
    assert count(connection, "action_events", "property_object_view_id IS NOT NULL") == 0
