"""`activity-retention demo`: the first thing that a newcomer types."""

import json
from pathlib import Path

from tests.acceptance.conftest import Command


def with_binaries(binaries: Path | None) -> list[str]:
    return ["--pg-bin", str(binaries)] if binaries else []


def test_demo_proves_its_result(command: Command, binaries: Path | None) -> None:
    done = command("demo", "--json", "--rows", "20000", *with_binaries(binaries))

    said = json.loads(done.stdout)
    assert said["run"]["outcome"] == "completed"
    assert said["run"]["deletedSessions"] == said["plan"]["eligibleBacklog"] > 0
    assert said["plan"]["role"] == "activity_retention"
    assert len(said["proof"]) >= 10
    assert all(check["holds"] for check in said["proof"])


def test_demo_draws_the_plan_and_the_proof(command: Command, binaries: Path | None) -> None:
    shown = command("demo", "--rows", "20000", *with_binaries(binaries)).stdout

    assert "cutoff  ─" in shown
    assert "Proved: only what had expired is gone." in shown


def test_demo_touches_no_database_of_yours(command: Command) -> None:
    done = command("demo", "--database-url", "postgresql://h/d", code=2)

    assert "leave --database-url out" in done.stderr


def test_demo_without_a_postgresql_says_how_to_get_one(command: Command, tmp_path: Path) -> None:
    done = command("demo", "--pg-bin", str(tmp_path), code=2)

    assert str(tmp_path) in done.stderr
