"""Measures what docs/explanation/measurements.md says: make bench, or scripts/bench.py ratio | filled | drain.

Each part runs on a private PostgreSQL and prints rows of a Markdown table; progress goes to stderr.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import psycopg

from activity_retention import ActivityRetentionJob, load_settings
from activity_retention.sandbox.sample import Sample, load_expired
from activity_retention.sandbox.schema import create_schema
from activity_retention.sandbox.server import PrivateServer, private_server

BATCH_SIZE = 5000
MEGABYTE = 1 << 20
LOADED = "loaded"
# No checkpoint may fall into one round and not into another.
QUIET = {"checkpoint_timeout": "1h", "max_wal_size": "32GB", "fsync": "on"}
RATIO_SERVER = QUIET | {"shared_buffers": "512MB", "autovacuum": "off"}
DRAIN_SERVER = QUIET | {"shared_buffers": "512MB"}


@dataclass(frozen=True)
class Row:
    """A line of the table; `met` is whether the goal was, where there is one."""

    what: str
    measured: str
    goal: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        met = {True: "yes", False: "no", None: ""}[self.met]
        return f"| {self.what} | {self.measured} | {self.goal} | {met} |"


@dataclass(frozen=True)
class Cost:
    """What deleting everything took."""

    seconds: float
    wal: int


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def with_the_job(url: str) -> int:
    """One statement a batch, everything around it included; the number of rows that went."""
    settings = load_settings({"database_url": url, "batch_size": BATCH_SIZE}, environ={}).settings
    result = ActivityRetentionJob(settings, watch=lambda _: None).run()
    assert result.outcome == "completed", result.failure
    return result.rows


def with_a_loop(url: str) -> int:
    """What the specification says word by word: ids to the client, then a DELETE a table, in one transaction."""
    deleted = 0
    with psycopg.connect(url, autocommit=True) as connection:
        (cutoff,) = connection.execute("SELECT now() - interval '365 days'").fetchone() or (None,)
        while True:
            with connection.transaction():
                ids = [
                    row[0]
                    for row in connection.execute(
                        """
                        SELECT id FROM user_activity.sessions
                         WHERE status = 'Inactive' AND ended_at < %s
                         ORDER BY ended_at LIMIT %s FOR UPDATE SKIP LOCKED
                        """,
                        [cutoff, BATCH_SIZE],
                    )
                ]
                if not ids:
                    return deleted
                for table, key in (
                    ("action_events", "session_id"),
                    ("property_object_views", "session_id"),
                    ("sessions", "id"),
                ):
                    delete = f"DELETE FROM user_activity.{table} WHERE {key} = ANY (%s)"
                    deleted += connection.execute(delete.encode(), [ids]).rowcount


def ratio(server: PrivateServer, sessions: int, rounds: int, *, filled: bool) -> Iterator[Row]:
    """Both ways over identical data, in turns: how much faster the job is, and its share of the WAL.

    Where not `filled`, 3 of 8 events and 1 of 3 views refer to one of the other, else all of them do.
    """
    load(server, sessions, **({"views_filled": 1.0, "events_filled": 1.0} if filled else {}))
    data = "every SET NULL key filled" if filled else "3 of 8 events and 1 of 3 views filled"
    ways: dict[str, Callable[[str], int]] = {"job": with_the_job, "loop": with_a_loop}

    def one_round(order: Iterable[str], name: str) -> dict[str, Cost]:
        costs = {way: measured(server, ways[way], rows=sessions * 12) for way in order}
        for way, cost in costs.items():
            say(f"{name}: {way} {cost.seconds:.2f} s, {cost.wal / MEGABYTE:.0f} MB of WAL")
        return costs

    costs = [
        one_round(sorted(ways, reverse=number % 2 == 0), f"round {number} of {rounds}")
        for number in range(1, rounds + 1)
    ]
    # Round by round: the machine's own speed drifts, and both ways of one round see about the same of it.
    faster = [cost["loop"].seconds / cost["job"].seconds for cost in costs]
    low, middle, high = quantiles(faster, n=4)
    yield Row(
        f"one statement a batch against select and three deletes, {sessions:,} sessions × 3 views × 8 events, "
        f"{data}, "
        f"{rounds} rounds: times as fast, median and quartiles",
        f"{middle:.2f} ({low:.2f} to {high:.2f})",
        "≥ 1.3",
        middle >= 1.3,
    )
    job, loop = (median(cost[way].wal for cost in costs) for way in ("job", "loop"))
    yield Row(f"{data}: share of the WAL just after a checkpoint, images of pages included", share(job, loop))
    # A page's first change after a checkpoint writes all of it, and that is the same for both.
    without_page_images(server)
    records = one_round(ways, "without page images")
    job, loop = (float(records[way].wal) for way in ("job", "loop"))
    yield Row(f"{data}: share of the WAL, images of pages left out", share(job, loop), "≤ 0.7", job / loop <= 0.7)


def share(job: float, loop: float) -> str:
    return f"{job / loop:.2f} ({job / MEGABYTE:.0f} MB, {loop / MEGABYTE:.0f} MB)"


def without_page_images(server: PrivateServer) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET full_page_writes = off")
    server.restart()


def measured(server: PrivateServer, delete: Callable[[str], int], rows: int) -> Cost:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        strategy = "STRATEGY file_copy" if server.version >= 15 else ""
        connection.execute(f"CREATE DATABASE round TEMPLATE {LOADED} {strategy}".encode())
        # Full-page images follow a checkpoint: it must be as far away for one as for the other.
        connection.execute("CHECKPOINT")
        before, started = lsn(connection), time.perf_counter()
        deleted = delete(server.url("round"))
        cost = Cost(time.perf_counter() - started, lsn(connection) - before)
        connection.execute("DROP DATABASE round WITH (FORCE)")
    assert deleted == rows, f"{deleted} rows went, {rows} were there"
    return cost


def lsn(connection: psycopg.Connection[Any]) -> int:
    (position,) = connection.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone() or (0,)
    return int(position)


WORKER = """
import json, resource, sys
from pathlib import Path
from activity_retention import ActivityRetentionJob, load_settings
from activity_retention.events import BatchCommitted

seconds = []

def listen(event):
    if isinstance(event, BatchCommitted):
        seconds.append(event.seconds)

result = ActivityRetentionJob(load_settings().settings, watch=listen).run()
status = Path("/proc/self/status")
# ru_maxrss remembers what the parent weighed before exec, where there is /proc there is better.
peak = (
    next(int(line.split()[1]) << 10 for line in status.open() if line.startswith("VmHWM"))
    if status.exists()
    else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
)
print(json.dumps({"result": result.to_json(), "batches": seconds, "peak": peak}))
"""


def drain(server: PrivateServer, sessions: int) -> Iterator[Row]:
    """One run over a long backlog, in a process of its own, while an old snapshot keeps vacuum from helping."""
    sample = load(server, sessions)
    with old_snapshot(server.url(LOADED)):
        say(f"{sample.rows:,} rows loaded; one run over them …")
        report = run_worker({"DATABASE_URL": server.url(LOADED), "BATCH_SIZE": str(BATCH_SIZE)})
    result, batches = report["result"], report["batches"]
    rows = sum(result["deleted"].values())
    assert result["failure"] is None, result["failure"]
    assert rows == min(sample.rows, 200 * BATCH_SIZE * 12), f"{rows} rows went, {sample.rows} were there"

    few = max(1, min(10, len(batches) // 3))
    first, last = mean(batches[:few]), mean(batches[-few:])
    minutes, peak = result["durationSeconds"] / 60, report["peak"] / MEGABYTE
    yield Row(
        f"one run over {sample.sessions:,} expired sessions ({sample.rows:,} rows, {len(batches)} batches of "
        f"{BATCH_SIZE:,}), beside an old snapshot",
        f"{minutes:.1f} min, {rows / result['durationSeconds']:,.0f} rows/s",
        "< 30 min",
        minutes < 30,
    )
    yield Row(
        f"time of a batch: mean of the first {few}, median, mean of the last {few}",
        f"{first:.2f} s, {median(batches):.2f} s, {last:.2f} s",
        "last ≤ 1.5 × first",
        last <= 1.5 * first,
    )
    yield Row("peak memory of the job's process", f"{peak:.0f} MB", "< 80 MB", peak < 80)


def run_worker(settings: Mapping[str, str]) -> dict[str, Any]:
    environ = os.environ | {f"ACTIVITY_RETENTION_{key}": value for key, value in settings.items()}
    process = subprocess.run(
        [sys.executable, "-c", WORKER], env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    report: dict[str, Any] = json.loads(process.stdout)
    return report


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM user_activity.property_object_view_stats")
        yield


def load(server: PrivateServer, sessions: int, **fill: float) -> Sample:
    say(f"loading {sessions:,} expired sessions …")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {LOADED}".encode())
    with psycopg.connect(server.url(LOADED), autocommit=True) as connection:
        create_schema(connection)
        return load_expired(connection, sessions, **fill)  # type: ignore[arg-type]


def machine(server: PrivateServer) -> str:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        (version,) = connection.execute("SHOW server_version").fetchone() or ("?",)
        settings = connection.execute(
            "SELECT name || ' ' || current_setting(name) FROM unnest(ARRAY['shared_buffers', 'fsync']) AS name"
        ).fetchall()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} CPUs ({processor()}), "
        f"PostgreSQL {version} ({', '.join(setting for (setting,) in settings)}), "
        f"Python {platform.python_version()}"
    )


def processor() -> str:
    cpus = Path("/proc/cpuinfo")
    names = [line for line in cpus.read_text().splitlines() if "model name" in line] if cpus.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="ratio | filled | drain", help="parts to measure; by default both"
    )
    parser.add_argument("--pg-bin", type=Path, help="folder of the initdb and postgres to measure with")
    parser.add_argument("--sessions", type=int, default=1_000_000, help="backlog of the drain")
    parser.add_argument("--ratio-sessions", type=int, default=40_000, help="sessions of a round of the ratio")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of the ratio")
    options = parser.parse_args()
    parts: dict[str, tuple[dict[str, str], Callable[[PrivateServer], Iterator[Row]]]] = {
        "ratio": (
            RATIO_SERVER,
            lambda server: ratio(server, options.ratio_sessions, options.rounds, filled=False),
        ),
        "filled": (
            RATIO_SERVER,
            lambda server: ratio(server, options.ratio_sessions, options.rounds, filled=True),
        ),
        "drain": (DRAIN_SERVER, lambda server: drain(server, options.sessions)),
    }
    if unknown := set(options.parts) - set(parts):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: write {' or '.join(parts)}")

    rows: list[Row] = []
    facts = ""
    for part in options.parts or parts:
        settings, measure = parts[part]
        with private_server(options.pg_bin, settings) as server:
            facts = machine(server)
            rows.extend(measure(server))
    print(f"{facts}\n\n| what | measured | goal | met |\n|---|---|---|---|")
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
