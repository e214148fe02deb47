"""How we connect: every server setting that we pin, each with its reason."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from select import select
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import TupleRow

from activity_retention.errors import Refused, Unreachable
from activity_retention.sentence import sentence

Connection = psycopg.Connection[TupleRow]

# Client side of a dead line: keepalives alone hang when the query itself was lost in flight, hence
# tcp_user_timeout (milliseconds) as well.
_TRANSPORT = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

_PINS = {
    "TimeZone": "UTC",  # an interval of days has a fixed length only there
    "DateStyle": "ISO, MDY",  # timestamps travel as text
    "search_path": "pg_catalog, pg_temp",  # no decoy operator or function; pg_temp last, else it comes first
    "row_security": "off",  # rows that a policy hides become an error, not a silent zero
    "default_transaction_isolation": "read committed",  # each batch must see what was committed before it
    "default_transaction_deferrable": "off",
    "plan_cache_mode": "auto",  # force_custom_plan plans each foreign-key trigger call anew: 2.2 times as long
    "enable_sort": "off",  # a table never analysed would be sorted whole for each batch
    "jit": "off",  # no statement of ours runs long enough in one expression
    "idle_in_transaction_session_timeout": "0",  # a pause between batches must not cost the lock
    "idle_session_timeout": "0",  # from 14
    "transaction_timeout": "0",  # from 17: it ends the connection instead of the statement
}

# The server's side of a dead client: a killed pod must not keep the lock. A server or a line that cannot have
# them (Windows, a Unix socket) costs no more than a late discovery.
_LIVENESS = {
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25s",  # keepalives wait for an answer that is still in flight; this does not
}

_POOL_SECONDS = 3.0

# libpq gives no SQLSTATE for a failed connection, only the server's sentence.
_NO_RETRY_MENDS = re.compile(
    r"password authentication failed|no password supplied|authentication failed for user"
    r"|(role|database) \".*\" does not exist|no pg_hba\.conf entry|not permitted to log in"
    r"|permission denied for database|is not currently accepting connections"
    r"|definition of service \".*\" not found|server does not support SSL",
)


@dataclass(frozen=True)
class Session:
    """A connection with its pins set and read back.

    `backend` is the server process that serves it, `started` when the server started: after a lost connection
    it tells an administrator's word from a restart. `warnings` are the liveness pins that could not be had.
    """

    connection: Connection
    backend: int
    started: str
    warnings: tuple[str, ...]


@contextmanager
def open_session(
    conninfo: str,
    *,
    application_name: str,
    statement_timeout: timedelta,
    lock_timeout: timedelta,
    read_only: bool = False,
) -> Iterator[Session]:
    """A pinned session in autocommit; raises Refused or Unreachable."""
    connection = _connect(conninfo, application_name)
    try:
        try:
            _refuse_transaction_pooling(connection, conninfo, application_name)
            warnings = _pin(
                connection,
                {
                    **_PINS,
                    "statement_timeout": milliseconds(statement_timeout),
                    "lock_timeout": milliseconds(lock_timeout),
                    "application_name": application_name,
                    **({"default_transaction_read_only": "on"} if read_only else {}),
                },
            )
            if not read_only:
                _refuse_read_only(connection)
            backend, started = _one(
                connection, "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_postmaster_start_time()::text"
            )
        except psycopg.OperationalError as error:
            raise Unreachable(sentence(error)) from None
        yield Session(connection, backend, started, warnings)
    finally:
        connection.close()


def milliseconds(duration: timedelta | float) -> str:
    """As PostgreSQL takes a time-out; never 0, which would mean none at all."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return f"{max(1, round(seconds * 1000))}ms"


def _connect(conninfo: str, application_name: str) -> Connection:
    # What the user wrote in the URL goes before our defaults.
    parameters: dict[str, Any] = {"application_name": application_name, **_TRANSPORT, **conninfo_to_dict(conninfo)}
    try:
        return psycopg.connect(
            make_conninfo(**parameters), autocommit=True, prepare_threshold=None, client_encoding="UTF8"
        )
    except psycopg.OperationalError as error:
        if _NO_RETRY_MENDS.search(str(error)):
            raise Refused(f"The database refused the connection: {sentence(error)}") from None
        raise Unreachable(f"The database cannot be reached: {sentence(error)}") from None
    except (psycopg.Error, UnicodeError):
        # libpq's sentence on a malformed parameter may quote a secret.
        raise Refused(
            "The connection parameters are not valid: check database_url and libpq's PG* variables"
        ) from None


def _one(connection: Connection, query: str) -> TupleRow:
    row = connection.execute(query.encode()).fetchone()
    if row is None:
        raise psycopg.OperationalError("the server sent no row")
    return row


def _refuse_transaction_pooling(connection: Connection, conninfo: str, application_name: str) -> None:
    """Behind a pooler the start-up's pid is not the backend's, in every mode of PgBouncer.

    In session mode this connection owns its backend. So if another client can get it, or if the backend
    changes under us, transactions are pooled, and two clients would both get the advisory lock (case C13).
    """
    query = "SELECT pg_catalog.pg_backend_pid()"
    ours = _one(connection, query)
    if ours == (connection.info.backend_pid,):
        return
    other = _connect(conninfo, application_name)
    try:
        shared = _backend_in_transaction(other.pgconn) == ours
    finally:
        other.close()
    try:
        for _ in range(3):
            with connection.transaction():
                shared = shared or _one(connection, query) != ours
    except psycopg.errors.ProtocolViolation:
        # A pool of statements allows no transaction at all.
        shared = True
    if shared:
        raise Refused(
            "The connection goes through a pooler in transaction mode, which cannot keep the advisory lock: "
            "connect to PostgreSQL itself, or to a pool with pool_mode = session."
        )


def _backend_in_transaction(other: PGconn) -> tuple[int, ...]:
    """The backend that serves another client, which keeps it in a transaction; empty where it gets none, or not
    in time, since a pool of sessions may be used up by us alone."""
    other.send_query(b"BEGIN; SELECT pg_catalog.pg_backend_pid()")
    while other.flush():
        select([], [other.socket], [], _POOL_SECONDS)
    found: tuple[int, ...] = ()
    while select([other.socket], [], [], _POOL_SECONDS)[0]:
        try:
            other.consume_input()
        except psycopg.OperationalError:
            return ()
        while not other.is_busy():
            if (result := other.get_result()) is None:
                return found
            if result.status == ExecStatus.TUPLES_OK:
                found = (int(result.get_value(0, 0) or 0),)
    return found


def _pin(connection: Connection, pins: dict[str, str]) -> tuple[str, ...]:
    known = {
        name
        for (name,) in connection.execute(
            "SELECT name FROM pg_catalog.pg_settings WHERE name = ANY (%s)", [[*pins, *_LIVENESS]]
        )
    }
    wanted = {name: value for name, value in pins.items() if name in known}
    for name, value in wanted.items():
        _set(connection, name, value)
    warnings = []
    for name, value in _LIVENESS.items():
        try:
            if name not in known:
                raise psycopg.errors.UndefinedObject("the server does not have it")  # noqa: TRY301
            _set(connection, name, value)
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
            warnings.append(f"{name} could not be set, a dead client shows late: {sentence(error)}")
    _read_back(connection, wanted)
    return tuple(warnings)


def _set(connection: Connection, name: str, value: str) -> None:
    connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", [name, value])


def limit(connection: Connection, statement_timeout: str, lock_timeout: str) -> None:
    """Sets both time-outs, as PostgreSQL takes them, for the current transaction."""
    connection.execute(
        """
        SELECT pg_catalog.set_config('statement_timeout', %s, true),
               pg_catalog.set_config('lock_timeout', %s, true)
        """,
        [statement_timeout, lock_timeout],
    )


def _read_back(connection: Connection, wanted: dict[str, str]) -> None:
    found: dict[str, str] = dict(
        connection.execute(
            """
            SELECT name,
                   CASE WHEN unit = 'ms' THEN setting || 'ms' ELSE setting END
              FROM pg_catalog.pg_settings
             WHERE name = ANY (%s)
            """,
            [list(wanted)],
        ).fetchall()
    )
    for name, value in wanted.items():
        if found[name].removesuffix("ms") != value.removesuffix("ms"):
            raise Refused(
                f"The server did not take {name} = {value}, it says {found[name]}: is a proxy in between?"
            )
    # Only looked at: a superuser alone may set it.
    (role,) = _one(connection, "SELECT pg_catalog.current_setting('session_replication_role')")
    if role != "origin":
        raise Refused(
            f"session_replication_role is {role}, so foreign keys would be ignored and rows left dangling: "
            "ALTER ROLE … RESET session_replication_role."
        )


def _refuse_read_only(connection: Connection) -> None:
    recovering, read_only = _one(
        connection,
        "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on'",
    )
    if recovering:
        raise Refused("The server is a standby, which is read-only: connect to the primary.")
    if read_only:
        raise Refused(
            "The server or this role is read-only (default_transaction_read_only = on): nothing can be deleted."
        )
