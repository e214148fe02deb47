"""R-OBS-6: the lock runbook, followed in the situations that it is for."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from activity_retention.lock import LOCK_NAME, lock_key
from tests.acceptance.runbook import Reader, frozen
from tests.database import Database
from tests.eventually import eventually

Start = Callable[..., Reader]

HAS_OUTLIVED_ITS_RUN = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'activity-retention %%'
       AND clock_timestamp() - backend_start > interval '5 seconds'
"""


@pytest.fixture
def read(database: Database, tmp_path: Path) -> Iterator[Start]:
    """Opens the page; what it grants is taken back, since a role belongs to all databases of the server."""
    yield lambda **settings: Reader("lock", database, tmp_path, **settings)
    database.execute("REVOKE pg_read_all_stats FROM activity_retention")


def test_a_process_that_hangs_is_found_and_its_lock_freed(database: Database, read: Start) -> None:
    """A pod that was frozen in the middle of a batch; the server has long cancelled the statement."""
    database.expired(3)
    reader = read(max_run_duration="5s")
    every_second = ("serve", "--metrics-port", "0", "--retention-schedule", "* * * * * *")
    with database.gate("sessions") as gate, reader.job(*every_second) as daemon:
        eventually(gate.waiting)
        with frozen(daemon):
            eventually(lambda: not gate.waiting())
            # Its replicas, and whoever tries by hand, are skipped.
            reader.job_ends("run")
            assert "run skipped, lock busy" in reader.log

            eventually(lambda: database.value(HAS_OUTLIVED_ITS_RUN))
            reader.follow("Look").shows("older than a run may get")
            found = reader.follow("Find the process")
            found.shows("run started")
            assert "run completed" not in found.text
            assert "pg_terminate_backend" in reader.follow("Free the lock").text
            eventually(database.lock_is_free)
            daemon.kill()
        gate.open()

    reader.follow("Proof").shows("nobody", '"outcome": "observed"', '"outcome": "completed"')
    assert database.count("sessions") == 0


def test_a_run_at_work_that_has_to_stop_obeys(database: Database, read: Start) -> None:
    """Its batch is rolled back whole, and it does not try again."""
    database.session(views=1, events=2)
    reader = read()
    with database.gate("sessions") as gate, reader.job("run", "--yes") as run:
        eventually(gate.waiting)

        reader.follow("Look").shows("a run at work")
        reader.follow("Free the lock")

        assert run.wait(timeout=60) == 1
        assert database.counts() == (1, 1, 2)
    ended = json.loads(reader.log.splitlines()[-1])
    assert (ended["event"], ended["kind"]) == ("run failed", "terminated")
    assert "kind terminated" in reader.page.prose

    reader.follow("Proof").shows("nobody", '"outcome": "observed"', '"outcome": "completed"')
    assert database.counts() == (0, 0, 0)


def test_a_stranger_is_told_from_a_run_and_shown_to_who_may_see(database: Database, read: Start) -> None:
    """Case C16: the key was taken from psql, by a role whose sessions ours may not see."""
    database.expired(1)
    reader = read()
    stranger = database.connect()
    stranger.execute("SET application_name = 'nightly report'")
    stranger.execute("SELECT pg_advisory_lock(%s)", [lock_key(LOCK_NAME)])

    look = reader.follow("Look")
    look.shows("no session of activity-retention", "hidden from this role")
    assert "nightly report" in look.text
    more = reader.follow("See the rest")
    more.shows("client", "connected", "state")
    assert "hidden" not in more.text
    owner = reader.follow("Ask its owner").text
    assert str(stranger.info.backend_pid) in owner
    assert "nightly report" in owner
    assert "SELECT pg_advisory_lock" in owner
    reader.follow("Free the lock")
    eventually(database.lock_is_free)

    reader.follow("Proof").shows("nobody", '"outcome": "observed"', '"outcome": "completed"')


def test_the_holder_is_shown_although_the_job_has_another_trouble(database: Database, read: Start) -> None:
    """Who looks at the lock has to see it, whatever else is wrong."""
    database.execute("REVOKE DELETE ON user_activity.sessions FROM activity_retention")
    reader = read()
    holder = database.connect()
    holder.execute("SELECT pg_advisory_lock(%s)", [lock_key(LOCK_NAME)])

    look = reader.follow("Look", code=2)

    look.shows("no session of activity-retention")
    assert f"pg_terminate_backend({holder.info.backend_pid})" in look.text
    assert "lacks DELETE on user_activity.sessions" in look.text
