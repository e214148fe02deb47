"""Where the private PostgreSQL's programs come from, and what is said when they come from nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from activity_retention.sandbox import binaries
from activity_retention.sandbox.binaries import NoPostgres, find_binaries


def programs_in(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_from_wheel", list)
    monkeypatch.setattr(binaries, "_from_debian", list)
    monkeypatch.setenv("PATH", "")


def test_an_explicit_folder_wins(tmp_path: Path) -> None:
    folder = programs_in(tmp_path, "initdb", "postgres")
    assert find_binaries(folder) == folder


def test_an_explicit_folder_that_lacks_a_program_is_refused_by_name(tmp_path: Path) -> None:
    folder = programs_in(tmp_path, "postgres")
    with pytest.raises(NoPostgres, match=str(folder)):
        find_binaries(folder)


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_postgres_the_message_says_how_to_get_one() -> None:
    with pytest.raises(NoPostgres) as caught:
        find_binaries()
    assert "pip install 'activity-retention[embedded]'" in str(caught.value)
    assert "PATH" in str(caught.value)


@pytest.mark.usefixtures("nothing_installed")
def test_a_link_on_path_leads_to_the_folder_with_both_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = programs_in(tmp_path / "real", "initdb", "postgres")
    links = programs_in(tmp_path / "links")
    (links / "initdb").symlink_to(folder / "initdb")
    monkeypatch.setenv("PATH", str(links))
    assert find_binaries() == folder


@pytest.mark.usefixtures("nothing_installed")
def test_a_folder_on_path_without_the_server_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs_in(tmp_path, "initdb")))
    with pytest.raises(NoPostgres):
        find_binaries()


def test_the_launcher_needs_no_driver() -> None:
    question = "import sys, activity_retention.sandbox.server; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", question], check=True)
