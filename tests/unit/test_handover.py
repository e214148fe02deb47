"""What goes wrong between a run and those who keep its series is a sentence without a password (case F14)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from activity_retention.config import load_settings
from activity_retention.handover import hand_over
from tests.listeners import answering, hanging, listening, nobody

NAME = "activity_retention_runs_total"
SECRET = "p%40ss"
NO_EXPOSITION = "what is there is not a text exposition, so it was left alone"
CREDENTIALS = f"job:{SECRET}@"


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter(NAME, "Runs", ["policy"], registry=registry).labels("user-activity").inc()
    return registry


def troubles(registry: CollectorRegistry, **places: str) -> list[str]:
    """What went wrong, without the common part of the sentences."""
    said = hand_over(registry, load_settings(places, environ={}).settings)
    assert not [sentence for sentence in said if SECRET in sentence or "p@ss" in sentence]
    return [sentence.replace("the metrics of this run were not delivered: ", "") for sentence in said]


@pytest.mark.parametrize(
    ("server", "trouble"),
    [
        (lambda: answering(b"HTTP/1.0 500 Internal Server Error\r\n\r\n"), "it answered 500 Internal Server Error"),
        (lambda: answering(b"HTTP/1.0 400 Bad Request\r\n\r\nno"), "it answered 400 Bad Request"),
        (
            lambda: answering(b"SSH-2.0-OpenSSH_9.2\r\n"),
            NO_EXPOSITION,
        ),
        (
            lambda: answering(f"HTTP/1.0 200 OK\r\n\r\n<html>{NAME}{{</html>".encode()),
            NO_EXPOSITION,
        ),
        (
            lambda: answering(b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\nhalf"),
            NO_EXPOSITION,
        ),
        (
            lambda: answering(b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe"),
            NO_EXPOSITION,
        ),
        (lambda: answering(b""), "Remote end closed connection without response"),
    ],
)
def test_a_gateway_that_answers_badly_is_named(
    registry: CollectorRegistry, server: Callable[[], AbstractContextManager[str]], trouble: str
) -> None:
    with server() as url:
        place = url.replace("//", f"//{CREDENTIALS}")
        assert troubles(registry, pushgateway_url=place) == [
            f"pushgateway_url = '{url.replace('//', '//(hidden)@')}': {trouble}"
        ]


def test_a_gateway_that_is_down_is_named(registry: CollectorRegistry) -> None:
    url = nobody()
    assert troubles(registry, pushgateway_url=url) == [f"pushgateway_url = '{url}': Connection refused"]


def test_a_gateway_with_a_path_that_refuses_the_push_after_it_was_read(registry: CollectorRegistry) -> None:
    asked: list[tuple[str, str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.command, self.path, self.headers["Authorization"]))
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(200 if self.command == "GET" else 400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with listening(Handler) as url:
        (trouble,) = troubles(registry, pushgateway_url=url.replace("//", f"//{CREDENTIALS}") + "/path/")

    basic = "Basic am9iOnBAc3M="
    assert asked == [
        ("GET", "/path/metrics", basic),
        ("PUT", "/path/metrics/job/activity-retention/policy/user-activity", basic),
    ]
    assert trouble.endswith(": it answered 400 Bad Request")


@pytest.fixture
def textfile(tmp_path: Path) -> Path:
    return tmp_path / "retention.prom"


def test_a_textfile_in_a_folder_that_is_not_there_is_named(registry: CollectorRegistry, textfile: Path) -> None:
    lost = textfile.parent / "missing" / textfile.name
    assert troubles(registry, textfile=str(lost)) == [f"textfile = '{lost}': No such file or directory"]


def test_a_textfile_that_is_a_folder_is_named(registry: CollectorRegistry, textfile: Path) -> None:
    textfile.mkdir()
    assert troubles(registry, textfile=str(textfile)) == [f"textfile = '{textfile}': Is a directory"]


@pytest.mark.parametrize("garbage", [f"{NAME}{{policy=".encode(), NAME.encode() + b" many", b"\xff\xfe"])
def test_a_textfile_with_garbage_in_it_is_left_alone(
    registry: CollectorRegistry, textfile: Path, garbage: bytes
) -> None:
    textfile.write_bytes(garbage)
    assert troubles(registry, textfile=str(textfile)) == [f"textfile = '{textfile}': {NO_EXPOSITION}"]
    assert textfile.read_bytes() == garbage


def test_trouble_in_one_place_keeps_nothing_from_the_other(registry: CollectorRegistry, textfile: Path) -> None:
    """Both share the two seconds."""
    with hanging() as gateway:
        said = troubles(registry, textfile=str(textfile), pushgateway_url=gateway.url)
    assert said == [f"pushgateway_url = '{gateway.url}': no answer within 1 s"]
    assert f'{NAME}{{policy="user-activity"}} 1.0' in textfile.read_text()


def test_nobody_to_hand_over_to_is_no_trouble(registry: CollectorRegistry) -> None:
    assert troubles(registry) == []
