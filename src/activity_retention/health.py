"""What a probe and a Prometheus ask over HTTP: /livez, /readyz and /metrics."""

import socket
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Troubles = Callable[[], Sequence[str]]


class HealthServer(ThreadingMixIn, TCPServer):
    """Answers from threads of its own, on `address` and `port`; raises OSError where it cannot listen."""

    daemon_threads = True
    # Without it a daemon that restarts would find its own port taken for a minute.
    allow_reuse_address = True

    def __init__(
        self, address: str, port: int, *, live: Troubles, ready: Troubles, registry: CollectorRegistry
    ) -> None:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self.checks = {"/livez": live, "/readyz": ready}
        self.registry = registry
        super().__init__(place[:2], _Handler)  # type: ignore[arg-type]
        Thread(target=self.serve_forever, name="health", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"http://{host!s}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Mostly a client that has gone; for the others a closed connection is answer enough.
        return


class _Handler(BaseHTTPRequestHandler):
    server: HealthServer
    timeout = 10  # seconds for a client to say what it wants

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(self.server.registry), content_type)
        elif path in self.server.checks:
            troubles = self.server.checks[path]()
            body = "".join(f"{line}\n" for line in troubles or ["ok"])
            self._answer(503 if troubles else 200, body.encode(), "text/plain; charset=utf-8")
        else:
            self._answer(404, b"/livez, /readyz or /metrics\n", "text/plain; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "activity-retention"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return
