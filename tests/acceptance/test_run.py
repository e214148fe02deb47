"""`activity-retention run`, away from a terminal."""

import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.acceptance.conftest import Command
from tests.database import Database
from tests.eventually import eventually

Start = Callable[[Sequence[str]], "subprocess.Popen[str]"]


def test_json_is_the_result_and_logs_go_to_stderr(database: Database, command: Command) -> None:
    database.session(views=2, events=3)
    database.session(ended="10 days", views=1)

    done = command("run", "--json", "--database-url", database.url())

    result = json.loads(done.stdout)
    assert result | {"runId": "", "cutoff": "", "durationSeconds": 0} == {
        "runId": "",
        "policy": "user-activity",
        "outcome": "completed",
        "stopReason": "empty",
        "cutoff": "",
        "deletedSessions": 1,
        "deletedPropertyObjectViews": 2,
        "deletedActionEvents": 3,
        "deleted": {
            "user_activity.action_events": 3,
            "user_activity.property_object_views": 2,
            "user_activity.sessions": 1,
        },
        "batchesProcessed": 1,
        "hasMore": False,
        "leftLocked": False,
        "eligibleBacklog": 1,
        "backlogExact": True,
        "durationSeconds": 0,
        "retries": 0,
        "failure": None,
    }
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "run started"),
        ("info", "run completed"),
    ]
    assert {line["run_id"] for line in lines} == {result["runId"]}
    assert database.counts() == (1, 1, 0)


def test_logs_are_exactly_those_of_the_specification(database: Database, command: Command) -> None:
    """R-OBS-1: Info started, Debug per batch, Info completed."""
    for _ in range(3):
        database.session(views=1, events=1)

    url = ("--database-url", database.url())
    done = command("run", *url, "--batch-size", "2", "--log-level", "debug", "--log-format", "json")

    started, first, second, completed = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == ""
    assert (started["level"], started["event"], started["batch_size"]) == ("info", "run started", 2)
    assert started["cutoff"]
    assert started["run_id"]
    assert (first["level"], first["batch_index"], second["batch_index"]) == ("debug", 1, 2)
    assert (first["deleted_sessions"], first["deleted_action_events"]) == (2, 2)
    assert (completed["level"], completed["event"], completed["has_more"]) == ("info", "run completed", False)
    assert (completed["deleted_sessions"], completed["deleted_property_object_views"]) == (3, 3)
    assert completed["duration_seconds"] >= 0


def test_two_at_once_delete_each_row_once(database: Database, start: Start) -> None:
    """One completes, the other is skipped; nothing is counted twice (R-RUN-2)."""
    database.expired(2000)
    arguments = ["run", "--json", "--database-url", database.url(), "--batch-size", "100", "--lock-timeout", "60s"]
    # Both are at work before either can have finished: the first one waits at the gate in its first batch.
    with database.gate("sessions") as gate:
        both = [start(arguments), start(arguments)]
        eventually(lambda: any(process.poll() is not None for process in both))
        gate.open()
        results = [json.loads(process.communicate(timeout=60)[0]) for process in both]

    assert sorted(result["outcome"] for result in results) == ["completed", "skipped"]
    assert sorted(result["deletedSessions"] for result in results) == [0, 2000]
    assert [process.returncode for process in both] == [0, 0]
    assert database.count("sessions") == 0


def test_a_dry_run_only_looks(database: Database, command: Command) -> None:
    database.session(views=1)

    done = command("run", "--dry-run", "--json", "--database-url", database.url())

    result = json.loads(done.stdout)
    assert (result["outcome"], result["stopReason"], result["hasMore"]) == ("observed", "observed", True)
    assert (result["eligibleBacklog"], result["deletedSessions"]) == (1, 0)
    assert database.counts() == (1, 1, 0)


def test_a_hold_file_stops_before_the_first_batch(database: Database, command: Command, tmp_path: Path) -> None:
    database.session()
    (tmp_path / "hold").write_text("restored from a backup, look first\n")

    done = command("run", "--json", "--database-url", database.url(), "--hold-file", "hold")

    result = json.loads(done.stdout)
    assert (result["outcome"], result["stopReason"], result["hasMore"]) == ("held", "held", True)
    assert "restored from a backup" in done.stderr
    assert database.count("sessions") == 1

    (tmp_path / "hold").unlink()
    assert json.loads(command("run", "--json", "--database-url", database.url()).stdout)["deletedSessions"] == 1


def test_a_failed_run_exits_1_and_names_the_rows(database: Database, command: Command) -> None:
    """R-RETRY-3: the Error line has the RunId and the batch's ids."""
    session = database.session()
    database.execute("CREATE TABLE public.notes (session_id uuid REFERENCES user_activity.sessions)")
    database.execute("INSERT INTO public.notes VALUES (%s)", [session])

    done = command("run", "--json", "--database-url", database.url(), code=1)

    failure = json.loads(done.stdout)["failure"]
    assert (failure["kind"], failure["batchIds"]) == ("poison", [str(session)])
    assert "notes_session_id_fkey" in failure["message"]
    error = json.loads(done.stderr.splitlines()[-1])
    assert (error["level"], error["event"], error["batch_ids"]) == ("error", "run failed", [str(session)])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_batches_stops_the_run(database: Database, start: Start, number: signal.Signals) -> None:
    """R-RUN-4, case D9: the batch that runs is short, so it is finished and committed."""
    database.expired(100)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(0.02)")

    process = start(
        ["run", "--json", "--database-url", database.url(), "--batch-size", "10", "--grace-period", "60s"]
    )
    eventually(lambda: database.count("sessions") <= 90)
    process.send_signal(number)
    result = json.loads(process.communicate(timeout=60)[0])

    assert process.returncode == 128 + number
    assert (result["outcome"], result["hasMore"]) == ("cancelled", True)
    assert database.count("sessions") == 100 - result["deletedSessions"]
    assert result["deletedSessions"] == 10 * result["batchesProcessed"]


def test_the_end_of_the_grace_period_cancels_the_statement(database: Database, start: Start) -> None:
    """Case D9: a long batch is cancelled, rolled back whole, and the lock is free."""
    database.session(views=2, events=2)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(120)")

    process = start(["run", "--json", "--database-url", database.url(), "--grace-period", "200ms"])
    eventually(database.is_sleeping)
    process.terminate()
    result = json.loads(process.communicate(timeout=60)[0])

    assert (process.returncode, result["outcome"], result["deletedSessions"]) == (143, "cancelled", 0)
    assert database.counts() == (1, 2, 2)
    assert database.lock_is_free()


def test_a_second_signal_cancels_at_once(database: Database, start: Start) -> None:
    database.session(events=1)
    database.before("DELETE", "sessions", "PERFORM pg_sleep(120)")

    process = start(["run", "--json", "--database-url", database.url(), "--grace-period", "10m"])
    eventually(database.is_sleeping)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    result = json.loads(process.communicate(timeout=60)[0])

    assert result["outcome"] == "cancelled"
    assert process.returncode in (130, 143)
    assert database.counts() == (1, 0, 1)


def test_a_log_pipe_that_closes_does_not_stop_the_run(database: Database, start: Start) -> None:
    database.expired(50)

    arguments = ["run", "--database-url", database.url(), "--batch-size", "5", "--log-level", "debug"]
    with start(arguments) as process:
        assert process.stderr is not None
        process.stderr.close()
        process.wait(timeout=60)

    assert (process.returncode, database.count("sessions")) == (0, 0)
