"""Databases in which nothing can or may be deleted: refused, and never mistaken for nothing to do (case B11)."""

import pytest

from activity_retention.events import BatchCommitted, Event
from tests.database import Database

ROLE = "activity_retention"


def refusal(database: Database, user: str = "postgres") -> str:
    """The message of a run that must be refused, and must have changed nothing."""
    before = database.execute("SELECT id FROM user_activity.sessions ORDER BY id")

    result = database.run(database_url=database.url(user))

    assert (result.outcome, result.stop_reason, result.has_more) == ("refused", "refused", None)
    assert (result.rows, result.batches_processed) == (0, 0)
    assert database.execute("SELECT id FROM user_activity.sessions ORDER BY id") == before
    assert database.lock_is_free()
    assert result.failure is not None
    assert result.failure.kind == "refused"
    return result.failure.message


def test_the_documented_role_may_do_all_that_is_needed(database: Database) -> None:
    """case F4: what the refusals below differ from."""
    database.session(views=2, events=2)

    result = database.run(database_url=database.url(ROLE))

    assert (result.outcome, database.counts()) == ("completed", (0, 0, 0))


@pytest.mark.parametrize(
    ("right", "name"),
    [
        ("DELETE ON user_activity.action_events", "DELETE on user_activity.action_events"),
        ("DELETE ON user_activity.property_object_views", "DELETE on user_activity.property_object_views"),
        ("DELETE ON user_activity.sessions", "DELETE on user_activity.sessions"),
        ("SELECT ON user_activity.sessions", "SELECT on user_activity.sessions"),
        ("UPDATE (status) ON user_activity.sessions", "FOR UPDATE needs on user_activity.sessions"),
        ("USAGE ON SCHEMA user_activity", "USAGE on the schema on user_activity.sessions"),
    ],
)
def test_a_missing_right_is_refused_by_name(database: Database, right: str, name: str) -> None:
    """case B11, F4"""
    database.session(views=1, events=1)
    database.execute(f"REVOKE {right} FROM {ROLE}")

    message = refusal(database, ROLE)

    assert name in message
    assert "GRANT" in message


def test_a_missing_right_and_nothing_to_do_are_told_apart(database: Database) -> None:
    """case B11: with nothing past the cutoff the one is refused, the other is a success."""
    idle = database.run(database_url=database.url(ROLE))
    database.execute(f"REVOKE DELETE ON user_activity.action_events FROM {ROLE}")
    broken = database.run(database_url=database.url(ROLE))

    assert (idle.outcome, broken.outcome) == ("completed", "refused")


def test_a_right_that_is_revoked_in_mid_run_stops_it_at_once(database: Database) -> None:
    """case B11: what was committed stays and is told."""
    for _ in range(4):
        database.session(views=1, events=1)

    def revoke(event: Event) -> None:
        if isinstance(event, BatchCommitted):
            database.execute(f"REVOKE DELETE ON user_activity.property_object_views FROM {ROLE}")

    result = database.run(database_url=database.url(ROLE), watch=revoke, batch_size="1")

    assert (result.outcome, result.batches_processed, result.rows, result.retries) == ("refused", 1, 3, 0)
    assert result.failure is not None
    assert result.failure.kind == "refused"
    assert "property_object_views" in result.failure.message
    assert database.counts() == (3, 3, 3)


def test_a_read_only_database_is_refused(database: Database) -> None:
    database.session()
    database.execute(f"ALTER ROLE {ROLE} IN DATABASE {database.name} SET default_transaction_read_only = on")

    assert "read-only" in refusal(database, ROLE)


def test_row_level_security_that_could_hide_rows_is_refused(database: Database) -> None:
    database.session()
    database.execute("ALTER TABLE user_activity.sessions ENABLE ROW LEVEL SECURITY")

    message = refusal(database, ROLE)

    assert "row-level security" in message
    assert "user_activity.sessions" in message


def test_row_level_security_does_not_hinder_a_role_that_it_does_not_apply_to(database: Database) -> None:
    database.session()
    database.execute("ALTER TABLE user_activity.sessions ENABLE ROW LEVEL SECURITY")

    assert database.run().rows == 1


def test_a_role_that_ignores_foreign_keys_is_refused(database: Database) -> None:
    """session_replication_role = replica would leave rows dangling."""
    database.session(events=1)
    database.execute(f"ALTER ROLE {ROLE} IN DATABASE {database.name} SET session_replication_role = replica")

    assert "session_replication_role" in refusal(database, ROLE)


@pytest.mark.parametrize("table", ["action_events", "property_object_views"])
def test_a_missing_table_is_refused_by_name(database: Database, table: str) -> None:
    database.session()
    database.execute(f"DROP TABLE user_activity.{table} CASCADE")

    assert f"there is no table user_activity.{table}" in refusal(database)


def test_all_that_is_missing_is_told_at_once(database: Database) -> None:
    """R-CFG-1"""
    database.execute("DROP TABLE user_activity.property_object_views CASCADE")
    database.execute("ALTER TABLE user_activity.action_events RENAME session_id TO visit_id")

    message = refusal(database)

    assert "there is no table user_activity.property_object_views" in message
    assert "user_activity.action_events has no column session_id" in message


@pytest.mark.parametrize(
    ("table", "column"),
    [("sessions", "id"), ("sessions", "status"), ("sessions", "ended_at"), ("action_events", "session_id")],
)
def test_a_missing_column_is_refused_by_name(database: Database, table: str, column: str) -> None:
    database.execute(f"ALTER TABLE user_activity.{table} RENAME {column} TO renamed")

    result = database.run()

    assert result.outcome == "refused"
    assert result.failure is not None
    assert f"user_activity.{table} has no column {column}" in result.failure.message


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("ALTER ended_at TYPE timestamp", "ended_at is a timestamp without time zone"),
        ("ALTER ended_at TYPE date", "ended_at is a date"),
        ("ALTER status TYPE integer USING length(status)", "status is a integer"),
        ("ALTER status TYPE bytea USING status::bytea", "status is a bytea"),
        ("ALTER status TYPE public.state USING 'Closed'", "status can never be Inactive"),
    ],
)
def test_a_column_of_another_type_is_refused(database: Database, change: str, complaint: str) -> None:
    """case F8"""
    database.session()
    database.execute("CREATE TYPE public.state AS ENUM ('Open', 'Closed')")
    database.execute("DROP INDEX user_activity.sessions_inactive_ended_at_idx")
    for constraint in ("sessions_status_known", "sessions_inactive_has_ended"):
        database.execute(f"ALTER TABLE user_activity.sessions DROP CONSTRAINT {constraint}")
    database.execute(f"ALTER TABLE user_activity.sessions {change}")

    assert complaint in refusal(database)
