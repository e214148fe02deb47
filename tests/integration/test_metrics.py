"""The series of runs are moved by runs, and agree with the truth from SQL (R-OBS-2)."""

import math
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from prometheus_client import disable_created_metrics

from activity_retention import __version__
from activity_retention.events import Started
from activity_retention.metrics import run_buckets
from tests.database import TABLES, Database
from tests.eventually import eventually
from tests.watched import OUTCOMES, Watched, lock, poison

PROMTOOL = shutil.which("promtool")
DATA = ("eligible_backlog", "oldest_eligible_age_seconds", "has_more")
RETRIES = ("connection", "lock_lost", "locked", "left_locked", "conflict", "late_child", "too_slow", "poison")
COUNTERS = [
    *((f"deleted_{table}_total", {}) for table in TABLES),
    *(("deleted_rows_total", {"table": f"user_activity.{table}"}) for table in TABLES),
    ("batches_processed_total", {}),
    ("lock_contention_total", {}),
    *(("runs_total", {"outcome": outcome}) for outcome in OUTCOMES),
    *(("batch_retries_total", {"reason": reason}) for reason in RETRIES),
    *(("ticks_missed_total", {"reason": reason}) for reason in ("running", "late")),
    *((f"{what}_duration_seconds_count", {}) for what in ("run", "batch")),
]


def never(_: float) -> bool:
    return False


def at_once(_: float) -> bool:
    return True


def without_sessions(database: Database) -> None:
    database.execute("DROP TABLE user_activity.sessions CASCADE")


def test_every_counter_is_there_at_zero_before_the_first_run(database: Database) -> None:
    watched = Watched(database)
    assert {f"{name}{labels}": watched.value(name, **labels) for name, labels in COUNTERS} == {
        f"{name}{labels}": 0 for name, labels in COUNTERS
    }


def test_what_a_run_alone_can_know_is_absent_before_the_first_one(database: Database) -> None:
    watched = Watched(database)
    assert [watched.value(name) for name in DATA] == [None, None, None]
    assert watched.value("last_success_timestamp_seconds") == 0


def test_the_settings_and_the_version_are_there_from_the_start(database: Database, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    watched = Watched(database, retention_period="30d", max_run_duration="90s", hold_file=str(hold))
    assert watched.value("retention_period_seconds") == 30 * 86_400
    assert watched.value("max_run_duration_seconds") == 90
    assert watched.value("build_info", version=__version__) == 1

    before = watched.value("held")
    hold.touch()
    during = watched.value("held")
    hold.unlink()
    assert (before, during, watched.value("held")) == (0, 1, 0)


def test_backlog_age_and_more_are_as_the_run_found_and_left_them(database: Database) -> None:
    watched = Watched(database, batch_size="2", max_batches_per_run="1")
    database.expired(3)
    oldest = database.value("SELECT min(ended_at)::text FROM user_activity.sessions")
    age = "SELECT extract(epoch FROM now() - %s::timestamptz)::float8"

    least = database.value(age, [oldest])
    watched.run()
    most = database.value(age, [oldest])

    assert (watched.value("eligible_backlog"), watched.value("has_more")) == (3, 1)
    assert least <= (watched.value("oldest_eligible_age_seconds") or 0) <= most
    watched.run()
    assert (watched.value("eligible_backlog"), watched.value("has_more")) == (1, 1)
    watched.run()
    assert [watched.value(name) for name in DATA] == [0, 0, 0]


def test_a_session_older_than_any_time_is_infinitely_old(database: Database) -> None:
    database.session()
    database.execute("UPDATE user_activity.sessions SET ended_at = '-infinity'")
    watched = Watched(database, dry_run=True)

    assert watched.run() == "observed"
    assert [watched.value(name) for name in DATA] == [1, math.inf, 1]
    assert 'activity_retention_oldest_eligible_age_seconds{policy="user-activity"} +Inf' in watched.text()


def test_a_backlog_that_nobody_could_count_is_no_number(database: Database) -> None:
    """Rather than the one of the run before; an estimate has no oldest session."""
    watched = Watched(database, lock_timeout="50ms", batch_retries="0")
    watched.run()
    holder = database.connect(autocommit=False)
    holder.execute("LOCK TABLE user_activity.sessions IN ACCESS EXCLUSIVE MODE")

    assert watched.run(never) == "failed"
    holder.rollback()

    assert [watched.value(name) for name in DATA] == [None, None, 1]
    watched.metrics(Started("id", "user-activity", "cutoff", 1, 1000, backlog_exact=False, oldest_age=None))
    assert [watched.value(name) for name in DATA] == [1000, None, 1]


def test_the_figures_leave_with_the_work_and_come_back_with_it(database: Database) -> None:
    """Another replica works now, and its figures are the newer ones."""
    watched = Watched(database)
    holder = lock(database)
    watched.run()
    assert [watched.value(name) for name in DATA] == [None, None, None]
    holder.close()
    eventually(database.lock_is_free)
    watched.run()
    assert [watched.value(name) for name in DATA] == [0, 0, 0]


@pytest.mark.parametrize(
    ("outcome", "prepare", "wait", "changed", "held_the_lock"),
    [
        ("observed", None, never, {"dry_run": "true"}, True),
        ("held", None, never, {"hold_file": "/dev/null"}, True),
        ("cancelled", None, at_once, {}, True),
        ("failed", poison, never, {}, True),
        ("skipped", lock, never, {}, False),
        ("refused", without_sessions, never, {}, False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_a_completed_run_is_a_success(
    database: Database,
    outcome: str,
    prepare: Callable[[Database], object] | None,
    wait: Callable[[float], bool],
    changed: Mapping[str, str],
    held_the_lock: bool,
) -> None:
    """Case F14."""
    watched = Watched(database)
    before = time.time()
    assert watched.run() == "completed"
    success = watched.value("last_success_timestamp_seconds") or 0
    assert before <= success <= time.time()

    database.expired(2)
    if prepare:
        prepare(database)
    assert watched.run(wait, changed=changed) == outcome

    assert watched.value("last_success_timestamp_seconds") == success
    assert watched.outcomes() == {"completed": 1, outcome: 1}
    assert watched.value("run_duration_seconds_count") == 1 + held_the_lock
    assert watched.value("lock_contention_total") == (outcome == "skipped")
    assert [watched.value(name) is None for name in DATA] == [outcome == "skipped"] * 3


def test_a_run_that_never_saw_the_data_tells_nothing_of_it(database: Database) -> None:
    watched = Watched(database, database_url="postgresql://127.0.0.1:1/nowhere", batch_retries="0")
    assert watched.run() == "failed"
    assert [watched.value(name) for name in DATA] == [None, None, None]


def test_missed_ticks_count_by_their_reason(database: Database) -> None:
    watched = Watched(database)
    watched.metrics.missed("late", 3)
    watched.metrics.missed("running", 1)
    assert [watched.value("ticks_missed_total", reason=reason) for reason in ("late", "running")] == [3, 1]


@pytest.mark.parametrize("minutes", [0.01, 1, 30, 600, 10_000])
def test_buckets_of_runs_reach_to_twice_the_limit(minutes: float) -> None:
    most = minutes * 60
    bounds = run_buckets(most)
    assert bounds[-1] == 2 * most
    assert {0.5 * most, most} <= set(bounds)
    assert list(bounds) == sorted(set(bounds))


def test_buckets_are_those_of_the_settings(database: Database) -> None:
    text = Watched(database, max_run_duration="45m").text()
    for name, bound in (("run", 5400.0), ("run", 2700.0), ("batch", 120.0)):
        assert (
            f'activity_retention_{name}_duration_seconds_bucket{{le="{bound}",policy="user-activity"}} 0.0' in text
        )


def test_every_series_says_what_it_is(database: Database) -> None:
    for family in Watched(database).metrics.registry.collect():
        assert family.name.startswith("activity_retention_")
        assert len(family.documentation.split()) > 1, family.name


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here")
def test_promtool_has_nothing_to_complain_about(database: Database) -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]
    watched = Watched(database)
    database.expired(1)
    watched.run()
    assert PROMTOOL is not None

    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=watched.text(), text=True, capture_output=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
