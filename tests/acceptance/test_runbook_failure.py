"""R-OBS-6: the failure runbook, followed in the situations that it is for."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.runbook import Reader
from tests.database import Database
from tests.eventually import eventually

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl: apt-get install curl")


def repeated_and_proved(reader: Reader) -> None:
    """The way in which every trouble ends."""
    reader.follow("Repeat by hand").shows('"outcome": "completed"', '"failure": null')
    reader.follow("Proof").shows("Backlog 0", "Hold", "none", "Held by", "nobody")


@contextmanager
def daemon(reader: Reader) -> Iterator[None]:
    """`serve`, waiting for tomorrow, where the reader's curl finds it."""
    with reader.job("serve", "--metrics-port", "0"):
        (url,) = eventually(lambda: re.findall(r'"url": "http://([^"]+)', reader.log))
        reader.variables["METRICS"] = url
        yield


@needs_curl
def test_a_daemon_that_waits_for_its_time_is_well(database: Database, tmp_path: Path) -> None:
    reader = Reader("failure", database, tmp_path)
    with daemon(reader):
        asked = reader.follow("Nothing runs")

    assert asked.text.startswith("ok\nok\n")
    assert asked.text.count("03:00:00 MSK") == 5


@needs_curl
def test_a_daemon_says_what_is_in_its_way(database: Database, tmp_path: Path) -> None:
    database.execute("REVOKE DELETE ON user_activity.sessions FROM activity_retention")
    reader = Reader("failure", database, tmp_path)
    with daemon(reader):
        reader.follow("Nothing runs").shows("ok", "lacks")
        reader.follow("Refused")

    repeated_and_proved(reader)


@needs_curl
def test_a_process_that_is_down_answers_nothing(database: Database, tmp_path: Path) -> None:
    reader = Reader("failure", database, tmp_path)
    with daemon(reader):
        pass

    assert "ok" not in reader.follow("Nothing runs", code=7).text.splitlines()
    assert "it answers" in reader.page.prose


def test_a_forgotten_hold_is_lifted(database: Database, tmp_path: Path) -> None:
    database.expired(2)
    (tmp_path / "hold").write_text("restored from Monday's backup, ask Ana\n")
    reader = Reader("failure", database, tmp_path, hold_file=str(tmp_path / "hold"))
    reader.job_ends("run")

    look = reader.follow("Look")
    look.shows("run held", "Hold")
    assert "ask Ana" in look.text
    assert reader.follow("On hold").text == "restored from Monday's backup, ask Ana\n"

    repeated_and_proved(reader)


def test_a_job_that_only_looks_is_set_to_work(database: Database, tmp_path: Path) -> None:
    database.expired(2)
    settings = tmp_path / "activity-retention.toml"
    settings.write_text("version = 1\ndry_run = true\n")
    reader = Reader("failure", database, tmp_path)
    reader.job_ends("run")

    reader.follow("Look").shows("run observed")
    assert reader.follow("It only looks").line == "dry_run true activity-retention.toml"
    settings.write_text("version = 1\ndry_run = false\n")

    repeated_and_proved(reader)


def test_missing_rights_are_given_again(database: Database, tmp_path: Path) -> None:
    database.expired(2)
    database.execute("REVOKE UPDATE (status), DELETE ON user_activity.sessions FROM activity_retention")
    reader = Reader("failure", database, tmp_path)
    reader.job_ends("run", code=2)

    reader.follow("Look", code=2).shows("run refused", "lacks", "Mend:")
    reader.follow("Refused")

    repeated_and_proved(reader)


@pytest.mark.parametrize("target", ["sessions", "property_object_views", "action_events"])
def test_rows_that_keep_a_session_are_shown_to_their_owner(database: Database, tmp_path: Path, target: str) -> None:
    """Case B1: a foreign key that nobody declared to the policy."""
    for days in (500, 450, 400):
        database.session(ended=f"{days} days", views=1, events=1)
    database.execute(f"CREATE TABLE public.notes (about uuid REFERENCES user_activity.{target})")
    column = "id" if target == "sessions" else "session_id"
    poisoned = database.oldest(1)
    database.execute(
        f"INSERT INTO public.notes SELECT id FROM user_activity.{target} WHERE {column} = %s", [poisoned]
    )
    reader = Reader("failure", database, tmp_path, batch_size="1")
    reader.job_ends("run", code=1)

    reader.follow("Look").shows("run failed")
    failed = reader.follow("Failed")
    failed.shows("poison", "error", "batch_ids")
    assert "notes_about_fkey" in failed.text
    found = reader.follow("poison: something keeps a session")
    found.shows("foreign_key", "table", "refers_to", "rows")
    (note,) = database.execute("SELECT about FROM public.notes")
    assert re.search(rf"notes_about_fkey +\| notes +\| {note[0]} \| +1", found.text)
    database.execute("DELETE FROM public.notes")

    repeated_and_proved(reader)


@pytest.mark.parametrize("body", ["RAISE EXCEPTION 'rows are kept for ever'", "RETURN NULL"])
def test_a_trigger_that_keeps_a_session_is_shown_to_its_owner(
    database: Database, tmp_path: Path, body: str
) -> None:
    """Case B3."""
    database.session(views=1, events=1)
    database.before("DELETE", "sessions", body)
    reader = Reader("failure", database, tmp_path)
    reader.job_ends("run", code=1)

    reader.follow("Failed").shows("poison", "error", "batch_ids")
    found = reader.follow("poison: something keeps a session")
    found.shows("trigger", "function")
    assert re.search(r"sessions +\| before_delete_of_sessions +\| before_delete_of_sessions\(\)", found.text)
    database.execute("DROP TRIGGER before_delete_of_sessions ON user_activity.sessions")

    repeated_and_proved(reader)


def test_one_culprit_is_found_in_a_large_batch(database: Database, tmp_path: Path) -> None:
    """A log line has 20 ids at most."""
    database.expired(60)
    database.execute("CREATE TABLE public.notes (about uuid REFERENCES user_activity.sessions)")
    database.execute("INSERT INTO public.notes VALUES (%s)", [database.oldest(50)])
    reader = Reader("failure", database, tmp_path, batch_size="40")
    reader.job_ends("run", code=1)

    failed = reader.follow("Failed")
    failed.shows("batch_ids_count")
    assert '"batch_ids_count": 20' in failed.text
    reader.follow("Find the one", code=1)
    assert '"batch_ids_count": 1,' in reader.follow("Failed").text
    assert "notes_about_fkey" in reader.follow("poison: something keeps a session").text
    assert database.count("sessions") == 10
    database.execute("DELETE FROM public.notes")

    repeated_and_proved(reader)


def test_a_session_that_locks_a_table_is_found_and_ended(database: Database, tmp_path: Path) -> None:
    database.expired(2)
    migration = database.connect(autocommit=False)
    migration.execute("LOCK TABLE user_activity.action_events IN SHARE MODE")
    pid = migration.info.backend_pid
    reader = Reader("failure", database, tmp_path, lock_timeout="100ms", batch_retries="1")
    reader.job_ends("run", code=1)

    reader.follow("Failed").shows("transient", "lock timeout")
    blocking = reader.follow("transient: the database was in the way").text
    assert re.search(rf"user_activity.action_events +\| +{pid} ", blocking)
    reader.follow("End what locks the table")
    eventually(lambda: not database.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]))

    repeated_and_proved(reader)


def test_a_database_without_room_is_told_from_one_that_is_down(database: Database, tmp_path: Path) -> None:
    database.expired(2)
    database.execute(f"ALTER DATABASE {database.name} CONNECTION LIMIT 0")
    reader = Reader("failure", database, tmp_path, batch_retries="0")
    reader.job_ends("run", code=1)

    reader.follow("Look", code=1).shows("run failed", "cannot be reached", "too many connections")
    reader.follow("Failed").shows("transient")
    asked = reader.follow("transient: the database was in the way")
    asked.shows("allowed_here")
    assert re.search(r"\| f +\| +\d+ \| +0 \|", asked.text)
    database.execute(f"ALTER DATABASE {database.name} CONNECTION LIMIT -1")

    repeated_and_proved(reader)


def test_a_session_that_is_too_large_is_given_time(database: Database, tmp_path: Path) -> None:
    database.expired(2)
    large = database.session(ended="390 days", views=2, events=7)
    database.before("DELETE", "sessions", f"IF OLD.id = '{large}' THEN PERFORM pg_sleep(3); END IF")
    reader = Reader("failure", database, tmp_path, batch_size="2", batch_timeout="2s", single_timeout="2s")
    reader.job_ends("run", code=1)

    reader.follow("Failed").shows("timeout", "batch_ids")
    given = reader.follow("timeout: one session is too large")
    given.shows('"outcome": "completed"')
    assert re.search(rf"{large} \| +2 \| +7", given.text)

    reader.follow("Proof").shows("Backlog 0")
    assert database.counts() == (0, 0, 0)


def test_a_run_that_a_person_has_ended_is_repeated(database: Database, tmp_path: Path) -> None:
    database.session(views=1)
    reader = Reader("failure", database, tmp_path)
    with database.gate("sessions") as gate, reader.job("run") as run:
        eventually(gate.waiting)
        database.execute("SELECT pg_cancel_backend(pid) FROM unnest(%s::int[]) AS pid", [database.job_pids()])
        assert run.wait(timeout=60) == 1

    reader.follow("Failed").shows("terminated")

    repeated_and_proved(reader)
