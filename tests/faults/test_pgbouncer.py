"""A pooler between the job and the server (cases C13, C14)."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from activity_retention.lock import LOCK_NAME, lock_key
from tests.database import Database
from tests.eventually import eventually

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
KEY = lock_key(LOCK_NAME)

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="there is no pgbouncer: apt-get install pgbouncer")

Pool = Callable[..., str]


@pytest.fixture
def pool(database: Database) -> Iterator[Pool]:
    """Starts a pooler before the test's database, and answers its URL: `pool(pool_mode="session")`."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(pgbouncer(database, settings))


@contextmanager
def pgbouncer(database: Database, settings: dict[str, str]) -> Iterator[str]:
    server = database.server
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_file": "users.txt",
        **settings,
    }
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={server.host} port={server.port}\n[pgbouncer]\n"
            + "".join(f"{key} = {value}\n" for key, value in lines.items())
        )
        folder.chmod(0o755)
        account = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(PGBOUNCER), "pgbouncer.ini"], cwd=folder, stdout=log, stderr=log, user=account
            )
        with process:
            try:
                eventually(lambda: listens(port) or process.poll() is not None)
                assert process.poll() is None, (folder / "log").read_text()
                yield f"postgresql://postgres@127.0.0.1:{port}/{database.name}"
            finally:
                process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("pool_mode", "pool_size"),
    [("transaction", "1"), ("transaction", "2"), ("transaction", "20"), ("statement", "20")],
)
def test_a_pool_of_transactions_is_refused_and_keeps_no_lock(
    database: Database, pool: Pool, pool_mode: str, pool_size: str
) -> None:
    """case C13: twice, as in the reproduction."""
    database.session(views=1, events=1)
    url = pool(pool_mode=pool_mode, default_pool_size=pool_size)

    for _ in range(2):
        result = database.run(database_url=url, batch_retries="0")

        assert (result.outcome, database.counts()) == ("refused", (1, 1, 1))
        assert result.failure is not None
        assert "pool_mode = session" in result.failure.message
        assert database.lock_is_free()
    assert database.run().outcome == "completed"


@pytest.mark.parametrize("pool_size", ["1", "2", "20"])
def test_a_pool_of_sessions_works(database: Database, pool: Pool, pool_size: str) -> None:
    """case C13"""
    for _ in range(4):
        database.session(views=1, events=1)
    url = pool(pool_mode="session", default_pool_size=pool_size, query_wait_timeout="3")

    result = database.run(database_url=url, batch_size="2", batch_retries="0")

    assert (result.outcome, result.batches_processed, result.rows) == ("completed", 2, 12)
    assert database.lock_is_free()


def test_a_lock_that_the_pool_hands_on_is_refused_with_how_to_free_it(database: Database, pool: Pool) -> None:
    """case C14: an earlier client died, and the pool does not clean its sessions."""
    database.session()
    url = pool(pool_mode="session", server_reset_query="")
    with psycopg.connect(url, autocommit=True) as dead:
        dead.execute("SELECT pg_advisory_lock(%s)", [KEY])
        (pid,) = dead.execute("SELECT pg_backend_pid()").fetchone() or (0,)

    result = database.run(database_url=url)

    assert (result.outcome, database.count("sessions")) == ("refused", 1)
    assert result.failure is not None
    assert f"pg_terminate_backend({pid})" in result.failure.message


def test_a_lock_that_a_pooled_session_keeps_is_reported_by_its_pid(database: Database, pool: Pool) -> None:
    """case C14: seen by a run that comes another way; never a success."""
    database.session()
    url = pool(pool_mode="session", server_reset_query="")
    with psycopg.connect(url, autocommit=True, application_name="a dead run") as dead:
        dead.execute("SELECT pg_advisory_lock(%s)", [KEY])
        (pid,) = dead.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    reasons: list[str] = []

    result = database.run(watch=lambda event: reasons.append(str(getattr(event, "reason", ""))))

    assert (result.outcome, database.count("sessions")) == ("skipped", 1)
    assert f"pid {pid}" in reasons[-1]
    assert str(KEY) in reasons[-1]
