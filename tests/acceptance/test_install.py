"""The package, as pipx would install it."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.acceptance.conftest import environment
from tests.acceptance.test_demo import with_binaries

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel puts into site-packages, and nothing of the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def run_module(installed: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "activity_retention", *arguments],
        cwd=installed.parent,
        env=environment({"PYTHONPATH": str(installed)}),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_the_wheel_holds_everything_that_the_commands_need(installed: Path, binaries: Path | None) -> None:
    assert run_module(installed, "--version").stdout.startswith("activity-retention ")
    assert "CREATE TABLE user_activity.sessions" in run_module(installed, "schema").stdout

    said = json.loads(run_module(installed, "demo", "--json", "--rows", "5000", *with_binaries(binaries)).stdout)

    assert all(check["holds"] for check in said["proof"])


def test_importing_the_package_imports_neither_driver_nor_settings() -> None:
    """A scheduler that only wants the version pays for nothing else."""
    code = "import sys, activity_retention; print(sorted({'psycopg', 'pydantic', 'rich'} & set(sys.modules)))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.strip() == "[]"


def test_the_public_names_are_there() -> None:
    import activity_retention

    for name in activity_retention.__all__:
        assert getattr(activity_retention, name).__name__ == name
