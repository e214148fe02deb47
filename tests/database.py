"""A test's database: connections to it, rows in it, and runs over it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import TupleRow

from activity_retention.config import load_settings
from activity_retention.events import Watch
from activity_retention.job import ActivityRetentionJob
from activity_retention.lock import LOCK_NAME, lock_key
from activity_retention.result import RunResult
from activity_retention.sandbox.server import PrivateServer
from activity_retention.settings import Settings

TABLES = ("sessions", "property_object_views", "action_events")


@dataclass
class Database:
    """A database of the reference schema that belongs to one test."""

    server: PrivateServer
    name: str
    _connections: list[psycopg.Connection[TupleRow]] = field(default_factory=list)

    def url(self, user: str = "postgres") -> str:
        return self.server.url(self.name, user)

    def connect(self, *, autocommit: bool = True, user: str = "postgres") -> psycopg.Connection[TupleRow]:
        """A new connection, closed with the test."""
        connection = psycopg.connect(self.url(user), autocommit=autocommit)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def execute(self, query: str, parameters: Sequence[Any] = ()) -> list[TupleRow]:
        """Runs one query on a connection of its own and returns its rows, if any."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        return self.execute(query, parameters)[0][0]

    def count(self, table: str) -> int:
        return int(self.value(f"SELECT count(*) FROM user_activity.{table}"))

    def counts(self) -> tuple[int, int, int]:
        """Sessions, views and events."""
        sessions, views, events = (self.count(table) for table in TABLES)
        return sessions, views, events

    def session(
        self, *, ended: str | None = "400 days", status: str = "Inactive", views: int = 0, events: int = 0
    ) -> UUID:
        """Adds a session that ended so long ago (an interval), with children that refer to each other in a ring."""
        session, view_ids, event_ids = uuid4(), [uuid4() for _ in range(views)], [uuid4() for _ in range(events)]
        with psycopg.connect(self.url()) as connection:
            connection.execute(
                """
                INSERT INTO user_activity.sessions (id, anonymous_id, status, created_at, ended_at)
                VALUES (%s, %s, %s, now() - interval '800 days', now() - %s::interval)
                """,
                [session, uuid4(), status, ended],
            )
            for view in view_ids:
                connection.execute(
                    """
                    INSERT INTO user_activity.property_object_views (id, session_id, property_object_id, started_at)
                    VALUES (%s, %s, %s, now())
                    """,
                    [view, session, uuid4()],
                )
            for number, event in enumerate(event_ids):
                connection.execute(
                    """
                    INSERT INTO user_activity.action_events
                           (id, session_id, kind, occurred_at, property_object_view_id)
                    VALUES (%s, %s, 'click', now(), %s)
                    """,
                    [event, session, view_ids[number % views] if views else None],
                )
            for number, view in enumerate(view_ids if events else []):
                connection.execute(
                    "UPDATE user_activity.property_object_views SET apply_filter_event_id = %s WHERE id = %s",
                    [event_ids[number % events], view],
                )
        return session

    def expired(self, count: int) -> None:
        """Adds `count` childless sessions that ended 400 days ago and more, a second apart, oldest first."""
        self.execute(
            """
            INSERT INTO user_activity.sessions (id, anonymous_id, status, created_at, ended_at)
            SELECT gen_random_uuid(), gen_random_uuid(), 'Inactive', now() - interval '800 days',
                   now() - interval '400 days' - (%s - n) * interval '1 second'
              FROM generate_series(1, %s) AS n
            """,
            [count, count],
        )

    def settings(self, **overrides: object) -> Settings:
        """Settings as the command line would give them: `batch_size="10"`."""
        return load_settings({"database_url": self.url(), **overrides}, environ={}).settings

    def run(
        self,
        *,
        wait: Callable[[float], bool] | None = None,
        watch: Watch | None = None,
        **overrides: object,
    ) -> RunResult:
        """One run of the job over this database."""
        job = ActivityRetentionJob(self.settings(**overrides), watch=watch or (lambda _: None))
        return job.run(wait=wait or Flag().wait)

    def before(self, operation: str, table: str, body: str) -> None:
        """Runs the PL/pgSQL statements `body` before each row of `table` that `operation` touches."""
        name = f"before_{operation.lower()}_of_{table}"
        row = "OLD" if operation == "DELETE" else "NEW"
        self.execute(
            f"CREATE FUNCTION public.{name}() RETURNS trigger LANGUAGE plpgsql AS $$ "
            f"BEGIN {body}; RETURN {row}; END $$"
        )
        self.execute(
            f"CREATE TRIGGER {name} BEFORE {operation} ON user_activity.{table} "
            f"FOR EACH ROW EXECUTE FUNCTION public.{name}()"
        )

    @contextmanager
    def gate(self, table: str, row: UUID | None = None) -> Iterator["Gate"]:
        """Deletions from `table`, or of one `row` of it, wait until this opens or the `with` block ends."""
        gate = Gate(self, self.connect())
        condition = "" if row is None else f"IF OLD.id = '{row}' THEN "
        self.before(
            "DELETE", table, f"{condition}PERFORM pg_advisory_xact_lock_shared(1){condition and '; END IF'}"
        )
        try:
            yield gate
        finally:
            gate.open()

    def oldest(self, offset: int = 0) -> UUID:
        """The id of a session, counted from the one that ended first."""
        query = "SELECT id FROM user_activity.sessions ORDER BY ended_at OFFSET %s LIMIT 1"
        return UUID(str(self.value(query, [offset])))

    def job_pids(self) -> list[int]:
        """The server processes that serve a run over this database."""
        rows = self.execute(
            """
            SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE 'activity-retention %%'
            """
        )
        return [pid for (pid,) in rows]

    def is_sleeping(self) -> bool:
        """Whether a statement over this database is in pg_sleep."""
        return bool(
            self.value(
                """
                SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event = 'PgSleep'
                """
            )
        )

    def lock_is_free(self) -> bool:
        """Whether the next run would get the job's lock."""
        return bool(self.value("SELECT pg_try_advisory_xact_lock(%s)", [lock_key(LOCK_NAME)]))


@dataclass
class Gate:
    """Closed from the start; whoever waits at it has locked its batch."""

    _database: Database
    _guard: psycopg.Connection[TupleRow]

    def __post_init__(self) -> None:
        self._guard.execute("SELECT pg_advisory_lock(1)")

    def waiting(self) -> int:
        return int(
            self._database.value(
                """
                SELECT count(*) FROM pg_locks
                 WHERE locktype = 'advisory' AND NOT granted
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                """
            )
        )

    def open(self) -> None:
        self._guard.close()
