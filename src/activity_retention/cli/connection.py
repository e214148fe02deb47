"""A session for the commands that only look."""

from collections.abc import Iterator
from contextlib import contextmanager

from activity_retention.config import require_database
from activity_retention.session import Connection, open_session
from activity_retention.settings import Settings


@contextmanager
def looking(settings: Settings, command: str) -> Iterator[Connection]:
    """A read-only session; raises Refused or Unreachable at once, since a person waits."""
    require_database(settings)
    with open_session(
        settings.conninfo(),
        application_name=f"activity-retention {command}",
        statement_timeout=settings.job.batch_timeout,
        lock_timeout=settings.job.lock_timeout,
        read_only=True,
    ) as session:
        yield session.connection


def where(connection: Connection) -> dict[str, str]:
    """The host, database and role that this connection has reached."""
    info = connection.info
    host = info.host if info.host.startswith("/") else f"{info.host}:{info.port}"
    return {"host": host, "database": info.dbname, "role": info.user}
