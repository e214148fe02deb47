"""How the server reads tables for a batch: by the indexes made for it, whatever it knows of the rows."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg.sql import SQL, Composable

from activity_retention import statements
from activity_retention.policy import USER_ACTIVITY
from activity_retention.sandbox.sample import load_expired
from activity_retention.sandbox.server import PrivateServer
from activity_retention.session import Connection, open_session
from tests.conftest import cloned
from tests.database import Database

PARTIAL = "sessions_inactive_ended_at_idx"
PICK = {"sessions": {PARTIAL}}
BATCH = {
    "sessions": {PARTIAL, "sessions_pkey"},
    "property_object_views": {"property_object_views_session_id_idx"},
    "action_events": {"action_events_session_id_idx"},
}
ORDERLY = {"Aggregate", "CTE Scan", "Limit", "LockRows", "ModifyTable", "Result"}
INDEXED = {"Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan"}
SIZES = [500, 5000, 50_000]


def load_backlog(database: Database, sessions: int) -> None:
    load_expired(database.connect(), sessions, views_per_session=1, events_per_session=2)


def forget_statistics(database: Database, rows: int) -> None:
    """As if the tables had never been analysed (`rows` -1), or only while they were empty (0)."""
    tables = "SELECT oid FROM pg_class WHERE relnamespace = 'user_activity'::regnamespace AND relkind = 'r'"
    database.execute(f"DELETE FROM pg_statistic WHERE starelid IN ({tables})")
    database.execute(
        f"UPDATE pg_class SET reltuples = %s, relpages = 0, relallvisible = 0 WHERE oid IN ({tables})", [rows]
    )
    database.execute(
        f"""
        UPDATE pg_class SET reltuples = 0, relpages = 1
         WHERE oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN ({tables}))
        """
    )


def never_filled(_: Database) -> None:
    pass


def filled_and_analysed(database: Database) -> None:
    load_backlog(database, 200_000)


def filled_and_never_analysed(database: Database) -> None:
    load_backlog(database, 60_000)
    forget_statistics(database, -1)


def filled_since_it_was_analysed_empty(database: Database) -> None:
    load_backlog(database, 60_000)
    forget_statistics(database, 0)


def skewed(database: Database) -> None:
    """Three sessions own nearly all events."""
    load_backlog(database, 20_000)
    database.execute(
        """
        INSERT INTO user_activity.action_events (id, session_id, kind, occurred_at)
        SELECT gen_random_uuid(), id, 'click', now()
          FROM (SELECT id FROM user_activity.sessions ORDER BY ended_at LIMIT 3) AS big, generate_series(1, 60000)
        """
    )
    database.execute("ANALYZE")


def mostly_young(database: Database) -> None:
    """One session in a thousand is expired, which is what a nightly run finds."""
    load_backlog(database, 60_000)
    database.execute(
        """
        UPDATE user_activity.sessions SET ended_at = ended_at + interval '300 days'
         WHERE mod(hashtext(id::text), 1000) <> 0
        """
    )
    database.execute("ANALYZE")


def mostly_active(database: Database) -> None:
    load_backlog(database, 20_000)
    database.execute("UPDATE user_activity.sessions SET status = 'Active' WHERE mod(hashtext(id::text), 100) <> 0")
    database.execute("ANALYZE")


STATES: list[Callable[[Database], None]] = [
    never_filled,
    filled_and_analysed,
    filled_and_never_analysed,
    filled_since_it_was_analysed_empty,
    skewed,
    mostly_young,
    mostly_active,
]


@pytest.fixture(scope="module", params=STATES, ids=lambda fill: fill.__name__)
def filled(server: PrivateServer, request: pytest.FixtureRequest) -> Iterator[Database]:
    with cloned(server) as database:
        for table in USER_ACTIVITY.tables:
            database.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        request.param(database)
        yield database


@pytest.fixture(scope="module")
def session(filled: Database) -> Iterator[Connection]:
    """Pinned as the job's own."""
    with open_session(
        filled.url(),
        application_name="plan guard",
        statement_timeout=timedelta(seconds=60),
        lock_timeout=timedelta(seconds=5),
    ) as session:
        yield session.connection


@pytest.fixture(scope="module")
def bounds(filled: Database) -> dict[str, Any]:
    """A run's cutoff, and a floor where half of the backlog is gone."""
    query = """
        SELECT (now() - interval '365 days')::text,
               COALESCE(percentile_disc(0.5) WITHIN GROUP (ORDER BY ended_at), now() - interval '400 days')::text
          FROM user_activity.sessions
         WHERE status = 'Inactive' AND ended_at < now() - interval '365 days'
        """
    ((cutoff, floor),) = filled.execute(query)
    return {"key": 1, "cutoff": cutoff, "floor": floor}


def plan(connection: Connection, query: Composable, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of the plan for these values, as the job gets it."""
    row = connection.execute(SQL("EXPLAIN (FORMAT JSON) ") + query, values).fetchone()
    assert row is not None
    return list(nodes(row[0][0]["Plan"]))


def generic_plan(connection: Connection, query: Composable, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of a plan made for any values, as a prepared statement may get it."""
    text = query.as_string(connection)
    for number, name in enumerate(values, start=1):
        text = text.replace(f"%({name})s", f"${number}")
    literals = SQL(", ").join(map(SQL("{}").format, values.values()))
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE guarded (bigint, text, text, bigint) AS {text}".encode())
        row = connection.execute(SQL("EXPLAIN (FORMAT JSON) EXECUTE guarded ({})").format(literals)).fetchone()
        connection.execute("DEALLOCATE guarded")
    assert row is not None
    return list(nodes(row[0][0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for part in node.get("Plans", []):
        yield from nodes(part)


def indexes(found: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The indexes by which each table is read."""
    read: dict[str, set[str]] = {}
    for node in found:
        if "Relation Name" in node and "Scan" in node["Node Type"]:
            by = {part["Index Name"] for part in nodes(node) if "Index Name" in part}
            read.setdefault(node["Relation Name"], set()).update(by or {"nothing"})
    return read


def kinds(found: list[dict[str, Any]]) -> set[str]:
    return {node["Node Type"] for node in found}


@pytest.mark.parametrize("explain", [plan, generic_plan])
@pytest.mark.parametrize("floor", [False, True], ids=["without floor", "with floor"])
@pytest.mark.parametrize("size", SIZES)
def test_a_batch_reads_every_table_by_its_index_and_sorts_nothing(
    session: Connection,
    bounds: dict[str, Any],
    size: int,
    floor: bool,
    explain: Callable[..., list[dict[str, Any]]],
) -> None:
    """Case A9 as well: a generic plan still finds the partial index, since the state is a literal."""
    found = explain(session, statements.batch(USER_ACTIVITY, floor=floor), bounds | {"size": size})
    assert indexes(found) == BATCH
    assert kinds(found) <= ORDERLY | INDEXED


@pytest.mark.parametrize("explain", [plan, generic_plan])
@pytest.mark.parametrize("floor", [False, True], ids=["without floor", "with floor"])
@pytest.mark.parametrize("size", SIZES)
def test_a_pick_walks_the_partial_index_in_its_order(
    session: Connection,
    bounds: dict[str, Any],
    size: int,
    floor: bool,
    explain: Callable[..., list[dict[str, Any]]],
) -> None:
    found = explain(session, statements.pick(USER_ACTIVITY, floor=floor), bounds | {"size": size})
    assert indexes(found) == PICK
    assert kinds(found) == {"LockRows", "Limit", "Index Scan"}


@pytest.mark.parametrize("size", SIZES)
def test_a_batch_of_known_roots_reads_no_table_from_end_to_end(
    session: Connection, bounds: dict[str, Any], size: int
) -> None:
    values = bounds | {"size": size}
    ids = [row[0] for row in session.execute(statements.pick(USER_ACTIVITY), values)]
    found = plan(session, statements.batch(USER_ACTIVITY, listed=True), {**values, "ids": ids})
    assert "nothing" not in set().union(*indexes(found).values())
    assert "Seq Scan" not in kinds(found)
