"""`activity-retention serve`, as an orchestrator runs it."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from uuid import UUID

import pytest

from tests.acceptance.conftest import PROGRAM, Command, environment
from tests.daemon import Daemon, serving
from tests.database import TABLES, Database
from tests.eventually import eventually

EVERY_SECOND = ("--retention-schedule", "* * * * * *")
EVERY_FIVE = ("--retention-schedule", "*/5 * * * * *")
NEVER = ("--retention-schedule", "0 0 3 1 1 *")
ROWS = "deleted_rows_total"


def test_it_runs_at_each_tick_and_answers_probes_and_prometheus(database: Database) -> None:
    database.session(views=2, events=3)
    with serving(database.url(), *EVERY_SECOND) as daemon:
        completed = daemon.wait_for("run completed", 2)

        assert len(daemon.wait_for("serving")["next_runs"]) == 3
        assert daemon.get("/livez") == (200, "ok\n")
        assert daemon.get("/readyz") == (200, "ok\n")
        assert daemon.get("/elsewhere")[0] == 404
        assert daemon.metric("deleted_sessions_total") == 1
        assert daemon.metric(ROWS) == 6
        assert daemon.wait_for("listening")["url"].startswith("http://127.0.0.1:")
        assert daemon.stop() == 0

    assert completed["run_id"] != daemon.logged("run completed")[0]["run_id"]
    assert daemon.lines[-1]["event"] == "stopped"
    assert daemon.other == []
    assert database.counts() == (0, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_daemon_with_0(database: Database, number: signal.Signals) -> None:
    with serving(database.url(), *NEVER, "--json") as daemon:
        daemon.wait_for("serving")
        assert daemon.stop(number) == 0
        assert daemon.process.stdout
        assert json.loads(daemon.process.stdout.read()) == {"outcome": "stopped", "signal": number.name}


def test_sigterm_during_a_large_batch_is_gone_within_the_grace_period(database: Database) -> None:
    """Case D9: the statement is cancelled, the batch is whole, the lock is free."""
    for _ in range(20):
        database.session(views=2, events=2)
    with (
        database.gate("sessions") as gate,
        serving(database.url(), *EVERY_SECOND, "--grace-period", "500ms", "--lock-timeout", "60s") as daemon,
    ):
        eventually(gate.waiting)
        # The gate stays closed: without the cancellation it would wait for its lock time-out.
        assert daemon.stop() == 0
        assert daemon.logged("run cancelled")[0]["batches_processed"] == 0

    eventually(database.lock_is_free)
    assert database.counts() == (20, 40, 40)


def test_sigterm_lets_a_batch_end_that_ends_in_time(database: Database) -> None:
    """Case D9: between two batches."""
    database.expired(4)
    with (
        database.gate("sessions", database.oldest()) as gate,
        serving(
            database.url(), *EVERY_SECOND, "--batch-size", "2", "--lock-timeout", "60s", "--grace-period", "60s"
        ) as daemon,
    ):
        eventually(gate.waiting)
        daemon.process.send_signal(signal.SIGTERM)
        gate.open()
        assert daemon.end() == 0

    assert daemon.logged("run cancelled")[0]["batches_processed"] == 1
    assert (database.count("sessions"), database.lock_is_free()) == (2, True)


def test_sighup_reloads_nothing_and_says_so(database: Database) -> None:
    with serving(database.url(), *NEVER) as daemon:
        daemon.wait_for("serving")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("SIGHUP: settings are not reloaded, restart serve to change them")
        assert daemon.get("/livez")[0] == 200
        assert daemon.stop() == 0


def test_two_daemons_and_writers_make_one_run_a_tick(database: Database) -> None:
    """Case C19, R-RUN-2: at each tick one works, one skips, and the counters are the rows really deleted."""
    with serving(database.url(), *EVERY_FIVE) as one, serving(database.url(), *EVERY_FIVE) as other:
        both = (one, other)
        for daemon in both:
            daemon.wait_for("listening")
        with writing(database) as written:
            for daemon in both:
                daemon.wait_for("waiting", 2)
        for daemon in both:
            daemon.wait_for("waiting", len(daemon.logged("waiting")) + 1)
        eventually(lambda: one.logged("waiting")[-1]["next_runs"] == other.logged("waiting")[-1]["next_runs"])

        assert database.counts() == (0, 0, 0)
        ticks = len({line["next_runs"][0] for daemon in both for line in daemon.logged("waiting")})
        shared = len(one.logged("waiting")) + len(other.logged("waiting")) - ticks
        assert shared >= 3
        assert total(both, "runs_total", outcome="completed") == ticks
        assert total(both, "runs_total", outcome="skipped") == total(both, "lock_contention_total") == shared
        for table, rows in zip(TABLES, (1, 1, 2), strict=True):
            assert total(both, ROWS, table=f"user_activity.{table}") == len(written) * rows
        assert [daemon.stop() for daemon in both] == [0, 0]

    assert len(written) > 10
    assert not any(line["level"] == "error" for daemon in both for line in daemon.lines)


def test_of_five_daemons_at_one_tick_one_works_and_four_skip(database: Database) -> None:
    """Case C19."""
    database.session()
    tick = datetime.now(UTC) + timedelta(seconds=10)
    at = ("--time-zone", "UTC", "--retention-schedule", f"{tick:%-S %-M %-H} * * *")
    with ExitStack() as stack:
        daemons = [stack.enter_context(serving(database.url(), *at)) for _ in range(5)]
        for daemon in daemons:
            daemon.wait_for("waiting")

        assert total(daemons, "runs_total", outcome="completed") == 1
        assert total(daemons, "runs_total", outcome="skipped") == 4
        assert total(daemons, "deleted_sessions_total") == 1


def test_a_port_that_is_taken_costs_the_answers_and_no_run(database: Database) -> None:
    """One sentence; the job goes on, and answers once the port is free."""
    database.session()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serving(database.url(), *EVERY_SECOND, "--metrics-port", port) as daemon:
            daemon.wait_for("run completed")
            (error,) = [line["event"] for line in daemon.lines if line["level"] == "error"]
            assert error.startswith(f"metrics_address = 127.0.0.1, metrics_port = {port}: Address already in use: ")
            taken.close()
            assert daemon.get("/livez") == (200, "ok\n")
            assert daemon.stop() == 0

    assert database.count("sessions") == 0


def test_what_the_database_refuses_turns_readiness_red_until_it_is_mended(database: Database) -> None:
    database.session()
    database.execute("REVOKE DELETE ON user_activity.sessions FROM activity_retention")
    with serving(database.url("activity_retention"), *EVERY_SECOND) as daemon:
        daemon.wait_for("run refused")
        status, body = daemon.get("/readyz")
        assert (status, daemon.get("/livez")[0]) == (503, 200)
        assert "the last run was refused: role activity_retention lacks DELETE" in body
        assert daemon.metric("runs_total", outcome="refused") >= 1

        database.execute("GRANT DELETE ON user_activity.sessions TO activity_retention")
        daemon.wait_for("run completed")
        eventually(lambda: daemon.get("/readyz") == (200, "ok\n"))
        assert daemon.stop() == 0

    assert database.count("sessions") == 0


def test_a_log_that_nobody_reads_any_more_ends_nothing(database: Database) -> None:
    """The reader of stderr goes away in the middle."""
    process = subprocess.Popen(
        [PROGRAM, "serve", "--metrics-port", "0", "--database-url", database.url(), *EVERY_SECOND],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stderr
        process.stderr.readline()
        process.stderr.close()
        database.session()
        eventually(lambda: database.count("sessions") == 0)
        process.terminate()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--time-zone", "Europe/Moskow"], "no such time zone, did you mean Europe/Moscow?"),
        (
            ["--retention-schedule", "0 0 3 31 2 *"],
            "retention_schedule = '0 0 3 31 2 *' (--retention-schedule): none of its months has such a day",
        ),
        (
            ["--metrics-port", "70000"],
            "metrics_port = '70000' (--metrics-port): write a whole number from 0 to 65535",
        ),
        (
            ["--metrics-address", "db.example:1"],
            "metrics_address = 'db.example:1' (--metrics-address): write an IP",
        ),
        (["--database-url-file", "missing"], "database_url_file = 'missing': No such file or directory"),
    ],
)
def test_faults_of_configuration_end_it_at_once(
    database: Database, command: Command, arguments: list[str], sentence: str
) -> None:
    url = [] if "--database-url-file" in arguments else ["--database-url", database.url()]

    done = command("serve", *url, *arguments, code=2)

    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_database_it_does_not_start(command: Command) -> None:
    assert "No database given" in command("serve", code=2).stderr


def test_what_is_meant_for_one_shot_runs_is_said_to_be(database: Database) -> None:
    with serving(database.url(), *NEVER, "--textfile", "runs.prom") as daemon:
        daemon.wait_for("pushgateway_url and textfile are for run: serve answers /metrics instead")
        assert daemon.stop() == 0


def total(daemons: Sequence[Daemon], name: str, **labels: str) -> float:
    return sum(daemon.metric(name, **labels) for daemon in daemons)


@contextmanager
def writing(database: Database) -> Iterator[list[UUID]]:
    """Sessions that have expired already keep coming, each with a view and two events, while the block lasts."""
    stop = Event()
    written: list[UUID] = []

    def write() -> None:
        while not stop.wait(0.02):
            written.append(database.session(views=1, events=2))

    writer = Thread(target=write)
    writer.start()
    try:
        yield written
    finally:
        stop.set()
        writer.join()
