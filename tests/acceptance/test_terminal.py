"""What a person at a terminal meets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pytest

from activity_retention.lock import LOCK_NAME, lock_key
from tests.acceptance.conftest import PROGRAM, environment
from tests.database import Database
from tests.eventually import eventually


@contextmanager
def terminal(tmp_path: Path, *arguments: str) -> Iterator[Any]:
    child = pexpect.spawn(
        str(PROGRAM),
        list(arguments),
        cwd=str(tmp_path),
        env=environment(),
        dimensions=(60, 120),
        encoding="utf-8",
        timeout=20,
    )
    try:
        yield child
    finally:
        child.close(force=True)


def ended(child: Any) -> tuple[str, int]:
    """What was written to the end, without colours, and the exit code."""
    child.expect(pexpect.EOF)
    child.wait()
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", child.before), child.exitstatus


def test_run_shows_what_it_is_about_to_do_and_asks(database: Database, tmp_path: Path) -> None:
    database.expired(5)
    database.session(ended="10 days")

    with terminal(tmp_path, "run", "--database-url", database.url()) as child:
        child.expect(r"Delete them with their children\? \[y/N\]")
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", child.before)
        assert f"user-activity on 127.0.0.1:{database.server.port} database {database.name} as postgres" in shown
        assert re.search(r"Cutoff +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, now less 365d", shown)
        assert re.search(r"Backlog +5 of 6 sessions \(83.3%\)", shown)
        child.sendline("y")
        text, code = ended(child)

    assert code == 0
    assert "5/5 sessions" in text
    assert "completed: nothing eligible is left" in text
    assert re.search(r"user_activity.sessions +5\b", text)
    assert '"event"' not in text
    assert database.count("sessions") == 1


@pytest.mark.parametrize("answer", ["n", "", "maybe"])
def test_anything_but_yes_deletes_nothing(database: Database, tmp_path: Path, answer: str) -> None:
    database.expired(2)

    with terminal(tmp_path, "run", "--database-url", database.url()) as child:
        child.expect(r"\[y/N\]")
        child.sendline(answer)
        text, code = ended(child)

    assert ("Nothing was deleted." in text, code) == (True, 130)
    assert database.count("sessions") == 2


def test_yes_skips_the_question(database: Database, tmp_path: Path) -> None:
    database.expired(2)

    with terminal(tmp_path, "run", "--yes", "--database-url", database.url()) as child:
        text, code = ended(child)

    assert ("[y/N]" in text, code) == (False, 0)
    assert database.count("sessions") == 0


def test_control_c_stops_between_batches(database: Database, tmp_path: Path) -> None:
    database.expired(100)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(0.02)")

    with terminal(tmp_path, "run", "--yes", "--batch-size", "10", "--database-url", database.url()) as child:
        eventually(lambda: database.count("sessions") <= 90)
        child.sendintr()
        text, code = ended(child)

    assert code == 130
    assert "cancelled: committed batches stay" in text
    assert 0 < database.count("sessions") <= 90


def test_control_c_at_the_question_is_quiet(database: Database, tmp_path: Path) -> None:
    database.expired(1)

    with terminal(tmp_path, "run", "--database-url", database.url()) as child:
        child.expect(r"\[y/N\]")
        child.sendintr()
        text, code = ended(child)

    assert ("Traceback" in text, code) == (False, 130)
    assert database.count("sessions") == 1


def test_a_failure_is_said_in_sentences(database: Database, tmp_path: Path) -> None:
    """What would be a log line elsewhere: the key, the session, and what the catalog had warned of."""
    session = database.session(views=1)
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute("INSERT INTO public.notes VALUES (%s)", [session])

    with terminal(tmp_path, "run", "--yes", "--database-url", database.url()) as child:
        text, code = ended(child)

    assert code == 1
    said = " ".join(text.split())
    assert "warning: public.notes references user_activity.sessions by notes_session_id_fkey" in said
    assert "failed: committed batches stay" in said
    assert f"in the batch of {session}" in said
    assert "run_id" not in said


def test_a_skipped_run_names_the_holder(database: Database, tmp_path: Path) -> None:
    """Case C16."""
    holder = database.connect()
    holder.execute("SELECT pg_advisory_lock(%s)", [lock_key(LOCK_NAME)])

    with terminal(tmp_path, "run", "--yes", "--database-url", database.url()) as child:
        text, code = ended(child)

    said = " ".join(text.split())
    assert ("skipped: another run holds the lock" in said, code) == (True, 0)
    assert f"held by pid {holder.info.backend_pid}" in said


def test_a_dry_run_says_what_has_expired(database: Database, tmp_path: Path) -> None:
    database.expired(3)

    with terminal(tmp_path, "run", "--dry-run", "--database-url", database.url()) as child:
        text, code = ended(child)

    assert ("3 rows of user_activity.sessions have expired" in text, code) == (True, 0)
    assert database.count("sessions") == 3


def test_log_lines_come_back_where_asked_for(database: Database, tmp_path: Path) -> None:
    database.expired(1)

    with terminal(tmp_path, "run", "--yes", "--log-level", "info", "--database-url", database.url()) as child:
        text, _ = ended(child)

    assert "run started" in text
    assert "run completed" in text
