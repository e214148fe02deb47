"""A commit whose answer never arrives (case D6)."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event as Flag

from activity_retention.events import BatchCommitted, Event
from tests.database import Database


def test_a_batch_whose_commit_was_not_answered_is_not_counted_twice(database: Database) -> None:
    """case D6: nobody can know whether it was committed; it is not counted."""
    for _ in range(8):
        database.session(views=1, events=1)
    lose = Flag()

    def watch(event: Event) -> None:
        if isinstance(event, BatchCommitted) and event.index == 2:
            lose.set()

    with line_to(database, lose) as url:
        result = database.run(watch=watch, batch_size="2", database_url=url)

    assert not lose.is_set()
    assert (result.outcome, result.failure, database.counts()) == ("completed", None, (0, 0, 0))
    assert (result.batches_processed, result.rows) == (3, 18)
    assert result.retries >= 1


@contextmanager
def line_to(database: Database, lose: Flag) -> Iterator[str]:
    """A way to the database that swallows the next answer to a COMMIT, and breaks, once `lose` is set."""
    with ThreadPoolExecutor(32) as pool, socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = door.accept()
                    server = socket.create_connection((database.server.host, database.server.port))
                    pool.submit(pump, client, server, Flag())
                    pool.submit(pump, server, client, lose)

        pool.submit(serve)
        try:
            yield f"postgresql://postgres@127.0.0.1:{door.getsockname()[1]}/{database.name}"
        finally:
            # Closing alone would not wake accept().
            door.shutdown(socket.SHUT_RDWR)


def pump(source: socket.socket, target: socket.socket, lose: Flag) -> None:
    with source:
        with suppress(OSError):
            while data := source.recv(65536):
                if lose.is_set() and b"COMMIT\0" in data:
                    lose.clear()
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
