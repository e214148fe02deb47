"""Foreign keys that the policy does not know (cases B1, B8)."""

import pytest

from activity_retention.events import Event, Warned
from activity_retention.result import RunResult
from tests.database import Database

RESTRICTED = ("23503", "23001")


def run_and_collect(database: Database) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    return database.run(watch=events.append, batch_size="2"), events


def test_an_undeclared_key_is_named_at_the_start_and_fails_the_batch_that_it_blocks(database: Database) -> None:
    """case B1"""
    database.expired(10)
    poison = database.oldest(6)
    companion = database.oldest(7)
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute("INSERT INTO public.notes VALUES (%s)", [poison])

    result, events = run_and_collect(database)

    found = [str(event.finding) for event in events if isinstance(event, Warned)]
    assert any("notes_session_id_fkey" in finding and "public.notes" in finding for finding in found)
    assert isinstance(events[1], Warned)
    assert (result.outcome, result.has_more, result.batches_processed) == ("failed", True, 3)
    assert result.failure is not None
    assert result.failure.kind == "poison"
    assert result.failure.sqlstate in RESTRICTED
    assert "notes_session_id_fkey" in result.failure.message
    assert set(result.failure.batch_ids) == {str(poison), str(companion)}
    assert result.retries == 2
    assert database.count("sessions") == 4


def test_a_key_that_is_checked_at_the_commit_fails_with_names_as_well(database: Database) -> None:
    """case B1, for a key that is DEFERRABLE INITIALLY DEFERRED."""
    database.expired(4)
    poison = database.oldest(2)
    database.execute(
        "CREATE TABLE public.notes ("
        "session_id uuid REFERENCES user_activity.sessions DEFERRABLE INITIALLY DEFERRED)"
    )
    database.execute("INSERT INTO public.notes VALUES (%s)", [poison])

    result, _ = run_and_collect(database)

    assert (result.outcome, result.batches_processed, database.count("sessions")) == ("failed", 1, 2)
    assert result.failure is not None
    assert result.failure.kind == "poison"
    assert "notes_session_id_fkey" in result.failure.message
    assert str(poison) in result.failure.batch_ids


@pytest.mark.parametrize("target", ["sessions", "property_object_views", "action_events"])
@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_a_key_that_would_lose_data_in_silence_is_refused(database: Database, target: str, action: str) -> None:
    """case B8"""
    database.session(views=1, events=1)
    database.execute(
        "CREATE TABLE public.agg ("
        f"row_id uuid CONSTRAINT agg_key REFERENCES user_activity.{target} ON DELETE {action})"
    )
    database.execute(f"INSERT INTO public.agg SELECT id FROM user_activity.{target}")
    rows = "SELECT agg::text, xmin::text, ctid::text FROM public.agg"
    before = database.execute(rows)

    result = database.run()

    assert (result.outcome, result.has_more) == ("refused", None)
    assert result.failure is not None
    assert "agg_key" in result.failure.message
    assert "public.agg" in result.failure.message
    assert action in result.failure.message
    assert database.execute(rows) == before
    assert database.counts() == (1, 1, 1)


def test_a_session_never_goes_because_another_one_did(database: Database) -> None:
    """case B8, R-SLO-2: a CASCADE from sessions to sessions would delete Active ones."""
    expired = database.session()
    active = database.session(status="Active", ended=None)
    database.execute(
        "ALTER TABLE user_activity.sessions ADD continues uuid REFERENCES user_activity.sessions ON DELETE CASCADE"
    )
    database.execute("UPDATE user_activity.sessions SET continues = %s WHERE id = %s", [expired, active])

    result = database.run()

    assert result.outcome == "refused"
    assert database.count("sessions") == 2
