"""A real Prometheus that a test starts, asks and stops."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.eventually import eventually

RULES_FILE = Path(__file__).parents[1] / "ops/prometheus/activity-retention.rules.yml"

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")

Labels = dict[str, str]


@dataclass(frozen=True)
class Prometheus:
    """The server at `url`."""

    url: str

    def query(self, expression: str, *, at: float | None = None) -> list[tuple[Labels, float]]:
        """The labels and the value of each series that the expression has now, or at the Unix time `at`."""
        asked = {"query": expression} if at is None else {"query": expression, "time": str(at)}
        answer = self._get("/api/v1/query", **asked)
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in answer["result"]]

    def query_range(
        self, expression: str, *, start: float, end: float, step: float
    ) -> list[tuple[Labels, list[tuple[float, float]]]]:
        """The labels of each series, and its values with their Unix times."""
        answer = self._get("/api/v1/query_range", query=expression, start=str(start), end=str(end), step=str(step))
        return [
            (series["metric"], [(float(time), float(value)) for time, value in series["values"]])
            for series in answer["result"]
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing, with `labels`, `annotations` and `state`."""
        alerts: list[dict[str, Any]] = self._get("/api/v1/alerts")["alerts"]
        return alerts

    def rules(self) -> list[dict[str, Any]]:
        """The rules of all groups, with `name`, `health` and `lastError`."""
        return [rule for group in self._get("/api/v1/rules")["groups"] for rule in group["rules"]]

    def targets_up(self) -> bool:
        """Whether the last scrape of every target worked."""
        targets = self._get("/api/v1/targets")["activeTargets"]
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def ready(self) -> bool:
        try:
            self._read("/-/ready")
        except URLError:
            return False
        return True

    def _get(self, path: str, **parameters: str) -> Any:
        try:
            return json.loads(self._read(f"{path}?{urlencode(parameters)}"))["data"]
        except HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def _read(self, path: str) -> bytes:
        # A proxy of the environment is not for loopback.
        with build_opener(ProxyHandler({})).open(self.url + path, timeout=30) as answer:
            body: bytes = answer.read()
            return body


@contextmanager
def prometheus(
    folder: Path,
    targets: Mapping[str, Sequence[str]],
    *,
    rules: Path | None = None,
    scrape_interval: str = "1s",
    evaluation_interval: str = "1s",
) -> Iterator[Prometheus]:
    """A server that scrapes `targets`, addresses (`127.0.0.1:9464`) by job, and keeps everything in `folder`.

    Labels that a target brings along are honoured, so it may be a Pushgateway.
    """
    config, log = folder / "prometheus.json", folder / "prometheus.log"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": scrape_interval, "evaluation_interval": evaluation_interval},
                "rule_files": [str(rules.resolve())] if rules else [],
                "scrape_configs": [
                    {"job_name": job, "honor_labels": True, "static_configs": [{"targets": list(addresses)}]}
                    for job, addresses in targets.items()
                ],
            }
        ),
        encoding="utf-8",
    )
    command = (
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        # The server picks a free port and logs it.
        "--web.listen-address=127.0.0.1:0",
    )
    with log.open("wb") as stderr, subprocess.Popen(command, stdout=stderr, stderr=stderr) as process:

        def said() -> str:
            return log.read_text(encoding="utf-8")

        def address() -> str | None:
            assert process.poll() is None, said()
            found = re.search(r'msg="Listening on" address=(\S+)', said())
            return found[1] if found else None

        try:
            server = Prometheus(f"http://{eventually(address)}")
            eventually(server.ready)
            yield server
        finally:
            process.kill()
