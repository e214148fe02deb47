"""Servers that answer badly, or not at all."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of an HTTP server on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(raw: bytes) -> Iterator[str]:
    """The URL of a server that answers whatever it is asked with these bytes and hangs up."""

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.wfile.write(raw)

    with listening(Handler) as url:
        yield url


class Hanging:
    """A server that accepts connections and never says a word."""

    def __init__(self, door: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{door.getsockname()[1]}"
        self.held: list[socket.socket] = []


@contextmanager
def hanging() -> Iterator[Hanging]:
    """Whoever asks this one is held until the end of the block."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        door = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        server = Hanging(door)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = door.accept()
                    server.held.append(stack.enter_context(closing(client)))

        pool.submit(accept)
        try:
            yield server
        finally:
            # Closing alone would not wake accept().
            door.shutdown(socket.SHUT_RDWR)


def nobody() -> str:
    """The URL of a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        return f"http://127.0.0.1:{door.getsockname()[1]}"
