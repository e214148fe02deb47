"""R-OBS-6: the backlog runbook, followed in the situations that it is for."""

import re
from pathlib import Path

from tests.acceptance.runbook import Reader
from tests.database import Database
from tests.eventually import eventually

NIGHT = {"batch_size": "5", "max_batches_per_run": "2"}


def not_removable(vacuumed: str) -> set[str]:
    """Dead rows that vacuum had to leave in each table."""
    return set(re.findall(r"(\d+) are dead but not yet removable", vacuumed))


def test_wider_bounds_are_tried_before_they_are_set(database: Database, tmp_path: Path) -> None:
    """More than a night takes; the plan and one batch tell what wider bounds would do."""
    database.expired(13_000)
    reader = Reader("backlog", database, tmp_path, batch_size="100", max_batches_per_run="10")
    reader.job_ends("run")

    look = reader.follow("Look")
    look.shows("Done by", "dry_run", "Hold", "none", "size", "live", "dead", "vacuumed")
    assert "120 batches of up to 100 in 12 runs of at most 30m" in look.line

    tried = reader.follow("Allow more")
    tried.shows("Work", "Done by", "batch committed", "seconds")
    assert "2 batches of up to 10,000 in 1 run of at most 3h" in tried.line
    assert database.count("sessions") == 2_000

    reader.follow("Proof").shows("Work", "Done by")


def test_years_are_caught_up_with_in_a_day(database: Database, tmp_path: Path) -> None:
    database.expired(33)
    kept = database.session(ended="10 days", views=1, events=1)
    reader = Reader("backlog", database, tmp_path, **NIGHT)

    caught_up = reader.follow("Catch up on years")

    caught_up.shows('"outcome": "completed"', '"hasMore": false')
    assert caught_up.text.count('"event": "run completed"') == 4
    assert database.execute("SELECT id FROM user_activity.sessions") == [(kept,)]
    assert not_removable(reader.follow("Vacuum").text) == {"0"}
    assert "0 are dead but not yet removable" in reader.page.prose
    before = database.value("SELECT pg_total_relation_size('user_activity.sessions')")
    reader.follow("Give the space back")
    assert database.value("SELECT pg_total_relation_size('user_activity.sessions')") < before

    reader.follow("Proof").shows("Work", "nothing to do")


def test_catching_up_is_paused_and_goes_on(database: Database, tmp_path: Path) -> None:
    """The loop ends by itself at a hold, and does not spin."""
    database.expired(20)
    reader = Reader("backlog", database, tmp_path, hold_file=str(tmp_path / "hold"), **NIGHT)

    reader.follow("Pause").shows("Hold", "the service suffers, ask the person on call")
    held = reader.follow("Catch up on years")
    held.shows("held")
    assert '"hasMore": true' in held.text
    assert database.count("sessions") == 20

    reader.follow("Go on")
    reader.follow("Catch up on years").shows('"outcome": "completed"', '"hasMore": false')
    reader.follow("Proof").shows("nothing to do")


def test_a_failure_ends_the_loop(database: Database, tmp_path: Path) -> None:
    database.expired(20)
    database.before("DELETE", "sessions", f"IF OLD.id = '{database.oldest(12)}' THEN RAISE EXCEPTION 'no'; END IF")
    reader = Reader("backlog", database, tmp_path, **NIGHT)

    stopped = reader.follow("Catch up on years")

    stopped.shows("failed")
    assert '"message": "no ' in stopped.text
    assert database.count("sessions") == 10


def test_a_missing_index_is_named_and_built(database: Database, tmp_path: Path) -> None:
    database.session(views=1, events=1)
    database.execute("DROP INDEX user_activity.action_events_session_id_idx")
    database.execute("DROP INDEX user_activity.property_object_views_apply_filter_event_id_idx")
    reader = Reader("backlog", database, tmp_path)

    assert reader.follow("Look").text.count("warning no valid index") == 2
    built = reader.follow("An index is missing")
    built.shows("CREATE INDEX CONCURRENTLY")
    assert built.text.splitlines().count("CREATE INDEX") == 2

    assert "warning" not in reader.follow("Proof").text


def test_an_old_snapshot_that_holds_vacuum_back_is_found_and_ended(database: Database, tmp_path: Path) -> None:
    database.expired(300)
    forgotten = database.connect(autocommit=False)
    forgotten.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    forgotten.execute("SELECT count(*) FROM user_activity.sessions")
    reader = Reader("backlog", database, tmp_path)
    reader.job_ends("run")

    assert not_removable(reader.follow("Vacuum").text) == {"0", "300"}
    found = reader.follow("Something holds vacuum back")
    found.shows("session", "idle in transaction")
    assert f"session {forgotten.info.backend_pid}" in found.text.splitlines()[2]
    ended = reader.follow("End the oldest transaction")
    assert str(forgotten.info.backend_pid) in ended.text
    eventually(lambda: not_removable(reader.follow("Vacuum").text) == {"0"})

    reader.follow("Proof").shows("nothing to do")


def test_rows_that_a_forgotten_transaction_locks_are_set_free(database: Database, tmp_path: Path) -> None:
    database.expired(3)
    forgotten = database.connect(autocommit=False)
    forgotten.execute("SELECT FROM user_activity.sessions FOR UPDATE")
    reader = Reader("backlog", database, tmp_path)

    reader.follow("Catch up on years").shows('"leftLocked": true')
    assert str(forgotten.info.backend_pid) in reader.follow("Something holds vacuum back").text
    reader.follow("End the oldest transaction")

    def gone() -> bool:
        reader.follow("Catch up on years")
        return database.count("sessions") == 0

    eventually(gone)
    reader.follow("Proof").shows("nothing to do")
