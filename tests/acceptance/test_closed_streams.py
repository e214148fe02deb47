"""A run goes on and says on stdout what it did, whatever became of its other streams."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import PROGRAM, environment
from tests.database import Database


def run(streams: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The installed command, with a shell's word about its streams."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {streams}', PROGRAM, *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param("2>&-", id="stderr closed"),
        pytest.param("2>/dev/full", id="disk full"),
        pytest.param("<&-", id="stdin closed"),
        pytest.param("<&- 2>&-", id="both closed"),
    ],
)
def test_without_a_log_the_run_is_the_same(database: Database, streams: str) -> None:
    database.expired(50)

    done = run(
        streams, "run", "--json", "--database-url", database.url(), "--batch-size", "5", "--log-level", "debug"
    )

    assert (done.returncode, database.count("sessions")) == (0, 0)
    assert json.loads(done.stdout)["deletedSessions"] == 50


def test_a_log_for_people_that_nobody_can_read_stops_no_run(database: Database) -> None:
    database.expired(5)
    done = run("2>&-", "run", "--json", "--log-format", "console", "--database-url", database.url())
    assert (done.returncode, json.loads(done.stdout)["deletedSessions"]) == (0, 5)


def test_warnings_of_what_could_not_be_delivered_stop_no_run(database: Database, tmp_path: Path) -> None:
    database.expired(5)
    textfile = tmp_path / "missing" / "retention.prom"
    done = run("2>&-", "run", "--json", "--textfile", str(textfile), "--database-url", database.url())
    assert (done.returncode, json.loads(done.stdout)["deletedSessions"]) == (0, 5)


def test_a_refusal_that_nobody_can_read_is_still_one_document() -> None:
    done = run("2>&-", "config", "--json", "--batch-size", "0")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (2, "refused")
