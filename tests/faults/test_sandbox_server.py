"""However its parent ends, a private server and its files end with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from activity_retention.sandbox.binaries import find_binaries
from tests.eventually import eventually

SYSTEM_PYTHON = Path("/usr/bin/python3")

PARENT = """
import json, os, sys
from activity_retention.sandbox.server import private_server
{before}
with private_server() as server:
    print(json.dumps([server.pid, str(server.data_directory.parent)]), flush=True)
    {inside}
"""


@dataclass(frozen=True)
class Parent:
    """A process that keeps a private server."""

    process: "subprocess.Popen[str]"
    server_pid: int
    directory: Path

    def server_is_gone(self) -> bool:
        return not is_alive(self.server_pid) and not self.directory.exists()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def children() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def parent_of_a_server(
    children: list["subprocess.Popen[str]"], *, before: str = "", inside: str = "sys.stdin.read()"
) -> Parent:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(before=before, inside=inside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    children.append(process)
    assert process.stdout is not None
    pid, directory = json.loads(process.stdout.readline())
    return Parent(process, pid, Path(directory))


def test_kill_9_of_the_parent_takes_the_server_along(children: list["subprocess.Popen[str]"]) -> None:
    parent = parent_of_a_server(children)
    parent.process.kill()
    eventually(parent.server_is_gone)


def test_a_child_the_parent_forked_does_not_keep_the_server(
    children: list["subprocess.Popen[str]"],
) -> None:
    fork = "child = os.fork() or sys.stdin.read(); print(child, flush=True); sys.stdin.read()"
    parent = parent_of_a_server(children, inside=fork)
    assert parent.process.stdout is not None
    child = int(parent.process.stdout.readline())
    try:
        parent.process.kill()
        eventually(parent.server_is_gone)
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_kill_9_before_the_server_is_up_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT.format(before="", inside="sys.stdin.read()")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": name},
        )
        eventually(lambda: list(folder.iterdir()))
        process.kill()
        process.communicate()
        eventually(lambda: not list(folder.iterdir()))


def test_ctrl_c_ends_the_block_and_the_server(children: list["subprocess.Popen[str]"]) -> None:
    parent = parent_of_a_server(children)
    os.killpg(parent.process.pid, signal.SIGINT)
    assert parent.process.wait(30) == -signal.SIGINT
    assert parent.server_is_gone()


def test_ctrl_c_that_the_parent_handles_leaves_it_its_server(
    children: list["subprocess.Popen[str]"],
) -> None:
    parent = parent_of_a_server(
        children,
        before="import signal; signal.signal(signal.SIGINT, lambda *_: print('handled', flush=True))",
        inside="sys.stdin.read(); server.restart()",
    )
    os.killpg(parent.process.pid, signal.SIGINT)
    assert parent.process.stdout is not None
    assert parent.process.stdout.readline() == "handled\n"
    parent.process.communicate()
    assert parent.process.returncode == 0


def test_it_runs_for_a_normal_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("every other test here runs as a normal user already")
    if not SYSTEM_PYTHON.exists():
        pytest.skip("no interpreter that every user can reach")
    binaries = find_binaries()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        package = folder / "activity_retention"
        source = Path(sys.modules["activity_retention"].__path__[0])
        shutil.copytree(source / "sandbox", package / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(source / "__init__.py", package)
        if not reachable_by_nobody(binaries):
            pytest.skip("the PostgreSQL programs are in a folder that only root can reach")
        script = (
            "import os; from pathlib import Path; from activity_retention.sandbox.server import private_server\n"
            f"with private_server(Path({str(binaries)!r})) as server:\n"
            "    assert server.data_directory.stat().st_uid == os.geteuid() != 0; server.restart()\n"
            "    print(server.data_directory)"
        )
        run = subprocess.run(
            [SYSTEM_PYTHON, "-c", script],
            user="nobody",
            group="nogroup",
            extra_groups=[],
            cwd="/",
            env={"PYTHONPATH": name, "PATH": os.defpath},
            capture_output=True,
            text=True,
        )
    assert run.returncode == 0, run.stderr
    assert not Path(run.stdout.strip()).exists()


def reachable_by_nobody(folder: Path) -> bool:
    return subprocess.run(["test", "-x", folder / "initdb"], user="nobody").returncode == 0
