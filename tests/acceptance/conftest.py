"""The installed command, as a user types it."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]

PROGRAM = Path(sys.executable).with_name("activity-retention")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tester's environment without what would tell the command where a database is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ACTIVITY_RETENTION_", "PG"))}
    # A colour or a width that the tester's terminal asked for is not part of what is tested.
    return {**kept, "COLUMNS": "100", "TERM": "xterm", **(extra or {})}


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs `activity-retention …` to its end in an empty folder."""

    def run(*arguments: str, env: Mapping[str, str] | None = None, code: int | None = 0) -> Completed:
        done = subprocess.run(
            [PROGRAM, *arguments],
            cwd=tmp_path,
            env=environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr
        if code is not None:
            assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def start(tmp_path: Path) -> Callable[[Sequence[str]], "subprocess.Popen[str]"]:
    """Starts `activity-retention …` and leaves it running."""

    def start(arguments: Sequence[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
