"""A PostgreSQL server of one's own, for as long as a `with` block or its process lasts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from activity_retention.sandbox.binaries import find_binaries

ShutdownMode = Literal["smart", "fast", "immediate"]


class ServerFailed(Exception):
    """The private server could not be started or stopped; the message ends with the tail of its log."""


@dataclass(frozen=True)
class PrivateServer:
    """A running server that only this process uses: every role may connect without a password."""

    host: str
    port: int
    socket_directory: Path
    data_directory: Path
    log_file: Path
    binaries: Path
    version: int
    _warden: "subprocess.Popen[str]" = field(repr=False, compare=False)

    @property
    def pid(self) -> int:
        """The postmaster's process id; it changes with every start. Raises FileNotFoundError when stopped."""
        return int((self.data_directory / "postmaster.pid").read_text().split(maxsplit=1)[0])

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """A libpq URL over loopback TCP."""
        return f"postgresql://{quote(user, safe='')}@{self.host}:{self.port}/{quote(database, safe='')}"

    def stop(self, mode: ShutdownMode = "fast") -> None:
        """Shuts the server down and waits for it; nothing happens when it is stopped already.

        Clients that stay connected hold up "smart". Raises ServerFailed after 60 s.
        """
        _ask(self._warden, f"stop {mode}")

    def start(self) -> None:
        """Starts a stopped server on the same port and data, and waits until it takes connections.

        Raises ServerFailed.
        """
        _ask(self._warden, "start")

    def restart(self, mode: ShutdownMode = "fast") -> None:
        """Stops and starts the server. Raises ServerFailed."""
        self.stop(mode)
        self.start()


@contextmanager
def private_server(binaries: Path | None = None, settings: Mapping[str, str] = {}) -> Iterator[PrivateServer]:
    """A fresh server, gone with its files when the block ends or this process dies, however it dies.

    `settings` are lines of postgresql.conf. Raises NoPostgres and ServerFailed.
    """
    folder = find_binaries(binaries)
    program = Path(__file__).with_name("warden.py")
    warden = subprocess.Popen(
        [sys.executable, "-I", str(program), str(os.getpid()), str(folder), json.dumps(dict(settings))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        # Ctrl-C reaches the whole foreground group of a terminal, and the warden must outlive us.
        start_new_session=True,
    )
    assert warden.stdin is not None
    assert warden.stdout is not None
    try:
        facts = _reply(warden)
        yield PrivateServer(
            host=facts["host"],
            port=facts["port"],
            socket_directory=Path(facts["socket_directory"]),
            data_directory=Path(facts["data_directory"]),
            log_file=Path(facts["log_file"]),
            binaries=Path(facts["binaries"]),
            version=facts["version"],
            _warden=warden,
        )
    finally:
        warden.stdin.close()
        warden.wait()
        warden.stdout.close()


def _ask(warden: "subprocess.Popen[str]", command: str) -> None:
    assert warden.stdin is not None
    try:
        warden.stdin.write(f"{command}\n")
        warden.stdin.flush()
    except BrokenPipeError:
        raise ServerFailed("The process that keeps the private PostgreSQL is gone.") from None
    _reply(warden)


def _reply(warden: "subprocess.Popen[str]") -> dict[str, Any]:
    assert warden.stdout is not None
    line = warden.stdout.readline()
    try:
        reply: dict[str, Any] = json.loads(line)
    except ValueError:
        said = (line + warden.stdout.read()).strip()
        raise ServerFailed(f"The process that keeps the private PostgreSQL ended. {said}".strip()) from None
    if "error" in reply:
        raise ServerFailed(reply["error"])
    return reply
