"""One server a session, one database a test."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from activity_retention.sandbox.schema import create_schema
from activity_retention.sandbox.server import PrivateServer, private_server
from tests.database import Database

TEMPLATE = "user_activity_template"


def pytest_configure() -> None:
    # A shell without job control starts what it puts in the background with SIGINT ignored, and every program
    # that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pg-bin", type=Path, help="folder of the initdb and postgres to test against")


@pytest.fixture(scope="session")
def binaries(request: pytest.FixtureRequest) -> Path | None:
    folder: Path | None = request.config.getoption("--pg-bin")
    return folder


@pytest.fixture(scope="session")
def server(binaries: Path | None) -> Iterator[PrivateServer]:
    """The server that tests share; whoever restarts or reconfigures one takes a private_server of its own."""
    with private_server(binaries) as server:
        make_template(server)
        yield server


def make_template(server: PrivateServer) -> None:
    """A database with the reference schema, to clone."""
    execute(server, f"CREATE DATABASE {TEMPLATE}")
    with psycopg.connect(server.url(TEMPLATE), autocommit=True) as template:
        create_schema(template)


def execute(server: PrivateServer, query: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(query.encode())


@pytest.fixture
def database(server: PrivateServer) -> Iterator[Database]:
    """A database with the reference schema and no rows."""
    with cloned(server) as database:
        yield database


@contextmanager
def cloned(server: PrivateServer) -> Iterator[Database]:
    """A database cloned from the template for the length of a `with` block."""
    name = f"test_{uuid4().hex}"
    # Copying files costs no WAL; before PostgreSQL 15 there was no other way.
    strategy = " STRATEGY file_copy" if server.version >= 15 else ""
    execute(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}{strategy}")
    database = Database(server, name)
    try:
        yield database
    finally:
        database.close()
        execute(server, f"DROP DATABASE {name} WITH (FORCE)")
