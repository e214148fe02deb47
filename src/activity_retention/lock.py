"""The advisory lock that lets one run at a time work (R-RUN-2), and who holds it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

import psycopg

from activity_retention.errors import Refused, RetentionError
from activity_retention.policy import USER_ACTIVITY
from activity_retention.session import Connection, Session

LOCK_NAME = "job:scheduled:activity-retention"


@dataclass(frozen=True)
class Holder:
    """Who holds the lock, as far as this role may see; `since` is when it connected, not when it took the lock."""

    pid: int
    application: str | None
    user: str | None
    client: str | None
    since: str | None
    state: str | None
    query: str | None
    hidden: bool

    def __str__(self) -> str:
        if self.hidden:
            return f"pid {self.pid} (this role may not see more: GRANT pg_read_all_stats)"
        return f"pid {self.pid}, {self.application or 'no application name'}, connected since {self.since}"


class Busy(RetentionError):
    """Another session holds the lock."""

    def __init__(self, name: str, key: int, holder: Holder | None) -> None:
        who = str(holder) if holder else "a session that has just let it go"
        super().__init__(f"the lock {name} (key {key}) is held by {who}")
        self.holder = holder


def lock_name(policy: str) -> str:
    """The lock's name: the specification's for the packaged policy, with `:<policy>` for any other."""
    return LOCK_NAME if policy == USER_ACTIVITY.name else f"{LOCK_NAME}:{policy}"


def lock_key(name: str) -> int:
    """The name as PostgreSQL's bigint: the first 8 bytes of its SHA-256, big-endian, signed."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)


@contextmanager
def advisory_lock(session: Session, name: str) -> Iterator[int]:
    """Holds the lock on this session, in autocommit: never idle in transaction (case C10). Raises Busy at
    once if another session has it (case C18)."""
    connection, key = session.connection, lock_key(name)
    holder = lock_holder(connection, key)
    if holder and holder.pid == session.backend:
        raise Refused(
            f"This server session already holds the lock {name} (key {key}): a pooler has handed on a session that "
            f"was not clean. Free it with SELECT pg_terminate_backend({holder.pid});"
        )
    row = connection.execute("SELECT pg_catalog.pg_try_advisory_lock(%s)", [key]).fetchone()
    if row != (True,):
        raise Busy(name, key, lock_holder(connection, key))
    try:
        yield key
    finally:
        # Closing the connection frees the lock, too; a pooler may keep the session.
        if not connection.closed:
            try:
                connection.execute("SELECT pg_catalog.pg_advisory_unlock(%s)", [key])
            except psycopg.Error:
                connection.close()


def lock_holder(connection: Connection, key: int) -> Holder | None:
    """The session of this database that holds `key`, if any."""
    row = connection.execute(
        """
        SELECT locks.pid,
               activity.application_name,
               activity.usename,
               pg_catalog.host(activity.client_addr),
               activity.backend_start::text,
               activity.state,
               CASE WHEN activity.backend_start IS NOT NULL THEN activity.query END,
               activity.backend_start IS NULL
          FROM pg_catalog.pg_locks AS locks
          LEFT JOIN pg_catalog.pg_stat_activity AS activity USING (pid)
         WHERE locks.locktype = 'advisory'
           AND locks.granted
           AND locks.mode = 'ExclusiveLock'
           AND locks.objsubid = 1
           AND locks.database = (
                   SELECT oid FROM pg_catalog.pg_database
                    WHERE datname = pg_catalog.current_database())
           AND (locks.classid::bigint << 32) | locks.objid::bigint = %s
        """,
        [key],
    ).fetchone()
    return Holder(*row) if row else None
