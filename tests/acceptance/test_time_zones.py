"""A zone that cannot be had is refused, never taken for UTC (case E11)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance.conftest import Command

Slim = Callable[..., Mapping[str, str]]


@pytest.fixture
def slim(tmp_path: Path) -> Slim:
    """The environment of a machine without any zone database, neither the system's nor Python's."""
    (tmp_path / "slim").mkdir()
    (tmp_path / "slim" / "tzdata.py").write_text("raise ImportError('no zones here')\n")

    def environ(**settings: str) -> Mapping[str, str]:
        return {
            "PYTHONTZPATH": "",
            "PYTHONPATH": str(tmp_path / "slim"),
            **{f"ACTIVITY_RETENTION_{key.upper()}": value for key, value in settings.items()},
        }

    return environ


@pytest.mark.parametrize("zone", ["Europe/Moscow", "Europe/Berlin", "UTC"])
def test_without_a_zone_database_the_zone_is_named(command: Command, slim: Slim, zone: str) -> None:
    done = command("config", "--json", env=slim(time_zone=zone), code=2)

    (reason,) = json.loads(done.stdout)["reasons"]
    assert reason == (
        f"time_zone = '{zone}' (ACTIVITY_RETENTION_TIME_ZONE): this machine has no time zone database, "
        f"so {zone} can't be looked up: install the package tzdata"
    )
    assert done.stderr == f"activity-retention: {reason}\n"


def test_without_a_zone_database_the_default_is_named_as_well(command: Command, slim: Slim) -> None:
    done = command("config", "--json", env=slim(), code=2)

    (reason,) = json.loads(done.stdout)["reasons"]
    assert reason.startswith("time_zone (default): this machine has no time zone database, so Europe/Moscow can't")


@pytest.mark.parametrize("quoted", ['"Europe/Berlin"', "'Europe/Berlin'", "Europe/Berlin "])
def test_quotes_around_a_zone_are_not_taken_for_utc(command: Command, quoted: str) -> None:
    done = command("config", env={"ACTIVITY_RETENTION_TIME_ZONE": quoted}, code=2)

    (line,) = done.stderr.splitlines()
    assert line.startswith(f"activity-retention: time_zone = {quoted!r} (ACTIVITY_RETENTION_TIME_ZONE): ")
    assert "did you mean Europe/Berlin?" in line


def test_the_clients_own_zone_changes_no_fire_time(command: Command) -> None:
    done = command("config", "--json", env={"TZ": "America/New_York"})
    assert all(fire.endswith("T03:00:00+03:00") for fire in json.loads(done.stdout)["nextRuns"])
