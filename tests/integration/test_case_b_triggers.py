"""Triggers that keep rows from being deleted (case B3)."""

import pytest

from tests.database import Database


def test_a_swallowed_deletion_fails_the_batch_and_takes_nothing(database: Database) -> None:
    """case B3: BEFORE DELETE … RETURN NULL, which the server reports as a success."""
    for _ in range(4):
        database.session(views=1, events=2)
    kept = database.oldest(2)
    database.before("DELETE", "sessions", f"IF OLD.id = '{kept}' THEN RETURN NULL; END IF")

    result = database.run(batch_size="2")

    assert (result.outcome, result.has_more, result.batches_processed) == ("failed", True, 1)
    assert result.failure is not None
    assert result.failure.kind == "poison"
    assert "a trigger or rule" in result.failure.message
    assert "user_activity.sessions" in result.failure.message
    assert str(kept) in result.failure.batch_ids
    assert database.counts() == (2, 2, 4)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("action_events", "action_events_session_fkey"),
        ("property_object_views", "property_object_views_session_fkey"),
    ],
)
def test_a_swallowed_deletion_of_a_child_is_named_by_its_key(database: Database, table: str, key: str) -> None:
    """case B3"""
    session = database.session(views=2, events=2)
    database.before("DELETE", table, "RETURN NULL")

    result = database.run()

    assert (result.outcome, database.counts()) == ("failed", (1, 2, 2))
    assert result.failure is not None
    assert result.failure.kind == "poison"
    assert key in result.failure.message
    assert result.failure.batch_ids == (str(session),)


@pytest.mark.parametrize("table", ["sessions", "property_object_views", "action_events"])
def test_an_update_trigger_never_fires(database: Database, table: str) -> None:
    """case B3: an audit trigger that forbids updates does not meet the SET NULL of the keys."""
    database.session(views=3, events=3)
    database.before("UPDATE", table, "RAISE EXCEPTION 'rows never change'")

    result = database.run()

    assert (result.outcome, result.rows, database.counts()) == ("completed", 7, (0, 0, 0))


@pytest.mark.parametrize("table", ["sessions", "property_object_views", "action_events"])
def test_a_trigger_that_raises_is_named(database: Database, table: str) -> None:
    """case B3"""
    session = database.session(views=1, events=1)
    database.before("DELETE", table, "RAISE EXCEPTION 'rows are kept for ever'")

    result = database.run()

    assert (result.outcome, database.counts()) == ("failed", (1, 1, 1))
    assert result.failure is not None
    assert (result.failure.kind, result.failure.sqlstate) == ("poison", "P0001")
    assert "rows are kept for ever" in result.failure.message
    assert f"before_delete_of_{table}" in result.failure.message
    assert result.failure.batch_ids == (str(session),)
