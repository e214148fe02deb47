"""A running `activity-retention serve`, read as its operator would: log lines and HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.eventually import eventually

PROGRAM = Path(sys.executable).with_name("activity-retention")


@dataclass
class Daemon:
    process: "subprocess.Popen[str]"
    lines: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.other.append(line)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this event so far."""
        return [line for line in self.lines if line["event"] == event]

    def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        """The log line that makes it so many of this event."""
        eventually(lambda: len(self.logged(event)) >= count or self.process.poll() is not None)
        found = self.logged(event)
        assert len(found) >= count, f"{event} was not logged: {self.lines} {self.other}"
        return found[count - 1]

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of what it answers."""
        url = self.wait_for("listening")["url"]
        try:
            with urlopen(url + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name whose labels include these."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[1])
            for sample in family.samples
            if sample.name == f"activity_retention_{name}" and labels.items() <= sample.labels.items()
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits for the end."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Waits for the end; the exit code."""
        code = self.process.wait(timeout=60)
        self._reading.join(timeout=10)
        return code


@contextmanager
def serving(database_url: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """`serve` with a free port and these arguments, killed when the block ends, if not before."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ACTIVITY_RETENTION_", "PG"))}
    process = subprocess.Popen(
        [PROGRAM, "serve", "--metrics-port", "0", *arguments],
        env={**kept, "ACTIVITY_RETENTION_DATABASE_URL": database_url, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        daemon = Daemon(process)
        try:
            yield daemon
        finally:
            process.kill()
            daemon.end()
