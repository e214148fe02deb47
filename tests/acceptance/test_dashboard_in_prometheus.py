"""Every query of the dashboard, asked of a real Prometheus that scrapes real processes (R-OBS-5)."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args
from unittest.mock import ANY

import pytest

from activity_retention import __version__
from activity_retention.events import RetryReason
from activity_retention.metrics import MissedReason, RunMetrics
from activity_retention.result import Outcome
from activity_retention.settings import Settings
from tests import grafana
from tests.daemon import Daemon, serving
from tests.database import TABLES, Database
from tests.eventually import eventually
from tests.prometheus import Prometheus, needs_prometheus, prometheus

SIX_HOURS = 6 * 3600
EXPORTER = "prometheus-postgres-exporter"
EXPORTER_QUERIES = grafana.FILE.parents[1] / "prometheus/postgres-exporter.yml"

pytestmark = needs_prometheus

# Whatever is not 0.
SOME = pytest.approx(1e6, abs=1e6 - 0.5)

# A number for each name in the legend of each panel.
Shown = Mapping[str, Mapping[str, Any]]


def test_every_query_follows_a_run(database: Database, tmp_path: Path) -> None:
    """R-OBS-5: two replicas on hold; a run that retries and outlasts a tick; runs that leave a locked session."""
    for _ in range(9):
        database.session(ended="400 days", views=2, events=3)
    contended, left = (database.session(ended="380 days", views=1, events=1) for _ in range(2))
    database.before("DELETE", "sessions", "PERFORM pg_sleep(0.3)")
    (hold := tmp_path / "hold").write_text("restored last night", encoding="utf-8")
    settings = ("--retention-schedule", "*/2 * * * * *", "--hold-file", str(hold), "--lock-timeout", "100ms")
    before = database.counts()
    with (
        serving(database.url(), *settings) as one,
        serving(database.url(), *settings) as other,
        prometheus(tmp_path, {"job": [address(one), address(other)]}) as server,
    ):
        daemons = (one, other)
        until_shown(server, lambda: held(daemons))

        busy = [database.connect(autocommit=False) for _ in range(2)]
        busy[0].execute("SELECT FROM user_activity.action_events WHERE session_id = %s FOR UPDATE", [contended])
        busy[1].execute("SELECT FROM user_activity.sessions WHERE id = %s FOR UPDATE", [left])
        hold.unlink()
        eventually(lambda: logged(daemons, "run completed"))
        busy[0].rollback()
        assert logged(daemons, "retrying")
        assert logged(daemons, "ticks missed")
        ((_, unseen),) = server.query("sum (min_over_time(activity_retention_lock_contention_total[1h]))")
        until_shown(server, lambda: worked(daemons, before, database, skipped_unseen=round(unseen)))

        for query in grafana.queries():
            if query.adds_up:
                over_a_month, over_hours = (
                    {name for name, number in grafana.shown(server, query, span).items() if number > 0.5}
                    for span in (query.span, SIX_HOURS)
                )
                assert over_hours == over_a_month, query.name


@pytest.mark.skipif(shutil.which(EXPORTER) is None, reason=f"needs {EXPORTER}")
def test_dead_rows_are_those_that_postgres_exporter_counts(database: Database, tmp_path: Path) -> None:
    """R-OBS-5: of the tables of the policy and no others."""
    (query,) = (query for query in grafana.queries() if query.panel == "Dead rows")

    def dead() -> dict[str, int]:
        rows = database.execute(
            """
            SELECT schemaname || '.' || relname, n_dead_tup FROM pg_stat_user_tables WHERE relname = ANY (%s)
            """,
            [[*TABLES]],
        )
        return dict(rows)

    with (
        exporting(database.url(), tmp_path) as exporter,
        serving(database.url(), "--retention-schedule", "* * * * * *") as daemon,
        prometheus(tmp_path, {"job": [address(daemon)], "postgres": [exporter]}) as server,
    ):
        eventually(lambda: grafana.shown(server, query) == dead() == dict.fromkeys(dead(), 0))

        for _ in range(9):
            database.session(views=2, events=3)
        eventually(lambda: grafana.shown(server, query) == dead() and min(dead().values()) >= 9)


def held(daemons: Sequence[Daemon]) -> Shown:
    """Nobody has deleted anything, and the replicas have taken turns at finding that."""
    return {
        "Last success": {},
        "Overdue": {},
        "Hold": {"Hold": 1},
        "Backlog": {"Backlog": 11},
        "Last run left rows": {"Last run left rows": 1},
        "Version": {__version__: 2},
        "Outcome of the last 30 nights": dict.fromkeys(get_args(Outcome), 0) | {"held": SOME, "skipped": SOME},
        "Duration of a run against its limit": {"duration": pytest.approx(0.5, abs=0.5), "limit": 1800},
        "Rows deleted": {f"user_activity.{table}": 0 for table in TABLES},
        "Batch latency": dict.fromkeys(bounds(), 0),
        "Expired rows when a run started": {"backlog": 11},
        "Age of the oldest expired row": {
            "oldest expired row": pytest.approx(400, abs=0.1),
            "retention period": 365,
        },
        "Retries": dict.fromkeys(get_args(RetryReason), 0),
        "Lock contention": {"skipped runs": SOME},
        "Missed ticks": dict.fromkeys(get_args(MissedReason), ANY),
        "Holds and unfinished runs": {"on hold": 1, "rows left": 1},
        "Dead rows": {},
    }


def worked(daemons: Sequence[Daemon], before: Sequence[int], database: Database, skipped_unseen: int) -> Shown:
    """All but one session are gone; so many runs had been skipped before the first scrape."""
    completed = logged(daemons, "run completed")
    durations = [line["duration_seconds"] for line in (*completed, *logged(daemons, "run held"))]
    skipped = lately(len(logged(daemons, "run skipped, lock busy")) - skipped_unseen)
    missed = {
        reason: near(sum(line["count"] for line in logged(daemons, "ticks missed") if line["reason"] == reason))
        for reason in get_args(MissedReason)
    }
    retried = Counter(line["reason"] for line in logged(daemons, "retrying"))
    return {
        "Last success": {"Last success": pytest.approx(30, abs=30)},
        "Overdue": {"Overdue": 0},
        "Hold": {"Hold": 0},
        "Backlog": {"Backlog": 1},
        "Last run left rows": {"Last run left rows": 0},
        "Version": {__version__: 2},
        "Outcome of the last 30 nights": dict.fromkeys(get_args(Outcome), 0)
        | {"completed": lately(len(completed)), "held": SOME, "skipped": skipped},
        "Duration of a run against its limit": {
            "duration": pytest.approx(sum(durations) / len(durations), rel=0.5),
            "limit": 1800,
        },
        "Rows deleted": {
            f"user_activity.{table}": near(was - now)
            for table, was, now in zip(TABLES, before, database.counts(), strict=True)
        },
        "Batch latency": dict.fromkeys(bounds(), ANY)
        | {"0.25": 0, "+Inf": near(sum(line["batches_processed"] for line in completed))},
        "Expired rows when a run started": {"backlog": 1},
        "Age of the oldest expired row": {
            "oldest expired row": pytest.approx(380, abs=0.1),
            "retention period": 365,
        },
        "Retries": {reason: near(retried[reason]) for reason in get_args(RetryReason)},
        "Lock contention": {"skipped runs": skipped},
        "Missed ticks": missed,
        "Holds and unfinished runs": {"on hold": 0, "rows left": 0},
        "Dead rows": {},
    }


def near(count: int) -> Any:
    """As increase() counts: it extends what it saw by up to half a scrape."""
    return pytest.approx(count, rel=0.1, abs=0.5)


def lately(count: int) -> Any:
    """What goes on while it is looked at."""
    return pytest.approx(count, abs=1.5)


def bounds() -> list[str]:
    """Of the buckets of a batch's duration."""
    return [
        sample.labels["le"]
        for family in RunMetrics(Settings().job).registry.collect()
        for sample in family.samples
        if sample.name == "activity_retention_batch_duration_seconds_bucket"
    ]


def logged(daemons: Sequence[Daemon], event: str) -> list[dict[str, Any]]:
    return [line for daemon in daemons for line in daemon.logged(event)]


def address(daemon: Daemon) -> str:
    return str(daemon.wait_for("listening")["url"]).removeprefix("http://")


def until_shown(server: Prometheus, expected: Callable[[], Shown]) -> None:
    """Waits until every panel shows that, and tells which ones do not if they never do."""
    different: dict[str, Any] = {}

    def shown() -> bool:
        panels: dict[str, dict[str, float]] = {}
        for query in grafana.queries():
            panels.setdefault(query.panel, {}).update(grafana.shown(server, query))
        wanted = expected()
        different.clear()
        different.update({name: (panels[name], wanted[name]) for name in panels if panels[name] != wanted[name]})
        return not different

    try:
        eventually(shown)
    except AssertionError:
        pytest.fail(f"shown, and wanted: {different}")


@contextmanager
def exporting(database_url: str, folder: Path) -> Iterator[str]:
    """A postgres_exporter; yields its address."""
    log = folder / "exporter.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [EXPORTER, "--web.listen-address=127.0.0.1:0", f"--extend.query-path={EXPORTER_QUERIES}"],
            env={**os.environ, "DATA_SOURCE_NAME": f"{database_url}?sslmode=disable"},
            stderr=output,
        )
    with process:
        try:
            listening = eventually(lambda: re.search(r'"Listening on" address=(\S+)', log.read_text()))
            assert listening
            yield listening[1]
        finally:
            process.kill()
