"""A one-shot run hands its series to a Pushgateway and a textfile, and no trouble there harms it (case F14)."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import PROGRAM, Command, Completed, environment
from tests.database import Database
from tests.listeners import hanging, nobody
from tests.pushgateway import PUSHGATEWAY, Series, pushed, pushgateway, series
from tests.watched import lock, poison

needs_a_pushgateway = pytest.mark.skipif(PUSHGATEWAY is None, reason="there is no Pushgateway here")
SETPRIV = shutil.which("setpriv")
# The password is p@ss:w/rd.
USERS = "basic_auth_users:\n  job: $2b$04$abcdefghijklmnopqrstuuN97fd6EA/p32TVpg5ldcQZGGJqxtc.e\n"


def run(database: Database, command: Command, *arguments: str, code: int = 0) -> Completed:
    return command("run", "--yes", "--json", "--database-url", database.url(), *arguments, code=code)


def outcome(done: Completed) -> str:
    return str(json.loads(done.stdout)["outcome"])


def troubles(done: Completed) -> list[str]:
    """What could not be delivered where."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stderr.splitlines()]
    said = [str(line["event"]) for line in lines if line["level"] == "warning"]
    return [sentence for sentence in said if "the metrics of this run were not delivered" in sentence]


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset({"policy": "user-activity", **labels}.items())]


def figures(found: Series) -> Mapping[str, float]:
    return {
        **{
            each: value(found, "runs_total", outcome=each) for each in ("completed", "failed", "skipped", "refused")
        },
        **{
            each: value(found, f"{each}_total")
            for each in ("deleted_sessions", "batches_processed", "lock_contention")
        },
        **{each: value(found, each) for each in ("eligible_backlog", "has_more", "run_duration_seconds_count")},
    }


@needs_a_pushgateway
def test_series_go_on_from_run_to_run_in_both_places(database: Database, command: Command, tmp_path: Path) -> None:
    """Case F14: counters are carried on, and neither a failed nor a skipped run looks like a success."""
    textfile = tmp_path / "retention.prom"
    for _ in range(3):
        database.session(views=1, events=2)
    with pushgateway() as gateway:

        def handed_over(expected: str, code: int = 0) -> Series:
            places = ("--pushgateway-url", f"http://{gateway}", "--textfile", str(textfile))
            done = run(database, command, *places, "--batch-size", "2", code=code)
            assert (outcome(done), set(troubles(done)) - {"retrying", "run skipped, lock busy"}) == (
                expected,
                set(),
            )
            found = pushed(gateway)
            assert found == series(textfile.read_text())
            return found

        before = time.time()
        first = handed_over("completed")
        database.session()
        poison(database)
        second = handed_over("failed", code=1)
        lock(database)
        third = handed_over("skipped")

    assert before <= value(first, "last_success_timestamp_seconds") <= time.time()
    assert {value(each, "last_success_timestamp_seconds") for each in (first, second, third)} == {
        value(first, "last_success_timestamp_seconds")
    }
    assert figures(first) == {
        "completed": 1,
        "failed": 0,
        "skipped": 0,
        "refused": 0,
        "deleted_sessions": 3,
        "batches_processed": 2,
        "lock_contention": 0,
        "eligible_backlog": 3,
        "has_more": 0,
        "run_duration_seconds_count": 1,
    }
    later = {"failed": 1, "eligible_backlog": 1, "has_more": 1, "run_duration_seconds_count": 2}
    assert figures(second) == {**figures(first), **later}
    assert figures(third) == {**figures(second), "skipped": 1, "lock_contention": 1}
    assert value(third, "deleted_action_events_total") == 6
    assert value(third, "deleted_rows_total", table="user_activity.action_events") == 6
    assert value(third, "batch_duration_seconds_count") == 2
    assert [path.name for path in tmp_path.iterdir()] == [textfile.name]


@needs_a_pushgateway
def test_a_gateway_behind_a_password_is_asked_with_it(database: Database, command: Command, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(USERS)
    database.expired(1)

    with pushgateway(f"--web.config.file={tmp_path / 'web.yml'}") as gateway:
        for password, warned in (("p%40ss%3Aw%2Frd", []), ("wr%40ng", ["it answered 401 Unauthorized"])):
            done = run(database, command, "--pushgateway-url", f"http://job:{password}@{gateway}/")
            assert outcome(done) == "completed"
            assert [warning.rpartition("not delivered: ")[2] for warning in troubles(done)] == warned
            for secret in ("p%40ss", "p@ss", "wr%40ng", "wr@ng"):
                assert secret not in done.stdout + done.stderr


def test_a_gateway_that_hangs_is_not_waited_for(database: Database, command: Command) -> None:
    """The command is over while the gateway still keeps its request."""
    database.expired(3)

    with hanging() as gateway:
        done = run(database, command, "--pushgateway-url", gateway.url)
        assert gateway.held

    assert (outcome(done), database.count("sessions")) == ("completed", 0)
    assert troubles(done) == [
        f"pushgateway_url = '{gateway.url}': the metrics of this run were not delivered: no answer within 2 s"
    ]


def test_trouble_changes_no_exit_code(database: Database, command: Command, tmp_path: Path) -> None:
    database.session()
    poison(database)
    gateway, textfile = nobody(), tmp_path / "missing" / "retention.prom"

    done = run(database, command, "--pushgateway-url", gateway, "--textfile", str(textfile), code=1)

    assert outcome(done) == "failed"
    assert troubles(done) == [
        f"textfile = '{textfile}': the metrics of this run were not delivered: No such file or directory",
        f"pushgateway_url = '{gateway}': the metrics of this run were not delivered: Connection refused",
    ]


@pytest.mark.skipif(os.geteuid() == 0 and SETPRIV is None, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_stops_no_run(database: Database, tmp_path: Path) -> None:
    database.expired(3)
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    textfile = folder / "retention.prom"
    unprivileged = [str(SETPRIV), "--bounding-set=-dac_override", "--inh-caps=-dac_override"]

    done = subprocess.run(
        [
            *(unprivileged if os.geteuid() == 0 else []),
            *(PROGRAM, "run", "--json", "--database-url", database.url(), "--textfile", textfile),
        ],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (outcome(done), database.count("sessions")) == ("completed", 0)
    assert troubles(done) == [
        f"textfile = '{textfile}': the metrics of this run were not delivered: Permission denied"
    ]
