"""The alert rules in a real Prometheus that scrapes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.eventually import eventually
from tests.prometheus import Prometheus, needs_prometheus, prometheus

RULES = Path(__file__).parents[2] / "ops/prometheus/activity-retention.rules.yml"
DAY = 86_400.0


class Exposition:
    """Series that a test changes while they are scraped."""

    def __init__(self, **series: float) -> None:
        self.series = series
        self.address = ""

    def text(self) -> bytes:
        return "".join(
            f'activity_retention_{name}{{policy="user-activity"}} {value}\n' for name, value in self.series.items()
        ).encode()


@contextmanager
def served(exposition: Exposition) -> Iterator[Exposition]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(exposition.text())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        exposition.address = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield exposition
        finally:
            server.shutdown()
            thread.join()


def active(server: Prometheus) -> set[tuple[str, str]]:
    return {(alert["labels"]["alertname"], alert["labels"].get("policy", "")) for alert in server.alerts()}


@needs_prometheus
def test_a_real_prometheus_evaluates_every_rule_and_alerts_follow_what_it_scrapes(tmp_path: Path) -> None:
    """R-OBS-4: the rules load, none of them fails, and an alert begins and ends with its reason."""
    overdue = ("ActivityRetentionOverdue", "user-activity")
    on_hold = ("ActivityRetentionOnHold", "user-activity")
    exposition = Exposition(last_success_timestamp_seconds=time.time() - 1.5 * DAY, held=1)

    with (
        served(exposition),
        prometheus(tmp_path, {"activity-retention": [exposition.address]}, rules=RULES) as server,
    ):
        eventually(server.targets_up)
        eventually(lambda: active(server) == {overdue, on_hold})

        exposition.series["last_success_timestamp_seconds"] = time.time()

        eventually(lambda: active(server) == {on_hold})
        eventually(lambda: {rule["health"] for rule in server.rules()} == {"ok"})


@needs_prometheus
def test_where_nothing_is_scraped_a_real_prometheus_says_so(tmp_path: Path) -> None:
    """R-OBS-4: no label of a policy, and the sentences still read."""
    with prometheus(tmp_path, {}, rules=RULES) as server:
        (alert,) = eventually(server.alerts)

    assert alert["labels"] == {"alertname": "ActivityRetentionOverdue", "severity": "ticket"}
    assert alert["annotations"]["summary"].startswith("No run of any policy is known to have completed")
    assert "is it scraped?" in alert["annotations"]["description"]
